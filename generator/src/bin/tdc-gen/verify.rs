//! `tdc-gen verify`.

use crate::args::VerifyArgs;
use crate::config::PlannedConfig;
use crate::failure::Failure;
use crate::inputs::in_file;
use crate::interrupt;
use crate::output::{note, print};
use serde_json::json;
use tdc_generator::compile::nvrtc::Options;
use tdc_generator::compile::toolkit::Toolkit;
use tdc_generator::ir::Network;
use tdc_generator::plan::{
    NetworkPlan, PlannedUnit, WeightSection, section_recipes, weight_sections,
};
use tdc_generator::verify::{
    CheckpointParameters, CpuDevice, Device, GpuDevice, ProblemData, Random, check_network,
    check_unit_on, network_tolerance, random_input,
};
use tdc_generator::wording::counted;
use tdc_runtime::WeightFile;
use tdc_weights::{Checkpoint, pack, resolve};
use tempfile::TempDir;

/// Checks every config: each unit on its own, then complete networks in each variant.
pub fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let mut failures = Vec::new();
    let mut reports = Vec::new();
    let mut checkpoint = None;
    let temporary = match args.local_gpu {
        true => None,
        false => Some(Temporary::new()?),
    };
    for path in &args.configs {
        let gpus = args.target.gpu.as_deref();
        let (planned, imported) = args.options.plan_with_weights(path, gpus)?;
        if args.weights.is_some() && matches!(planned, PlannedConfig::LayerSet(_)) {
            return Err(Failure::Input(format!(
                "{}: a layer set has no weights; omit --weights or give a network",
                path.display()
            )));
        }
        // Fails before the long work if the path is mistyped.
        if let (None, Some(path)) = (&checkpoint, &args.weights) {
            checkpoint = Some(Checkpoint::open(path).map_err(Failure::input)?);
        }
        let units = planned.units();
        note(format_args!(
            "{}: building {}",
            path.display(),
            counted(units.len(), "unit")
        ));
        let mut device = open(temporary.as_ref(), &units)?;
        let device = device.as_mut();
        let mut report =
            json!({ "config": path.display().to_string(), "device": device.name(), "units": [] });
        check_units(args, &units, device, &mut report, &mut failures)?;
        if let PlannedConfig::Network(network, plans) = &planned {
            let mut variants = Vec::new();
            let sections = weight_sections(plans);
            for plan in plans {
                let is_own = |section: &&WeightSection<'_>| section.plans.contains(&plan);
                let Some(section) = sections.iter().find(is_own) else {
                    continue;
                };
                variants.push(check_whole(
                    args,
                    checkpoint.as_ref().or(imported.as_ref()),
                    &network.with_batch(plan.batch()),
                    (plan, section),
                    device,
                    &mut failures,
                )?);
            }
            report["variants"] = variants.into();
        }
        reports.push(report);
    }
    if args.json {
        print(format_args!("{:#}\n", serde_json::Value::from(reports)))?;
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(Failure::Check(failures.join("\nfailed: ")))
    }
}

/// A folder for temporary files that is removed at the end, after Ctrl-C or SIGTERM too.
struct Temporary(TempDir);

impl Temporary {
    fn new() -> Result<Self, Failure> {
        let folder = tempfile::Builder::new()
            .prefix("tdc-verify-")
            .tempdir()
            .map_err(|error| {
                let parent = std::env::temp_dir();
                Failure::Machine(format!(
                    "{}: {error}; is the disk full, or TMPDIR not writable?",
                    parent.display()
                ))
            })?;
        interrupt::remove_and_end(folder.path().to_owned());
        Ok(Self(folder))
    }
}

/// The CPU emulation if there is a folder for its temporary files, else the local GPU.
fn open(temporary: Option<&Temporary>, units: &[PlannedUnit]) -> Result<Box<dyn Device>, Failure> {
    if let Some(temporary) = temporary {
        let device = CpuDevice::new_in(temporary.0.path(), units).map_err(|error| {
            interrupt::wait_if_asked();
            Failure::machine(error)
        })?;
        return Ok(Box::new(device));
    }
    let mut device = GpuDevice::open(0).map_err(Failure::machine)?;
    let compiler = Toolkit::find()
        .compiler(Options::default())
        .map_err(Failure::machine)?;
    device.load(units, &compiler).map_err(Failure::machine)?;
    Ok(Box::new(device))
}

