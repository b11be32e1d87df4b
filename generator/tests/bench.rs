//! Benchmark reports from recorded times: text, JSON and charts, without a GPU.

#![cfg(feature = "bench")]

use tdc_generator::ir::{Precision, Reduce};
use tdc_generator::measure::bench::{
    CandidateResult, CudnnBest, CudnnCandidate, CudnnReport, Environment, Measurement,
    ProblemReport, Report, Timed, charts, report_table, shape_label,
};
use tdc_generator::plan::ChosenBy;
use tdc_runtime::{ConvShape, Padding};

fn timed(us: f64, cold_us: Option<f64>) -> Timed {
    Timed {
        us,
        cold_us,
        relative_error: 2.5e-7,
    }
}

fn candidate(scheme: &str, reduce: Reduce, selected_by: &[&str], us: f64) -> CandidateResult {
    CandidateResult {
        scheme: scheme.to_owned(),
        reduce,
        tile: "h2w2c4".to_owned(),
        selected_by: selected_by.iter().map(|pick| (*pick).to_owned()).collect(),
        predicted_us: Some(1.5),
        outcome: Measurement::Timed(timed(us, Some(us + 1.0))),
    }
}

fn cudnn_best(algorithm: &str, us: f64) -> Option<CudnnBest> {
    Some(CudnnBest {
        algorithm: algorithm.to_owned(),
        timed: timed(us, Some(2.0 * us)),
    })
}

fn problem(n: u32, candidates: Vec<CandidateResult>, cudnn: Option<CudnnReport>) -> ProblemReport {
    let mut shape = ConvShape::new(64, n, 14, 14, 3, 3);
    shape.padding = Padding::all(1);
    ProblemReport {
        label: shape_label(&shape),
        shape,
        flops: 1000,
        bytes: 2000,
        floor_us: 0.6,
        fp32_lanes_floor_us: 0.7,
        precision: Precision::Fp32,
        tolerance: 1e-6,
        plan_chosen_by: Some(ChosenBy::Tuned),
        candidates,
        cudnn,
    }
}

fn cudnn(us: f64) -> CudnnReport {
    CudnnReport {
        same_bound: cudnn_best("fp32 NCHW implicit_gemm, FMA", us),
        fp32_arithmetic: cudnn_best("fp32 NCHW winograd, FMA", us / 2.0),
        fp32_data: cudnn_best("fp32 NHWC engine 38 k2=1, A", us / 4.0),
        fp16: None,
        candidates: vec![CudnnCandidate {
            algorithm: "fp32 NCHW implicit_gemm, FMA".to_owned(),
            quick_us: us + 0.5,
            relative_error: Some(2.5e-7),
        }],
        failed: 3,
        notes: vec!["fp16 accumulate NCHW: cudnnBackendFinalize: not supported".to_owned()],
    }
}

fn report() -> Report {
    let failure = CandidateResult {
        outcome: Measurement::Failed {
            failure: "wrote 3 elements outside its output".to_owned(),
        },
        ..candidate("tdc", Reduce::Atomic, &["scheme_model"], 0.0)
    };
    Report {
        name: "set".to_owned(),
        environment: Environment {
            generator: "1.2.3".to_owned(),
            device: "NVIDIA <H200> & Co".to_owned(),
            gpu: "h200".to_owned(),
            l2_bytes: 60 << 20,
            driver: "580.1".to_owned(),
            nvrtc: "13.0".to_owned(),
            cudnn: Some("9.19.0".to_owned()),
            method: vec!["By a clock.".to_owned()],
        },
        problems: vec![
            problem(
                32,
                vec![
                    candidate(
                        "direct",
                        Reduce::Ordered,
                        &["plan", "tuned", "scheme_tuned"],
                        4.0,
                    ),
                    candidate("direct", Reduce::Ordered, &["model", "scheme_model"], 3.0),
                    candidate("tdc", Reduce::Ordered, &["scheme_model"], 5.0),
                    failure.clone(),
                ],
                Some(cudnn(12.0)),
            ),
            // No generated kernel is correct; cuDNN has no algorithm within the bound.
            problem(
                64,
                vec![failure],
                Some(CudnnReport {
                    same_bound: None,
                    ..cudnn(8.0)
                }),
            ),
            problem(
                96,
                vec![candidate("direct", Reduce::Ordered, &["plan"], 64.0)],
                Some(cudnn(3.0 * 64.0)),
            ),
        ],
        published: Some(
            "shape cuDNN TDC TVM\n64,32,14,14 12 6 -\n64,64,14,14 8 2 1\n"
                .parse()
                .unwrap(),
        ),
        stopped: None,
    }
}

