//! `tdc-gen bench`.

use crate::args::BenchArgs;
use crate::config::{Planned, planner};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{note, print};
use std::path::{Path, PathBuf};
use tdc_generator::emit::write_together;
use tdc_generator::gpu::{Gpu, gpu};
use tdc_generator::ir::Tiles;
use tdc_generator::measure::bench::{
    self, BenchError, BenchProblem, Options, Published, Report, Rival, charts, problems_of,
    report_table, sweep_of,
};
use tdc_generator::measure::tune::journal_of;

/// What is measured, and for which GPU it is planned.
struct Asked {
    name: String,
    gpu: &'static Gpu,
    problems: Vec<BenchProblem>,
}

/// Times the convolutions, prints the table and writes what else was asked for.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let published = args.reference.as_deref().map(published).transpose()?;
    let asked = asked(args)?;
    let options = Options {
        device: args.device,
        schemes: args.scheme.clone(),
        tiles: args.best_of.get(),
        table: args.options.measured()?,
        rival: match (&args.cudnn, args.no_cudnn) {
            (_, true) => Rival::None,
            (Some(path), _) => Rival::At(path.clone()),
            (None, false) => Rival::Search,
        },
        compiled_engines: args.compiled_engines,
        halves: !args.no_fp16,
        journal: args
            .journal
            .clone()
            .or_else(|| Some(journal_of(args.json.as_deref()?))),
    };
    interrupt::watch();
    let measured = bench::run(
        &asked.name,
        asked.gpu,
        &asked.problems,
        &options,
        &interrupt::is_asked,
        &mut |line| note(line),
    );
    let mut report = measured.map_err(|error| match error {
        BenchError::NoConvolution(_) | BenchError::Cudnn(_) | BenchError::Journal(_) => {
            Failure::input(error)
        }
        error => Failure::machine(error),
    })?;
    report.published = published;
    print(report_table(&report))?;
    write_files(args, &report)?;
    let refusals = report.refusals();
    match &report.stopped {
        Some(reason) => Err(Failure::Machine(format!("stopped early: {reason}"))),
        None if refusals.is_empty() => Ok(()),
        None => Err(Failure::Check(format!(
            "{} of our candidates could not be measured; the table says why",
            refusals.len()
        ))),
    }
}

fn asked(args: &BenchArgs) -> Result<Asked, Failure> {
    let gpus: Option<Vec<String>> = args.gpu.clone().map(|name| vec![name]);
    match (&args.config, args.sweep_n) {
        (Some(path), _) => {
            let planned = args.options.plan(path, gpus.as_deref())?;
            let (name, gpu) = match &planned {
                Planned::Network(_, plans) => (plans[0].name.clone(), plans[0].gpu),
                Planned::LayerSet(plan) => (plan.name.clone(), plan.gpu),
            };
            // Of several GPUs the first counts.
            let units = match &planned {
                Planned::Network(_, plans) => &plans[0].units,
                Planned::LayerSet(plan) => &plan.units,
            };
            let problems = problems_of(units);
            Ok(Asked {
                name,
                gpu,
                problems,
            })
        }
        (None, Some(sweep)) => {
            let gpu = gpu(args.gpu.as_deref().unwrap_or("h200")).map_err(Failure::input)?;
            gpu.code_target().map_err(Failure::input)?;
            let batch = args.options.batch.unwrap_or(1);
            let table = args.options.measured()?;
            let mut planner = planner(gpu, table.as_ref()).with_tiles(Tiles::default());
            let problems = sweep_of(sweep, args.sweep_to, batch, &mut planner)
                .map_err(|error| Failure::Input(format!("--sweep-n: {error}")))?;
            Ok(Asked {
                name: format!("sweep-c{}-h{}-w{}-r{}", sweep.c, sweep.h, sweep.w, sweep.r),
                gpu,
                problems,
            })
        }
        (None, None) => Err(Failure::Input(
            "no config is named; name one, or a series with `--sweep-n`".to_owned(),
        )),
    }
}

fn published(path: &Path) -> Result<Published, Failure> {
    let in_file =
        |error: &dyn std::fmt::Display| Failure::Input(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| in_file(&error))?;
    text.parse::<Published>().map_err(|error| in_file(&error))
}

fn write_files(args: &BenchArgs, report: &Report) -> Result<(), Failure> {
    let mut files: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    if let Some(path) = &args.json {
        let json = report.json().map_err(Failure::input)?;
        files.push((path.clone(), json.into_bytes()));
    }
    if let Some(dir) = &args.svg {
        for (name, chart) in charts(report) {
            files.push((dir.join(name), chart.into_bytes()));
        }
    }
    let files: Vec<(&Path, &[u8])> = files
        .iter()
        .map(|(path, content)| (path.as_path(), content.as_slice()))
        .collect();
    write_together(&files).map_err(Failure::input)
}
