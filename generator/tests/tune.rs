//! Tuning with a device that returns made-up times: journal, resuming, shards, tables.

#![cfg(feature = "tune")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use tdc_generator::compile::{CompilerVersion, FakeCompiler, Image};
use tdc_generator::config::{Overrides, yaml};
use tdc_generator::gpu::gpu;
use tdc_generator::measure::tune::{
    Event, Journal, JournalError, Measure, MeasureError, Options, Outcome, Problems, Row, RunEnd,
    Selection, Shard, Summary, Timing, tune,
};
use tdc_generator::plan::{Environment, PlannedUnit, TuningTable};
use tdc_generator::scheme::scheme;
use tdc_generator::verify::ProblemData;
use tdc_runtime::{Arch, Checksum};
use tempfile::TempDir;

const CONFIG: &str = "\
name: set
layers:
  - {conv: [7, 5, 6, 5]}
  - {conv: [7, 5, 6, 5], name: again, activation: relu}
  - {conv: [7, 5, 6, 5], name: sum, residual: true}
  - {conv: [8, 12, 5, 7], kernel: 1, batch: 2, prologue: true}
  - {conv: [3, 4, 9, 9], stride: 2}
  - {conv: [6, 6, 5, 5], groups: 6}
";

const PROBLEMS: [&str; 5] = [
    "conv_c7_n5_h6_w5_k3x3_p1_bias_relu",
    "conv_c7_n5_h6_w5_k3x3_p1_bias_residual_relu",
    "conv_b2_c8_n12_h5_w7_k1x1_prologue_bias_relu",
    "conv_c3_n4_h9_w9_k3x3_s2_p1_bias_relu",
    "conv_c6_n6_h5_w5_k3x3_p1_g6_bias_relu",
];

/// Candidates of the problems with [`options`]: seven of each scheme, four of the depthwise convolution, and
/// two schemes for the 1x1 convolution.
const TOTAL: usize = 39;

/// Behaviour of the device for a unit, other than returning a time.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Wrong,
    LaunchFailed,
    DeviceLost,
    /// The process ends.
    Killed,
}

/// A device whose times are a function of the units' names.
#[derive(Default)]
struct FakeDevice {
    /// By a substring of the unit's name.
    faults: BTreeMap<String, Fault>,
    /// Units that were measured, and whether in full.
    measured: Vec<(String, bool)>,
}

/// 1 to 5 us.
fn time_of(unit: &str) -> f64 {
    (1000 + Checksum::of(unit.as_bytes()) % 4000) as f64 / 1e3
}

impl Measure for FakeDevice {
    fn measure(
        &mut self,
        unit: &PlannedUnit,
        image: &Image,
        _data: &ProblemData,
        wants_full: &dyn Fn(f64) -> bool,
    ) -> Result<Timing, MeasureError> {
        let name = unit.unit.name.to_string();
        let symbol = unit.kernels[0].symbol.as_bytes();
        let has_symbol = image.cubin.windows(symbol.len()).any(|part| part == symbol);
        assert!(has_symbol, "{name} came with another's image");
        let fault = self.faults.iter().find(|(part, _)| name.contains(*part));
        let fault = fault.map(|(_, fault)| *fault);
        assert!(fault != Some(Fault::Killed), "killed");
        let why = format!("{name}:\n made up");
        match fault {
            Some(Fault::Wrong) => return Err(MeasureError::Wrong(why)),
            Some(Fault::LaunchFailed) => return Err(MeasureError::LaunchFailed(why)),
            Some(Fault::DeviceLost) => return Err(MeasureError::DeviceLost(why)),
            _ => {}
        }
        let us = time_of(&name);
        let full = wants_full(us * 1.01);
        self.measured.push((name, full));
        Ok(Timing {
            quick_us: us * 1.01,
            full_us: full.then_some(us),
        })
    }
}

fn environment() -> Environment {
    Environment {
        gpu: "h200".to_owned(),
        device: "NVIDIA H200".to_owned(),
        driver: "580.1".to_owned(),
        nvrtc: "13.0".to_owned(),
        generator: "0.1.0".to_owned(),
    }
}