#[test]
fn the_table_has_a_row_for_every_problem() {
    let table = report_table(&report());
    let expected = "\
set: measured on NVIDIA <H200> & Co, planned for h200; driver 580.1, NVRTC 13.0, cuDNN 9.19.0, tdc-gen 1.2.3
By a clock.

C,N,H,W      floor  lanes   plan   cold   error   best  model   cuDNN    cold   error  cuDNN/plan  cuDNN/best  fp32 math  fp32 data  fp16   TDC   TVM  plan: scheme and tile  best: scheme and tile  chosen by
64,32,14,14   0.60   0.70   4.00   5.00  2.5e-7   3.00   3.00   12.00   24.00  2.5e-7        3.00        4.00       6.00       3.00     -  3.00     -  direct h2w2c4          direct h2w2c4          tuned
64,64,14,14   0.60   0.70      -      -       -      -      -       -       -       -           -           -       4.00       2.00     -  1.00  0.50  -                      -                      tuned
64,96,14,14   0.60   0.70  64.00  65.00  2.5e-7  64.00      -  192.00  384.00  2.5e-7        3.00        3.00      96.00      48.00     -     -     -  direct h2w2c4          direct h2w2c4          tuned
";
    assert!(table.starts_with(expected), "{table}");
    for line in [
        "C,N,H,W      scheme  tile       us  predicted  model  tuned  paper   error",
        "64,32,14,14  direct  h2w2c4   3.00       1.50   3.00   4.00      -  2.5e-7",
        "64,32,14,14  tdc     h2w2c4   5.00       1.50   5.00      -      -  2.5e-7",
        "64,64,14,14, tdc atomic h2w2c4: wrote 3 elements outside its output",
        "64,32,14,14, cuDNN fp16 accumulate NCHW: cudnnBackendFinalize: not supported\n\nGeometric means",
        "cuDNN within the fp32 bound / plan             3.00  over 2",
        "cuDNN within the fp32 bound / best candidate   3.46  over 2",
        "fp32 NHWC engine 38 k2=1, A",
        "TDC / plan                                     0.75  over 1\n\nPlans within",
        "Plans within max(1.8 x floor, floor + 2 us), with the floor of the fp32 lanes: 0 of 3; all but 64,32,14,14; 64,64,14,14; 64,96,14,14\n",
        "cuDNN within the fp32 bound faster than the plan: never\n",
        "cuDNN fp32 data faster than the plan: 64,32,14,14; 64,96,14,14\nTDC faster than the plan: 64,32,14,14\n",
    ] {
        assert!(table.contains(line), "{line}\n{table}");
    }
    assert!(!table.contains("TVM / plan"), "it has no ratio\n{table}");
    assert!(
        !table.contains("TVM is faster"),
        "it has no plan to compare with\n{table}"
    );
}

#[test]
fn the_bound_is_that_of_the_kernels_precision() {
    let mut report = report();
    for problem in &mut report.problems {
        problem.precision = Precision::Tf32;
    }
    let table = report_table(&report);
    for line in [
        "cuDNN within the tf32 bound / best candidate   3.46  over 2",
        "cuDNN within the tf32 bound faster than the plan: never\n",
    ] {
        assert!(table.contains(line), "{line}\n{table}");
    }
    assert!(!table.contains("the fp32 bound"), "{table}");
    report.problems[0].precision = Precision::Bf16;
    let title = &report.means()[0].title;
    assert_eq!(title, "cuDNN within the error bounds / plan");
}

#[test]
fn without_cudnn_its_columns_are_left_out() {
    let mut report = report();
    report.environment.cudnn = None;
    report.published = None;
    for problem in &mut report.problems {
        problem.cudnn = None;
    }
    report.stopped = Some("64,128,14,14: the CUDA driver failed".to_owned());
    let table = report_table(&report);
    assert!(table.contains("no cuDNN"), "{table}");
    assert!(!table.contains("/plan"), "{table}");
    assert!(!table.contains("algorithms"), "{table}");
    assert!(
        table.contains("C,N,H,W      floor  lanes   plan   cold   error   best  model  plan: scheme and tile  best: scheme and tile  chosen by\n"),
        "{table}"
    );
    assert!(table.ends_with("Run ended early: 64,128,14,14: the CUDA driver failed\n"));
}

