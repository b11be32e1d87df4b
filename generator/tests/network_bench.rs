//! `tdc-gen bench --network`: everything up to the GPU.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::gpu::gpu;
use tdc_generator::ir::Network;
use tdc_generator::measure::network_bench::{
    Case, Check, Environment, Failure, Journal, Measured, Python, Report, Row, Runner, Running,
    StartError, Subject, TorchVersions, default_torch_subjects, measure, page, random_checkpoint,
    torch_module, torch_subjects,
};
use tdc_generator::plan::{self, plan_network, recipes};
use tdc_generator::verify::{CheckpointParameters, Random, evaluate_network};
use tdc_weights::resolve;

/// The subject with this name.
fn subject(name: &str) -> Subject {
    let known = Subject::ALL.into_iter();
    known.into_iter().find(|s| s.to_string() == name).unwrap()
}

mod selection {
    use super::*;

    fn names(options: &[&str]) -> Vec<String> {
        let options: Vec<_> = options.iter().map(|option| (*option).to_owned()).collect();
        let subjects = torch_subjects(&options).unwrap();
        subjects.iter().map(Subject::to_string).collect()
    }

    #[test]
    fn groups_and_single_names_select_subjects() {
        assert_eq!(
            names(&["torch"]),
            ["torch-fp32", "torch-tf32", "torch-fp16"]
        );
        assert_eq!(
            names(&["compile-max", "compile-fp16", "torch-tf32"]),
            [
                "torch-tf32",
                "compile-max-tf32",
                "compile-fp16",
                "compile-max-fp16"
            ]
        );
    }

    /// The mode that may take minutes to start must be named.
    #[test]
    fn by_default_torch_compile_has_one_mode() {
        let subjects = default_torch_subjects();
        let default: Vec<_> = subjects.iter().map(Subject::to_string).collect();
        assert_eq!(default, names(&["torch", "compile"]));
        assert_eq!(default[3..], ["compile-tf32", "compile-fp16"]);
    }

    #[test]
    fn unknown_names_are_errors() {
        for name in [
            "tensorrt",
            "generated",
            "",
            "torch-bf16",
            "compile-max-fp32",
        ] {
            let error = torch_subjects(&["torch".to_owned(), name.to_owned()]).unwrap_err();
            let text = error.to_string();
            assert!(
                text.starts_with(&format!("`{name}` cannot be compared with")),
                "{text}"
            );
        }
    }
}

mod runs {
    use super::*;

    /// What a fake machine was asked for, in order.
    type Log = Rc<RefCell<Vec<String>>>;

    /// A machine whose times are given by subject; a subject without a time cannot be started.
    struct Fake {
        times: BTreeMap<Subject, Vec<f64>>,
        log: Log,
    }

    struct FakeRunning {
        subject: Subject,
        times: std::vec::IntoIter<f64>,
        log: Log,
    }

    impl Running for FakeRunning {
        fn check(&self) -> Option<Check> {
            (self.subject == Subject::Generated).then(|| Check {
                reference: "float64".to_owned(),
                relative_error: 2e-7,
                tolerance: 1e-5,
            })
        }

        fn time_us(&mut self) -> Result<f64, String> {
            self.log.borrow_mut().push(format!("time {}", self.subject));
            self.times.next().ok_or_else(|| "out of memory".to_owned())
        }
    }

    impl Runner for Fake {
        fn start(
            &mut self,
            case: &Case,
            subject: Subject,
            _: &dyn Fn() -> bool,
        ) -> Result<Box<dyn Running>, StartError> {
            self.log
                .borrow_mut()
                .push(format!("start {subject} b{}", case.batch));
            let times = self.times.get(&subject).cloned();
            let slow = StartError::Limit(Duration::from_secs(90));
            Ok(Box::new(FakeRunning {
                subject,
                times: times.ok_or(slow)?.into_iter(),
                log: self.log.clone(),
            }))
        }
    }

