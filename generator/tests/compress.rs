//! Tests of `tdc-gen compress` on the command line.

#![cfg(feature = "cli")]

use serde_json::Value;
use std::fs;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A residual network with ranks that are to be ignored.
const NETWORK: &str = "\
name: small
input: 1x24x14x14
ops:
  - {op: conv, name: a, n: 48, bn: a_bn, activation: relu}
  - {op: conv, name: b, n: 48, bn: b_bn, activation: relu, ranks: [16, 40]}
  - {op: conv, name: c, n: 48, bn: c_bn}
  - {op: add, name: sum, inputs: [c, a], activation: relu}
  - {op: conv, name: d, n: 32, kernel: 1}
  - {op: global_avg_pool, name: pool}
  - {op: flatten, name: features}
  - {op: linear, name: fc, n: 10}
";

/// A folder with the network and random weights.
fn folder() -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    fs::write(folder.path().join("small.yaml"), NETWORK).expect("a written file");
    let weights = ["--random", "1", "--safetensors", "w.safetensors"];
    let command = ["pack", "small.yaml", "--dense"].iter().chain(&weights);
    succeeds(&folder, &command.copied().collect::<Vec<_>>());
    folder
}

fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tdc-gen"));
    command.args(arguments).current_dir(folder.path());
    command.output().expect("tdc-gen runs")
}

fn succeeds(folder: &TempDir, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// The message of a command that exits with 2.
fn fails(folder: &TempDir, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    let errors = String::from_utf8(output.stderr).expect("text");
    let (_, error) = errors.split_once("error: ").expect("an error");
    error.trim_end().to_owned()
}

fn compress<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let start = ["compress", "small.yaml", "--weights", "w.safetensors"];
    start.iter().chain(more).copied().collect()
}

/// Microseconds, loss and GFLOP of the line that starts with a word.
fn numbers(output: &str, word: &str) -> [f64; 3] {
    let line = output.lines().find_map(|line| line.strip_prefix(word));
    let line = line.unwrap_or_else(|| panic!("no line `{word}` in {output}"));
    let mut words = line.split([' ', ',']).filter_map(|word| word.parse().ok());
    [(); 3].map(|()| words.next().expect("a number"))
}

#[test]
fn a_config_within_the_budget_is_written() {
    let folder = folder();
    let budget = ["--flops-cut", "0.5", "--step", "8", "-o", "new.yaml"];
    let output = succeeds(&folder, &compress(&budget));
    let [_, dense_loss, dense_gflop] = numbers(&output, "dense: ");
    let [us, loss, gflop] = numbers(&output, "chosen: ");
    assert_eq!(dense_loss, 0.0);
    assert!(loss > 0.0 && gflop <= 0.5 * dense_gflop + 1e-3, "{output}");
    let own = numbers(&output, "ranks of the config: ");
    assert!(own[1] > 0.0 && own[2] < dense_gflop, "{output}");

    let config = fs::read_to_string(folder.path().join("new.yaml")).unwrap();
    assert!(config.contains("ranks: ["), "{config}");
    assert!(config.contains("w.safetensors"), "{config}");
    // The config is planned at the time that was predicted, and its weights can be packed and are right.
    let plan = succeeds(&folder, &["plan", "new.yaml", "--tiles", "model", "--json"]);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let network_us = plan["variants"][0]["network_us"].as_f64().unwrap();
    assert!((network_us - us).abs() < 0.02, "{network_us} {us}");
    succeeds(&folder, &["pack", "new.yaml", "w.safetensors"]);

    // The same bytes again, and with the same ranks kept.
    let again = ["--flops-cut", "0.5", "--step", "8", "-o", "again.yaml"];
    succeeds(&folder, &compress(&again));
    let again = fs::read_to_string(folder.path().join("again.yaml")).unwrap();
    assert_eq!(config, again);
    let kept = [
        "--flops-cut",
        "0.2",
        "--keep-ranks",
        "--only",
        "a",
        "-o",
        "kept.yaml",
    ];
    succeeds(&folder, &compress(&kept));
    let kept = fs::read_to_string(folder.path().join("kept.yaml")).unwrap();
    let of_b = kept.lines().find(|line| line.contains("name: b,"));
    assert!(of_b.unwrap().contains("ranks: [16, 40]"), "{kept}");
    let of_c = kept.lines().find(|line| line.contains("name: c,"));
    assert!(!of_c.unwrap().contains("ranks"), "{kept}");
}

#[test]
fn the_optimum_is_no_worse_than_other_methods() {
    let folder = folder();
    let by = |method: &str| {
        let budget = ["--flops-cut", "0.6", "--step", "8", "--method", method];
        numbers(&succeeds(&folder, &compress(&budget)), "chosen: ")
    };
    let (optimal, uniform) = (by("optimal"), by("uniform"));
    assert!(optimal[1] <= uniform[1], "{optimal:?} {uniform:?}");
    let within = |loss: f64| {
        let loss = loss.to_string();
        let budget = ["--loss", &loss, "--step", "8"];
        numbers(&succeeds(&folder, &compress(&budget)), "chosen: ")
    };
    let fast = within(uniform[1] + 1e-4);
    assert!(fast[0] <= uniform[0], "{fast:?} {uniform:?}");
}

#[test]
fn a_report_has_all_series_and_layers() {
    let folder = folder();
    let report = ["--flops-cut", "0.5", "--report", "out", "--points", "4"];
    succeeds(&folder, &compress(&report));
    let json = fs::read_to_string(folder.path().join("out/report.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let series = json["series"].as_array().unwrap();
    let names: Vec<_> = series.iter().map(|s| s["name"].as_str().unwrap()).collect();
    let expected = [
        "optimal",
        "dense",
        "chosen",
        "tdc",
        "uniform",
        "ranks of the config",
    ];
    assert_eq!(names, expected);
    let layers = json["layers"].as_array().unwrap();
    let names: Vec<_> = layers.iter().map(|l| l["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "fc"]);
    for layer in layers {
        let is_dense = layer["form"] == "dense";
        assert_eq!(layer["why_dense"].is_string(), is_dense, "{layer}");
    }
    let page = fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("polyline"), "{page}");
    assert!(
        !page.contains("<script") && !page.contains("http"),
        "{page}"
    );
    for name in ["a", "fc"] {
        assert!(page.contains(&format!("<td>{name}</td>")), "{page}");
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = folder();
    let before = fs::read_dir(folder.path()).unwrap().count();
    let no_weights = ["compress", "small.yaml", "--flops-cut", "0.5"];
    let error = fails(&folder, &no_weights);
    assert!(
        error.contains("give a safetensors file by --weights"),
        "{error}"
    );
    let error = fails(&folder, &compress(&["-o", "new.yaml"]));
    assert!(error.contains("give one, such as --latency-us"), "{error}");
    let error = fails(
        &folder,
        &compress(&["--latency-us", "0.5", "-o", "new.yaml"]),
    );
    assert!(error.contains("keep 0.50 us: the nearest is "), "{error}");
    let error = fails(&folder, &compress(&["--flops-cut", "0.5", "--keep", "a,e"]));
    assert_eq!(error, "there is no layer named `e`");
    let error = fails(&folder, &compress(&["--flops-cut", "1.5"]));
    assert!(error.contains("from 0 to 1"), "{error}");
    fs::write(folder.path().join("w.safetensors"), b"no weights").unwrap();
    let error = fails(&folder, &compress(&["--flops-cut", "0.5"]));
    assert!(error.contains("w.safetensors"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before);
}
