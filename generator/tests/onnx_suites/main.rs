//! The test data of the Python package onnx: node tests, layers that PyTorch exported, and whole networks.
//!
//! An opt-in test, because it fetches the package and ONNX Runtime with pip and takes minutes:
//!
//!     cargo test -p tdc-generator --test onnx_suites -- --ignored opt_in
//!
//! `expectations.txt` names every case that is not imported, with the reason. The test fails for a case that fails and is not listed, for one
//! that is listed and passes, and for one that fails for another reason. `TDC_BLESS=1` rewrites the file; wrong
//! results fail nevertheless.

#![cfg(feature = "onnx")]

mod cases;
mod check;
mod expectations;

use cases::{Case, prepared, suites};
use check::{Failure, check_kernels, import};
use std::collections::BTreeMap;

/// Cases whose kernels are compiled together.
const CASES_PER_BUILD: usize = 40;

/// How many cases of each suite must pass: of the networks of `light` all nine.
const LEAST: [(&str, usize); 5] = [
    ("light", 9),
    ("light-random", 9),
    ("node", 150),
    ("pytorch-converted", 40),
    ("pytorch-operator", 7),
];

#[test]
#[ignore = "opt-in: fetches the packages onnx and onnxruntime, and takes minutes"]
fn opt_in_onnx_test_data() {
    let folder = prepared();
    let mut failures = BTreeMap::new();
    let mut passed: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for suite in suites(&folder) {
        let count = passed.entry(suite.name.clone()).or_default();
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
        *count = imported.len();
        println!("{}: {count} of {} imported", suite.name, suite.cases.len());
        // The emulation would take hours for whole networks.
        if !suite.name.starts_with("light") {
            for cases in imported.chunks(CASES_PER_BUILD) {
                let errors = check_kernels(cases.iter().map(|(_, network)| network));
                let errors = cases.iter().zip(errors);
                wrong.extend(errors.filter_map(|((case, _), error): (&(&Case, _), _)| {
                    Some(format!("{}: {}", case.name, error?))
                }));
            }
        }
    }
    let differences = expectations::compare(&failures);
    let wrong = wrong.join("\n");
    assert!(
        wrong.is_empty() && differences.is_empty(),
        "wrong results:\n{wrong}\nother than expected:\n{differences}"
    );
    for (suite, least) in LEAST {
        assert!(
            passed[suite] >= least,
            "{suite}: {} of at least {least}",
            passed[suite]
        );
    }
}