#[test]
fn a_wrong_plan_has_no_time() {
    let mut report = report();
    let problem = &mut report.problems[0];
    problem.candidates[0].outcome = Measurement::Failed {
        failure: "wrong".to_owned(),
    };
    assert_eq!(problem.planned(), None);
    assert_eq!(problem.best_us(), Some(3.0));
    // Without a plan in the report, the fastest candidate is used.
    problem.candidates.remove(0);
    assert_eq!(problem.planned_us(), Some(3.0));
}

#[test]
fn an_empty_report_can_be_printed() {
    let mut report = report();
    report.problems.clear();
    report.stopped = Some("at once".to_owned());
    assert!(report_table(&report).contains("Run ended early: at once"));
    assert!(report.means().is_empty());
    for (_, chart) in charts(&report).unwrap() {
        assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
    }
}

#[test]
fn the_json_has_what_was_measured() {
    let json: serde_json::Value = serde_json::from_str(&report().json().unwrap()).unwrap();
    assert_eq!(json["environment"]["cudnn"], "9.19.0");
    assert_eq!(json["environment"]["method"][0], "By a clock.");
    let first = &json["problems"][0];
    assert_eq!(first["shape"]["n"], 32);
    assert_eq!(first["precision"], "fp32");
    assert_eq!(first["candidates"][0]["us"], 4.0);
    assert_eq!(first["candidates"][0]["selected_by"][0], "plan");
    assert!(first["candidates"][0]["failure"].is_null());
    let failure = &first["candidates"][3];
    assert_eq!(failure["reduce"], "atomic");
    assert_eq!(failure["failure"], "wrote 3 elements outside its output");
    assert!(failure["us"].is_null());
    assert_eq!(first["cudnn"]["same_bound"]["cold_us"], 24.0);
    assert_eq!(first["cudnn"]["failed"], 3);
    assert!(json["problems"][1]["cudnn"]["same_bound"].is_null());
    let mean = &json["geometric_means"][0];
    assert_eq!(mean["title"], "cuDNN within the fp32 bound / plan");
    assert!((mean["mean"].as_f64().unwrap() - 3.0).abs() < 1e-12);
    assert_eq!(json["near_fp32_lanes_floor"]["total"], 3);
    assert_eq!(json["near_fp32_lanes_floor"]["others"][2], "64,96,14,14");
    let faster = json["faster_than_plan"].as_array().unwrap();
    assert_eq!(faster[0]["title"], "cuDNN within the fp32 bound");
    assert_eq!(faster[0]["problems"], serde_json::json!([]));
    assert_eq!(faster[3]["problems"][0], "64,32,14,14");
    assert_eq!(first["plan_chosen_by"], "tuned");
}

#[test]
fn near_the_floor_means_1_8_times_or_2_us() {
    let mut report = report();
    let time = |us| vec![candidate("direct", Reduce::Ordered, &["plan"], us)];
    let mut cases = Vec::new();
    // Below 2.5 us the bound is 2 us above the floor, above it 1.8 floors.
    for (fp32_lanes_floor_us, us) in [(1.0, 3.0), (1.0, 3.01), (10.0, 18.0), (10.0, 18.01)] {
        let n = 8 * (1 + cases.len() as u32);
        cases.push(ProblemReport {
            fp32_lanes_floor_us,
            ..problem(n, time(us), None)
        });
    }
    report.problems = cases;
    let near = report.near_fp32_lanes_floor();
    assert_eq!((near.count, near.total), (2, 4));
    assert_eq!(near.others, ["64,16,14,14", "64,32,14,14"]);
    assert!(
        report.faster_than_plan().is_empty(),
        "nobody else has times"
    );
}

#[test]
fn equal_times_do_not_count_as_faster() {
    let mut report = report();
    report.published = None;
    report.problems[0].cudnn = Some(cudnn(4.0));
    let faster = report.faster_than_plan();
    assert_eq!(faster[0].problems, [""; 0]);
    assert_eq!(faster[1].problems, ["64,32,14,14"]);
}

/// The attribute of an element of an SVG, as a number.
fn number(element: &str, attribute: &str) -> f64 {
    let (_, value) = element.split_once(&format!(" {attribute}=\"")).unwrap();
    value.split('"').next().unwrap().parse().unwrap()
}

/// The texts of an SVG with their attributes.
fn texts(chart: &str) -> Vec<(&str, &str)> {
    let elements = chart.split("<text ").skip(1);
    elements
        .map(|element| {
            let (attributes, text) = element.split_once('>').unwrap();
            (attributes, text.split('<').next().unwrap().trim())
        })
        .collect()
}

