//! `tdc-gen tune`.

use crate::args::TuneArgs;
use crate::config::load;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{note, print};
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tdc_generator::compile::Compiler;
use tdc_generator::compile::nvrtc;
use tdc_generator::compile::toolkit::Toolkit;
use tdc_generator::emit::write_atomic;
use tdc_generator::gpu::Gpu;
use tdc_generator::measure::tune::{
    Event, Journal, LocalGpu, Options, Outcome, Problems, RunEnd, Selection, Summary, journal_path,
    tune,
};
use tdc_generator::scheme::scheme;
use tdc_generator::wording::counted;

/// The result of a tuning run.
pub struct TuneRun {
    /// Path of the table; the journal's is derived from it.
    pub out: PathBuf,
    /// The GPU.
    pub gpu: &'static Gpu,
    /// The driver's name of the GPU.
    pub device: String,
    /// All results, those of earlier runs included.
    pub journal: Journal,
    /// Number of rows for problems that are not in the configs; whether they are stale is not checked.
    pub unrelated_rows: usize,
    /// How the run ended.
    pub summary: Summary,
}

/// Measures the candidates that are not in the journal, then writes the table.
pub fn run(args: &TuneArgs) -> Result<(), Failure> {
    let TuneRun {
        out,
        journal,
        unrelated_rows,
        summary,
        ..
    } = measure(args)?;
    if unrelated_rows > 0 {
        note(format_args!(
            "note: the journal has {} for problems that are not in the given configs; kept unchecked, even if the \
             code of their kernels has changed since; add their configs, or use another --out",
            counted(unrelated_rows, "row")
        ));
    }
    let table = journal.table();
    write_atomic(&out, table.to_string().as_bytes()).map_err(Failure::input)?;
    let Summary {
        ended,
        correct,
        wrong,
        failed,
    } = summary;
    print(format_args!(
        "{}: {}; {} measured, {wrong} with wrong results, {failed} failed to compile or launch\n",
        out.display(),
        counted(table.len(), "row"),
        counted(correct, "candidate")
    ))?;
    match ended {
        RunEnd::Complete => Ok(()),
        RunEnd::Interrupted { left } => {
            let why = match interrupt::is_requested() {
                true => "interrupted",
                false => "time budget used up",
            };
            note(format_args!(
                "{why}: {} left; run the same command to resume",
                counted(left, "candidate")
            ));
            Ok(())
        }
        RunEnd::DeviceLost {
            candidate,
            message,
            left,
        } => Err(Failure::Check(format!(
            "{candidate} made the CUDA context unusable: {message}; earlier results are kept, {} left; \
             run the same command to resume after it",
            counted(left, "candidate")
        ))),
    }
}

/// Measures the candidates that are not in the journal.
pub fn measure(args: &TuneArgs) -> Result<TuneRun, Failure> {
    let problems = problems(args)?;
    let mut device = LocalGpu::open(args.device).map_err(Failure::machine)?;
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
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("tuning-{}.txt", gpu.name)));
    let mut journal = Journal::open(&journal_path(&out), &environment).map_err(Failure::input)?;

    let options = Options {
        gpu,
        arch,
        threads: threads(args),
        schemes: args
            .schemes
            .iter()
            .filter_map(|name| scheme(name))
            .collect(),
        selection: selection(args),
        shard: args.shard,
    };
    let started = Instant::now();
    interrupt::install_handlers();
    let mut stop = || {
        let budget = args.budget;
        interrupt::is_requested() || budget.is_some_and(|budget| started.elapsed() >= budget)
    };
    let mut printer = ProgressPrinter::default();
    let summary = tune(
        &problems,
        &options,
        &mut journal,
        &compiler,
        &mut device,
        &mut stop,
        &mut |event| printer.report(event),
    )
    .map_err(Failure::input)?;
    let requested: HashSet<_> = problems.iter().map(|(key, _)| key).collect();
    let rows = journal.rows();
    let unrelated_rows = rows
        .filter(|row| !requested.contains(&row.problem[..]))
        .count();
    Ok(TuneRun {
        out,
        gpu,
        device: device.name(),
        journal,
        unrelated_rows,
        summary,
    })
}

fn problems(args: &TuneArgs) -> Result<Problems, Failure> {
    let overrides = args.convolutions.overrides();
    let mut problems = Problems::default();
    for path in &args.configs {
        problems.add(&load(path, &overrides)?.0);
    }
    Ok(problems)
}

fn selection(args: &TuneArgs) -> Selection {
    match (args.top, args.random) {
        (None, None) => Selection::All,
        (top, random) => Selection::Some {
            top: top.unwrap_or(0),
            random: random.unwrap_or(0),
        },
    }
}

/// One core is reserved for the thread that measures, which must not be descheduled during a measurement.
fn threads(args: &TuneArgs) -> NonZeroUsize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let rest = NonZeroUsize::new(cores - 1).unwrap_or(NonZeroUsize::MIN);
    args.threads.unwrap_or(rest)
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
