//! Fits the constants of the cost model to measured times.

use super::{Outcome, Problems, Row};
use crate::cost::{KernelWork, TiledConstants, TiledWork, tiled_terms};
use crate::gpu::Gpu;
use crate::scheme::{Tile, scheme};
use std::collections::BTreeMap;

/// A kernel and its measured time.
struct Sample {
    work: KernelWork,
    tiled: TiledWork,
    us: f64,
    /// Its weight among the tiles of its problem: fast tiles have the largest.
    weight: f64,
}

/// The measured tiles of a problem.
struct ProblemSamples {
    key: String,
    samples: Vec<Sample>,
    /// The least time.
    least: f64,
    /// The weight of the problem: larger if more tiles were measured, because the best one is known better
    /// then.
    weight: f64,
}

/// Measured tiles of tiled schemes, by problem.
pub struct Samples {
    gpu: &'static Gpu,
    problems: Vec<ProblemSamples>,
}

/// How well constants predict the measured times.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Number of problems.
    pub problems: usize,
    /// Number of tiles.
    pub tiles: usize,
    /// Weighted root mean square of log(predicted time / measured time).
    pub error: f64,
    /// Measured time of the tile with the least predicted time over the least measured time: geometric mean
    /// over problems. Times within 3 % of the least count as equal to it.
    pub selection_ratio: f64,
    /// The worst selection ratio and its problem.
    pub worst_selection: (f64, String),
}

