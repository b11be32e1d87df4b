//! What others wrote: the test data of the Python package onnx (node tests, layers that PyTorch exported, whole networks), and networks that
//! Keras' and TensorFlow's converters export.
//!
//! Opt-in tests, because they fetch packages with pip and take minutes:
//!
//!     cargo test --release -p tdc-generator --test onnx_suites -- --ignored opt_in
//!
//! `expectations.txt` and `keras_expectations.txt` name every case that is not imported, with the reason. A test fails for a case that fails
//! and is not listed, for one that is listed and passes, and for one that fails for another reason. `TDC_BLESS=1` rewrites the files; wrong
//! results fail nevertheless.

#![cfg(feature = "onnx")]

mod cases;
mod check;
mod expectations;

use cases::{Case, KERAS, ONNX, Source, suites};
use check::{Failure, check_kernels, import};
use std::collections::BTreeMap;

/// Cases whose kernels are compiled together.
const CASES_PER_BUILD: usize = 40;

/// The networks of `prepare_keras.py` that are small enough for kernels on the CPU.
const SMALL_NETWORKS: [&str; 2] = ["branches", "flattened"];

#[test]
#[ignore = "opt-in: fetches the packages onnx and onnxruntime, and takes minutes"]
fn opt_in_onnx_test_data() {
    // The emulation of kernels would take hours for whole networks.
    let has_kernels = |case: &Case| !case.name.starts_with("light");
    let passed = check(&ONNX, "expectations.txt", has_kernels);
    // Of the networks of `light` all nine.
    for (suite, least) in [
        ("light", 9),
        ("light-random", 9),
        ("node", 150),
        ("pytorch-converted", 40),
        ("pytorch-operator", 7),
    ] {
        let count = passed[suite];
        assert!(count >= least, "{suite}: {count} of at least {least}");
    }
}

#[test]
#[ignore = "opt-in: fetches TensorFlow, Keras and tf2onnx, and takes minutes"]
fn opt_in_keras_networks() {
    let is_small = |case: &Case| SMALL_NETWORKS.iter().any(|name| case.name.ends_with(name));
    let passed = check(&KERAS, "keras_expectations.txt", is_small);
    for (suite, least) in [("keras3", 12), ("tf2onnx", 11)] {
        let count = passed[suite];
        assert!(count >= least, "{suite}: {count} of at least {least}");
    }
}

/// Checks the cases of a source, the kernels of some of them too. Panics with all differences from a file of expectations, and all wrong
/// results; the number of imported cases by suite.
fn check(
    source: &Source,
    expectations: &str,
    has_kernels: impl Fn(&Case) -> bool,
) -> BTreeMap<String, usize> {
    let folder = source.prepared();
    let mut failures = BTreeMap::new();
    let mut passed: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for suite in suites(&folder) {
        let mut imported = Vec::new();
        for case in &suite.cases {
            match import(case) {
                Ok(network) => imported.push((case, network)),
                Err(Failure::Unsupported(reason)) => {
                    drop(failures.insert(case.name.clone(), reason))
                }
                Err(Failure::Wrong(what)) => wrong.push(format!("{}: {what}", case.name)),
            }
        }
        let count = imported.len();
        println!("{}: {count} of {} imported", suite.name, suite.cases.len());
        passed.insert(suite.name, count);
        imported.retain(|(case, _)| has_kernels(case));
        for cases in imported.chunks(CASES_PER_BUILD) {
            let errors = check_kernels(cases.iter().map(|(_, network)| network));
            let errors = cases.iter().zip(errors);
            wrong.extend(errors.filter_map(|((case, _), error): (&(&Case, _), _)| {
                Some(format!("{}: {}", case.name, error?))
            }));
        }
    }
    let differences = expectations::compare(expectations, &failures);
    let wrong = wrong.join("\n");
    assert!(
        wrong.is_empty() && differences.is_empty(),
        "wrong results:\n{wrong}\nother than expected:\n{differences}"
    );
    passed
}
