//! Runs all subjects in turn, batch by batch.

use super::{Check, Failure, Journal, Row, Subject};
use crate::measure::journal::JournalError;
use std::collections::HashMap;
use std::time::Duration;

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

/// Why a subject cannot be timed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// It was not ready in time.
    #[error("not ready within {} seconds; it was ended", .0.as_secs_f64())]
    Limit(Duration),
    /// Another reason; incorrect results are one.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for StartError {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

/// Starts subjects on a machine.
pub trait Runner {
    /// Gets a subject ready, and checks its results if it is generated code. Gives up early if `stop` returns true.
    ///
    /// # Errors
    /// [`StartError`].
    fn start(
        &mut self,
        case: &Case,
        subject: Subject,
        stop: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Running>, StartError>;
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

/// Measures every subject in every case, except those that the journal has; cases are in ascending order of batches. The subjects of a case run
/// in turn, `rounds` times and in alternating order, so that clocks and temperature affect all alike. A time is in the journal before
/// `progress` receives its line. If `stop` returns true, subjects without all rounds have no time. A subject that was not ready in time is not
/// tried with larger batches.
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
    let mut start = Start {
        runner,
        stop,
        slow: HashMap::new(),
    };
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
        let candidates = start.all(case, &missing, &mut failures, progress);
        let mut complete = |candidate: Candidate| {
            let check = candidate.running.check();
            let row = Row::new(case.batch, candidate.subject, candidate.rounds_us, check);
            journal.append(case, &row)?;
            progress(&format!(
                "batch {}: {} {:.2} us, {:.0} images/s",
                case.batch, row.subject, row.us, row.images_per_second
            ));
            rows.push(row);
            Ok(())
        };
        timed(case, candidates, rounds, stop, &mut failures, &mut complete)?;
        measured.is_stopped = stop();
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

/// Starts subjects.
struct Start<'a> {
    runner: &'a mut dyn Runner,
    stop: &'a dyn Fn() -> bool,
    /// The subjects that were not ready in time, and the batch and the limit.
    slow: HashMap<Subject, (u32, Duration)>,
}

impl Start<'_> {
    /// Starts the subjects of a case.
    fn all(
        &mut self,
        case: &Case,
        subjects: &[Subject],
        failures: &mut Vec<Failure>,
        progress: &mut dyn FnMut(&str),
    ) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for &subject in subjects {
            if (self.stop)() {
                break;
            }
            let reason = match self.one(case, subject, progress) {
                Ok(running) => {
                    candidates.push(Candidate {
                        subject,
                        running,
                        rounds_us: Vec::new(),
                    });
                    continue;
                }
                // What was given up for this is no failure.
                Err(_) if (self.stop)() => break,
                Err(reason) => reason,
            };
            progress(&format!("batch {}: {subject}: {reason}", case.batch));
            failures.push(failure(case, subject, reason));
        }
        candidates
    }

    fn one(
        &mut self,
        case: &Case,
        subject: Subject,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Box<dyn Running>, String> {
        if let Some((batch, limit)) = self.slow.get(&subject) {
            let seconds = limit.as_secs_f64();
            return Err(format!(
                "not tried: with batch {batch} it was not ready within {seconds} seconds"
            ));
        }
        progress(&format!("batch {}: starting {subject}", case.batch));
        let started = self.runner.start(case, subject, self.stop);
        started.map_err(|error| {
            if let StartError::Limit(limit) = error {
                self.slow.insert(subject, (case.batch, limit));
            }
            error.to_string()
        })
    }
}

/// Times the candidates in turn; one that fails is dropped. `complete` receives each with its last time.
fn timed(
    case: &Case,
    mut candidates: Vec<Candidate>,
    rounds: usize,
    stop: &dyn Fn() -> bool,
    failures: &mut Vec<Failure>,
    complete: &mut dyn FnMut(Candidate) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    for _ in 0..rounds {
        let mut remaining = Vec::new();
        for mut candidate in candidates {
            if stop() {
                return Ok(());
            }
            match candidate.running.time_us() {
                Ok(us) if us.is_finite() && us > 0.0 => {
                    candidate.rounds_us.push(us);
                    match candidate.rounds_us.len() == rounds {
                        true => complete(candidate)?,
                        false => remaining.push(candidate),
                    }
                }
                // Ctrl-C ends the processes of the subjects as well.
                _ if stop() => return Ok(()),
                result => {
                    let reason = result.map_or_else(
                        |reason| reason,
                        |us| format!("the time of a run is {us} us"),
                    );
                    failures.push(failure(case, candidate.subject, reason));
                }
            }
        }
        remaining.reverse();
        candidates = remaining;
    }
    Ok(())
}

fn failure(case: &Case, subject: Subject, reason: String) -> Failure {
    Failure {
        batch: case.batch,
        subject,
        reason,
    }
}