fn problems() -> Problems {
    let config = yaml::parse(CONFIG, "set.yaml", &Overrides::default()).expect("a config");
    let mut problems = Problems::default();
    problems.add(&config);
    problems.add(&config);
    problems
}

fn options() -> Options {
    Options {
        gpu: gpu("h200").expect("a GPU"),
        arch: Arch::new(90),
        threads: NonZeroUsize::new(3).expect("a number"),
        schemes: ["pointwise", "direct"]
            .map(|name| scheme(name).expect("a scheme"))
            .to_vec(),
        selection: Selection::Some { top: 4, random: 3 },
        shard: Shard::WHOLE,
    }
}

/// A folder with a journal.
struct JournalFolder(TempDir);

impl JournalFolder {
    fn new() -> Self {
        Self(TempDir::new().expect("a folder"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("sub/t.journal")
    }

    fn open(&self) -> Result<Journal, JournalError> {
        Journal::open(&self.path(), &environment())
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).expect("a journal")
    }

    fn write(&self, text: &str) {
        fs::create_dir_all(self.0.path().join("sub")).expect("a folder");
        fs::write(self.path(), text).expect("a journal");
    }

    /// Runs a process: opens the journal, measures until `most` candidates are done, returns the summary and
    /// the table.
    fn run(
        &self,
        options: &Options,
        device: &mut FakeDevice,
        most: usize,
    ) -> (Summary, TuningTable) {
        let version = CompilerVersion {
            major: 13,
            minor: 0,
        };
        let compiler = FakeCompiler::new(version, &[Arch::new(90)]);
        self.run_with(options, &compiler, device, most)
    }

    fn run_with(
        &self,
        options: &Options,
        compiler: &FakeCompiler,
        device: &mut FakeDevice,
        most: usize,
    ) -> (Summary, TuningTable) {
        let mut journal = self.open().unwrap_or_else(|error| panic!("{error}"));
        let done = RefCell::new(0);
        let mut last = 0;
        let summary = tune(
            &problems(),
            options,
            &mut journal,
            compiler,
            device,
            &mut || *done.borrow() == most,
            &mut |event| {
                if let Event::Done { progress, .. } = event {
                    assert_eq!(progress.done, last + 1);
                    last += 1;
                    *done.borrow_mut() += 1;
                }
            },
        );
        (
            summary.unwrap_or_else(|error| panic!("{error}")),
            journal.table(),
        )
    }

    fn rows(&self) -> Vec<Row> {
        self.open().expect("a journal").rows().cloned().collect()
    }
}

const ALL: usize = usize::MAX;

#[test]
fn every_candidate_gets_a_row_and_the_table_has_the_best() {
    let bench = JournalFolder::new();
    let mut device = FakeDevice::default();
    let (summary, table) = bench.run(&options(), &mut device, ALL);
    assert_eq!(summary.ended, RunEnd::Complete);
    let keys: Vec<_> = problems().iter().map(|(key, _)| key.to_owned()).collect();
    assert_eq!(keys, PROBLEMS);
    // Four of five problems have one default scheme, a 1x1 convolution two.
    assert_eq!(table.len(), 6);
    let rows = bench.rows();
    assert_eq!(rows.len(), TOTAL);
    assert_eq!(
        (summary.correct, summary.wrong, summary.failed),
        (TOTAL, 0, 0)
    );
    let full = device.measured.iter().filter(|(_, full)| *full).count();
    assert!((6..TOTAL).contains(&full), "{full}");
    for (problem, scheme, best) in table.iter() {
        let times = rows
            .iter()
            .filter(|row| (&row.problem[..], &row.scheme[..]) == (problem, scheme));
        let times: Vec<_> = times
            .map(|row| (row, time_of(&format!("{problem}_{scheme}_{}", row.tile))))
            .collect();
        let least = times
            .iter()
            .map(|(_, us)| *us)
            .fold(f64::INFINITY, f64::min);
        assert_eq!(best.us, least, "{problem}");
        for (row, us) in times {
            match row.outcome {
                Outcome::Timed(quick, full) => {
                    assert!((full - us).abs() < 1e-6 && (quick - 1.01 * us).abs() < 1e-3);
                }
                Outcome::QuickOnly(quick) => assert!(quick > 1.3 * least),
                _ => panic!("{row}"),
            }
        }
    }
    // A further run has nothing to do, and a larger selection measures only new candidates.
    let mut device = FakeDevice::default();
    let (_, again) = bench.run(&options(), &mut device, ALL);
    assert!(device.measured.is_empty());
    assert_eq!(again, table);
    let more = Options {
        selection: Selection::Some { top: 9, random: 0 },
        ..options()
    };
    bench.run(&more, &mut device, ALL);
    let known: BTreeSet<_> = rows.iter().map(|row| row.tile.clone()).collect();
    assert!(
        !device.measured.is_empty() && device.measured.len() <= 6 * 5,
        "{known:?}"
    );
}

#[test]
fn failed_candidates_are_journaled_but_not_in_the_table() {
    let whole = JournalFolder::new();
    let (_, table) = whole.run(&options(), &mut FakeDevice::default(), ALL);
    let (problem, _, best) = table.iter().next().expect("a row");
    let best_unit = format!("{problem}_direct_{}", best.tile);
    let rows = whole.rows();
    let others: Vec<_> = rows
        .iter()
        .filter(|row| row.problem == problem && row.tile != best.tile)
        .map(|row| format!("{problem}_direct_{}", row.tile))
        .collect();

    let version = CompilerVersion {
        major: 13,
        minor: 0,
    };
    let compiler = FakeCompiler::new(version, &[Arch::new(90)])
        .with_errors(&others[0], "x(1): error: no\nmore");
    let mut device = FakeDevice::default();
    device.faults.insert(best_unit.clone(), Fault::Wrong);
    device.faults.insert(others[1].clone(), Fault::LaunchFailed);
    let bench = JournalFolder::new();
    let (summary, table) = bench.run_with(&options(), &compiler, &mut device, ALL);
    assert_eq!(summary.ended, RunEnd::Complete);
    assert_eq!(
        (summary.correct, summary.wrong, summary.failed),
        (TOTAL - 3, 1, 2)
    );
    let (_, now) = table.rows_for(problem).next().expect("a row");
    assert_ne!(now.tile, best.tile);
    let text = bench.text();
    assert!(
        text.contains(&format!(" wrong {best_unit}: made up\n")),
        "{text}"
    );
    assert!(
        text.contains(&format!(" launch_failed {}: made up\n", others[1])),
        "{text}"
    );
    assert!(
        text.contains(": NVRTC 13.0 reports errors for sm_90: x(1): error: no more\n"),
        "{text}"
    );
    // They are not measured again.
    let before = bench.rows();
    let mut device = FakeDevice::default();
    bench.run(&options(), &mut device, ALL);
    assert!(device.measured.is_empty());
    assert_eq!(bench.rows(), before);
}

#[test]
fn a_resumed_run_gives_the_same_table() {
    let whole = JournalFolder::new();
    let (_, table) = whole.run(&options(), &mut FakeDevice::default(), ALL);
    let victim = whole.rows()[20].clone();
    let victim = format!("{}_{}_{}", victim.problem, victim.scheme, victim.tile);

    let bench = JournalFolder::new();
    // The time budget is used up, immediately or later.
    let (summary, empty) = bench.run(&options(), &mut FakeDevice::default(), 0);
    assert_eq!(summary.ended, RunEnd::Interrupted { left: TOTAL });
    assert!(empty.is_empty());
    let (summary, _) = bench.run(&options(), &mut FakeDevice::default(), 5);
    assert_eq!(summary.ended, RunEnd::Interrupted { left: TOTAL - 5 });
    assert_eq!(bench.rows().len(), 5);
    // Killed while a candidate was being measured.
    let mut killed = FakeDevice::default();
    killed.faults.insert(victim.clone(), Fault::Killed);
    let died = catch_unwind(AssertUnwindSafe(|| bench.run(&options(), &mut killed, ALL)));
    assert!(died.is_err());
    // Killed while a line was being written.
    let text = bench.text();
    for torn in [1, 7, text.lines().last().expect("a line").len()] {
        bench.write(&text[..text.len() - torn]);
        assert_eq!(bench.rows().len() + 1, bench_rows(&text), "{torn}");
    }
    bench.write(&text[..text.len() - 7]);
    let before = bench.rows().len();
    let mut device = FakeDevice::default();
    let (summary, resumed) = bench.run(&options(), &mut device, ALL);
    assert_eq!(summary.ended, RunEnd::Complete);
    assert_eq!(device.measured.len(), TOTAL - before);
    assert_eq!(resumed.to_string(), table.to_string());
    assert_eq!(bench.rows(), whole.rows());
    assert_eq!(bench.text(), whole.text());
}

fn bench_rows(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with("conv")).count()
}

