//! Files of PyTorch's exporters, imported and run on the CPU, against PyTorch's float64 result.
//!
//! `fixtures/onnx` has one small network with residual blocks, squeeze-and-excite, grouped convolutions, padding, pooling and a
//! concatenation, as the older exporter writes it (`legacy.onnx`, operator set 13) and as the newer one does (`default.onnx` with external
//! data), an input of 2x3x17x17 and the result of `model.double()`.

#![cfg(feature = "onnx")]

use std::path::{Path, PathBuf};
use tdc_generator::config::Overrides;
use tdc_generator::gpu::gpu;
use tdc_generator::import::onnx;
use tdc_generator::plan::{plan_network, recipes};
use tdc_generator::verify::{CheckpointParameters, CpuDevice, check_network};
use tdc_runtime::WeightFile;
use tdc_weights::{pack, resolve};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/onnx")
        .join(name)
}

fn floats(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(fixture(name)).unwrap();
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect()
}

fn doubles(name: &str) -> Vec<f64> {
    let bytes = std::fs::read(fixture(name)).unwrap();
    let (numbers, _) = bytes.as_chunks::<8>();
    numbers
        .iter()
        .map(|&bytes| f64::from_le_bytes(bytes))
        .collect()
}

/// The relative L2 error of an imported file, computed by its generated kernels on the CPU.
fn error_of(file: &str) -> f64 {
    let imported = onnx::load(&fixture(file), &Overrides::default()).unwrap();
    let (network, checkpoint) = imported.into_parts();
    let network = &network;
    let plan = plan_network(network, gpu("h200").unwrap()).unwrap();
    let recipes = recipes(network, &plan);
    let resolved = resolve(&recipes, &checkpoint).unwrap();
    assert!(resolved.unused.is_empty(), "{:?}", resolved.unused);
    let packed = pack(&plan.weights, &resolved.values).unwrap();
    let (payload, _) = packed.bytes[WeightFile::HEADER_BYTES as usize..].as_chunks::<4>();
    let payload: Vec<f32> = payload
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect();
    let parameters = CheckpointParameters::new(network, &plan, &checkpoint, &resolved).unwrap();
    let mut device = CpuDevice::new(&plan.units).unwrap();
    let input = floats("input.bin");
    let check =
        check_network(&mut device, network, &plan, &parameters, &payload, &[input]).unwrap();
    assert_eq!((check.failure, check.exceeds_tolerance), (None, false));
    let expected = doubles("expected.f64");
    let [output] = &check.outputs[..] else {
        panic!("one output");
    };
    assert_eq!(output.len(), expected.len());
    let pairs = || output.iter().zip(&expected);
    let difference: f64 = pairs()
        .map(|(found, expected)| (f64::from(*found) - expected).powi(2))
        .sum();
    let norm: f64 = expected.iter().map(|expected| expected.powi(2)).sum();
    (difference / norm).sqrt()
}

#[test]
fn files_of_both_exporters_compute_what_pytorch_computes() {
    for file in ["legacy.onnx", "default.onnx"] {
        let error = error_of(file);
        assert!(error < 2e-6, "{file}: {error}");
    }
}

/// Both files describe the same module tree, and activations are parts of the ops before them.
#[test]
fn ops_have_the_names_of_their_modules() {
    for file in ["legacy.onnx", "default.onnx"] {
        let imported = onnx::load(&fixture(file), &Overrides::default()).unwrap();
        let names: Vec<&str> = imported.network.ops.iter().map(|op| &op.name[..]).collect();
        for name in ["blocks.0.conv1", "blocks.1.fc2", "norm", "head"] {
            assert!(names.contains(&name), "{file}: {names:?}");
        }
        assert!(names.len() <= 21, "{file}: {names:?}");
    }
}