fn check_units(
    args: &VerifyArgs,
    units: &[PlannedUnit],
    device: &mut dyn Device,
    report: &mut serde_json::Value,
    failures: &mut Vec<String>,
) -> Result<(), Failure> {
    let mut results = Vec::new();
    for (index, unit) in units.iter().enumerate() {
        let name = &unit.unit.name;
        let data = ProblemData::new(&unit.problem, args.seed.wrapping_add(index as u64));
        match check_unit_on(device, unit, &data, args.runs.get()) {
            Ok(check) => {
                if !args.json {
                    print(format_args!(
                        "ok    {name}: relative error {:.1e}, tolerance {:.1e}\n",
                        check.deviation.relative, check.tolerance
                    ))?;
                }
                results.push(json!({ "unit": name, "relative_error": check.deviation.relative, "tolerance": check.tolerance }));
            }
            Err(failure) => {
                results.push(json!({ "unit": name, "failure": failure.to_string() }));
                failures.push(format!("unit {name}: {failure}"));
            }
        }
    }
    report["units"] = results.into();
    Ok(())
}

fn check_whole(
    args: &VerifyArgs,
    checkpoint: Option<&Checkpoint>,
    network: &Network,
    (plan, section): (&NetworkPlan, &WeightSection<'_>),
    device: &mut dyn Device,
    failures: &mut Vec<String>,
) -> Result<serde_json::Value, Failure> {
    let gpu = plan.gpu.name;
    let mut report = json!({ "gpu": gpu });
    let recipes = section_recipes(network, section);
    let random;
    let checkpoint = match checkpoint {
        Some(given) => given,
        None => {
            random = Checkpoint::random(&recipes, args.seed);
            &random
        }
    };
    let resolved =
        resolve(&recipes, checkpoint).map_err(|error| in_file(args.weights.as_deref(), &error))?;
    let file = pack(&plan.weights, &resolved.values).map_err(Failure::input)?;
    let payload: Vec<f32> = file.bytes[WeightFile::HEADER_BYTES as usize..]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    let parameters = CheckpointParameters::new(network, plan, checkpoint, &resolved)
        .map_err(|error| in_file(args.weights.as_deref(), &error))?;
    let mut random = Random::new(args.seed);
    let inputs = plan.inputs.iter();
    let inputs: Vec<_> = inputs
        .map(|input| random_input(input, &mut random))
        .collect();
    let check = check_network(device, network, plan, &parameters, &payload, &inputs)
        .map_err(Failure::machine)?;
    let worst = check
        .layers
        .iter()
        .max_by(|a, b| a.2.relative.total_cmp(&b.2.relative));
    let is_amplified = check.exceeds_tolerance && check.failure.is_none();
    if let Some((layer, _, deviation)) = worst {
        report = json!({
            "gpu": gpu,
            "layers": check.layers.len(),
            "worst_layer": layer,
            "worst_relative_error": deviation.relative,
            "amplifies_errors": is_amplified,
            "output_relative_error": check.layers.last().map(|(_, _, last)| last.relative),
        });
        if !args.json {
            print(format_args!(
                "{}    network {} for {gpu}, input {}: {}, largest relative error {:.1e} in `{layer}`{}\n",
                if check.failure.is_none() {
                    "ok  "
                } else {
                    "FAIL"
                },
                network.name,
                plan.input_shapes(),
                counted(check.layers.len(), "layer"),
                deviation.relative,
                match is_amplified {
                    true => format!(
                        ", above {:.0e} because the network amplifies errors",
                        network_tolerance(plan)
                    ),
                    false => String::new(),
                }
            ))?;
        }
    }
    if let Some((layer, failure)) = check.failure {
        failures.push(format!(
            "{} for {gpu}, layer `{layer}`: {failure}",
            network.name
        ));
    }
    Ok(report)
}
