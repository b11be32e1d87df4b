//! Runs all subjects in turn, batch by batch.

use super::{Check, Failure, Journal, Row, Subject};
use crate::measure::journal::JournalError;

/// A network with one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Images of a run.
    pub batch: u32,
    /// Checksum of the generated code.
    pub generated: u64,
    /// Checksum of what PyTorch runs, with its version.
    pub torch: u64,
}

impl Case {
    /// The checksum of what a subject runs: its times are valid as long as it stays the same.
    pub fn checksum(&self, subject: Subject) -> u64 {
        match subject {
            Subject::Generated => self.generated,
            Subject::Torch(_) | Subject::Compiled(..) => self.torch,
        }
    }
}

/// Something that is ready to be timed. It holds what it needs until it is dropped.
pub trait Running {
    /// How its results were checked.
    fn check(&self) -> Option<Check>;

    /// Microseconds of a run, the median of many.
    ///
    /// # Errors
    /// Why there is no time.
    fn time_us(&mut self) -> Result<f64, String>;
}

/// Starts subjects on a machine.
pub trait Runner {
    /// Gets a subject ready, and checks its results if it is generated code.
    ///
    /// # Errors
    /// Why it cannot be timed; incorrect results are a reason.
    fn start(&mut self, case: &Case, subject: Subject) -> Result<Box<dyn Running>, String>;
}

/// The results of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measured {
    /// The times, in the order of cases and subjects.
    pub rows: Vec<Row>,
    /// What was not measured.
    pub failures: Vec<Failure>,
    /// Whether the run was stopped before its end.
    pub is_stopped: bool,
}

/// A subject that is being timed.
struct Candidate {
    subject: Subject,
    running: Box<dyn Running>,
    rounds_us: Vec<f64>,
}

/// Measures every subject in every case, except those that the journal has. The subjects of a case run in turn, `rounds` times and in
/// alternating order, so that clocks and temperature affect all alike. `progress` receives a line for each step. If `stop` returns true the
/// results of the case that is being measured are dropped.
///
/// # Errors
/// [`JournalError`] if a time cannot be written.
pub fn measure(
    cases: &[Case],
    subjects: &[Subject],
    rounds: usize,
    journal: &mut Journal,
    runner: &mut dyn Runner,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Measured, JournalError> {
    let mut measured = Measured::default();
    for case in cases {
        let known: Vec<Row> = subjects
            .iter()
            .filter_map(|&subject| journal.get(case, subject).cloned())
            .collect();
        let is_missing = |subject: &Subject| known.iter().all(|row| row.subject != *subject);
        let missing: Vec<_> = subjects.iter().copied().filter(is_missing).collect();
        if !known.is_empty() {
            progress(&format!(
                "batch {}: {} of {} times are in the journal",
                case.batch,
                known.len(),
                subjects.len()
            ));
        }
        let mut rows = known;
        let mut failures = Vec::new();
        let candidates = started(case, &missing, runner, stop, &mut failures, progress);
        let candidates = timed(case, candidates, rounds, stop, &mut failures);
        measured.is_stopped = stop();
        if !measured.is_stopped {
            for candidate in candidates {
                let check = candidate.running.check();
                let row = Row::new(case.batch, candidate.subject, candidate.rounds_us, check);
                journal.append(case, &row)?;
                progress(&format!(
                    "batch {}: {} {:.2} us, {:.0} images/s",
                    case.batch, row.subject, row.us, row.images_per_second
                ));
                rows.push(row);
            }
        }
        rows.sort_by_key(|row| row.subject);
        measured.rows.extend(rows);
        failures.sort_by_key(|failure: &Failure| failure.subject);
        measured.failures.extend(failures);
        if measured.is_stopped {
            break;
        }
    }
    Ok(measured)
}

/// Starts the subjects.
fn started(
    case: &Case,
    subjects: &[Subject],
    runner: &mut dyn Runner,
    stop: &dyn Fn() -> bool,
    failures: &mut Vec<Failure>,
    progress: &mut dyn FnMut(&str),
) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for &subject in subjects {
        if stop() {
            break;
        }
        progress(&format!("batch {}: starting {subject}", case.batch));
        match runner.start(case, subject) {
            Ok(running) => candidates.push(Candidate {
                subject,
                running,
                rounds_us: Vec::new(),
            }),
            Err(reason) => {
                progress(&format!("batch {}: {subject}: {reason}", case.batch));
                failures.push(failure(case, subject, reason));
            }
        }
    }
    candidates
}

/// Times the candidates in turn; one that fails is dropped.
fn timed(
    case: &Case,
    mut candidates: Vec<Candidate>,
    rounds: usize,
    stop: &dyn Fn() -> bool,
    failures: &mut Vec<Failure>,
) -> Vec<Candidate> {
    for _ in 0..rounds {
        candidates.retain_mut(|candidate| {
            if stop() {
                return true;
            }
            match candidate.running.time_us() {
                Ok(us) if us.is_finite() && us > 0.0 => {
                    candidate.rounds_us.push(us);
                    true
                }
                result => {
                    let reason = result.map_or_else(
                        |reason| reason,
                        |us| format!("the time of a run is {us} us"),
                    );
                    failures.push(failure(case, candidate.subject, reason));
                    false
                }
            }
        });
        candidates.reverse();
    }
    candidates
}

fn failure(case: &Case, subject: Subject, reason: String) -> Failure {
    Failure {
        batch: case.batch,
        subject,
        reason,
    }
}
