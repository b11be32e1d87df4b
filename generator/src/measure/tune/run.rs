//! A tuning run: compiles candidates, measures them, and writes the journal.

use super::ordered_results::process_in_order;
use super::text::{planned, text_checksum, text_of};
use super::{
    Candidate, Journal, JournalError, Measure, MeasureError, Outcome, Problems, Progress, Row,
    Selection, Shard, Timing, candidates,
};
use crate::compile::{CompileError, Compiler, Image};
use crate::gpu::Gpu;
use crate::ir::Problem;
use crate::plan::{PlanError, PlannedUnit};
use crate::render::{RenderError, unit_text};
use crate::scheme::Scheme;
use crate::verify::ProblemData;
use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::Instant;
use tdc_runtime::Arch;
use thiserror::Error;

/// What to measure, and how to compile it.
#[derive(Clone)]
pub struct Options {
    /// The GPU that measures.
    pub gpu: &'static Gpu,
    /// The architecture to compile for.
    pub arch: Arch,
    /// Number of compiler threads.
    pub threads: NonZeroUsize,
    /// The schemes to measure; empty means the default ones.
    pub schemes: Vec<&'static dyn Scheme>,
    /// Number of tiles of each scheme.
    pub selection: Selection,
    /// The shard of the problems.
    pub shard: Shard,
}

/// A progress event.
#[derive(Debug)]
pub enum Event<'a> {
    /// Before the first candidate.
    Planned {
        /// Problems of this shard.
        problems: usize,
        /// Candidates to measure.
        candidates: usize,
        /// Candidates that are in the journal.
        known: usize,
        /// Stale rows of the journal: their kernels have changed since.
        stale: usize,
    },
    /// A candidate has been measured.
    Done {
        /// Progress of the run.
        progress: Progress,
        /// The row.
        row: &'a Row,
        /// The least full time of its problem and scheme so far, microseconds.
        best_us: Option<f64>,
    },
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// Every candidate has a row.
    Complete,
    /// It was interrupted.
    Interrupted {
        /// Candidates without a row.
        left: usize,
    },
    /// A candidate left the device unusable. It has a row, so the next run continues after it.
    DeviceLost {
        /// Problem, scheme and tile.
        candidate: String,
        /// The device's error.
        message: String,
        /// Candidates without a row.
        left: usize,
    },
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// How it ended.
    pub ended: RunEnd,
    /// Number of correct candidates.
    pub correct: usize,
    /// Number of candidates with incorrect results.
    pub wrong: usize,
    /// Number of candidates that failed to compile or to launch.
    pub failed: usize,
}

/// An error that ends a run.
#[derive(Debug, Error)]
pub enum TuneError {
    /// A journal error.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A candidate cannot be planned: a defect of this crate.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A candidate cannot be rendered: a defect of this crate.
    #[error(transparent)]
    Render(#[from] RenderError),
}

/// A candidate is timed in full if its quick time is at most this many times the least one of its problem and
/// scheme.
const FULL_TIMING_RATIO: f64 = 1.3;

/// Number of jobs per thread that may be started and not consumed.
const WINDOW: NonZeroUsize = NonZeroUsize::new(8).expect("not 0");

/// A problem with the candidates that are not in the journal.
struct Pending<'a> {
    key: &'a str,
    problem: &'a Problem,
    candidates: Vec<Candidate>,
}

