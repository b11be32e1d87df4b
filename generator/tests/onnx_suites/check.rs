//! Imports a case and compares the network with the expected outputs, and its kernels with the network.

use crate::cases::{Case, NamedTensor, tensors};
use std::path::Path;
use tdc_generator::config::Overrides;
use tdc_generator::gpu::gpu;
use tdc_generator::import::onnx;
use tdc_generator::ir::{Layout, Network, Op, OpKind, TensorShape};
use tdc_generator::plan::{NetworkPlan, plan_network, recipes};
use tdc_generator::verify::reference::evaluate_network;
use tdc_generator::verify::{CheckpointParameters, CpuDevice, check_network};
use tdc_runtime::WeightFile;
use tdc_weights::{Checkpoint, pack, resolve};

/// Why a case does not pass.
pub enum Failure {
    /// It is refused, for this reason.
    Unsupported(String),
    /// It is imported, but computes something else.
    Wrong(String),
}

/// A case that is imported and gives the expected outputs in float64.
pub struct ImportedCase {
    network: Network,
    plan: NetworkPlan,
    checkpoint: Checkpoint,
    inputs: Vec<Vec<f32>>,
}

/// The largest relative L2 error of the float64 reference to outputs that others computed in fp32.
const MAX_ERROR: f64 = 2e-5;

/// Cases whose expected outputs are written with four digits, and the error that this allows.
const FOUR_DIGITS: ([&str; 1], f64) = (
    ["node/test_averagepool_2d_ceil_last_window_starts_on_pad"],
    5e-4,
);

/// Imports a case: with weights as constants, else with all inputs.
pub fn import(case: &Case) -> Result<ImportedCase, Failure> {
    if let Ok(reason) = std::fs::read_to_string(case.folder.join("skipped")) {
        return Err(Failure::Unsupported(reason));
    }
    let bound = import_model(case, "bound");
    match bound {
        Err(Failure::Unsupported(reason)) if case.folder.join("free.onnx").exists() => {
            match import_model(case, "free") {
                Err(Failure::Unsupported(_)) => Err(Failure::Unsupported(reason)),
                other => other,
            }
        }
        other => other,
    }
}

fn import_model(case: &Case, model: &str) -> Result<ImportedCase, Failure> {
    let path = case.folder.join(format!("{model}.onnx"));
    let bytes = std::fs::read(&path).unwrap();
    // Kernels of several cases are compiled into one program.
    let letters = case.name.chars();
    let letters = letters.map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let name: String = letters.collect();
    let imported = onnx::parse(bytes.into(), "model", &name, None, &Overrides::default());
    let imported = imported.map_err(|errors| {
        let first = &errors.first[0];
        let place = first.node.as_ref().map_or("model", |node| &node.op[..]);
        Failure::Unsupported(format!("{place}: {}", first.message))
    })?;
    let (network, checkpoint) = imported.into_parts();
    let plan = plan_network(&network, gpu("h200").unwrap());
    let plan = plan.map_err(|errors| Failure::Wrong(format!("{errors:?}")))?;
    let inputs = tensors(&path.with_extension("inputs"));
    let case_inputs: Vec<Vec<f32>> = inputs
        .into_iter()
        .zip(network.inputs())
        .map(|(input, op)| as_nchw(input.values, op.y, input_layout(op)))
        .collect();
    let imported = ImportedCase {
        network,
        plan,
        checkpoint,
        inputs: case_inputs,
    };
    let most = match FOUR_DIGITS.0.contains(&&case.name[..]) {
        true => FOUR_DIGITS.1,
        false => MAX_ERROR,
    };
    imported.compare(&case.folder.join("outputs"), most)?;
    Ok(imported)
}

fn input_layout(input: &Op) -> Layout {
    match &input.kind {
        OpKind::Input(encoding) => encoding.layout,
        _ => panic!("`{}` is no input", input.name),
    }
}