    fn case(batch: u32) -> Case {
        Case {
            batch,
            generated: 7,
            torch: 8,
        }
    }

    fn environment(driver: &str) -> plan::Environment {
        plan::Environment {
            gpu: "h200".to_owned(),
            device: "NVIDIA H200".to_owned(),
            driver: driver.to_owned(),
            nvrtc: "nvcc 13.0.88".to_owned(),
            generator: "1.0.0".to_owned(),
        }
    }

    fn fake(times: &[(&str, &[f64])]) -> Fake {
        let times = times.iter();
        Fake {
            times: times
                .map(|(name, us)| (subject(name), us.to_vec()))
                .collect(),
            log: Log::default(),
        }
    }

    /// Two rounds of three subjects with the journal at a path.
    fn run(path: &Path, cases: &[Case], fake: &mut Fake) -> Measured {
        let subjects = ["generated", "torch-fp32", "torch-fp16"].map(subject);
        let mut journal = Journal::open(path, &environment("580")).unwrap();
        let stop = || false;
        measure(cases, &subjects, 2, &mut journal, fake, &stop, &mut |_| ()).unwrap()
    }

    #[test]
    fn subjects_run_in_turn_and_their_medians_count() {
        let dir = tempfile::tempdir().unwrap();
        let mut fake = fake(&[("generated", &[10.0, 12.0]), ("torch-fp32", &[50.0, 40.0])]);
        let measured = run(&dir.path().join("journal.txt"), &[case(4)], &mut fake);
        assert_eq!(
            *fake.log.borrow(),
            [
                "start generated b4",
                "start torch-fp32 b4",
                "start torch-fp16 b4",
                "time generated",
                "time torch-fp32",
                "time torch-fp32",
                "time generated"
            ]
        );
        let times: Vec<_> = measured.rows.iter().map(|row| row.us).collect();
        assert_eq!(times, [11.0, 45.0]);
        assert_eq!(measured.rows[0].rounds_us, [10.0, 12.0]);
        assert!(measured.rows[0].check.is_some() && measured.rows[1].check.is_none());
        assert_eq!(measured.rows[1].images_per_second, 4e6 / 45.0);
        let [failure] = &measured.failures[..] else {
            panic!("{:?}", measured.failures)
        };
        assert_eq!(failure.reason, "not ready within 90 seconds; it was ended");
        assert!(!measured.is_stopped);
    }