/// A job of the threads.
enum Job<'a> {
    /// Operands and reference of the problem at an index.
    Data(usize, &'a Problem),
    /// A candidate of the problem at an index.
    Candidate(usize, &'a Pending<'a>, &'a Candidate),
}

/// The result of a job.
enum JobOutput {
    Data(Box<ProblemData>),
    Unit(Result<Box<Compiled>, TuneError>),
}

struct Compiled {
    unit: PlannedUnit,
    text: u64,
    image: Result<Image, CompileError>,
}

/// Measures every candidate of the problems that is not in the journal, one at a time, while later ones are
/// compiled.
///
/// `stop` is polled before each candidate; true ends the run. `on_event` receives the progress events.
///
/// # Errors
/// [`TuneError`]; incorrect results, compile errors and launch errors are rows of the journal instead.
pub fn tune(
    problems: &Problems,
    options: &Options,
    journal: &mut Journal,
    compiler: &dyn Compiler,
    device: &mut dyn Measure,
    stop: &mut dyn FnMut() -> bool,
    on_event: &mut dyn FnMut(&Event<'_>),
) -> Result<Summary, TuneError> {
    let part: Vec<(&str, &Problem)> = problems
        .iter()
        .enumerate()
        .filter(|(place, _)| options.shard.contains(*place))
        .map(|(_, problem)| problem)
        .collect();
    let stale = drop_stale_rows(&part, options.gpu, journal)?;
    let mut known = 0;
    let mut pending = Vec::new();
    for &(key, problem) in &part {
        let mut found = candidates(problem, options.gpu, &options.schemes, options.selection);
        let all = found.len();
        found.retain(|found| {
            journal
                .get(key, found.scheme.name(), &found.label())
                .is_none()
        });
        known += all - found.len();
        if !found.is_empty() {
            pending.push(Pending {
                key,
                problem,
                candidates: found,
            });
        }
    }
    let total = pending.iter().map(|pending| pending.candidates.len()).sum();
    on_event(&Event::Planned {
        problems: part.len(),
        candidates: total,
        known,
        stale,
    });

    let mut run = Run {
        journal,
        device,
        best: BTreeMap::new(),
        data: HashMap::new(),
        summary: Summary {
            ended: RunEnd::Complete,
            correct: 0,
            wrong: 0,
            failed: 0,
        },
        progress: Progress {
            total,
            ..Progress::default()
        },
        started: Instant::now(),
    };
    for row in run.journal.rows() {
        run.best
            .entry((row.problem.clone(), row.scheme.clone()))
            .or_default()
            .add(&row.outcome);
    }
    let mut failure = None;
    let window = options.threads.saturating_mul(WINDOW);
    let work = |job: &Job<'_>| match job {
        Job::Data(_, problem) => {
            JobOutput::Data(Box::new(ProblemData::with_repeated_images(problem, 1)))
        }
        Job::Candidate(_, pending, candidate) => JobOutput::Unit(compile(
            pending.key,
            pending.problem,
            candidate,
            options,
            compiler,
        )),
    };
    process_in_order(
        &jobs(&pending),
        options.threads,
        window,
        work,
        |job, product| {
            if stop() {
                run.summary.ended = RunEnd::Interrupted { left: run.left() };
                return ControlFlow::Break(());
            }
            let next = match (job, product) {
                (Job::Data(place, _), JobOutput::Data(data)) => {
                    run.data.retain(|known, _| known + 1 >= *place);
                    run.data.insert(*place, data);
                    return ControlFlow::Continue(());
                }
                (Job::Candidate(place, pending, candidate), JobOutput::Unit(compiled)) => compiled
                    .and_then(|compiled| {
                        run.candidate(*place, pending.key, candidate, compiled, on_event)
                    }),
                // A job and its output are of the same kind.
                _ => return ControlFlow::Continue(()),
            };
            next.unwrap_or_else(|error| {
                failure = Some(error);
                ControlFlow::Break(())
            })
        },
    );
    let summary = run.summary;
    journal.sync()?;
    match failure {
        Some(error) => Err(error),
        None => Ok(summary),
    }
}

/// All jobs in order. The data of a problem is generated while candidates of the previous one are measured.
fn jobs<'a>(pending: &'a [Pending<'a>]) -> Vec<Job<'a>> {
    let data = |place: usize| {
        let pending = pending.get(place)?;
        Some(Job::Data(place, pending.problem))
    };
    let mut jobs: Vec<_> = data(0).into_iter().collect();
    for (place, problem) in pending.iter().enumerate() {
        jobs.extend(data(place + 1));
        let candidates = problem.candidates.iter();
        jobs.extend(candidates.map(|candidate| Job::Candidate(place, problem, candidate)));
    }
    jobs
}

/// Drops rows whose scheme, tile or source has changed; returns their number.
fn drop_stale_rows(
    problems: &[(&str, &Problem)],
    gpu: &'static Gpu,
    journal: &mut Journal,
) -> Result<usize, TuneError> {
    let problems: HashMap<&str, &Problem> = problems.iter().copied().collect();
    let mut stale = 0;
    let mut failure = None;
    journal.retain(|row| {
        let Some(problem) = problems.get(&row.problem[..]) else {
            return true;
        };
        let is_current = is_current(row, problem, gpu).unwrap_or_else(|error| {
            failure = Some(error);
            true
        });
        stale += usize::from(!is_current);
        is_current
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(stale),
    }
}

/// Whether the candidate of a row still exists with the same source.
fn is_current(row: &Row, problem: &Problem, gpu: &'static Gpu) -> Result<bool, TuneError> {
    let present = text_of(&row.problem, problem, &row.scheme, &row.tile, gpu)?;
    Ok(present == Some(row.text))
}

fn compile(
    key: &str,
    problem: &Problem,
    candidate: &Candidate,
    options: &Options,
    compiler: &dyn Compiler,
) -> Result<Box<Compiled>, TuneError> {
    let unit = planned(key, problem, candidate, options.gpu)?;
    let source = unit_text(&unit)?;
    Ok(Box::new(Compiled {
        text: text_checksum(&unit, &source),
        image: compiler.compile(&source, &unit.unit.name, options.arch),
        unit,
    }))
}

/// Rounds to nanoseconds, as in the journal: a resumed run must take the same decisions as an uninterrupted
/// one.
fn rounded(us: f64) -> f64 {
    (us * 1e3).round() / 1e3
}

/// The least times so far of one scheme for one problem, in microseconds.
#[derive(Clone, Copy, Default)]
struct Best {
    quick_us: Option<f64>,
    full_us: Option<f64>,
}

impl Best {
    fn add(&mut self, outcome: &Outcome) {
        let (quick, full) = match *outcome {
            Outcome::Timed(quick, full) => (Some(quick), Some(full)),
            Outcome::QuickOnly(quick) => (Some(quick), None),
            _ => return,
        };
        let least = |known: Option<f64>, found: Option<f64>| match (known, found) {
            (Some(known), Some(found)) => Some(known.min(found)),
            (known, found) => known.or(found),
        };
        self.quick_us = least(self.quick_us, quick);
        self.full_us = least(self.full_us, full);
    }
}

/// The state of a run.
struct Run<'a> {
    journal: &'a mut Journal,
    device: &'a mut dyn Measure,
    /// By problem and scheme.
    best: BTreeMap<(String, String), Best>,
    /// By index of the problem: the one being measured and the next.
    data: HashMap<usize, Box<ProblemData>>,
    summary: Summary,
    progress: Progress,
    started: Instant,
}

impl Run<'_> {
    fn left(&self) -> usize {
        self.progress.total - self.progress.done
    }

    /// Measures one candidate and appends its row.
    fn candidate(
        &mut self,
        place: usize,
        key: &str,
        candidate: &Candidate,
        compiled: Box<Compiled>,
        on_event: &mut dyn FnMut(&Event<'_>),
    ) -> Result<ControlFlow<()>, TuneError> {
        let scheme = candidate.scheme.name();
        let best = (key.to_owned(), scheme.to_owned());
        let best = self.best.entry(best).or_default();
        let wants_full = |quick_us: f64| {
            best.quick_us
                .is_none_or(|least| quick_us <= FULL_TIMING_RATIO * least)
        };
        let measured = match (&compiled.image, self.data.get(&place)) {
            (Err(error), _) => Err(Outcome::CompileFailed(error.to_string())),
            (Ok(image), Some(data)) => self
                .device
                .measure(&compiled.unit, image, data, &wants_full)
                .map_err(|error| match error {
                    MeasureError::Wrong(why) => Outcome::Wrong(why),
                    MeasureError::LaunchFailed(why) => Outcome::LaunchFailed(why),
                    MeasureError::DeviceLost(why) => Outcome::DeviceLost(why),
                }),
            // The data of a problem precedes its candidates and is kept until they are done.
            (Ok(_), None) => return Ok(ControlFlow::Continue(())),
        };
        let outcome = match measured {
            Ok(Timing {
                quick_us,
                full_us: Some(full_us),
            }) => Outcome::Timed(rounded(quick_us), rounded(full_us)),
            Ok(Timing { quick_us, .. }) => Outcome::QuickOnly(rounded(quick_us)),
            Err(outcome) => outcome,
        };
        best.add(&outcome);
        let best_us = best.full_us;
        let row = Row {
            problem: key.to_owned(),
            scheme: scheme.to_owned(),
            tile: candidate.label(),
            text: compiled.text,
            outcome,
        };
        self.journal.append(row.clone())?;
        self.progress.done += 1;
        self.progress.elapsed = self.started.elapsed();
        match &row.outcome {
            Outcome::Timed(..) | Outcome::QuickOnly(_) => self.summary.correct += 1,
            Outcome::Wrong(_) => self.summary.wrong += 1,
            Outcome::CompileFailed(_) | Outcome::LaunchFailed(_) | Outcome::DeviceLost(_) => {
                self.summary.failed += 1;
            }
        }
        on_event(&Event::Done {
            progress: self.progress,
            row: &row,
            best_us,
        });
        if let Outcome::DeviceLost(message) = row.outcome {
            self.summary.ended = RunEnd::DeviceLost {
                candidate: format!("{} {} {}", row.problem, row.scheme, row.tile),
                message,
                left: self.left(),
            };
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }
}