/// The values of a tensor in NCHW.
fn as_nchw(values: Vec<f32>, shape: TensorShape, layout: Layout) -> Vec<f32> {
    match layout {
        Layout::Nchw => values,
        _ => {
            let channels = shape.c as usize;
            let images = values.chunks(shape.image_len() as usize);
            let planes = images.flat_map(|image| {
                let plane = move |c: usize| image[c..].iter().step_by(channels).copied();
                (0..channels).flat_map(plane)
            });
            planes.collect()
        }
    }
}

impl ImportedCase {
    /// Compares the float64 reference with the expected outputs.
    fn compare(&self, outputs: &Path, most: f64) -> Result<(), Failure> {
        let recipes = recipes(&self.network, &self.plan);
        let resolved = resolve(&recipes, &self.checkpoint);
        let resolved = resolved.map_err(|error| Failure::Wrong(error.to_string()))?;
        let parameters =
            CheckpointParameters::new(&self.network, &self.plan, &self.checkpoint, &resolved);
        let parameters = parameters.map_err(|error| Failure::Wrong(error.to_string()))?;
        let double = |input: &Vec<f32>| input.iter().map(|&value| f64::from(value)).collect();
        let doubles: Vec<Vec<f64>> = self.inputs.iter().map(double).collect();
        let values = evaluate_network(&self.network, &parameters, &doubles);
        for mut expected in tensors(outputs) {
            let own = self.network.outputs.iter();
            let mut own =
                own.filter(|own| self.network.outputs.len() == 1 || own.name == expected.name);
            let Some(output) = own.next() else {
                let message = format!("the output `{}` is missing", expected.name);
                return Err(Failure::Wrong(message));
            };
            let shape = self.network.op(output.op).y;
            expected.values = as_nchw(expected.values, shape, output.format.layout);
            let error = relative_error(&values[output.op.0], &expected);
            if error.is_none_or(|error| error > most) {
                let message = format!("output `{}`: relative error {error:?}", expected.name);
                return Err(Failure::Wrong(message));
            }
        }
        Ok(())
    }
}

/// The relative L2 error; `None` if the sizes differ, or numbers that are not finite.
fn relative_error(found: &[f64], expected: &NamedTensor) -> Option<f64> {
    if found.len() != expected.values.len() {
        return None;
    }
    let (mut difference, mut norm) = (0.0, 0.0);
    for (&found, &expected) in found.iter().zip(&expected.values) {
        let expected = f64::from(expected);
        if !found.is_finite() || !expected.is_finite() {
            let is_same = found == expected || found.is_nan() && expected.is_nan();
            is_same.then_some(())?;
            continue;
        }
        difference += (found - expected) * (found - expected);
        norm += expected * expected;
    }
    Some(match norm {
        0.0 => difference.sqrt(),
        _ => (difference / norm).sqrt(),
    })
}

/// Runs the generated kernels of several cases on the CPU; for each case the error, if there is one.
pub fn check_kernels<'a>(
    cases: impl Iterator<Item = &'a ImportedCase> + Clone,
) -> Vec<Option<String>> {
    let units = cases
        .clone()
        .flat_map(|case| case.plan.units.iter().cloned());
    let units: Vec<_> = units.collect();
    let mut device = CpuDevice::new(&units).unwrap();
    cases
        .map(|case| {
            let ImportedCase {
                network,
                plan,
                checkpoint,
                inputs,
            } = case;
            let recipes = recipes(network, plan);
            let resolved = resolve(&recipes, checkpoint).unwrap();
            let file = pack(&plan.weights, &resolved.values).unwrap();
            let (payload, _) = file.bytes[WeightFile::HEADER_BYTES as usize..].as_chunks::<4>();
            let payload: Vec<f32> = payload
                .iter()
                .map(|&bytes| f32::from_le_bytes(bytes))
                .collect();
            let parameters =
                CheckpointParameters::new(network, plan, checkpoint, &resolved).unwrap();
            let check = check_network(&mut device, network, plan, &parameters, &payload, inputs);
            match check {
                Ok(check) => match check.failure {
                    None => check
                        .exceeds_tolerance
                        .then(|| "a value exceeds the tolerance".to_owned()),
                    Some((layer, failure)) => Some(format!("layer {layer}: {failure}")),
                },
                Err(error) => Some(error.to_string()),
            }
        })
        .collect()
}
