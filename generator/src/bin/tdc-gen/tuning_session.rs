//! A local GPU that measures candidates into a journal.

use crate::failure::Failure;
use crate::interrupt;
use crate::output::note;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tdc_generator::compile::nvrtc::{self, Nvrtc};
use tdc_generator::compile::toolkit::Toolkit;
use tdc_generator::compile::{ByArch, Compiler};
use tdc_generator::gpu::Gpu;
use tdc_generator::measure::tune::{
    Event, Journal, LocalGpu, Options, Outcome, Problems, Selection, Shard, Summary, journal_path,
    tune,
};
use tdc_generator::scheme::Scheme;
use tdc_generator::wording::counted;

/// An open GPU, a compiler for it, and its journal.
pub struct TuningSession {
    /// Path of the table; the journal's is derived from it.
    pub out: PathBuf,
    /// The GPU.
    pub gpu: &'static Gpu,
    /// All results, those of earlier runs included.
    pub journal: Journal,
    device: LocalGpu,
    compiler: ByArch<Nvrtc>,
}

/// What is measured.
pub struct Request {
    /// The schemes; empty means the default ones.
    pub schemes: Vec<&'static dyn Scheme>,
    /// The tiles.
    pub selection: Selection,
    /// The shard of the problems.
    pub shard: Shard,
    /// Threads that compile; by default all cores but one, which is left to the thread that measures: it must not be descheduled during a
    /// measurement.
    pub threads: Option<NonZeroUsize>,
    /// Ends the run when it is used up.
    pub budget: Option<Duration>,
}

impl TuningSession {
    /// Opens the GPU with a CUDA ordinal. The table's path is by default `tuning-<gpu>.txt`.
    pub fn open(ordinal: u32, out: Option<PathBuf>) -> Result<Self, Failure> {
        let device = LocalGpu::open(ordinal).map_err(Failure::machine)?;
        let gpu = device.gpu().ok_or_else(|| {
            Failure::Machine(format!(
                "{} is not in the GPU table, so nothing can be planned for it; add it to generator/src/gpu/table.rs",
                device.name()
            ))
        })?;
        let arch = device.arch();
        let compiler = Toolkit::find()
            .compiler(nvrtc::Options::default())
            .map_err(Failure::machine)?;
        let version = compiler.version_for(arch).ok_or_else(|| {
            Failure::Machine(format!(
                "no compiler for {} ({arch}): {compiler}",
                device.name()
            ))
        })?;
        let environment = device.environment(gpu, version);
        let out = out.unwrap_or_else(|| PathBuf::from(format!("tuning-{}.txt", gpu.name)));
        let journal = Journal::open(&journal_path(&out), &environment).map_err(Failure::input)?;
        Ok(Self {
            out,
            gpu,
            journal,
            device,
            compiler,
        })
    }

    /// The driver's name of the GPU.
    pub fn device_name(&self) -> String {
        self.device.name()
    }

    /// Measures the candidates that are not in the journal.
    pub fn run(&mut self, problems: &Problems, request: &Request) -> Result<Summary, Failure> {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let rest = NonZeroUsize::new(cores - 1).unwrap_or(NonZeroUsize::MIN);
        let options = Options {
            gpu: self.gpu,
            arch: self.device.arch(),
            threads: request.threads.unwrap_or(rest),
            schemes: request.schemes.clone(),
            selection: request.selection,
            shard: request.shard,
        };
        let started = Instant::now();
        interrupt::install_handlers();
        let mut stop = || {
            let budget = request.budget;
            interrupt::is_requested() || budget.is_some_and(|budget| started.elapsed() >= budget)
        };
        let mut printer = ProgressPrinter::default();
        tune(
            problems,
            &options,
            &mut self.journal,
            &self.compiler,
            &mut self.device,
            &mut stop,
            &mut |event| printer.report(event),
        )
        .map_err(Failure::input)
    }
}

/// Prints progress, at most one line a second; errors are always printed.
#[derive(Default)]
struct ProgressPrinter {
    last: Option<Instant>,
}

impl ProgressPrinter {
    const INTERVAL: Duration = Duration::from_secs(1);

    fn report(&mut self, event: &Event<'_>) {
        match event {
            Event::Planned {
                problems,
                candidates,
                known,
                stale,
            } => {
                note(format_args!(
                    "{}, {} to measure, {known} already in the journal",
                    counted(*problems, "problem"),
                    counted(*candidates, "candidate")
                ));
                if *stale > 0 {
                    note(format_args!(
                        "journal: {} ignored, because their kernels have changed since",
                        counted(*stale, "stale row")
                    ));
                }
            }
            Event::Done {
                progress,
                row,
                best_us,
            } => {
                let (result, is_failure) = match &row.outcome {
                    Outcome::Timed(_, us) => (format!("{us:.3} us"), false),
                    Outcome::QuickOnly(us) => (format!("{us:.3} us (quick)"), false),
                    Outcome::Wrong(why) => (format!("wrong result: {why}"), true),
                    Outcome::CompileFailed(why) => (format!("compile error: {why}"), true),
                    Outcome::LaunchFailed(why) | Outcome::DeviceLost(why) => {
                        (format!("launch error: {why}"), true)
                    }
                };
                if !is_failure
                    && self
                        .last
                        .is_some_and(|last| last.elapsed() < Self::INTERVAL)
                {
                    return;
                }
                self.last = Some(Instant::now());
                let best = best_us.map_or(String::new(), |us| format!(", best {us:.3} us"));
                note(format_args!(
                    "{progress} {} {} {}: {result}{best}",
                    row.problem, row.scheme, row.tile
                ));
            }
        }
    }
}
