//! Times of launches in a network, each predicted once.

use super::parallel::on_all_processors;
use crate::gpu::Gpu;
use crate::ir::Problem;
use crate::plan::{Correction, Planner};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What is called after each prediction, by any thread.
pub(super) type OnPrediction = Arc<dyn Fn() + Send + Sync>;

/// The cost model of a GPU, with the times that it has predicted.
pub(super) struct Clock {
    gpu: &'static Gpu,
    /// `None` if no scheme supports the problem.
    known: HashMap<Problem, Option<Known>>,
    correction: Arc<Correction>,
    /// With the same times, which it remembers.
    planner: Planner,
    on_prediction: Option<OnPrediction>,
}

/// The times of a launch.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// Predicted, when it is repeated; microseconds.
    predicted_us: f64,
    /// What it takes beyond that in a network, microseconds.
    in_network_us: f64,
    /// Its corrected time in a network, nanoseconds.
    ns: u32,
}

impl Clock {
    pub(super) fn new(gpu: &'static Gpu) -> Self {
        Self {
            gpu,
            known: HashMap::new(),
            correction: Arc::default(),
            planner: Planner::new(gpu),
            on_prediction: None,
        }
    }

    /// Sets what is called after each prediction of [`evaluate`](Self::evaluate).
    pub(super) fn on_prediction(&mut self, call: OnPrediction) {
        self.on_prediction = Some(call);
    }

    /// The GPU.
    pub(super) fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// The planner with the same times.
    pub(super) fn planner(&mut self) -> &mut Planner {
        &mut self.planner
    }

    /// Corrects all times.
    pub(super) fn correct(&mut self, correction: Correction) {
        self.correction = Arc::new(correction);
        self.planner = Planner::new(self.gpu).with_correction(self.correction.clone());
        let correction = &self.correction;
        self.known.retain(|problem, known| match known {
            Some(known) => {
                let us = correction.us(problem, known.predicted_us) + known.in_network_us;
                let ns = rounded_ns(us);
                if let Some(ns) = ns {
                    known.ns = ns;
                }
                ns.is_some()
            }
            None => true,
        });
    }

    /// Whether times are corrected by measured ones.
    pub(super) fn is_corrected(&self) -> bool {
        !self.correction.is_empty()
    }

    /// Whether the time of a launch was measured.
    pub(super) fn is_measured(&self, problem: &Problem) -> bool {
        self.correction.is_measured(problem)
    }

    /// The time of a problem that was [evaluated](Self::evaluate).
    pub(super) fn ns(&self, problem: &Problem) -> Option<u32> {
        let known = self.known.get(problem).copied().flatten();
        known.map(|known| known.ns)
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
        let (gpu, correction) = (self.gpu, &self.correction);
        let on_prediction = self.on_prediction.as_ref();
        let predicted = on_all_processors(&new, |problem| {
            let known = predicted(gpu, correction, problem);
            if let Some(call) = on_prediction {
                call();
            }
            known
        });
        self.known.extend(new.into_iter().zip(predicted));
    }
}

fn predicted(gpu: &'static Gpu, correction: &Correction, problem: &Problem) -> Option<Known> {
    let mut planner = Planner::new(gpu);
    let choice = planner.choose("", problem, None, None).ok()?;
    let in_network_us = planner.in_network_us(problem, &choice);
    let us = correction.us(problem, choice.predicted_us) + in_network_us;
    Some(Known {
        predicted_us: choice.predicted_us,
        in_network_us,
        ns: rounded_ns(us)?,
    })
}

/// As [`Planner::choice_ns`] rounds.
fn rounded_ns(us: f64) -> Option<u32> {
    u32::try_from((us * 1e3).round() as u64).ok()
}