    #[test]
    fn a_subject_that_fails_in_a_later_round_has_no_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut fake = fake(&[
            ("generated", &[10.0, 12.0]),
            ("torch-fp32", &[50.0]),
            ("torch-fp16", &[f64::NAN, 5.0]),
        ]);
        let measured = run(&dir.path().join("journal.txt"), &[case(1)], &mut fake);
        assert_eq!(measured.rows.len(), 1);
        let reasons: Vec<_> = measured
            .failures
            .iter()
            .map(|f| f.reason.as_str())
            .collect();
        assert_eq!(reasons, ["out of memory", "the time of a run is NaN us"]);
    }

    #[test]
    fn rows_of_the_journal_are_not_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.txt");
        let times: &[(&str, &[f64])] =
            &[("generated", &[10.0, 12.0]), ("torch-fp32", &[50.0, 40.0])];
        let first = run(&path, &[case(1)], &mut fake(times));
        // Failures are tried again, and another batch is new.
        let mut second = fake(&[("torch-fp16", &[3.0, 3.0]), ("generated", &[99.0, 99.0])]);
        let measured = run(&path, &[case(1), case(8)], &mut second);
        assert_eq!(
            second.log.borrow()[..3],
            ["start torch-fp16 b1", "time torch-fp16", "time torch-fp16"]
        );
        for (again, row) in measured.rows.iter().zip(&first.rows) {
            assert_eq!(again.rounds_us, row.rounds_us);
            assert_eq!(again.check, row.check);
        }
        let of_batches: Vec<_> = measured
            .rows
            .iter()
            .map(|row| (row.batch, row.us))
            .collect();
        assert_eq!(
            of_batches,
            [(1, 11.0), (1, 45.0), (1, 3.0), (8, 99.0), (8, 3.0)]
        );
        // Other generated code is measured again, PyTorch is not.
        let mut third = fake(times);
        let changed = Case {
            generated: 6,
            ..case(1)
        };
        run(&path, &[changed], &mut third);
        assert_eq!(third.log.borrow()[0], "start generated b1");
        assert_eq!(third.log.borrow().len(), 3);
    }

    #[test]
    fn a_journal_of_another_environment_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.txt");
        drop(Journal::open(&path, &environment("580")).unwrap());
        let error = Journal::open(&path, &environment("590"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot resume from this journal"), "{error}");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}0000000000000007 {{\"batch\": 1}}\n")).unwrap();
        let error = Journal::open(&path, &environment("580"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("remove the line to measure it again"),
            "{error}"
        );
    }

    /// `torch-fp16` is not ready in time with one image and is not started with eight; the next run tries it again.
    #[test]
    fn what_was_not_ready_in_time_is_not_tried_with_larger_batches() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.txt");
        let times: &[(&str, &[f64])] =
            &[("generated", &[10.0, 12.0]), ("torch-fp32", &[50.0, 40.0])];
        let mut first = fake(times);
        let measured = run(&path, &[case(1), case(8)], &mut first);
        let log = first.log.borrow();
        assert!(log.contains(&"start torch-fp16 b1".to_owned()), "{log:?}");
        assert!(!log.contains(&"start torch-fp16 b8".to_owned()), "{log:?}");
        let failures: Vec<_> = measured
            .failures
            .iter()
            .map(|failure| (failure.batch, failure.reason.as_str()))
            .collect();
        assert_eq!(
            failures,
            [
                (1, "not ready within 90 seconds; it was ended"),
                (
                    8,
                    "not tried: with batch 1 it was not ready within 90 seconds"
                ),
            ]
        );
        let mut second = fake(times);
        run(&path, &[case(8)], &mut second);
        assert_eq!(*second.log.borrow(), ["start torch-fp16 b8"]);
    }

    /// Ctrl-C ends the processes of the subjects too: that they have no time is not their failure.
    #[test]
    fn what_ends_with_a_stopped_run_is_no_failure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.txt");
        let mut journal = Journal::open(&path, &environment("580")).unwrap();
        let mut fake = fake(&[("generated", &[10.0]), ("torch-fp32", &[50.0, 40.0])]);
        let log = fake.log.clone();
        let subjects = ["generated", "torch-fp32"].map(subject);
        let stop = || {
            log.borrow()
                .iter()
                .filter(|line| *line == "time generated")
                .count()
                == 2
        };
        let measured = measure(
            &[case(1)],
            &subjects,
            2,
            &mut journal,
            &mut fake,
            &stop,
            &mut |_| (),
        )
        .unwrap();
        assert!(measured.is_stopped);
        assert_eq!(measured.failures, []);
    }

    /// Stopped between two times of the last round: the first one is kept. Each time is in the file when its line is printed.
    #[test]
    fn a_run_that_is_stopped_between_two_times_keeps_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.txt");
        let mut journal = Journal::open(&path, &environment("580")).unwrap();
        let times: &[(&str, &[f64])] =
            &[("generated", &[10.0, 12.0]), ("torch-fp32", &[50.0, 40.0])];
        let mut stopped = fake(times);
        let is_printed = Cell::new(false);
        let subjects = ["generated", "torch-fp32"].map(subject);
        let measured = measure(
            &[case(4)],
            &subjects,
            2,
            &mut journal,
            &mut stopped,
            &|| is_printed.get(),
            &mut |line| {
                if line == "batch 4: torch-fp32 45.00 us, 88889 images/s" {
                    let text = std::fs::read_to_string(&path).unwrap();
                    assert!(text.contains("\"subject\":\"torch-fp32\""), "{text}");
                    is_printed.set(true);
                }
            },
        )
        .unwrap();
        assert!(measured.is_stopped);
        let measured: Vec<_> = measured.rows.iter().map(|row| row.us).collect();
        assert_eq!(measured, [45.0]);
        // As at the end of a process: the lock is released, and nothing else is written.
        drop(journal);
        let mut resumed = fake(times);
        let measured = run(&path, &[case(4)], &mut resumed);
        assert_eq!(
            resumed.log.borrow()[..2],
            ["start generated b4", "start torch-fp16 b4"]
        );
        let measured: Vec<_> = measured.rows.iter().map(|row| row.us).collect();
        assert_eq!(measured, [11.0, 45.0]);
    }

    #[test]
    fn a_stopped_run_keeps_the_cases_that_are_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.txt");
        let mut journal = Journal::open(&path, &environment("580")).unwrap();
        let mut fake = fake(&[("generated", &[10.0, 12.0])]);
        let log = fake.log.clone();
        // After the first time of the second case.
        let stop = || log.borrow().len() >= 5;
        let asked = Cell::new(0);
        let measured = measure(
            &[case(1), case(2), case(3)],
            &[Subject::Generated],
            2,
            &mut journal,
            &mut fake,
            &stop,
            &mut |_| asked.set(asked.get() + 1),
        )
        .unwrap();
        assert!(measured.is_stopped && asked.get() > 0);
        let batches: Vec<_> = measured.rows.iter().map(|row| row.batch).collect();
        assert_eq!(batches, [1]);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text.matches("\"subject\":\"generated\"").count(),
            1,
            "{text}"
        );
    }
}