#[test]
fn a_lost_device_ends_the_run_and_is_not_retried() {
    let bench = JournalFolder::new();
    let mut device = FakeDevice::default();
    device.faults.insert("_b2_c8".to_owned(), Fault::DeviceLost);
    let (summary, table) = bench.run(&options(), &mut device, ALL);
    let RunEnd::DeviceLost {
        candidate,
        message,
        left,
    } = summary.ended
    else {
        panic!("{summary:?}");
    };
    assert!(
        candidate.starts_with(&format!("{} pointwise ", PROBLEMS[2])),
        "{candidate}"
    );
    assert!(message.ends_with("made up"), "{message}");
    assert_eq!((left, table.len()), (TOTAL - 15, 2));
    let tile = candidate.rsplit(' ').next().expect("a tile");
    let row = bench.rows().into_iter().find(|row| row.tile == tile);
    assert!(matches!(
        row.expect("a row").outcome,
        Outcome::DeviceLost(_)
    ));

    let mut device = FakeDevice::default();
    let (summary, _) = bench.run(&options(), &mut device, ALL);
    assert_eq!(summary.ended, RunEnd::Complete);
    assert_eq!(device.measured.len(), left);
    assert!(!device.measured.iter().any(|(name, _)| name.ends_with(tile)));
}

