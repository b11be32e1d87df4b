//! `tdc-gen tune`.

use crate::args::TuneArgs;
use crate::config::load;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{note, print};
use crate::tuning_session::{Request, TuningSession};
use std::collections::HashSet;
use std::path::PathBuf;
use tdc_generator::emit::write_atomic;
use tdc_generator::gpu::Gpu;
use tdc_generator::measure::tune::{Journal, Problems, RunEnd, Selection, Summary};
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
    let mut session = TuningSession::open(args.device, args.out.clone())?;
    let request = Request {
        schemes: args
            .schemes
            .iter()
            .filter_map(|name| scheme(name))
            .collect(),
        selection: selection(args),
        shard: args.shard,
        threads: args.threads,
        budget: args.budget,
    };
    let summary = session.run(&problems, &request)?;
    let requested: HashSet<_> = problems.iter().map(|(key, _)| key).collect();
    let rows = session.journal.rows();
    let unrelated_rows = rows
        .filter(|row| !requested.contains(&row.problem[..]))
        .count();
    Ok(TuneRun {
        device: session.device_name(),
        out: session.out,
        gpu: session.gpu,
        journal: session.journal,
        unrelated_rows,
        summary,
    })
}

fn problems(args: &TuneArgs) -> Result<Problems, Failure> {
    let overrides = args.convolutions.overrides();
    let mut problems = Problems::default();
    for path in &args.configs {
        let (config, ..) = load(path, &overrides)?;
        match args.planned {
            true => problems
                .add_planned(&config)
                .map_err(|errors| Failure::list(&errors))?,
            false => problems.add(&config),
        }
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