mod report {
    use super::*;

    fn fixture() -> Report {
        let check = Check {
            reference: "PyTorch 2.11.0 in float64, all images".to_owned(),
            relative_error: 3.25e-7,
            tolerance: 1e-5,
        };
        let row = |batch, name: &str, us: f64| {
            let checked = (name == "generated").then(|| check.clone());
            Row::new(batch, subject(name), vec![us, us + 0.5, us - 0.25], checked)
        };
        Report {
            network: "resnet18".to_owned(),
            input: "3x224x224".to_owned(),
            environment: Environment {
                command: "tdc-gen bench configs/resnet18.yaml --network --batch 1,8,32".to_owned(),
                generator: "1.0.0".to_owned(),
                device: "NVIDIA <H200> & Co".to_owned(),
                gpu: "h200".to_owned(),
                driver: "580.159.04".to_owned(),
                nvcc: "13.0.88".to_owned(),
                torch: Some(TorchVersions {
                    torch: "2.11.0".to_owned(),
                    cudnn: Some(91900),
                    device: Some("NVIDIA H200".to_owned()),
                }),
                without_torch: None,
            },
            method: Report::method(3, Duration::from_secs(120)),
            rows: vec![
                row(1, "generated", 118.0),
                row(1, "torch-fp32", 1292.0),
                row(1, "compile-fp16", 206.0),
                row(1, "compile-max-fp16", 199.0),
                row(8, "generated", 465.0),
                row(8, "torch-fp32", 1745.0),
                row(32, "generated", 1719.0),
                row(32, "compile-fp16", 597.0),
            ],
            failures: vec![Failure {
                batch: 32,
                subject: subject("torch-fp32"),
                reason: "OutOfMemoryError: 3 < 4".to_owned(),
            }],
            is_stopped: false,
        }
    }

    /// `TDC_BLESS=1` writes the file.
    fn assert_golden(name: &str, text: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let path = folder.join(name);
        if std::env::var_os("TDC_BLESS").is_some() {
            std::fs::write(&path, text).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, expected, "{name}; TDC_BLESS=1 writes it");
    }

    #[test]
    fn the_page_and_the_json_are_golden() {
        let report = fixture();
        assert_golden("network-times.html", &page(&report).unwrap());
        assert_golden("network-times.json", &report.json().unwrap());
    }

