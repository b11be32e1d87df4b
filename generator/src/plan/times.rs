//! The times by which candidates are compared: measured ones, and predicted ones with a [margin](UNMEASURED) beside measured ones.

use super::candidates::{Candidate, FormatConversion};
use super::choose::{Choice, Planner};
use super::graph::{Task, TaskGraph};
use super::select::{CoverOption, ExactCover};
use crate::ir::{Problem, TilePolicy};
use crate::scheme::scheme;
use std::ops::Range;

/// The factor of predicted times beside measured ones. The least of many predictions is chosen, which tends to be too short: by this factor,
/// relative to launches that are chosen by measured times, in the mean of 86 launches of ten networks on an H200 (docs/decisions.md).
const UNMEASURED: f64 = 1.05;

/// Times of candidates and conversions in a graph.
pub(super) struct Times {
    /// Of each candidate, microseconds; `None` if it must not be chosen, because the config excludes it or no scheme supports it.
    ///
    /// An op with only one choice is not timed: its candidates take 0, which saves the planner's work.
    pub(super) candidates: Vec<Option<f64>>,
    /// The margin of predicted times.
    margin: f64,
}

impl Times {
    /// The times of the candidates of a graph.
    pub(super) fn new(planner: &mut Planner, graph: &TaskGraph, candidates: &[Candidate]) -> Self {
        let ops = Op::all(planner, graph, candidates);
        let is_measured =
            |candidate: &Candidate| planner.best_measured_us(&candidate.task.problem).is_some();
        let mut times = Self {
            candidates: Vec::with_capacity(candidates.len()),
            // Without measured times the margin would change nothing but the weight of what launches take in a network.
            margin: match candidates.iter().any(is_measured) {
                true => UNMEASURED,
                false => 1.0,
            },
        };
        for candidate in candidates {
            let us = match comparison_of(&ops, candidate) {
                Comparison::Excluded => None,
                Comparison::None => Some(0.0),
                Comparison::Timed => match times.is_in_vain(planner, candidate, candidates) {
                    true => None,
                    false => times.task_us(planner, &candidate.task),
                },
            };
            times.candidates.push(us);
        }
        times
    }

    /// The time of a conversion.
    pub(super) fn conversion_us(
        &self,
        planner: &mut Planner,
        conversion: &FormatConversion,
    ) -> f64 {
        let choice = planner.choose("", &conversion.problem(), None, None);
        choice.map_or(0.0, |choice| self.repeated_us(&choice))
    }

    /// The time of a task in a network, regardless of the scheme and tile that the config requests. `None` if no scheme supports it.
    fn task_us(&self, planner: &mut Planner, task: &Task) -> Option<f64> {
        let problem: &Problem = &task.problem;
        let choice = planner.choose(&task.name, problem, None, None).ok()?;
        let us = self.repeated_us(&choice) + planner.in_network_us(problem, &choice);
        us.is_finite().then_some(us)
    }

    /// The time of a repeated launch: measured if a table has it.
    fn repeated_us(&self, choice: &Choice) -> f64 {
        choice
            .measured_us
            .unwrap_or(choice.predicted_us * self.margin)
    }

    /// Whether a candidate that extends another one cannot be part of the best plan: it was not measured, and even if it took only the time of
    /// that one, it would be slower than the best candidates known for the same tasks. A measured time of that one bounds it, too, although its
    /// own prediction may be less: it does more work.
    fn is_in_vain(&self, planner: &Planner, candidate: &Candidate, all: &[Candidate]) -> bool {
        let Some(base) = candidate.extends else {
            return false;
        };
        if planner.best_measured_us(&candidate.task.problem).is_some() {
            return false;
        }
        let Some(base_us) = self.candidates[base] else {
            return true;
        };
        let known = &all[..self.candidates.len()];
        best_time(&candidate.covers, known, &self.candidates)
            .is_some_and(|best_us| base_us >= best_us)
    }
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
    /// By its time.
    Timed,
}

/// The comparison of a candidate, by the ops whose tasks it covers.
fn comparison_of(ops: &[Op], candidate: &Candidate) -> Comparison {
    let touched = || {
        let covers = |op: &&Op| candidate.covers.iter().any(|task| op.tasks.contains(task));
        ops.iter().filter(covers)
    };
    let is_requested = |op: &Op| op.lowering.is_some();
    match () {
        () if touched().any(|op| !op.allows(candidate)) => Comparison::Excluded,
        () if touched().all(|op| op.has_choice) => Comparison::Timed,
        // What a config requests is not compared with launches of several ops.
        () if touched().any(|op| op.has_choice) => Comparison::Excluded,
        () if candidate.covers.len() == 1 || touched().all(is_requested) => Comparison::None,
        () => Comparison::Excluded,
    }
}

/// The tasks of one op: the factors of a layer, or a single task.
struct Op {
    tasks: Range<usize>,
    /// The lowering that the config requests, as far as there are candidates for it.
    lowering: Option<RequestedLowering>,
    /// Whether its candidates are compared by their times.
    has_choice: bool,
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
        let touching: Vec<_> = candidates
            .iter()
            .filter(|candidate| candidate.covers.iter().any(|task| range.contains(task)))
            .collect();
        let alone = touching
            .iter()
            .filter(|candidate| candidate.covers.len() == 1);
        let has_fused = touching.iter().any(|candidate| candidate.covers.len() > 1);
        // Other formats, or a linear layer as a convolution.
        let has_forms = alone.count() > tasks.len();
        let mut is_supported = || {
            tasks.iter().all(|task| {
                planner
                    .choose(&task.name, &task.problem, None, None)
                    .is_ok()
            })
        };
        Self {
            // The choice of scheme reports what no scheme supports.
            has_choice: lowering.is_none() && (has_forms || has_fused && is_supported()),
            tasks: range,
            lowering,
        }
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