#[test]
fn merged_shards_equal_one_run() {
    let whole = JournalFolder::new();
    let (_, table) = whole.run(&options(), &mut FakeDevice::default(), ALL);
    let mut merged: Option<TuningTable> = None;
    let mut measured = Vec::new();
    // More shards than problems: the last ones have nothing to do.
    for index in 1..=7 {
        let part = Options {
            shard: format!("{index}/7").parse().expect("a shard"),
            ..options()
        };
        let mut device = FakeDevice::default();
        let (summary, table) = JournalFolder::new().run(&part, &mut device, ALL);
        assert_eq!(summary.ended, RunEnd::Complete);
        measured.extend(device.measured.into_iter().map(|(name, _)| name));
        // As read from a file.
        let table: TuningTable = table.to_string().parse().expect("a table");
        match &mut merged {
            Some(merged) => assert_eq!(merged.merge(table), Ok(vec![])),
            None => merged = Some(table),
        }
    }
    let distinct: BTreeSet<_> = measured.iter().collect();
    assert_eq!((measured.len(), distinct.len()), (TOTAL, TOTAL));
    assert_eq!(merged.expect("tables").to_string(), table.to_string());
}

#[test]
fn only_named_schemes_are_measured() {
    let named = Options {
        schemes: vec![scheme("tdc").expect("a scheme")],
        ..options()
    };
    let bench = JournalFolder::new();
    let (_, table) = bench.run(&named, &mut FakeDevice::default(), ALL);
    // Except the depthwise convolution.
    assert_eq!(table.iter().count(), 4);
    assert!(table.iter().all(|(_, scheme, _)| scheme == "tdc"));
    // With other schemes in the same journal, the table has both.
    let (_, table) = bench.run(&options(), &mut FakeDevice::default(), ALL);
    assert_eq!(table.iter().count(), 10);
}