    #[test]
    fn the_page_has_a_line_for_each_subject_and_the_faster_mode() {
        let html = page(&fixture()).unwrap();
        // Two charts of three lines.
        assert_eq!(html.matches("<polyline").count(), 2 * 3, "{html}");
        assert_eq!(html.matches("<title>compile-max-fp16,").count(), 2);
        assert_eq!(html.matches("<title>compile-fp16, batch 1:").count(), 0);
        assert!(html.contains("NVIDIA &lt;H200&gt; &amp; Co"), "{html}");
        assert!(html.contains("OutOfMemoryError: 3 &lt; 4"), "{html}");
        assert!(html.contains("prefers-color-scheme: dark"));
        for absent in ["<script", "http:", "https:", "NaN", "inf\""] {
            assert!(!html.contains(absent), "{absent}: {html}");
        }
    }

    #[test]
    fn few_rows_can_be_drawn() {
        let mut report = fixture();
        report.rows.truncate(1);
        let html = page(&report).unwrap();
        assert!(
            !html.contains("NaN") && !html.contains("<polyline"),
            "{html}"
        );
        report.rows.clear();
        report.is_stopped = true;
        let html = page(&report).unwrap();
        assert!(
            !html.contains("NaN") && html.contains("stopped before its end"),
            "{html}"
        );
    }

    #[test]
    fn the_table_has_a_column_for_each_batch() {
        let table = fixture().table();
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[1].contains("batch 8: us, images/s"), "{table}");
        let generated: Vec<_> = lines[2].split_whitespace().collect();
        assert_eq!(generated[..3], ["generated", "118.00", "8475"], "{table}");
        assert!(lines[3].trim_end().ends_with('-'), "{table}");
        assert!(
            table.contains("not measured: batch 32, torch-fp32: OutOf"),
            "{table}"
        );
    }
}

mod torch {
    use super::*;