#[test]
fn charts_have_a_bar_for_every_time_and_both_floors() {
    let report = report();
    let charts = charts(&report).unwrap();
    assert_eq!(
        charts,
        tdc_generator::measure::bench::charts(&report).unwrap()
    );
    let names: Vec<_> = charts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["set.svg", "set-over-n.svg"]);
    let bars = &charts[0].1;
    // The background, four legends (nothing has fp16), and 4 + 1 + 4 times.
    assert_eq!(bars.matches("<rect").count(), 1 + 4 + 9, "{bars}");
    for floor in ["#000000", "#888888"] {
        let line = format!("stroke=\"{floor}\" stroke-width=\"2\"");
        assert_eq!(bars.matches(&line).count(), 1 + 3, "{bars}");
        let lines = &charts[1].1;
        assert_eq!(lines.matches(&line).count(), 1 + 1, "{lines}");
    }
    for (_, chart) in &charts {
        let texts: Vec<_> = texts(chart).into_iter().map(|(_, text)| text).collect();
        for expected in [
            "set on NVIDIA &lt;H200&gt; &amp; Co",
            "plan",
            "cuDNN fp32 data",
            "floor",
            "fp32 lanes&apos; floor",
            "microseconds, logarithmic",
        ] {
            assert!(texts.contains(&expected), "{expected}: {texts:?}");
        }
        assert!(chart.contains("fill=\"#FFFFFF\""), "{chart}");
        assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
        assert!(chart.starts_with("<svg ") && chart.ends_with("</svg>\n"));
        assert_eq!(chart.matches('<').count(), chart.matches('>').count());
    }
}

/// Measured with the letter widths of a wide font, because viewers use different fonts.
#[test]
fn every_label_of_a_chart_is_whole() {
    const WIDE: f64 = 0.64;
    let mut report = report();
    for batch in [1, 256] {
        for (index, problem) in report.problems.iter_mut().enumerate() {
            problem.label = format!("96,{},224,224 11x11 b{batch} hwcn rank 16", 96 + index);
        }
        report.name = "a-set-of-layers-with-a-long-name-that-somebody-has-chosen".to_owned();
        for count in [3, 1] {
            report.problems.truncate(count);
            for (name, chart) in charts(&report).unwrap() {
                let [width, height] = ["width", "height"].map(|side| number(&chart, side));
                let texts = texts(&chart);
                for (attributes, text) in &texts {
                    let text = text.replace("&lt;", "<").replace("&gt;", ">");
                    let text = text.replace("&apos;", "'").replace("&amp;", "&");
                    let length = WIDE * number(attributes, "font-size") * text.len() as f64;
                    let (begin, end) = match attributes {
                        middle if middle.contains("\"middle\"") => (-length / 2.0, length / 2.0),
                        right if right.contains("\"end\"") => (-length, 0.0),
                        _ => (0.0, length),
                    };
                    let [x, y] =
                        [" x", " y"].map(|at| number(&format!(" {attributes}"), at.trim()));
                    let (at, most) = match attributes.contains("rotate(") {
                        true => (y, height),
                        false => (x, width),
                    };
                    let inside = at + begin >= 0.0 && at + end <= most;
                    assert!(inside, "{name}: `{text}` at {at}, {length} long of {most}");
                }
                if !name.ends_with("-over-n.svg") {
                    for problem in &report.problems {
                        assert!(texts.iter().any(|(_, text)| *text == problem.label));
                    }
                }
            }
        }
    }
}

#[test]
fn only_a_sweep_gets_a_line_chart() {
    let mut report = report();
    report.problems[1].shape.h = 15;
    assert_eq!(charts(&report).unwrap().len(), 1);
    report.problems.truncate(1);
    assert_eq!(charts(&report).unwrap().len(), 1);
    // The values span less than a decade.
    report.problems[0].floor_us = 2.0;
    report.problems[0].fp32_lanes_floor_us = 2.0;
    assert!(!charts(&report).unwrap()[0].1.contains("logarithmic"));
    // A run that was stopped before its first problem was complete.
    report.problems.clear();
    let (_, chart) = charts(&report).unwrap().remove(0);
    assert!(
        !chart.contains("NaN") && chart.ends_with("</svg>\n"),
        "{chart}"
    );
}

/// Runs the program on a machine without a usable GPU.
#[cfg(feature = "cli")]
mod command_line {
    use std::path::Path;
    use std::process::{Command, Output};
    use tempfile::TempDir;

