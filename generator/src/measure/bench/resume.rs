//! Takes the reports of problems from the journal and measures the rest.

use super::journal::Journal;
use super::measure::Interruption;
use super::{
    BenchProblem, Candidate, Environment, Options, ProblemReport, RejectedTile, candidates,
};
use crate::gpu::Gpu;
use crate::render::unit_text;
use std::time::Instant;
use tdc_runtime::Checksum;

/// What times depend on besides the problem.
pub struct Setup<'a> {
    /// The GPU for which kernels are planned and the floor is computed.
    pub gpu: &'static Gpu,
    /// Options of the run.
    pub options: &'a Options,
    /// Environment and method.
    pub environment: &'a Environment,
}

/// Measures the candidates of one problem; failures become rows too.
type Measure<'a> = dyn FnMut(&BenchProblem, &[Candidate], &[RejectedTile]) -> Result<ProblemReport, Interruption>
    + 'a;

/// The reports of all problems in order, and the reason if some are missing at the end. `progress` is called
/// for each problem.
///
/// A problem whose [`checksum`] is in the journal is not measured again.
pub fn reports(
    problems: &[BenchProblem],
    setup: &Setup<'_>,
    mut journal: Option<&mut Journal>,
    measure: &mut Measure<'_>,
    progress: &mut dyn FnMut(&str),
) -> (Vec<ProblemReport>, Option<String>) {
    let mut reports: Vec<ProblemReport> = Vec::new();
    for (index, problem) in problems.iter().enumerate() {
        let begin = Instant::now();
        let of = format!("[{}/{}]", index + 1, problems.len());
        let options = setup.options;
        let (candidates, rejected_tiles) = candidates(
            setup.gpu,
            problem,
            &options.schemes,
            options.tiles,
            options.table.as_ref(),
        );
        let checksum = checksum(setup, problem, &candidates, &rejected_tiles);
        if let Some(known) = journal.as_ref().and_then(|journal| journal.get(checksum)) {
            progress(&format!("{of} {} (journal)", summary(known)));
            reports.push(known.clone());
            continue;
        }
        match measure(problem, &candidates, &rejected_tiles) {
            Ok(measured) => {
                let seconds = begin.elapsed().as_secs_f64();
                progress(&format!("{of} {} ({seconds:.1} s)", summary(&measured)));
                let written = journal
                    .as_mut()
                    .map_or(Ok(()), |journal| journal.append(checksum, &measured));
                reports.push(measured);
                if let Err(error) = written {
                    return (reports, Some(error.to_string()));
                }
            }
            Err(Interruption::Requested) => {
                let mut reason =
                    format!("interrupted after {index} of {} problems", problems.len());
                if journal.is_some() {
                    reason += "; run the same command to resume";
                }
                return (reports, Some(reason));
            }
            Err(Interruption::Device(error)) => {
                return (reports, Some(format!("{}: {error}", problem.label)));
            }
        }
    }
    (reports, None)
}

/// Checksum of everything that a report depends on: environment and method, the generated units with their
/// source, and cuDNN's options.
fn checksum(
    setup: &Setup<'_>,
    problem: &BenchProblem,
    candidates: &[Candidate],
    rejected_tiles: &[RejectedTile],
) -> u64 {
    let Environment {
        l2_bytes,
        cudnn,
        method,
        ..
    } = setup.environment;
    let Options {
        runtime_compiled_engines,
        fp16,
        ..
    } = setup.options;
    let mut text = format!(
        "{l2_bytes} {cudnn:?} {method:?} {runtime_compiled_engines} {fp16} {problem:?} {:?} {rejected_tiles:?}",
        setup.gpu
    );
    for candidate in candidates {
        text += &format!("{candidate:?} {:?}", unit_text(&candidate.unit));
    }
    Checksum::of(text.as_bytes())
}