    /// Every op, and what PyTorch's functions do not have: asymmetric padding, windows that end behind the image, other coordinates.
    const EVERY_OP: &str = "\
name: every_op
input: 2x7x19x17
ops:
  - {op: conv, name: type, n: 16, kernel: 5, stride: 2, bn: {name: bn1, eps: 1e-3}, activation: {clip: [0, 6]}}
  - {op: conv, name: half, n: 24, pad: [0, 1, 2, 1], bias: true, activation: silu}
  - {op: conv, name: tucker, n: 26, ranks: [8, 10], stride: [1, 2], bn: bn2, activation: relu, output: {name: early}}
  - {op: conv, name: cp, n: 12, cp_rank: 5, kernel: [3, 5], pad: [1, 2, 0, 1], bias: true, activation: hard_swish, inputs: [half]}
  - {op: conv, name: low, n: 24, kernel: 1, rank: 5, bias: true, activation: gelu}
  - {op: conv, name: grouped, n: 24, groups: 4, dilation: 2, pad: 2, activation: gelu_tanh}
  - {op: add, name: sum, inputs: [low, grouped], activation: tanh}
  - {op: global_avg_pool, name: mean}
  - {op: activation, name: gates, activation: hard_sigmoid}
  - {op: mul, name: gated, inputs: [sum, gates]}
  - {op: shuffle, name: shuffled, groups: 6}
  - {op: slice, name: some, start: 3, n: 14}
  - {op: scale_shift, name: scaled, activation: {leaky_relu: 0.125}}
  - {op: scale_shift, name: normed, bn: bn3}
  - {op: prelu, name: slopes}
  - {op: sub, name: rest, inputs: [slopes, scaled]}
  - {op: layer_norm, name: layers, eps: 1e-6}
  - {op: l2_norm, name: unit}
  - {op: lrn, name: odd, size: 5, alpha: 0.5, k: 2}
  - {op: lrn, name: even, size: 4, alpha: 0.5}
  - {op: conv_transpose, name: up, n: 10, kernel: 3, stride: 2, pad: 1, output_padding: 1, bias: true, activation: sigmoid}
  - {op: conv_transpose, name: skewed, n: 8, kernel: [4, 3], stride: [3, 2], pad: [1, 0, 2, 1], output_padding: [2, 0], groups: 2, bias: true}
  - {op: max_pool, name: p1, kernel: 3, stride: 2, pad: 1}
  - {op: avg_pool, name: p2, kernel: 3, stride: 2, pad: 1, ceil_mode: true}
  - {op: avg_pool, name: p3, kernel: 2, stride: 1, pad: [1, 0, 0, 1]}
  - {op: avg_pool, name: p4, kernel: 2, stride: 1, pad: [1, 0, 0, 1], count_include_pad: false}
  - {op: avg_pool, name: p5, kernel: 2, stride: 1, dilation: 2, pad: 1}
  - {op: max_pool, name: p6, kernel: [2, 3], stride: 1, pad: [0, 2, 1, 1], dilation: 2}
  - {op: resize, name: r1, scale: 2, coordinates: asymmetric, rounding: floor}
  - {op: resize, name: r2, size: [7, 5], rounding: prefer_ceil}
  - {op: resize, name: r3, size: [9, 4], mode: bilinear}
  - {op: resize, name: r4, size: [5, 11], mode: bilinear, coordinates: asymmetric}
  - {op: resize, name: r5, size: [6, 7], mode: bilinear, coordinates: align_corners}
  - {op: pad, name: e1, pad: 2, mode: reflect}
  - {op: pad, name: e2, pad: [1, 0, 0, 3], mode: edge}
  - {op: pad, name: e3, pad: [0, 1, 2, 0], value: -1.5}
  - {op: softmax, name: shares}
  - {op: global_max_pool, name: largest}
  - {op: concat, name: all, inputs: [largest, mean, largest]}
  - {op: flatten, name: flat}
  - {op: linear, name: fc1, n: 31, rank: 6, activation: relu}
  - {op: linear, name: fc2, n: 11, bias: false}
";

    const TWO_INPUTS: &str = "\
name: two
input: {left: 3x5x6x6, right: 3x5x6x6}
ops:
  - {op: sub, name: difference, inputs: [left, right]}
  - {op: conv, name: full, n: 9, ranks: [5, 9], bias: true}
  - {op: flatten, name: flat}
  - {op: linear, name: fc, n: 7}
";

    fn network(folder: &Path, text: &str) -> Network {
        let path = folder.join("network.yaml");
        std::fs::write(&path, text).unwrap();
        network_of(&path)
    }

    fn network_of(path: &Path) -> Network {
        match yaml::load_with_places(path, &Overrides::default()).unwrap() {
            (Config::Network(network), _) => network,
            (Config::LayerSet(_), _) => panic!("{}: not a network", path.display()),
        }
    }