#[test]
fn rows_of_changed_kernels_are_stale() {
    let bench = JournalFolder::new();
    let (_, table) = bench.run(&options(), &mut FakeDevice::default(), ALL);
    let text = bench.text();
    let row = text
        .lines()
        .find(|line| line.contains(" timed "))
        .expect("a row");
    let fields: Vec<_> = row.split(' ').collect();
    // Rows with different source, a missing tile, and an unknown scheme, all with unbeatable times.
    let changed = format!(
        "{} {} {} 0123456789abcdef timed 0.001 0.001",
        fields[0], fields[1], fields[2]
    );
    let gone = format!(
        "{} direct p31rn1xn1sk1 {} timed 0.001 0.001\n",
        fields[0], fields[3]
    );
    let gone = format!(
        "{gone}{} fft t4 {} timed 0.001 0.001\n",
        fields[0], fields[3]
    );
    // A problem of another config is not checked.
    let other = "conv_other direct p32rn1xn1sk1 0123456789abcdef timed 3.000 2.000\n";
    bench.write(&format!("{}{gone}{other}", text.replace(row, &changed)));
    let mut stale_message = 0;
    let mut journal = bench.open().expect("a journal");
    let version = CompilerVersion {
        major: 13,
        minor: 0,
    };
    let mut device = FakeDevice::default();
    let summary = tune(
        &problems(),
        &options(),
        &mut journal,
        &FakeCompiler::new(version, &[Arch::new(90)]),
        &mut device,
        &mut || false,
        &mut |event| {
            if let Event::Planned { stale, known, .. } = event {
                assert_eq!(*known, TOTAL - 1);
                stale_message = *stale;
            }
        },
    );
    assert_eq!(summary.expect("a run").correct, 1);
    assert_eq!(stale_message, 3);
    let now = journal.table().to_string();
    assert_eq!(
        now.replace(
            "conv_other direct p32rn1xn1sk1 2.000 0123456789abcdef\n",
            ""
        ),
        table.to_string()
    );
}

#[test]
fn journals_of_another_environment_are_rejected() {
    let bench = JournalFolder::new();
    bench.run(&options(), &mut FakeDevice::default(), 3);
    let text = bench.text();
    let error = |text: &str| {
        bench.write(text);
        let error = bench.open().expect_err("an error").to_string();
        assert_eq!(bench.text(), text);
        error.replace(&bench.path().display().to_string(), "J")
    };
    assert_eq!(
        error(&text.replace("driver: 580.1", "driver: 575.2")),
        "J: cannot resume from this journal: driver is `580.1` here and `575.2` there; times of different environments \
         cannot be mixed: measure one of them again, or choose another file"
    );
    assert_eq!(
        error("somebody's notes\n"),
        "J: the header has no line `gpu: ...`; a table that `tdc-gen tune` wrote has one"
    );
    assert_eq!(
        error("notes"),
        "J: the header has no line `gpu: ...`; a table that `tdc-gen tune` wrote has one"
    );
    assert_eq!(
        error(&text.replacen(" timed ", " guessed ", 1)),
        "J: line 8: outcome cannot be `guessed`; it is one of timed, quick_only, wrong, compile_failed, launch_failed and device_lost"
    );
    assert_eq!(
        error(&format!("{text}conv_x direct\n")),
        "J: line 11: 2 fields where `problem scheme tile text outcome` are needed"
    );
    assert_eq!(
        error(&format!("{text}conv_x direct p1 xyz quick_only 1.0\n")),
        "J: line 11: text cannot be `xyz`; it is a checksum of 16 hexadecimal digits"
    );
    assert!(
        error(&format!(
            "{text}conv_x direct p1 0123456789abcdef timed 1.0\n"
        ))
        .contains("timed quick_us full_us` are needed")
    );
    assert!(
        error(&format!(
            "{text}conv_x direct p1 0123456789abcdef quick_only -1\n"
        ))
        .contains("quick_us cannot be `-1`")
    );

    bench.write(&text);
    let first = bench.open().expect("a journal");
    let second = bench.open().expect_err("a locked journal").to_string();
    assert!(
        second.contains("another process is using this journal"),
        "{second}"
    );
    drop(first);
    // A truncated header is written again.
    bench.write(&text[..100]);
    assert_eq!(bench.rows(), []);
    bench.run(&options(), &mut FakeDevice::default(), 3);
    assert_eq!(bench.text(), text);
}