/// A one-line summary of a problem's times.
fn summary(problem: &ProblemReport) -> String {
    let us = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.2}"));
    let mut line = format!("{}: {} us", problem.label, us(problem.planned_us()));
    if let Some(cudnn) = &problem.cudnn {
        line += &format!(
            ", cuDNN {} us (best of {} algorithms)",
            us(problem
                .cudnn_best(|cudnn| &cudnn.same_bound)
                .map(|best| best.timed.us)),
            cudnn.candidates.len()
        );
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{Layout, Precision, Reduce, Tolerance};
    use crate::measure::bench::{
        CandidateResult, CudnnBest, CudnnReport, CudnnSource, Measurement, Timed, shape_label,
    };
    use crate::verify::DeviceError;
    use std::path::{Path, PathBuf};
    use tdc_runtime::{ConvShape, Padding};

    fn problem(n: u32) -> BenchProblem {
        let shape = ConvShape {
            padding: Padding::all(1),
            ..ConvShape::new(3, n, 5, 7, 3, 3)
        };
        BenchProblem {
            label: shape_label(&shape),
            shape,
            cp_rank: None,
            layout: Layout::default(),
            precision: Precision::default(),
            tolerance: Tolerance::default(),
            named: vec![],
            plan_chosen_by: None,
        }
    }

    fn environment() -> Environment {
        Environment {
            generator: "1.2.3".to_owned(),
            device: "NVIDIA H200".to_owned(),
            gpu: "h200".to_owned(),
            l2_bytes: 60 << 20,
            driver: "580.1".to_owned(),
            nvrtc: "13.0".to_owned(),
            cudnn: Some("9.14.0".to_owned()),
            method: vec!["By a clock: fast.".to_owned()],
        }
    }

    fn options() -> Options {
        Options {
            device: 0,
            schemes: vec!["direct".to_owned()],
            tiles: 1,
            table: None,
            cudnn: CudnnSource::None,
            runtime_compiled_engines: false,
            fp16: true,
            journal: None,
        }
    }

    /// A report with times that no decimal fraction represents exactly, a rejected candidate, and cuDNN's
    /// times.
    fn sample_report(problem: &BenchProblem) -> ProblemReport {
        let candidate = |outcome| CandidateResult {
            scheme: "direct".to_owned(),
            reduce: Reduce::Atomic,
            tile: "h2w2".to_owned(),
            selected_by: vec!["plan".to_owned()],
            predicted_us: Some(2.0_f64.sqrt()),
            outcome,
        };
        let timed = Timed {
            us: 10.0_f64.ln(),
            cold_us: None,
            relative_error: 1.0 / 3e7,
        };
        ProblemReport {
            label: problem.label.clone(),
            shape: problem.shape,
            flops: 7,
            bytes: 11,
            floor_us: 0.55,
            fp32_lanes_floor_us: 0.55,
            precision: problem.precision,
            tolerance: 1e-6,
            plan_chosen_by: Some(crate::plan::ChosenBy::Tuned),
            candidates: vec![
                candidate(Measurement::Timed(timed.clone())),
                candidate(Measurement::Failed {
                    failure: "two\nlines \"quoted\": no".to_owned(),
                }),
            ],
            cudnn: Some(CudnnReport {
                same_bound: Some(CudnnBest {
                    algorithm: "a".to_owned(),
                    timed,
                }),
                fp32_arithmetic: None,
                fp32_data: None,
                fp16: None,
                candidates: vec![],
                failed: 3,
                notes: vec![],
            }),
        }
    }

    /// Runs a process over three problems that ends at the problem with `end.0` output channels as `end.1`
    /// says. Returns the labels of the measured problems, the reports, and why some are missing.
    fn run(
        path: Option<&Path>,
        options: &Options,
        environment: &Environment,
        end: (u32, Option<Interruption>),
    ) -> (Vec<String>, Vec<ProblemReport>, Option<String>) {
        let mut journal = path.map(|path| Journal::open(path, environment).unwrap());
        let mut measured = Vec::new();
        let setup = Setup {
            gpu: gpu("h200").unwrap(),
            options,
            environment,
        };
        let (reports, stopped) = reports(
            &[4, 6, 10].map(problem),
            &setup,
            journal.as_mut(),
            &mut |problem, candidates, rejected_tiles| {
                assert!(!candidates.is_empty() && rejected_tiles.is_empty());
                match (&end.1, problem.shape.n == end.0) {
                    (Some(cut), true) => return Err(cut.clone()),
                    _ => measured.push(problem.label.clone()),
                }
                Ok(sample_report(problem))
            },
            &mut |_| (),
        );
        (measured, reports, stopped)
    }

    const UNINTERRUPTED: (u32, Option<Interruption>) = (0, None);

    fn file(dir: &tempfile::TempDir) -> PathBuf {
        dir.path().join("new/bench.json.journal")
    }

    #[test]
    fn an_interrupted_run_can_be_resumed() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir);
        let (options, environment) = (options(), environment());
        let first = run(
            Some(&path),
            &options,
            &environment,
            (6, Some(Interruption::Requested)),
        );
        assert_eq!(first.0, ["3,4,5,7"]);
        assert_eq!(first.1, [sample_report(&problem(4))]);
        assert_eq!(
            first.2.unwrap(),
            "interrupted after 1 of 3 problems; run the same command to resume"
        );
        // A line that was being written when the process was killed.
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}0123456789abcdef {{\"label\": ")).unwrap();
        let lost = Interruption::Device(DeviceError("gone".to_owned()));
        let second = run(Some(&path), &options, &environment, (10, Some(lost)));
        assert_eq!(second.0, ["3,6,5,7"]);
        assert_eq!(second.2.unwrap(), "3,10,5,7: gone");
        let third = run(Some(&path), &options, &environment, UNINTERRUPTED);
        assert_eq!(third.0, ["3,10,5,7"]);
        assert_eq!(third.1, [4, 6, 10].map(|n| sample_report(&problem(n))));
        assert_eq!(third.2, None);
        let fourth = run(Some(&path), &options, &environment, UNINTERRUPTED);
        assert!(fourth.0.is_empty());
        assert_eq!(fourth.1, third.1);
    }

    #[test]
    fn without_a_journal_an_interrupted_run_cannot_be_resumed() {
        let (options, environment) = (options(), environment());
        let (_, reports, stopped) = run(
            None,
            &options,
            &environment,
            (6, Some(Interruption::Requested)),
        );
        assert_eq!(reports.len(), 1);
        assert_eq!(stopped.unwrap(), "interrupted after 1 of 3 problems");
    }

    #[test]
    fn changed_inputs_are_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir);
        run(Some(&path), &options(), &environment(), UNINTERRUPTED);
        let other_tiles = Options {
            tiles: 2,
            ..options()
        };
        let other_cudnn = Environment {
            cudnn: None,
            ..environment()
        };
        let without_fp16 = Options {
            fp16: false,
            ..options()
        };
        for (options, environment) in [
            (other_tiles, environment()),
            (without_fp16, environment()),
            (options(), other_cudnn),
        ] {
            let again = run(Some(&path), &options, &environment, UNINTERRUPTED);
            assert_eq!(again.0.len(), 3);
        }
        // Earlier results are kept.
        let again = run(Some(&path), &options(), &environment(), UNINTERRUPTED);
        assert!(again.0.is_empty());
    }

    #[test]
    fn a_journal_of_another_environment_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir);
        run(Some(&path), &options(), &environment(), UNINTERRUPTED);
        let before = std::fs::read_to_string(&path).unwrap();
        let elsewhere = Environment {
            driver: "590.2".to_owned(),
            ..environment()
        };
        let open_error =
            |environment: &_| Journal::open(&path, environment).unwrap_err().to_string();
        let error = open_error(&elsewhere);
        assert!(
            error.contains("driver is `590.2` here and `580.1` there"),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
        for (row, message) in [
            ("0123", "line 8: 1 field where `checksum report` are needed"),
            ("012x {}", "line 8: checksum cannot be `012x`"),
            ("0123 {}", "line 8: report cannot be `{}`; it is the times"),
        ] {
            let header: String = before.split_inclusive('\n').take(7).collect();
            std::fs::write(&path, format!("{header}{row}\n")).unwrap();
            let error = open_error(&environment());
            assert!(error.contains(message), "{error}");
        }
    }
}
