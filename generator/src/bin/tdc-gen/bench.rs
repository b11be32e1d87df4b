//! `tdc-gen bench`.

use crate::args::BenchArgs;
use crate::config::{PlannedConfig, planner};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{note, print};
use std::path::{Path, PathBuf};
use tdc_generator::emit::write_all_atomic;
use tdc_generator::gpu::{Gpu, gpu};
use tdc_generator::ir::{Batches, TilePolicy};
use tdc_generator::measure::bench::{
    self, BenchError, BenchProblem, CudnnSource, Options, Published, Report, bench_problems,
    charts, report_table, sweep_problems,
};
use tdc_generator::measure::tune::journal_path;
use tdc_generator::wording::counted;

/// The problems to measure, and the GPU that they are planned for.
struct Workload {
    name: String,
    gpu: &'static Gpu,
    problems: Vec<BenchProblem>,
}

/// Times the convolutions, prints the table, and writes the requested files.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let published = args.published.as_deref().map(published).transpose()?;
    let workload = workload(args)?;
    let options = Options {
        device: args.device,
        schemes: args.scheme.clone(),
        tiles: args.tiles_per_scheme.get(),
        table: args.options.measured_times()?,
        cudnn: match (&args.cudnn, args.no_cudnn) {
            (_, true) => CudnnSource::None,
            (Some(path), _) => CudnnSource::Path(path.clone()),
            (None, false) => CudnnSource::Search,
        },
        runtime_compiled_engines: args.runtime_compiled_engines,
        fp16: !args.no_fp16,
        journal: args
            .journal
            .clone()
            .or_else(|| Some(journal_path(args.json.as_deref()?))),
    };
    interrupt::install_handlers();
    let measured = bench::run(
        &workload.name,
        workload.gpu,
        &workload.problems,
        &options,
        &interrupt::is_requested,
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
    let failures = report.failures();
    match &report.stopped {
        Some(reason) => Err(Failure::Machine(format!("run ended early: {reason}"))),
        None if failures.is_empty() => Ok(()),
        None => Err(Failure::Check(format!(
            "{} could not be measured; see section Not measured of the report",
            counted(failures.len(), "candidate")
        ))),
    }
}

fn workload(args: &BenchArgs) -> Result<Workload, Failure> {
    let gpus: Option<Vec<String>> = args.gpu.clone().map(|name| vec![name]);
    match (&args.config, args.sweep) {
        (Some(path), _) => {
            let planned = args.options.plan(path, gpus.as_deref())?;
            let (name, gpu) = match &planned {
                PlannedConfig::Network(_, plans) => (plans[0].name.clone(), plans[0].gpu),
                PlannedConfig::LayerSet(plan) => (plan.name.clone(), plan.gpu),
            };
            // With several GPUs the first is used.
            let units = match &planned {
                PlannedConfig::Network(_, plans) => &plans[0].units,
                PlannedConfig::LayerSet(plan) => &plan.units,
            };
            let problems = bench_problems(units);
            Ok(Workload {
                name,
                gpu,
                problems,
            })
        }
        (None, Some(sweep)) => {
            let gpu = gpu(args.gpu.as_deref().unwrap_or("h200")).map_err(Failure::input)?;
            gpu.code_target().map_err(Failure::input)?;
            let batches = args.options.convolutions.batch.as_ref();
            if let Some(batches) = batches.filter(|batches| batches.are_several()) {
                return Err(Failure::Input(format!(
                    "--sweep is for one batch, not for {batches}; choose one"
                )));
            }
            let batch = batches.map_or(1, Batches::largest);
            let table = args.options.measured_times()?;
            let mut planner = planner(gpu, table.as_ref()).with_tile_policy(TilePolicy::default());
            let problems = sweep_problems(sweep, args.sweep_max_n, batch, &mut planner)
                .map_err(|error| Failure::Input(format!("--sweep: {error}")))?;
            Ok(Workload {
                name: format!("sweep-c{}-h{}-w{}-r{}", sweep.c, sweep.h, sweep.w, sweep.r),
                gpu,
                problems,
            })
        }
        (None, None) => Err(Failure::Input(
            "no config was given; give one, or a sweep with `--sweep`".to_owned(),
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
        for (name, chart) in charts(report).map_err(Failure::input)? {
            files.push((dir.join(name), chart.into_bytes()));
        }
    }
    let files: Vec<(&Path, &[u8])> = files
        .iter()
        .map(|(path, content)| (path.as_path(), content.as_slice()))
        .collect();
    write_all_atomic(&files).map_err(Failure::input)
}
