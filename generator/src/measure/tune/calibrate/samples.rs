//! The measured tiles that determine a group of constants.

use super::super::{Outcome, Problems, Row};
use super::Group;
use crate::gpu::{CostModel, Gpu};
use crate::ir::Problem;
use crate::scheme::{Scheme, Tile, UnitWork, scheme};
use std::collections::BTreeMap;

/// A tile and its measured time.
struct Sample<'p> {
    problem: &'p Problem,
    scheme: &'static dyn Scheme,
    tile: Tile,
    /// With the constants at the start.
    work: UnitWork,
    us: f64,
    /// Its weight among the tiles of its problem: fast tiles have the largest.
    weight: f64,
}

/// The measured tiles of a problem.
pub(super) struct ProblemSamples<'p> {
    pub(super) key: &'p str,
    samples: Vec<Sample<'p>>,
    /// The least time, microseconds.
    pub(super) least_us: f64,
    /// The weight of the problem: larger if more tiles were measured, because the best one is known better then.
    pub(super) weight: f64,
}

/// A measured tile and its predicted time.
#[derive(Clone, Copy)]
pub(super) struct Prediction {
    /// Predicted time, microseconds.
    pub(super) predicted_us: f64,
    /// Measured time, microseconds.
    pub(super) us: f64,
    /// The sample's weight among the tiles of its problem.
    pub(super) weight: f64,
}

/// Measured tiles of a group's schemes, by problem.
pub struct Samples<'p> {
    pub(super) group: Group,
    gpu: &'static Gpu,
    pub(super) problems: Vec<ProblemSamples<'p>>,
}

impl<'p> Samples<'p> {
    /// The rows that measure kernels of the group. Others are ignored, and so is a problem with fewer than three rows.
    pub fn new<'r>(
        group: Group,
        problems: &'p Problems,
        rows: impl Iterator<Item = &'r Row>,
        gpu: &'static Gpu,
    ) -> Self {
        let problems: BTreeMap<_, _> = problems
            .iter()
            .map(|(key, problem)| (key, (key, problem)))
            .collect();
        let mut found: BTreeMap<&str, Vec<Sample<'_>>> = BTreeMap::new();
        for row in rows {
            if let Some((key, problem)) = problems.get(&row.problem[..])
                && let Some(sample) = sample(&group, problem, row, gpu)
            {
                found.entry(key).or_default().push(sample);
            }
        }
        found.retain(|_, samples| samples.len() >= 3);
        let problems = found
            .into_iter()
            .map(|(key, samples)| ProblemSamples::new(key, samples));
        let mut problems: Vec<_> = problems.collect();
        let all: f64 = problems.iter().map(|problem| problem.weight).sum();
        for problem in &mut problems {
            problem.weight /= all;
        }
        Self {
            group,
            gpu,
            problems,
        }
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Number of tiles.
    pub(super) fn tiles(&self) -> usize {
        let tiles = self.problems.iter().map(|problem| problem.samples.len());
        tiles.sum()
    }

    /// The predictions of each problem's samples with a model.
    pub(super) fn predictions(
        &self,
        model: &CostModel,
    ) -> impl Iterator<Item = (&ProblemSamples<'p>, Vec<Prediction>)> {
        let gpu = Gpu {
            calibrated: Some(*model),
            ..self.gpu.clone()
        };
        self.problems.iter().map(move |problem| {
            let predictions = problem.samples.iter().map(|sample| Prediction {
                predicted_us: self.predicted_us(sample, &gpu),
                us: sample.us,
                weight: sample.weight,
            });
            (problem, predictions.collect())
        })
    }

    /// The predicted time of a sample with the constants of `gpu`.
    fn predicted_us(&self, sample: &Sample<'_>, gpu: &Gpu) -> f64 {
        if !self.group.in_work {
            return sample.work.us(gpu);
        }
        let work = sample.scheme.work(sample.problem, &sample.tile, gpu);
        work.us(gpu)
    }
}

impl<'p> ProblemSamples<'p> {
    fn new(key: &'p str, mut samples: Vec<Sample<'p>>) -> Self {
        let times = samples.iter().map(|sample| sample.us);
        let least_us = times.fold(f64::INFINITY, f64::min);
        for sample in &mut samples {
            sample.weight = (2.0 - 2.0 * sample.us / least_us).exp() + 0.03;
        }
        let all: f64 = samples.iter().map(|sample| sample.weight).sum();
        for sample in &mut samples {
            sample.weight /= all;
        }
        Self {
            key,
            weight: (samples.len() as f64).sqrt(),
            samples,
            least_us,
        }
    }
}

/// The sample of a row, if it measures a kernel of the group.
fn sample<'p>(
    group: &Group,
    problem: &'p Problem,
    row: &Row,
    gpu: &'static Gpu,
) -> Option<Sample<'p>> {
    let (Outcome::Timed(_, us) | Outcome::QuickOnly(us)) = row.outcome else {
        return None;
    };
    let scheme = scheme(&row.scheme).filter(|scheme| group.schemes.contains(&scheme.name()))?;
    let tile = Tile::from_label(&row.tile, scheme.tile_fields())?;
    if !scheme.supports(problem, &tile, gpu) {
        return None;
    }
    // Uses estimated registers, because the planner has compiled few of the tiles that it chooses from.
    let work = scheme.work(problem, &tile, gpu);
    let belongs = work.launches.iter().all(|launch| {
        let products = &launch.work.products;
        group.products.is_none_or(|all| all.contains(products))
    });
    // A tile that the model takes not to fit the GPU has no predicted time.
    let is_predicted = work.us(gpu).is_finite();
    (belongs && is_predicted).then_some(Sample {
        problem,
        scheme,
        tile,
        work,
        us,
        weight: 0.0,
    })
}
