//! Predicted times of launches in a network, each computed once.

use crate::gpu::Gpu;
use crate::ir::Problem;
use crate::plan::Planner;
use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::thread;

/// The cost model of a GPU, with the times that it has predicted.
pub(super) struct Clock {
    gpu: &'static Gpu,
    /// Nanoseconds; `None` if no scheme supports the problem.
    known: HashMap<Problem, Option<u32>>,
}

impl Clock {
    pub(super) fn new(gpu: &'static Gpu) -> Self {
        Self {
            gpu,
            known: HashMap::new(),
        }
    }

    /// The GPU.
    pub(super) fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// The time of a problem that was [evaluated](Self::evaluate).
    pub(super) fn ns(&self, problem: &Problem) -> Option<u32> {
        self.known.get(problem).copied().flatten()
    }

    /// The sum of the times of problems that were evaluated.
    pub(super) fn sum_ns(&self, problems: &[Problem]) -> Option<u32> {
        problems.iter().try_fold(0u32, |sum, problem| {
            Some(sum.saturating_add(self.ns(problem)?))
        })
    }

    /// Predicts the times of problems, on all processors.
    pub(super) fn evaluate(&mut self, problems: impl IntoIterator<Item = Problem>) {
        let mut seen = HashSet::new();
        let new: Vec<Problem> = problems
            .into_iter()
            .filter(|problem| !self.known.contains_key(problem) && seen.insert(*problem))
            .collect();
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = threads.min(new.len().div_ceil(BATCH)).max(1);
        let gpu = self.gpu;
        let predicted = thread::scope(|scope| {
            // Problems next to each other take similar times, so each thread takes every n-th one.
            let part = |start: usize| {
                let problems = new.iter().skip(start).step_by(threads);
                let mut planner = Planner::new(gpu);
                let times = problems.map(|problem| (*problem, predicted_ns(&mut planner, problem)));
                times.collect::<Vec<_>>()
            };
            let others: Vec<_> = (1..threads)
                .map(|start| scope.spawn(move || part(start)))
                .collect();
            let mut all = part(0);
            for thread in others {
                all.extend(thread.join().expect("predictions do not panic"));
            }
            all
        });
        self.known.extend(predicted);
    }
}

/// Problems that are worth a thread.
const BATCH: usize = 16;

fn predicted_ns(planner: &mut Planner, problem: &Problem) -> Option<u32> {
    let choice = planner.choose("", problem, None, None).ok()?;
    u32::try_from(planner.choice_ns(problem, &choice)).ok()
}
