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

/// The number after the words with which a line begins.
fn leading_number(output: &str, words: &str) -> f64 {
    let line = output.lines().find_map(|line| line.strip_prefix(words));
    let number = line.and_then(|line| line.split(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no number after `{words}` in {output}"))
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

/// The totals of a report are the sums over its layers; the time has all other launches in addition.
fn assert_totals(report: &Value) {
    let (layers, totals) = (report["layers"].as_array().unwrap(), &report["totals"]);
    for key in ["flops", "parameters"] {
        for index in [0, 1] {
            let of_layers = layers.iter().map(|layer| layer[key][index].as_u64());
            let sum: u64 = of_layers.map(|number| number.expect("a number")).sum();
            assert_eq!(totals[key][index], sum, "{key}");
        }
    }
    let sum = |key: &str| {
        let of_layers = layers.iter().map(|layer| layer[key].as_f64());
        of_layers
            .map(|number| number.expect("a number"))
            .sum::<f64>()
    };
    let total = |key: &str| totals[key].as_f64().expect("a number");
    assert!((total("loss") - sum("loss")).abs() < 1e-9, "{totals}");
    for key in ["dense_us", "us"] {
        assert!(total(key) > sum(key), "{totals}");
    }
    let chosen = report["series"].as_array().unwrap().last().unwrap();
    let bytes = chosen["points"][0]["weight_bytes"].as_u64();
    let parameters = totals["parameters"][1].as_u64();
    assert_eq!(bytes, parameters.map(|number| 4 * number), "{totals}");
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
        "tdc",
        "uniform",
        "dense",
        "ranks of the config",
        "chosen",
    ];
    assert_eq!(names, expected);
    let layers = json["layers"].as_array().unwrap();
    let names: Vec<_> = layers.iter().map(|l| l["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "fc"]);
    for layer in layers {
        let is_dense = layer["form"] == "dense";
        assert_eq!(layer["why_dense"].is_string(), is_dense, "{layer}");
    }
    assert_totals(&json);
    assert_eq!(json["generator"], env!("CARGO_PKG_VERSION"));
    let gpu =
        serde_json::json!([{"name": "h200", "title": "NVIDIA H200 SXM", "cost_model": "h200"}]);
    assert_eq!(json["gpus"], gpu);
    assert!(json["table"].is_null(), "nothing was measured");
    let page = fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("polyline"), "{page}");
    assert!(
        !page.contains("<script") && !page.contains("http"),
        "{page}"
    );
    for expected in [
        "network, with launches that are no layers",
        "NVIDIA H200 SXM",
    ] {
        assert!(page.contains(expected), "{page}");
    }
    for name in ["a", "fc"] {
        assert!(page.contains(&format!("<td>{name}</td>")), "{page}");
    }
}

/// Kept ranks of every kind, and a CP layer: they are planned, weighed and written as they are.
#[test]
fn kept_ranks_stay() {
    let folder = folder();
    let network = NETWORK
        .replace("ranks: [16, 40]", "ranks: [7, 40], factors: [f0, f1, f2]")
        .replace(
            "name: d, n: 32, kernel: 1",
            "name: d, n: 32, kernel: 1, ranks: [9, 11]",
        )
        .replace("name: c, n: 48", "name: c, n: 48, cp_rank: 5")
        .replace("n: 10}", "n: 10, rank: 3}");
    fs::write(folder.path().join("small.yaml"), &network).unwrap();
    let lines = |file: &str| {
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        let lines = text
            .lines()
            .filter(|line| line.contains("{op"))
            .map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let budget = [
        "--flops-cut",
        "0.1",
        "--keep-ranks",
        "-o",
        "kept.yaml",
        "--report",
        "out",
    ];
    let output = succeeds(&folder, &compress(&budget));
    let report = fs::read_to_string(folder.path().join("out/report.json")).unwrap();
    assert_totals(&serde_json::from_str(&report).unwrap());
    let [dense, own] = ["dense: ", "ranks of the config: "].map(|word| numbers(&output, word));
    assert_eq!(dense, own, "{output}");
    assert!(own[1].is_finite() && own[1] > 0.0, "{output}");
    let kept = lines("kept.yaml");
    for (op, keys) in [
        ("b", "ranks: [7, 40], factors: [f0, f1, f2]"),
        ("c", "cp_rank: 5"),
        ("d", "ranks: [9, 11]"),
        ("fc", "rank: 3"),
    ] {
        let name = format!("name: {op},");
        let line = kept.iter().find(|line| line.contains(&name)).unwrap();
        assert!(line.contains(keys), "{line}");
    }
    // The time is that of the plan.
    let plan = succeeds(
        &folder,
        &["plan", "kept.yaml", "--tiles", "model", "--json"],
    );
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let network_us = plan["variants"][0]["network_us"].as_f64().unwrap();
    let [us, ..] = numbers(&output, "chosen: ");
    assert!((network_us - us).abs() < 0.02, "{network_us} {us}");
    let flops = plan["variants"][0]["flops"].as_f64().unwrap() / 1e9;
    let [.., gflop] = numbers(&output, "chosen: ");
    assert!((flops - gflop).abs() < 1e-3, "{flops} {gflop}");

    // Trained factors are of no use to other ranks.
    succeeds(
        &folder,
        &compress(&["--flops-cut", "0.6", "-o", "new.yaml"]),
    );
    let new = lines("new.yaml");
    let b = new.iter().find(|line| line.contains("name: b,")).unwrap();
    assert!(b.contains("ranks: [") && !b.contains("factors"), "{b}");
}

/// CP ranks where they are asked for, with the losses of the factors that `pack` makes.
#[test]
fn cp_ranks_are_chosen() {
    let folder = folder();
    let weights = [
        "--criterion",
        "weights",
        "--flops-cut",
        "0.2",
        "--only",
        "c",
        "--step",
        "24",
    ];
    let loss = |forms: &str, more: &[&str]| {
        let command = [&weights[..], &["--forms", forms], more].concat();
        let output = succeeds(&folder, &compress(&command));
        numbers(&output, "chosen: ")[1]
    };
    let of_cp = loss("cp", &["-o", "cp.yaml"]);
    let config = fs::read_to_string(folder.path().join("cp.yaml")).unwrap();
    assert!(config.contains("cp_rank: "), "{config}");
    assert!(!config.contains("ranks: ["), "{config}");
    let pack = ["pack", "cp.yaml", "w.safetensors", "-o", "w.bin"];
    let packed = succeeds(&folder, &pack);
    let errors = packed.lines().filter(|line| line.contains("CP rank"));
    let errors: Vec<f64> = errors
        .map(|line| {
            let (_, error) = line.split_once("relative error ").expect("an error");
            let digits = error.split([',', ' ']).next().expect("a number");
            digits.parse().expect("a number")
        })
        .collect();
    assert_eq!(errors.len(), config.matches("cp_rank: ").count());
    let squares: f64 = errors.iter().map(|error| error * error).sum();
    assert!((squares - of_cp).abs() < 0.01 * of_cp, "{packed} {of_cp}");

    // They are kept and weighed like other ranks; without `cp` they are ignored like others.
    let output = succeeds(
        &folder,
        &[
            "compress",
            "cp.yaml",
            "--weights",
            "w.safetensors",
            "--criterion",
            "weights",
            "--keep-ranks",
            "--points",
            "2",
        ],
    );
    assert!(
        (numbers(&output, "dense: ")[1] - of_cp).abs() < 1e-4,
        "{output}"
    );
    let others = loss("tucker,rank", &[]);
    let all = loss("tucker,rank,cp", &[]);
    assert!(all <= others && all <= of_cp, "{all} {others} {of_cp}");
    let cp_config = [
        "compress",
        "cp.yaml",
        "--weights",
        "w.safetensors",
        "--flops-cut",
        "0.5",
    ];
    succeeds(&folder, &[&cp_config[..], &["-o", "tucker.yaml"]].concat());
    let config = fs::read_to_string(folder.path().join("tucker.yaml")).unwrap();
    assert!(
        !config.contains("cp_rank") && config.contains("ranks: ["),
        "{config}"
    );
}

/// A layer whose scheme the config requests stays as it is, with its ranks: other forms may not have that scheme.
#[test]
fn requested_schemes_keep_their_ranks() {
    let folder = folder();
    let requested = "ranks: [16, 40], scheme: tucker_fused";
    let network = NETWORK.replace("ranks: [16, 40]", requested);
    fs::write(folder.path().join("small.yaml"), network).unwrap();
    let budget = ["--flops-cut", "0.4", "-o", "new.yaml"];
    let output = succeeds(&folder, &compress(&budget));
    let config = fs::read_to_string(folder.path().join("new.yaml")).unwrap();
    assert!(config.contains(requested), "{config}");
    assert!(numbers(&output, "dense: ")[1] > 0.0, "{output}");
}

/// Ranks for several GPUs and batches: the mean of the relative times keeps the budget, each and the worst are printed and reported.
#[test]
fn several_gpus_and_batches_count_alike() {
    let folder = folder();
    let targets = [
        "--gpu",
        "h200,rtx4090",
        "--batch",
        "1,8",
        "--report",
        "out",
        "--points",
        "2",
    ];
    let budget = ["--speedup", "1.01", "-o", "new.yaml"];
    let command: Vec<&str> = budget.iter().chain(&targets).copied().collect();
    let output = succeeds(&folder, &compress(&command));
    let of_target = |name: &str| {
        let line = output
            .lines()
            .find(|line| line.starts_with(&format!("  {name}: ")));
        let line = line.unwrap_or_else(|| panic!("no {name} in {output}"));
        let (_, relative) = line.split_once(" us, ").unwrap();
        relative.split(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let names = [
        "h200, batch 1",
        "h200, batch 8",
        "rtx4090, batch 1",
        "rtx4090, batch 8",
    ];
    let relative = names.map(of_target);
    let mean = relative.iter().sum::<f64>() / 4.0;
    assert!(mean <= 1.0 / 1.01 + 1e-3, "{output}");
    let worst = relative.iter().copied().fold(0.0, f64::max);
    assert!(
        output.contains(&format!("mean {mean:.3} of dense, worst {worst:.3} (")),
        "{output}"
    );
    let report = fs::read_to_string(folder.path().join("out/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let reported = report["targets"].as_array().unwrap();
    assert_eq!(reported.len(), 4);
    for (target, relative) in reported.iter().zip(relative) {
        let [us, dense] = ["us", "dense_us"].map(|key| target[key].as_f64().unwrap());
        assert!((us / dense - relative).abs() < 1e-3, "{target}");
    }
    let all = &report["relative"];
    for (key, expected) in [("mean", mean), ("worst", worst)] {
        assert!(
            (all[key].as_f64().unwrap() - expected).abs() < 1e-3,
            "{all}"
        );
    }
    let worst_target = all["worst_target"].as_str().unwrap();
    assert_eq!(of_target(worst_target), worst, "{all}");
    let gpus = report["gpus"].as_array().unwrap();
    let gpus: Vec<_> = gpus
        .iter()
        .map(|gpu| gpu["name"].as_str().unwrap())
        .collect();
    assert_eq!(gpus, ["h200", "rtx4090"]);
    assert_totals(&report);
    let page = fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    assert!(page.contains(&format!("worst: {worst_target}<")), "{page}");
    let floor = report["lower_bound"]["floor_us"].as_f64().unwrap();
    let fastest = report["lower_bound"]["fastest_us"].as_f64().unwrap();
    let [us, ..] = numbers(&output, "chosen: ");
    assert!(floor < fastest && fastest <= us + 0.01, "{report}");
    let over_floor = report["over_floor"].as_f64().unwrap();
    assert!((over_floor - us / floor).abs() < 0.01, "{report}");
    let config = fs::read_to_string(folder.path().join("new.yaml")).unwrap();
    assert!(config.contains("rtx4090, batch 8"), "{config}");

    let error = fails(
        &folder,
        &compress(&["--gpu", "h200,a100", "--latency-us", "9"]),
    );
    assert!(error.contains("give --speedup"), "{error}");
    let error = fails(&folder, &compress(&["--batch", "1,2,3,4,5"]));
    assert!(error.contains("at most 4"), "{error}");
    let error = fails(&folder, &compress(&["--tune"]));
    assert!(error.contains("give a budget"), "{error}");
    let error = fails(
        &folder,
        &compress(&["--tune", "--speedup", "1.1", "--method", "tdc"]),
    );
    assert!(error.contains("no other --method"), "{error}");
}

/// In a batch with fp16 activations layers are searched in NHWC, as the planner plans them.
#[test]
fn times_of_batches_are_those_of_their_plans() {
    let folder = folder();
    let config = "\
name: wide
input: 1x3x56x56
ops:
  - {op: conv, name: a, n: 64, activation: relu}
  - {op: conv, name: b, n: 128, activation: relu}
  - {op: conv, name: c, n: 128}
  - {op: global_avg_pool, name: pool}
";
    fs::write(folder.path().join("wide.yaml"), config).expect("a written file");
    let random = ["--random", "1", "--safetensors", "wide.safetensors"];
    succeeds(&folder, &[&["pack", "wide.yaml"], &random[..]].concat());
    let options = ["--batch", "32", "--precision", "fp16"];
    let options = [&options[..], &["--activations", "fp16"]].concat();
    let command = ["compress", "wide.yaml", "--weights", "wide.safetensors"];
    let budget = ["--step", "32", "--speedup", "1.2", "-o", "new.yaml"];
    let output = succeeds(&folder, &[&command[..], &options[..], &budget].concat());
    let [dense_us, ..] = numbers(&output, "dense: ");
    let [us, loss, _] = numbers(&output, "chosen: ");
    assert!(loss > 0.0 && us <= dense_us / 1.2 + 5e-3, "{output}");
    for (config, expected_us) in [("wide.yaml", dense_us), ("new.yaml", us)] {
        let plan = succeeds(&folder, &[&["plan", config], &options[..]].concat());
        let line = plan
            .lines()
            .find_map(|line| line.strip_prefix("the network as a whole: "));
        let planned_us = line.and_then(|line| line.split(' ').next()?.parse::<f64>().ok());
        let planned_us = planned_us.expect("the time of the network");
        assert!(
            (planned_us - expected_us).abs() < 0.01 * expected_us,
            "{plan}{output}"
        );
        assert!(plan.contains("wgmma_nhwc"), "{plan}");
    }
    let written = fs::read_to_string(folder.path().join("new.yaml")).expect("the config");
    assert!(written.contains("activations: fp16"), "{written}");
}

#[test]
fn of_several_budgets_all_are_kept() {
    let folder = folder();
    let all = succeeds(&folder, &compress(&["--flops-cut", "0"]));
    let [us, _, gflop] = numbers(&all, "dense: ");
    let (speedup, latency) = ("1.02", (us / 1.001).to_string());
    let budgets = [
        "--speedup",
        speedup,
        "--latency-us",
        &latency,
        "--flops-cut",
        "0.3",
    ];
    match run(&folder, &compress(&budgets)) {
        output if output.status.success() => {
            let found = String::from_utf8(output.stdout).unwrap();
            let found = numbers(&found, "chosen: ");
            assert!(found[0] <= us / 1.02 + 0.01, "{found:?} {us}");
            assert!(found[2] <= 0.7 * gflop + 1e-3, "{found:?} {gflop}");
        }
        // This network is small: no forms may be that much faster.
        output => {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            let least = leading_number(&error, "error: no forms of the layers keep ");
            assert!((least - us / 1.02).abs() < 0.02, "{error} {us}");
        }
    }
    let error = fails(
        &folder,
        &compress(&["--flops-cut", "0.5", "--layer-error", "1e-9"]),
    );
    assert!(error.contains("no forms of the layers keep"), "{error}");
}

/// Other configs of the network are printed and drawn, also with ranks that are no multiples of the step.
#[test]
fn configs_are_compared() {
    let folder = folder();
    let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
    write(
        "odd.yaml",
        &NETWORK.replace("ranks: [16, 40]", "ranks: [7, 40]"),
    );
    write("none.yaml", &NETWORK.replace(", ranks: [16, 40]", ""));
    let command = [
        "--report",
        "out",
        "--points",
        "3",
        "--compare",
        "odd.yaml",
        "none.yaml",
    ];
    let output = succeeds(&folder, &compress(&command));
    let [dense, own, odd, none] =
        ["dense: ", "ranks of the config: ", "odd: ", "none: "].map(|word| numbers(&output, word));
    assert_eq!(dense, none, "{output}");
    assert!(
        odd[1] > own[1] && own[1] > 0.0,
        "fewer ranks lose more: {output}"
    );
    let report = fs::read_to_string(folder.path().join("out/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["compared"], serde_json::json!(["odd", "none"]));
    let series = report["series"].as_array().unwrap();
    let point = series
        .iter()
        .find(|series| series["name"] == "odd")
        .unwrap();
    let us = point["points"][0]["us"].as_f64().unwrap();
    assert!((us - odd[0]).abs() < 0.01, "{us} {odd:?}");
    let layers = report["layers"].as_array().unwrap();
    let layer = layers.iter().find(|layer| layer["name"] == "b").unwrap();
    assert_eq!(layer["compared"], serde_json::json!(["[7, 40]", "dense"]));
    let page = fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    assert!(page.contains("<th>odd</th><th>none</th>"), "{page}");

    write(
        "odd.yaml",
        &NETWORK.replace("name: c, n: 48", "name: c, n: 48, cp_rank: 3"),
    );
    let output = succeeds(&folder, &compress(&command));
    assert!(numbers(&output, "odd: ")[1] > own[1], "{output}");

    let errors = [
        (
            "name: d, n: 32",
            "name: d, n: 33",
            "its op `d` is not that of the network, `d`",
        ),
        (
            "name: d,",
            "name: e,",
            "its op `e` is not that of the network, `d`",
        ),
    ];
    for (from, to, expected) in errors {
        write("odd.yaml", &NETWORK.replace(from, to));
        let error = fails(&folder, &compress(&command));
        assert!(
            error.starts_with("odd.yaml: ") && error.contains(expected),
            "{error}"
        );
    }
}

/// Measured losses replace the weights. Layers that the file does not have stay dense, and so do ranks below its least.
#[test]
fn measured_losses_are_followed() {
    let folder = folder();
    let losses = r#"{"criterion": "rise of the loss", "layers": [
        {"name": "c", "d1": [16, 48], "d2": [16, 48], "loss": [[0.5, 0.25], [0.25, 0.0]]},
        {"name": "fc", "rank": [4], "loss": [0.125]}]}"#;
    fs::write(folder.path().join("losses.json"), losses).unwrap();
    let measured = ["compress", "small.yaml", "--sensitivity", "losses.json"];
    let command = |more: &[&'static str]| [&measured, more].concat();
    let output = succeeds(
        &folder,
        &command(&["--flops-cut", "0.3", "-o", "new.yaml", "--report", "out"]),
    );
    assert_eq!(numbers(&output, "chosen: ")[1], 0.5, "{output}");
    let new = fs::read_to_string(folder.path().join("new.yaml")).unwrap();
    assert!(new.contains("rise of the loss of losses.json"), "{new}");
    let line = |name: &str| new.lines().find(|line| line.contains(name)).unwrap();
    assert!(line("name: c,").contains("ranks: [16, 16]"), "{new}");
    assert!(!line("name: b,").contains("ranks"), "{new}");
    let report = fs::read_to_string(folder.path().join("out/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let layers = report["layers"].as_array().unwrap();
    let layer = layers.iter().find(|layer| layer["name"] == "b").unwrap();
    assert_eq!(layer["why_dense"], "its losses were not measured");

    // The config's own ranks at `b` were not measured: they are left out, and can be neither kept nor compared.
    assert!(!output.contains("ranks of the config"), "{output}");
    let series = report["series"].as_array().unwrap();
    for series in series {
        assert_ne!(series["name"], "ranks of the config");
        for point in series["points"].as_array().unwrap() {
            assert!(point["loss"].as_f64().unwrap() < 1.0, "{series}");
        }
    }
    for more in [&["--keep-ranks"][..], &["--compare", "small.yaml"]] {
        let error = fails(&folder, &command(&[more, &["--flops-cut", "0.1"]].concat()));
        assert!(
            error.starts_with("small.yaml: the loss of `b` at its"),
            "{error}"
        );
    }

    let error = fails(&folder, &command(&["--flops-cut", "0.6"]));
    assert!(error.contains("GFLOP: the nearest is "), "{error}");
    let error = fails(&folder, &command(&["--weights", "w.safetensors"]));
    assert!(error.contains("cannot be used with"), "{error}");
    fs::write(
        folder.path().join("losses.json"),
        losses.replace("[16, 48]", "[48, 16]").replace("fc", "f"),
    )
    .unwrap();
    let error = fails(&folder, &command(&["--flops-cut", "0.3"]));
    for part in [
        "losses.json: layer `c`: `d1` must",
        "layer `f`: the network has no",
    ] {
        assert!(error.contains(part), "{error}");
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
    assert!(
        error.contains("small.yaml: there is no layer named `e`"),
        "{error}"
    );
    let only = ["--flops-cut", "0.5", "--only", "a,pool"];
    let error = fails(&folder, &compress(&only));
    assert!(error.contains("`pool` has no weight"), "{error}");
    let error = fails(&folder, &compress(&["--flops-cut", "1.5"]));
    assert!(error.contains("from 0 to 1"), "{error}");
    fs::write(folder.path().join("w.safetensors"), b"no weights").unwrap();
    let error = fails(&folder, &compress(&["--flops-cut", "0.5"]));
    assert!(error.contains("w.safetensors"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before);
}
