//! The cases that are not imported, by reason: a reason with a colon, then its cases, indented.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Compares the cases that failed with a file of this folder; the differences, one a line.
pub fn compare(file: &str, failures: &BTreeMap<String, String>) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx_suites");
    let path = folder.join(file);
    let found = text(failures);
    if std::env::var_os("TDC_BLESS").is_some() {
        std::fs::write(path, found).unwrap();
        return String::new();
    }
    let expected = parsed(&std::fs::read_to_string(path).unwrap());
    let mut differences = String::new();
    for (case, reason) in failures {
        match expected.get(case) {
            None => writeln!(differences, "{case} fails: {reason}").unwrap(),
            Some(other) if other != reason => {
                writeln!(
                    differences,
                    "{case} fails otherwise: {reason}, expected {other}"
                )
                .unwrap();
            }
            Some(_) => {}
        }
    }
    for case in expected.keys().filter(|case| !failures.contains_key(*case)) {
        writeln!(differences, "{case} passes, or is gone").unwrap();
    }
    differences
}

fn text(failures: &BTreeMap<String, String>) -> String {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (case, reason) in failures {
        by_reason.entry(reason).or_default().push(case);
    }
    let mut text = String::new();
    for (reason, cases) in by_reason {
        writeln!(text, "{reason}").unwrap();
        for case in cases {
            writeln!(text, "    {case}").unwrap();
        }
    }
    text
}

fn parsed(text: &str) -> BTreeMap<String, String> {
    let mut reason = "";
    let mut cases = BTreeMap::new();
    for line in text.lines() {
        match line.strip_prefix("    ") {
            Some(case) => drop(cases.insert(case.to_owned(), reason.to_owned())),
            None => reason = line,
        }
    }
    cases
}
