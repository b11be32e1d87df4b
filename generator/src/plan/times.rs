//! The times by which candidates are compared.
//!
//! Measured and predicted times are never compared with each other. All candidates of one op are timed by the same [source](TimeSource): by
//! measured times if each of its tasks has one, else by predicted times. A candidate for tasks of several ops needs the same source for all
//! of these ops.

use super::candidates::{Candidate, FormatConversion};
use super::choose::Planner;
use super::graph::{Task, TaskGraph};
use super::select::{CoverOption, ExactCover};
use crate::ir::{Problem, TilePolicy};
use crate::scheme::scheme;
use std::ops::Range;

/// The time of each candidate in microseconds; `None` if it must not be chosen, because the config excludes it or it has no time.
///
/// An op with only one choice is not timed: its candidates take 0, which saves the planner's work.
pub(super) fn candidate_times(
    planner: &mut Planner,
    graph: &TaskGraph,
    candidates: &[Candidate],
) -> Vec<Option<f64>> {
    let ops = Op::all(planner, graph, candidates);
    let mut times: Vec<Option<f64>> = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        let us = match source_of(&ops, candidate) {
            Comparison::Excluded => None,
            Comparison::None => Some(0.0),
            Comparison::By(source) => {
                let base = candidate
                    .extends
                    .filter(|_| source == TimeSource::Predicted);
                let in_vain = base.is_some_and(|base| {
                    extension_is_slower(candidate, base, &candidates[..times.len()], &times)
                });
                match in_vain {
                    true => None,
                    false => source.us(planner, &candidate.task),
                }
            }
        };
        times.push(us);
    }
    times
}

/// The time of a conversion: measured if a table has it, else predicted.
pub(super) fn conversion_us(planner: &mut Planner, conversion: &FormatConversion) -> f64 {
    let choice = planner.choose("", &conversion.problem(), None, None);
    choice.map_or(0.0, |choice| {
        choice.measured_us.unwrap_or(choice.predicted_us)
    })
}

/// The predicted time of a conversion with what it takes in a network beyond the time when it is repeated.
pub(super) fn conversion_in_network_us(
    planner: &mut Planner,
    conversion: &FormatConversion,
) -> f64 {
    let problem = conversion.problem();
    let choice = planner.choose("", &problem, None, None);
    choice.map_or(0.0, |choice| {
        choice.predicted_us + planner.in_network_us(&problem, &choice)
    })
}

/// Whether a candidate that extends another one cannot be part of the best plan: even if it took only the time of that one, it would be
/// slower than the best candidates known for the same tasks.
fn extension_is_slower(
    candidate: &Candidate,
    base: usize,
    known: &[Candidate],
    times: &[Option<f64>],
) -> bool {
    let Some(base_us) = times[base] else {
        return true;
    };
    best_time(&candidate.covers, known, times).is_some_and(|best_us| base_us >= best_us)
}

/// The least time in which candidates compute exactly these tasks.
fn best_time(tasks: &[usize], candidates: &[Candidate], times: &[Option<f64>]) -> Option<f64> {
    let options = candidates.iter().zip(times).filter_map(|(candidate, us)| {
        let position = |task| tasks.iter().position(|known| known == task);
        Some(CoverOption::<()> {
            covers: candidate
                .covers
                .iter()
                .map(position)
                .collect::<Option<_>>()?,
            reads: Vec::new(),
            writes: Vec::new(),
            us: (*us)?,
        })
    });
    let cover = ExactCover {
        tasks: tasks.len(),
        options: options.collect(),
        conversions: Vec::new(),
        available: Vec::new(),
        required: Vec::new(),
    };
    cover.least_us()
}

/// How a candidate is compared with others.
enum Comparison {
    /// Must not be chosen.
    Excluded,
    /// No other candidate for its tasks exists.
    None,
    By(TimeSource),
}

/// The comparison of a candidate, by the ops whose tasks it covers.
fn source_of(ops: &[Op], candidate: &Candidate) -> Comparison {
    let touched = || {
        let covers = |op: &&Op| candidate.covers.iter().any(|task| op.tasks.contains(task));
        ops.iter().filter(covers)
    };
    if touched().any(|op| !op.allows(candidate)) {
        return Comparison::Excluded;
    }
    let mut sources = touched().map(|op| op.source);
    let source = sources.next().flatten();
    let is_alone = candidate.covers.len() == 1 || touched().all(|op| op.lowering.is_some());
    match source {
        Some(source) if sources.all(|other| other == Some(source)) => Comparison::By(source),
        None if is_alone => Comparison::None,
        _ => Comparison::Excluded,
    }
}

/// The tasks of one op: the factors of a layer, or a single task.
struct Op {
    tasks: Range<usize>,
    /// The lowering that the config requests, as far as there are candidates for it.
    lowering: Option<RequestedLowering>,
    /// The time source of its candidates; `None` if there is only one choice, or its separate tasks have no times.
    source: Option<TimeSource>,
}