impl Samples {
    /// The rows that measure tiled kernels of the problems; others are ignored, and so is a problem with
    /// fewer than three rows.
    pub fn new<'a>(
        problems: &Problems,
        rows: impl Iterator<Item = &'a Row>,
        gpu: &'static Gpu,
    ) -> Self {
        let problems: BTreeMap<_, _> = problems.iter().collect();
        let mut found: BTreeMap<&str, Vec<Sample>> = BTreeMap::new();
        for row in rows {
            let (Some(problem), Some(scheme)) =
                (problems.get(&row.problem[..]), scheme(&row.scheme))
            else {
                continue;
            };
            let us = match row.outcome {
                Outcome::Timed(_, us) | Outcome::QuickOnly(us) => us,
                _ => continue,
            };
            let tile = Tile::from_label(&row.tile, scheme.tile_fields());
            let Some(tile) = tile.filter(|tile| scheme.supports(problem, tile, gpu)) else {
                continue;
            };
            let launches = scheme.work(problem, &tile, gpu).launches;
            let [launch] = &launches[..] else {
                continue;
            };
            // Uses estimated registers, because the planner has compiled few of the tiles that it chooses
            // from.
            let work = launch.work;
            if let Some(tiled) = work.tiled {
                found.entry(&row.problem).or_default().push(Sample {
                    work,
                    tiled,
                    us,
                    weight: 0.0,
                });
            }
        }
        found.retain(|_, samples| samples.len() >= 3);
        let problems = found.into_iter().map(|(key, mut samples)| {
            let least = samples
                .iter()
                .fold(f64::INFINITY, |least, sample| least.min(sample.us));
            for sample in &mut samples {
                sample.weight = (2.0 - 2.0 * sample.us / least).exp() + 0.03;
            }
            let all: f64 = samples.iter().map(|sample| sample.weight).sum();
            for sample in &mut samples {
                sample.weight /= all;
            }
            ProblemSamples {
                key: key.to_owned(),
                weight: (samples.len() as f64).sqrt(),
                samples,
                least,
            }
        });
        let mut problems: Vec<_> = problems.collect();
        let all: f64 = problems.iter().map(|problem| problem.weight).sum();
        for problem in &mut problems {
            problem.weight /= all;
        }
        Self { gpu, problems }
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    fn estimate(&self, sample: &Sample, model: &TiledConstants) -> f64 {
        tiled_terms(&sample.work, &sample.tiled, self.gpu, model).us()
    }

    /// The objective that [`calibrate`](Self::calibrate) minimises, a sum over problems:
    ///
    /// - the errors without the part that all tiles of the problem have in common, with a Huber loss, since
    ///   the planner chooses among these tiles;
    /// - that common error, with a smaller weight;
    /// - the expected loss of the choice if predicted times were uncertain by a few percent, and its square,
    ///   which weights the worst problems.
    ///
    /// A small penalty on the distance from the start constants keeps those sane that no sample determines.
    fn cost(&self, model: &TiledConstants) -> f64 {
        /// Errors beyond it count linearly.
        const HUBER_THRESHOLD: f64 = 0.15;
        const COMMON_ERROR_WEIGHT: f64 = 0.16;
        const REGRET_WEIGHT: f64 = 0.1;
        const REGRET_SQUARE_WEIGHT: f64 = 0.3;
        const PREDICTION_UNCERTAINTY: f64 = 0.03;
        const PRIOR_WEIGHT: f64 = 1e-4;

        let mut cost = 0.0;
        for problem in &self.problems {
            let estimates: Vec<f64> = problem
                .samples
                .iter()
                .map(|sample| self.estimate(sample, model))
                .collect();
            let least = estimates.iter().copied().fold(f64::INFINITY, f64::min);
            let samples = || problem.samples.iter().zip(&estimates);
            let error = |sample: &Sample, estimate: f64| (estimate / sample.us).ln();
            let common: f64 = samples()
                .map(|(sample, &estimate)| sample.weight * error(sample, estimate))
                .sum();
            let (mut own, mut regret, mut regret_square, mut chosen) = (0.0, 0.0, 0.0, 0.0);
            for (sample, &estimate) in samples() {
                let error = (error(sample, estimate) - common).abs();
                own += sample.weight
                    * if error < HUBER_THRESHOLD {
                        error * error
                    } else {
                        HUBER_THRESHOLD * (2.0 * error - HUBER_THRESHOLD)
                    };
                let choice_weight = (least / estimate).powf(1.0 / PREDICTION_UNCERTAINTY);
                chosen += choice_weight;
                let times = sample.us / problem.least;
                regret += choice_weight * times.ln();
                regret_square += choice_weight * (times - 1.0).powi(2);
            }
            let chosen = (REGRET_WEIGHT * regret + REGRET_SQUARE_WEIGHT * regret_square) / chosen;
            cost += problem.weight * (own + COMMON_ERROR_WEIGHT * common * common + chosen);
        }
        let start = TiledConstants::INITIAL.values();
        let values = model.values();
        let prior = values
            .iter()
            .zip(&start)
            .map(|(value, start)| (value / start).ln().powi(2));
        cost + PRIOR_WEIGHT * prior.sum::<f64>()
    }

    /// Constants that predict the times best, found from `start`; deterministic for the same samples.
    ///
    /// The search is the pattern search of Hooke and Jeeves on logarithms: each constant in turn is increased
    /// or decreased by its own step, which grows after a success and shrinks after a failure; the change of a
    /// complete round is then applied once more. When all steps are small the search restarts with large
    /// ones, until that gains nothing.
    pub fn calibrate(&self, start: &TiledConstants) -> TiledConstants {
        const FIRST_STEP: f64 = 0.2;
        const LAST_STEP: f64 = 0.004;
        const MIN_IMPROVEMENT: f64 = 0.998;
        const ROUNDS: usize = 400;

        let of = |logarithms: &[f64]| {
            let values: Vec<f64> = logarithms.iter().map(|value| value.exp()).collect();
            TiledConstants::from_values(&values)
        };
        let mut best: Vec<f64> = start.values().iter().map(|value| value.ln()).collect();
        let mut steps = vec![FIRST_STEP; best.len()];
        let mut cost = self.cost(&of(&best));
        let mut restart_cost = f64::INFINITY;
        for _ in 0..ROUNDS {
            let before = best.clone();
            for place in 0..best.len() {
                let mut found = false;
                for step in [steps[place], -steps[place]] {
                    let mut changed = best.clone();
                    changed[place] += step;
                    let changed_cost = self.cost(&of(&changed));
                    if changed_cost < cost {
                        (best, cost, found) = (changed, changed_cost, true);
                        // The direction that helped is tried first the next time.
                        steps[place] = 1.5 * step;
                        break;
                    }
                }
                if !found {
                    steps[place] /= 2.0;
                }
            }
            if steps.iter().all(|step| step.abs() < LAST_STEP) {
                if cost > MIN_IMPROVEMENT * restart_cost {
                    break;
                }
                restart_cost = cost;
                steps.fill(FIRST_STEP);
            }
            let extrapolated: Vec<f64> = best
                .iter()
                .zip(&before)
                .map(|(now, before)| 2.0 * now - before)
                .collect();
            let extrapolated_cost = self.cost(&of(&extrapolated));
            if extrapolated_cost < cost {
                (best, cost) = (extrapolated, extrapolated_cost);
            }
        }
        of(&best)
    }

    /// How well constants fit the samples.
    pub fn fit(&self, model: &TiledConstants) -> Fit {
        /// Ratio up to which times count as equal.
        const TIE_RATIO: f64 = 1.03;

        let (mut square, mut selection_ratio) = (0.0, 0.0);
        let mut worst_selection = (1.0, String::new());
        for problem in &self.problems {
            let mut selected = (f64::INFINITY, f64::INFINITY);
            for sample in &problem.samples {
                let estimate = self.estimate(sample, model);
                square += sample.weight * (estimate / sample.us).ln().powi(2);
                if estimate < selected.0 {
                    selected = (estimate, sample.us);
                }
            }
            let ratio = selected.1 / problem.least;
            if ratio > TIE_RATIO {
                selection_ratio += ratio.ln();
            }
            if ratio > worst_selection.0 {
                worst_selection = (ratio, problem.key.clone());
            }
        }
        let problems = self.problems.len() as f64;
        Fit {
            problems: self.problems.len(),
            tiles: self
                .problems
                .iter()
                .map(|problem| problem.samples.len())
                .sum(),
            error: (square / problems).sqrt(),
            selection_ratio: (selection_ratio / problems).exp(),
            worst_selection,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, yaml};
    use crate::gpu::gpu;
    use crate::plan::problem_label;

    /// Rows of every tenth tile of the problems, with the times that a model predicts.
    fn rows(problems: &Problems, model: &TiledConstants) -> Vec<Row> {
        let h200 = gpu("h200").unwrap();
        let mut rows = Vec::new();
        for (key, problem) in problems.iter() {
            for name in ["implicit_gemm", "direct_tiled", "direct"] {
                let scheme = scheme(name).unwrap();
                for tile in scheme.tiles(problem, h200).into_iter().step_by(10) {
                    let launch = scheme.work(problem, &tile, h200).launches[0];
                    let work = launch.work;
                    let us = work
                        .tiled
                        .map_or(1.0, |tiled| tiled_terms(&work, &tiled, h200, model).us());
                    rows.push(Row {
                        problem: key.to_owned(),
                        scheme: name.to_owned(),
                        tile: tile.label(scheme.tile_fields()).to_string(),
                        text: 0,
                        outcome: Outcome::Timed(us, us),
                    });
                }
            }
        }
        rows
    }

    fn problems() -> Problems {
        let text = "name: some\ndefaults: {kernel: 3}\nlayers:\n  - {conv: [64, 32, 28, 28]}\n  - {conv: [37, 50, 15, 17]}\n  - {conv: [128, 96, 14, 14], kernel: 1}\n  - {conv: [64, 32, 56, 56]}\n";
        let mut problems = Problems::default();
        problems.add(&yaml::parse(text, "some.yaml", &Overrides::default()).unwrap());
        problems
    }

    #[test]
    fn calibration_recovers_known_constants() {
        let h200 = gpu("h200").unwrap();
        let truth = TiledConstants {
            first_chunk_latency: 150.0,
            instruction_issue: 4.0,
            cluster_exchange_latency: 1000.0,
            ..TiledConstants::INITIAL
        };
        let problems = problems();
        let rows = rows(&problems, &truth);
        let samples = Samples::new(&problems, rows.iter(), h200);
        let before = samples.fit(&TiledConstants::INITIAL);
        assert!(before.problems == 4 && before.error > 0.1, "{before:?}");
        let found = samples.calibrate(&TiledConstants::INITIAL);
        let after = samples.fit(&found);
        assert!(
            after.error < 0.02 && after.selection_ratio < 1.02,
            "{after:?}"
        );
        assert!(
            (found.cluster_exchange_latency / truth.cluster_exchange_latency)
                .ln()
                .abs()
                < 0.2,
            "{found:?}"
        );
    }

    #[test]
    fn unrelated_rows_are_ignored() {
        let h200 = gpu("h200").unwrap();
        let problems = problems();
        let mut rows = rows(&problems, &TiledConstants::INITIAL);
        let all = Samples::new(&problems, rows.iter(), h200).fit(&TiledConstants::INITIAL);
        let of_direct = rows.iter().filter(|row| row.scheme == "direct").count();
        assert!(of_direct > 0);
        assert_eq!(all.tiles, rows.len() - of_direct);
        let (key, _) = problems.iter().next().unwrap();
        assert!(rows.iter().any(|row| row.problem == key));
        rows[0].tile = "h1".to_owned();
        rows[1].scheme = "none".to_owned();
        rows[2].outcome = Outcome::Wrong("why".to_owned());
        rows[3].problem = problem_label(problems.iter().next().unwrap().1) + "x";
        let fewer = Samples::new(&problems, rows.iter(), h200).fit(&TiledConstants::INITIAL);
        assert_eq!(fewer.tiles, all.tiles - 4);
        assert!(Samples::new(&Problems::default(), rows.iter(), h200).is_empty());
    }
}