    const SET: &str = "name: set\nlayers:\n  - {conv: [4, 8, 6, 6]}\n";
    const NO_CONVOLUTION: &str = "\
name: flat
input: 1x3x8x8
ops:
  - {op: global_avg_pool, name: p}
";

    fn run(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tdc-gen"));
        // Hides all devices from the CUDA driver.
        command.env("CUDA_VISIBLE_DEVICES", "");
        command.arg("bench").args(arguments).current_dir(dir);
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().unwrap();
        assert!(stdout.is_empty(), "{arguments:?} has printed something");
        (status.code(), String::from_utf8(stderr).unwrap())
    }

    fn folder() -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("set.yaml", SET),
            ("flat.yaml", NO_CONVOLUTION),
            ("times.txt", "shape cuDNN A\n8,8,5,5 1\n"),
            ("libcudnn.so.9", "no library"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn without_a_gpu_bench_exits_with_3() {
        let dir = folder();
        for workload in [
            &["set.yaml"][..],
            &["--sweep", "4,6,6", "--sweep-max-n", "64"],
        ] {
            let files = ["--no-cudnn", "--json", "out.json", "--svg", "charts"];
            let (code, output) = run(dir.path(), &[workload, &files[..]].concat());
            assert_eq!(code, Some(3), "{output}");
            assert!(
                output.starts_with("error: no usable NVIDIA GPU: "),
                "{output}"
            );
            assert!(
                output.contains("`tdc-gen plan` predicts times without"),
                "{output}"
            );
        }
        assert!(!dir.path().join("out.json").exists());
        assert!(!dir.path().join("charts").exists());
    }

    #[test]
    fn invalid_arguments_are_reported_before_the_gpu_is_opened() {
        let dir = folder();
        for (arguments, message) in [
            (
                &["flat.yaml"][..],
                "error: flat: the config has no convolution to time; use another config, or --dense if all convolutions are factorised",
            ),
            (
                &["set.yaml", "--table", "nowhere.txt"],
                "error: nowhere.txt: no such file; check the path",
            ),
            (
                &["--sweep", "4,6,6", "--table", "set.yaml"],
                "error: set.yaml: ",
            ),
            (
                &["set.yaml", "--device", "-1"],
                "error: unexpected argument '-1' found",
            ),
            (
                &["set.yaml", "--cudnn", "nowhere"],
                "error: nowhere: libcudnn.so.9 was not found there; give the file or its directory, or omit `--cudnn` to search for it",
            ),
            (
                &["set.yaml", "--cudnn", "."],
                "error: ./libcudnn.so.9: cannot be loaded: ",
            ),
            (
                &["set.yaml", "--published", "nowhere.txt"],
                "error: nowhere.txt: ",
            ),
            (
                &["set.yaml", "--published", "times.txt"],
                "error: times.txt: line 2: `8,8,5,5` has 0 times after cuDNN's",
            ),
            (
                &["--sweep", "4,6"],
                "error: invalid value '4,6' for '--sweep <C,H,W[,R]>': `4,6` is not a sweep; write C,H,W",
            ),
            (
                &["--sweep", "4,6,6", "--sweep-max-n", "31"],
                "error: --sweep: a sweep up to N = 31 is empty; it starts at 32",
            ),
            (&["--sweep", "4,2,2,0"], "error: --sweep: "),
            (
                &["--sweep", "4,6,6", "--batch", "1,8"],
                "error: --sweep is for one batch, not for 1,8; choose one",
            ),
            (&["--sweep", "4,6,6", "--gpu", "gtx1080ti"], "error: "),
            (
                &["set.yaml", "--sweep", "4,6,6"],
                "error: the argument '[CONFIG]' cannot be used with '--sweep <C,H,W[,R]>'",
            ),
            (
                &["set.yaml", "--scheme", "indirect"],
                "error: invalid value 'indirect' for '--scheme <NAME,...>'",
            ),
            (
                &["set.yaml", "--tiles-per-scheme", "0"],
                "error: invalid value '0' for '--tiles-per-scheme <TILES>'",
            ),
            (
                &["set.yaml", "--no-cudnn", "--cudnn", "x"],
                "error: the argument '--no-cudnn' cannot be used with",
            ),
            (
                &[],
                "error: the following required arguments were not provided",
            ),
        ] {
            let (code, output) = run(dir.path(), arguments);
            assert_eq!(code, Some(2), "{arguments:?}: {output}");
            assert!(output.starts_with(message), "{arguments:?}: {output}");
        }
    }
}