impl Op {
    /// The ops of a graph, in order.
    fn all(planner: &mut Planner, graph: &TaskGraph, candidates: &[Candidate]) -> Vec<Self> {
        let same_op = |a: &Task, b: &Task| {
            a.parameters.layer.is_some() && a.parameters.layer == b.parameters.layer
        };
        let mut ops = Vec::new();
        let mut start = 0;
        for tasks in graph.tasks.chunk_by(same_op) {
            let end = start + tasks.len();
            ops.push(Self::new(planner, tasks, start..end, candidates));
            start = end;
        }
        ops
    }

    fn new(
        planner: &mut Planner,
        tasks: &[Task],
        range: Range<usize>,
        candidates: &[Candidate],
    ) -> Self {
        let is_whole = |candidate: &Candidate| range.clone().eq(candidate.covers.iter().copied());
        let requested_scheme = tasks.iter().find_map(|task| task.scheme.as_deref());
        let lowering = match requested_lowering(planner, requested_scheme) {
            Some(RequestedLowering::Whole) if !candidates.iter().any(is_whole) => {
                Some(RequestedLowering::Separate)
            }
            requested => requested,
        };
        let mut op = Self {
            tasks: range,
            lowering,
            source: None,
        };
        let touches =
            |candidate: &&Candidate| candidate.covers.iter().any(|task| op.tasks.contains(task));
        let has_choice = candidates
            .iter()
            .filter(touches)
            .any(|candidate| candidate.covers.len() > 1);
        // A task in several forms: other formats, or a linear layer as a convolution.
        let alone = candidates.iter().filter(touches);
        let alone = alone.filter(|candidate| candidate.covers.len() == 1);
        let has_forms = alone.count() > tasks.len();
        let has_factors = tasks.len() > 1;
        if lowering.is_some() || !has_forms && !has_choice {
            op.source = None;
        } else if !has_forms || has_factors && TimeSource::Measured.has_times(planner, tasks) {
            // Measured lowerings of a layer are not given up for formats that were not measured.
            op.source = TimeSource::of_tasks(planner, tasks);
        } else {
            let touching = candidates.iter().filter(touches);
            let touching: Vec<_> = touching.map(|candidate| candidate.task.clone()).collect();
            // Some forms may have no scheme, which excludes only these.
            let common = TimeSource::of_tasks(planner, &touching);
            op.source = Some(common.unwrap_or(TimeSource::Predicted));
        }
        op
    }

    /// Whether the requested lowering, if any, allows this candidate.
    fn allows(&self, candidate: &Candidate) -> bool {
        match self.lowering {
            None => true,
            Some(RequestedLowering::Whole) => {
                self.tasks.clone().eq(candidate.covers.iter().copied())
            }
            Some(RequestedLowering::Separate) => candidate.covers.len() == 1,
        }
    }
}

/// The lowering of a layer that a config requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestedLowering {
    /// One unit for all factors.
    Whole,
    /// One unit for each factor.
    Separate,
}

/// The lowering that a requested scheme or the tile policy implies; `None` if it is left to the planner. `tiles: paper` plans
/// separate launches, as the paper does.
fn requested_lowering(
    planner: &Planner,
    requested_scheme: Option<&str>,
) -> Option<RequestedLowering> {
    match requested_scheme.map(scheme) {
        Some(Some(scheme)) if scheme.fuses_factors() => Some(RequestedLowering::Whole),
        Some(_) => Some(RequestedLowering::Separate),
        None => (planner.tile_policy() == TilePolicy::Paper).then_some(RequestedLowering::Separate),
    }
}

/// Source of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeSource {
    /// The tuning table. A candidate that it does not have must not be chosen.
    Measured,
    /// The cost model.
    Predicted,
}

impl TimeSource {
    /// The source for the candidates of an op with these tasks: measured times if each task has one, else predicted ones. `None` if a
    /// task has no time at all, because no scheme supports it.
    fn of_tasks(planner: &mut Planner, tasks: &[Task]) -> Option<Self> {
        [Self::Measured, Self::Predicted]
            .into_iter()
            .find(|source| source.has_times(planner, tasks))
    }

    fn has_times(self, planner: &mut Planner, tasks: &[Task]) -> bool {
        let mut tasks = tasks.iter();
        tasks.all(|task| self.us(planner, task).is_some())
    }

    /// The time of a task, microseconds, regardless of the scheme and tile that the config requests: the least measured time, or the
    /// predicted time of the tile that the planner would choose (which has the least measured time if the table has the problem).
    fn us(self, planner: &mut Planner, task: &Task) -> Option<f64> {
        let problem: &Problem = &task.problem;
        let choice = planner.choose(&task.name, problem, None, None).ok()?;
        let repeated = match self {
            Self::Measured => planner.best_measured_us(problem)?,
            Self::Predicted => choice.predicted_us,
        };
        let us = repeated + planner.in_network_us(problem, &choice);
        us.is_finite().then_some(us)
    }
}
