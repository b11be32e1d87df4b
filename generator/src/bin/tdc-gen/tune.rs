//! `tdc-gen tune`.

use crate::args::TuneArgs;
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
use tdc_generator::config::{Overrides, yaml};
use tdc_generator::emit::write_whole;
use tdc_generator::gpu::Gpu;
use tdc_generator::measure::tune::{
    Ended, Event, GpuMeasure, Journal, Options, Outcome, Problems, Selection, Summary, journal_of,
    tune,
};
use tdc_generator::scheme::scheme;

/// What a run has measured.
pub struct Measured {
    /// The table's file, of which the journal has its name.
    pub out: PathBuf,
    /// The GPU.
    pub gpu: &'static Gpu,
    /// Its driver's name.
    pub device: String,
    /// Every result, of this run and of those before.
    pub journal: Journal,
    /// Its rows about problems that were not asked for: whether their kernels are still the same is not looked at.
    pub others: usize,
    /// How the run ended.
    pub summary: Summary,
}

/// Measures what the journal lacks, then writes the table of all that it has.
pub fn run(args: &TuneArgs) -> Result<(), Failure> {
    let Measured {
        out,
        journal,
        others,
        summary,
        ..
    } = measure(args)?;
    if others > 0 {
        note(format_args!(
            "note: {others} rows of the journal are about problems that were not asked for; they count as they are, also where a \
             kernel's text has changed since: name their configs too, or another --out"
        ));
    }
    let table = journal.table();
    write_whole(&out, table.to_string().as_bytes()).map_err(Failure::input)?;
    let Summary {
        ended,
        right,
        wrong,
        failed,
    } = summary;
    print(format_args!(
        "{}: {} rows; {right} candidates measured, {wrong} wrong, {failed} not compiled or refused\n",
        out.display(),
        table.len()
    ))?;
    match ended {
        Ended::Complete => Ok(()),
        Ended::Stopped { left } => {
            let why = match interrupt::is_asked() {
                true => "interrupted",
                false => "the time is up",
            };
            note(format_args!(
                "{why}: {left} candidates are left; the same command goes on with them"
            ));
            Ok(())
        }
        Ended::Lost {
            candidate,
            message,
            left,
        } => Err(Failure::Check(format!(
            "{candidate} broke the GPU's context: {message}; everything before is kept, {left} candidates are left, and the \
             same command goes on behind it"
        ))),
    }
}

/// Measures what the journal lacks.
pub fn measure(args: &TuneArgs) -> Result<Measured, Failure> {
    let problems = problems(args)?;
    let mut device = GpuMeasure::open(args.device).map_err(Failure::machine)?;
    let gpu = device.gpu().ok_or_else(|| {
        Failure::Machine(format!(
            "{} is not in the table of GPUs, so nothing can be planned for it; add it to generator/src/gpu/table.rs",
            device.name()
        ))
    })?;
    let arch = device.arch();
    let compiler = Toolkit::find()
        .compiler(nvrtc::Options::default())
        .map_err(Failure::machine)?;
    let version = compiler
        .version_for(arch)
        .ok_or_else(|| Failure::Machine(format!("{} is {arch}, and {compiler}", device.name())))?;
    let environment = device.environment(gpu, version);
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("tuning-{}.txt", gpu.name)));
    let mut journal = Journal::open(&journal_of(&out), &environment).map_err(Failure::input)?;

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
    interrupt::watch();
    let mut stop = || {
        let budget = args.budget;
        interrupt::is_asked() || budget.is_some_and(|budget| started.elapsed() >= budget)
    };
    let mut teller = Teller::default();
    let summary = tune(
        &problems,
        &options,
        &mut journal,
        &compiler,
        &mut device,
        &mut stop,
        &mut |event| teller.tell(event),
    )
    .map_err(Failure::input)?;
    let asked: HashSet<_> = problems.iter().map(|(key, _)| key).collect();
    let rows = journal.rows();
    let others = rows.filter(|row| !asked.contains(&row.problem[..])).count();
    Ok(Measured {
        out,
        gpu,
        device: device.name(),
        journal,
        others,
        summary,
    })
}

fn problems(args: &TuneArgs) -> Result<Problems, Failure> {
    let overrides = Overrides {
        dense: args.dense,
        precision: args.precision,
        tolerance: args.tolerance,
        batch: args.batch,
        ..Overrides::default()
    };
    let mut problems = Problems::default();
    for path in &args.configs {
        problems.add(&yaml::load(path, &overrides).map_err(Failure::input)?);
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

/// One core is left to the thread that times: it must not wait for its turn between the two ends of a measurement.
fn threads(args: &TuneArgs) -> NonZeroUsize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let rest = NonZeroUsize::new(cores - 1).unwrap_or(NonZeroUsize::MIN);
    args.threads.unwrap_or(rest)
}

/// Tells how far the run is, a line a second at most; what is wrong is always told.
#[derive(Default)]
struct Teller {
    last: Option<Instant>,
}

impl Teller {
    const PAUSE: Duration = Duration::from_secs(1);

    fn tell(&mut self, event: &Event<'_>) {
        match event {
            Event::Planned {
                problems,
                candidates,
                known,
                stale,
            } => {
                note(format_args!(
                    "{problems} problems, {candidates} candidates to measure, {known} known from the journal"
                ));
                if *stale > 0 {
                    note(format_args!(
                        "{stale} results of the journal are of kernels that have changed since; they do not count"
                    ));
                }
            }
            Event::Done {
                progress,
                row,
                best_us,
            } => {
                let (result, always) = match &row.outcome {
                    Outcome::Timed(_, us) => (format!("{us:.3} us"), false),
                    Outcome::Slow(us) => (format!("about {us:.3} us"), false),
                    Outcome::Wrong(why) => (format!("wrong: {why}"), true),
                    Outcome::Uncompiled(why) => (format!("not compiled: {why}"), true),
                    Outcome::Refused(why) | Outcome::Crashed(why) => {
                        (format!("refused: {why}"), true)
                    }
                };
                if !always && self.last.is_some_and(|last| last.elapsed() < Self::PAUSE) {
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
