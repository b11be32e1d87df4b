//! `tdc-gen bench --network`.

use crate::args::{BenchArgs, ConfigArgs, ConvolutionArgs};
use crate::config::{PlannedConfig, load};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{note, print};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tdc_generator::config::Config;
use tdc_generator::emit::{network_files, write_all_atomic};
use tdc_generator::gpu::gpu_for_device;
use tdc_generator::ir::{Batches, Format, Network, Op, OpKind, TensorShape};
use tdc_generator::measure::network_bench::{
    Environment, Journal, LocalRunner, Machine, NetworkOfBatch, Report, Subject, TorchVersions,
    default_torch_subjects, measure, page, torch_subjects,
};
use tdc_generator::measure::tune::JournalError;

/// Times the network with every batch, and writes the report.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let path = args
        .config
        .as_deref()
        .ok_or_else(|| Failure::Input("no config was given; --network needs one".to_owned()))?;
    let of_torch = match &args.against[..] {
        [] => Ok(default_torch_subjects()),
        names => torch_subjects(names),
    };
    let of_torch = of_torch.map_err(|error| Failure::Input(format!("--against: {error}")))?;
    let networks = networks(args, path)?;
    let first = &networks[0];
    let (name, gpu) = (first.network.name.clone(), first.plans[0].gpu);
    let input = shapes(&first.network);
    let machine = Machine::open(args.device, gpu.name).map_err(Failure::machine)?;
    let device = &machine.environment.device;
    if gpu_for_device(device) != Some(gpu) {
        note(format_args!(
            "note: the local GPU is {device}, but the network is planned for {}; set the GPU with `--gpu`",
            gpu.title
        ));
    }
    let out = args.out.clone();
    let out = out.unwrap_or_else(|| PathBuf::from(format!("bench-{name}")));
    let start_limit = Duration::from_secs(args.start_limit.into());
    let runner = LocalRunner::new(machine.clone(), &out.join("work"), networks, start_limit);
    let mut runner = runner.map_err(Failure::input)?;
    let torch = torch(args, &mut runner)?;
    let mut subjects = vec![Subject::Generated];
    if torch.is_ok() {
        subjects.extend(of_torch);
    }
    let journal = Journal::open(&out.join("journal.txt"), &machine.environment);
    let mut journal = journal.map_err(Failure::input)?;
    interrupt::install_handlers();
    let measured = measure(
        &runner.cases(),
        &subjects,
        args.rounds.get(),
        &mut journal,
        &mut runner,
        &interrupt::is_requested,
        &mut |line| note(line),
    )
    .map_err(|error: JournalError| Failure::input(error))?;
    let environment = environment(&machine, torch);
    let report = Report {
        network: name,
        input,
        environment,
        method: Report::method(args.rounds.get(), start_limit),
        rows: measured.rows,
        failures: measured.failures,
        is_stopped: measured.is_stopped,
    };
    write(&out, &report)?;
    print(report.table())?;
    outcome(&report)
}