    /// Writes modules and compiles them with Python.
    fn assert_compiles(folder: &Path, texts: &[(String, String)]) {
        let paths = texts.iter().map(|(name, text)| {
            let path = folder.join(format!("{name}.py"));
            std::fs::write(&path, text).unwrap();
            path
        });
        let paths: Vec<PathBuf> = paths.collect();
        let done = Command::new("python3")
            .args(["-m", "py_compile"])
            .args(paths)
            .output();
        let done = done.expect("the tests need python3");
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    #[test]
    fn modules_are_valid_python() {
        let dir = tempfile::tempdir().unwrap();
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
        let names = [
            "resnet18",
            "googlenet",
            "mobilenet_v3_large",
            "densenet121",
            "vgg16",
        ];
        let mut modules: Vec<_> = names
            .iter()
            .map(|name| {
                let network = network_of(&configs.join(format!("{name}.yaml")));
                ((*name).to_owned(), torch_module(&network))
            })
            .collect();
        for (name, text) in [("every_op", EVERY_OP), ("two", TWO_INPUTS)] {
            modules.push((name.to_owned(), torch_module(&network(dir.path(), text))));
        }
        modules.push(("bench".to_owned(), tdc_templates::TORCH_BENCH.to_owned()));
        assert_compiles(dir.path(), &modules);
    }

    #[test]
    fn a_module_does_not_depend_on_the_batch_and_frees_what_nothing_reads() {
        let dir = tempfile::tempdir().unwrap();
        let text = torch_module(&network(dir.path(), EVERY_OP));
        let other = EVERY_OP.replace("2x7x19x17", "5x7x19x17");
        assert_eq!(text, torch_module(&network(dir.path(), &other)));
        for line in [
            "INPUTS = [(7, 19, 17)]",
            "    \"op1_bn.running_var\": \"bn1.running_var\",",
            "        self.op1 = nn.Conv2d(7, 16, (5, 5), stride=(2, 2), padding=(2, 2), bias=False)",
            "        x1 = F.relu6(self.op1_bn(self.op1(x0)))  # \"type\"",
            "        x2 = F.silu(self.op2(F.pad(x1, (1, 1, 0, 2))))  # \"half\"",
            "        del x1",
            "        return (x3, x42,)",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        // An output of the network is kept.
        assert!(!text.contains("del x3\n"), "{text}");
    }

    /// The interpreter of `TDC_PYTHON`, or python3, which must have PyTorch.
    fn python(folder: &Path) -> Python {
        let program = std::env::var_os("TDC_PYTHON").map_or("python3".into(), PathBuf::from);
        let script = folder.join("bench.py");
        std::fs::write(&script, tdc_templates::TORCH_BENCH).unwrap();
        let python = Python {
            program,
            script,
            visible_devices: None,
        };
        let versions = python.versions(&folder.join("probe.log"));
        versions.unwrap_or_else(|reason| panic!("no PyTorch: {reason}"));
        python
    }

    /// Errors of outputs, as PyTorch in float64 finds them: those of the float64 reference rounded to fp32, the first value of the first
    /// output changed by `change`.
    fn errors(python: &Python, folder: &Path, network: &Network, change: f32) -> Vec<f64> {
        let plan = plan_network(network, gpu("h200").unwrap()).unwrap();
        let checkpoint = random_checkpoint(network, &plan, 5);
        let resolved = resolve(&recipes(network, &plan), &checkpoint).unwrap();
        let parameters = CheckpointParameters::new(network, &plan, &checkpoint, &resolved).unwrap();
        let parameters_path = folder.join("parameters.safetensors");
        std::fs::write(&parameters_path, checkpoint.to_safetensors().unwrap()).unwrap();
        let module = folder.join("module.py");
        std::fs::write(&module, torch_module(network)).unwrap();
        let mut files = Vec::new();
        let mut write = |name: String, values: &[f32]| {
            let path = folder.join(name);
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            std::fs::write(&path, bytes).unwrap();
            files.push(path);
        };
        let mut random = Random::new(11);
        let inputs: Vec<Vec<f32>> = network
            .inputs()
            .iter()
            .map(|input| random.values(input.y.len() as usize))
            .collect();
        for (index, input) in inputs.iter().enumerate() {
            write(format!("input{index}.bin"), input);
        }
        let double = inputs
            .iter()
            .map(|x| x.iter().map(|&x| f64::from(x)).collect());
        let values = evaluate_network(network, &parameters, &double.collect::<Vec<_>>());
        for (index, output) in network.outputs.iter().enumerate() {
            let exact = &values[output.op.0];
            let mut rounded: Vec<f32> = exact.iter().map(|&value| value as f32).collect();
            if index == 0 {
                rounded[0] += change;
            }
            write(format!("output{index}.bin"), &rounded);
        }
        let batch = network.batch();
        let log = folder.join("check.log");
        let found = python.check(&module, &parameters_path, batch, &files, &log);
        found.unwrap_or_else(|error| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            panic!("{error}\n{log}")
        })
    }

    #[test]
    #[ignore = "needs PyTorch, in the interpreter of TDC_PYTHON or in python3"]
    fn modules_compute_what_the_reference_does() {
        let dir = tempfile::tempdir().unwrap();
        let python = python(dir.path());
        for (text, outputs) in [(EVERY_OP, 2), (TWO_INPUTS, 1)] {
            let network = network(dir.path(), text);
            let found = errors(&python, dir.path(), &network, 0.0);
            assert_eq!(found.len(), outputs);
            // The rounding of factors and of outputs to fp32.
            assert!(found.iter().all(|error| *error < 1e-6), "{found:?}");
            let found = errors(&python, dir.path(), &network, 0.1);
            assert!(found[0] > 1e-4, "{found:?}");
            let found = errors(&python, dir.path(), &network, f32::NAN);
            assert_eq!(found[0], f64::INFINITY);
        }
    }
}

/// Runs the program on a machine without a usable GPU.
#[cfg(feature = "cli")]
mod command_line {
    use super::*;