/// The versions of PyTorch, or why it is not measured: it is not wanted, or nobody asked for it and it is not installed.
fn torch(
    args: &BenchArgs,
    runner: &mut LocalRunner,
) -> Result<Result<TorchVersions, String>, Failure> {
    if args.no_torch {
        return Ok(Err("--no-torch".to_owned()));
    }
    match runner.use_torch(&args.python) {
        Ok(versions) => Ok(Ok(versions.clone())),
        Err(error) if args.against.is_empty() => {
            note(format_args!("note: {error}; timing generated code only"));
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(Failure::machine(error)),
    }
}

/// The network with each batch of the options, or else of the config, planned for that batch alone; in ascending order.
fn networks(args: &BenchArgs, path: &Path) -> Result<Vec<NetworkOfBatch>, Failure> {
    let gpus: Option<Vec<String>> = args.gpu.clone().map(|name| vec![name]);
    let gpus = gpus.as_deref();
    let (config, _) = load(path, &args.options.overrides(gpus)?)?;
    let Config::Network(network) = config else {
        return Err(no_network(path));
    };
    let is_plain = |op: &Op| matches!(&op.kind, OpKind::Input(encoding) if encoding.is_plain());
    let input = network.inputs().iter().find(|op| !is_plain(op));
    let mut outputs = network.outputs.iter();
    let output = outputs.find(|output| output.format != Format::default());
    let input = input.map(|input| ("input", &input.name));
    if let Some((kind, name)) = input.or(output.map(|output| ("output", &output.name))) {
        return Err(Failure::Input(format!(
            "{}: the {kind} `{name}` is not fp32 NCHW as it is, which both sides of the comparison use; time the network without \
             `dtype`, `layout`, `mean` and `std`, or the generated program alone",
            path.display(),
        )));
    }
    let batches = network.batches.as_slice().iter();
    batches
        .map(|&batch| network_of_batch(&args.options, path, gpus, batch))
        .collect()
}

fn network_of_batch(
    options: &ConfigArgs,
    path: &Path,
    gpus: Option<&[String]>,
    batch: u32,
) -> Result<NetworkOfBatch, Failure> {
    let options = ConfigArgs {
        convolutions: ConvolutionArgs {
            batch: Some(Batches::one(batch)),
            ..options.convolutions.clone()
        },
        ..options.clone()
    };
    let PlannedConfig::Network(network, plans) = options.plan(path, gpus)? else {
        return Err(no_network(path));
    };
    Ok(NetworkOfBatch {
        files: network_files(&plans).map_err(Failure::input)?,
        network,
        plans,
    })
}

fn no_network(path: &Path) -> Failure {
    Failure::Input(format!(
        "{}: a layer set has no network to time; give the config of a network, or omit --network",
        path.display()
    ))
}

/// The shapes of the inputs without the batch.
fn shapes(network: &Network) -> String {
    let shape = |TensorShape { c, h, w, .. }: TensorShape| format!("{c}x{h}x{w}");
    let shapes = network.inputs().iter().map(|input| shape(input.y));
    shapes.collect::<Vec<_>>().join(", ")
}

fn environment(machine: &Machine, torch: Result<TorchVersions, String>) -> Environment {
    let (torch, without_torch) = match torch {
        Ok(versions) => (Some(versions), None),
        Err(reason) => (None, Some(reason)),
    };
    let arguments = std::env::args().skip(1);
    let words = std::iter::once("tdc-gen".to_owned()).chain(arguments);
    let machines = machine.environment.clone();
    Environment {
        command: words.collect::<Vec<_>>().join(" "),
        generator: machines.generator,
        device: machines.device,
        gpu: machines.gpu,
        driver: machines.driver,
        nvcc: machine.nvcc_version.clone(),
        torch,
        without_torch,
    }
}

fn write(out: &Path, report: &Report) -> Result<(), Failure> {
    let json = report.json().map_err(Failure::input)?;
    let html = page(report).map_err(Failure::input)?;
    write_all_atomic(&[
        (&out.join("report.json"), json.as_bytes()),
        (&out.join("report.html"), html.as_bytes()),
    ])
    .map_err(Failure::input)
}

/// Fails if the run was stopped, or if generated code could not be timed. PyTorch may fail: not every network compiles in time.
fn outcome(report: &Report) -> Result<(), Failure> {
    if report.is_stopped {
        return Err(Failure::Machine(
            "run ended early: it was stopped".to_owned(),
        ));
    }
    let failures = report.failures.iter();
    let of_generated = failures.filter(|failure| failure.subject == Subject::Generated);
    let of_generated: Vec<_> = of_generated
        .map(|failure| format!("batch {}: {}", failure.batch, failure.reason))
        .collect();
    match of_generated.is_empty() {
        true => Ok(()),
        false => Err(Failure::Check(of_generated.join("\nfailed: "))),
    }
}