    const NETWORK: &str = "name: net\ninput: 1x3x8x8\nops:\n  - {op: conv, name: a, n: 8}\n";
    const SET: &str = "name: set\nlayers:\n  - {conv: [4, 8, 6, 6]}\n";

    fn run(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tdc-gen"));
        // Hides all devices from the CUDA driver.
        command.env("CUDA_VISIBLE_DEVICES", "");
        command.arg("bench").args(arguments).current_dir(dir);
        let done = command.output().unwrap();
        assert!(
            done.stdout.is_empty(),
            "{arguments:?} has printed something"
        );
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    }

    #[test]
    fn errors_have_exit_codes() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = "input: {shape: 1x3x8x8, dtype: uint8}";
        let bytes = NETWORK.replace("input: 1x3x8x8", bytes);
        let halves = NETWORK.replace("n: 8}", "n: 8, output: {dtype: fp16}}");
        for (name, text) in [
            ("net.yaml", NETWORK),
            ("bytes.yaml", &bytes),
            ("halves.yaml", &halves),
            ("set.yaml", SET),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        for (arguments, code, message) in [
            (
                &["net.yaml", "--network", "--batch", "1,8"][..],
                3,
                "error: no usable NVIDIA GPU: ",
            ),
            (
                &["bytes.yaml", "--network"],
                2,
                "error: bytes.yaml: the input `input` is not fp32 NCHW as it is",
            ),
            (
                &["halves.yaml", "--network"],
                2,
                "error: halves.yaml: the output `a` is not fp32 NCHW as it is",
            ),
            (
                &["set.yaml", "--network"],
                2,
                "error: set.yaml: a layer set has no network to time; give the config of a network, or omit --network",
            ),
            (
                &["net.yaml", "--network", "--against", "torch,tensorrt"],
                2,
                "error: --against: `tensorrt` cannot be compared with; choose among torch, compile, ",
            ),
            (
                &["net.yaml", "--network", "--against", "torch", "--no-torch"],
                2,
                "error: the argument '--against <NAME,...>' cannot be used with '--no-torch'",
            ),
            (
                &["net.yaml", "--no-torch"],
                2,
                "error: the following required arguments were not provided",
            ),
            (
                &["net.yaml", "--network", "--start-limit", "0"],
                2,
                "error: invalid value '0' for '--start-limit <SECONDS>'",
            ),
            (
                &["net.yaml", "--network", "--batch", "0"],
                2,
                "error: invalid value '0' for '--batch",
            ),
            (
                &["net.yaml", "--network", "--json", "out.json"],
                2,
                "error: the argument '--network' cannot be used with '--json <FILE>'",
            ),
        ] {
            let (found, output) = run(dir.path(), arguments);
            assert_eq!(found, Some(code), "{arguments:?}: {output}");
            assert!(output.starts_with(message), "{arguments:?}: {output}");
        }
        assert!(!dir.path().join("bench-net").exists());
    }
}
