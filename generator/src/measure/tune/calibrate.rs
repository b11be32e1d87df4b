//! The constants of the estimate, fitted to measured times.

use super::{Outcome, Problems, Row};
use crate::cost::{KernelWork, Model, TiledWork, tiled_terms};
use crate::gpu::Gpu;
use crate::scheme::{Tile, scheme};
use std::collections::BTreeMap;

/// A kernel and what it took.
struct Sample {
    work: KernelWork,
    tiled: TiledWork,
    us: f64,
    /// How much it counts among the tiles of its problem: the fast ones most.
    weight: f64,
}

/// The measured tiles of a problem.
struct OfProblem {
    key: String,
    samples: Vec<Sample>,
    /// The least time.
    least: f64,
    /// How much it counts: its best tile is the better known, the more were measured.
    weight: f64,
}

/// Measured tiles of tiled schemes, by problem.
pub struct Samples {
    gpu: &'static Gpu,
    problems: Vec<OfProblem>,
}

/// How well constants tell the measured times.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Problems and tiles.
    pub problems: usize,
    /// See [`problems`](Self::problems).
    pub tiles: usize,
    /// Root of the weighted mean square of the logarithm of estimated over measured time.
    pub error: f64,
    /// Measured time of the tile with the least estimate over the least measured time: geometric mean over problems, what is within
    /// 3 % of the least counted as equal to it.
    pub picks: f64,
    /// The worst of them, and its problem.
    pub worst_pick: (f64, String),
}

impl Samples {
    /// Those rows that are about tiled kernels of the problems, whatever else is there. A problem with fewer than three tells nothing.
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
                Outcome::Timed(_, us) | Outcome::Slow(us) => us,
                _ => continue,
            };
            let tile = Tile::of_label(&row.tile, scheme.tile_names());
            let Some(tile) = tile.filter(|tile| scheme.takes(problem, tile)) else {
                continue;
            };
            let launches = scheme.work(problem, &tile).launches;
            let [launch] = &launches[..] else {
                continue;
            };
            // Registers as they are guessed: of the tiles to choose among few have been compiled.
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
            OfProblem {
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

    /// Whether nothing can be told.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    fn estimate(&self, sample: &Sample, model: &Model) -> f64 {
        tiled_terms(&sample.work, &sample.tiled, self.gpu, model).us()
    }

    /// What [`calibrate`](Self::calibrate) makes small. Of each problem: the errors apart from what all its tiles have in common, large
    /// ones counted less than their square, since the choice is among them; that common error, less; what would be lost by the
    /// choice if it were uncertain by a few percent, and the square of it, for the sake of the worst. Besides, what the constants differ from those at the start, so that they stay sane where no
    /// tile tells anything about them.
    fn cost(&self, model: &Model) -> f64 {
        /// Errors beyond it count linearly.
        const LARGE: f64 = 0.15;
        const COMMON: f64 = 0.16;
        const LOST: f64 = 0.1;
        const LOST_SQUARE: f64 = 0.3;
        const UNCERTAIN: f64 = 0.03;
        const DRAW: f64 = 1e-4;

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
            let (mut own, mut lost, mut lost_square, mut chosen) = (0.0, 0.0, 0.0, 0.0);
            for (sample, &estimate) in samples() {
                let error = (error(sample, estimate) - common).abs();
                own += sample.weight
                    * if error < LARGE {
                        error * error
                    } else {
                        LARGE * (2.0 * error - LARGE)
                    };
                let chance = (least / estimate).powf(1.0 / UNCERTAIN);
                chosen += chance;
                let times = sample.us / problem.least;
                lost += chance * times.ln();
                lost_square += chance * (times - 1.0).powi(2);
            }
            let chosen = (LOST * lost + LOST_SQUARE * lost_square) / chosen;
            cost += problem.weight * (own + COMMON * common * common + chosen);
        }
        let start = Model::START.values();
        let values = model.values();
        let drawn = values
            .iter()
            .zip(&start)
            .map(|(value, start)| (value / start).ln().powi(2));
        cost + DRAW * drawn.sum::<f64>()
    }

    /// Constants that tell the times best, found from those of `start` on; the same for the same samples.
    ///
    /// Each in turn is made larger or smaller by a step of its own, which grows where that helps and shrinks where neither does; what
    /// a round has changed is then tried once more (the pattern search of Hooke and Jeeves, in logarithms). Where all steps have become
    /// small it begins anew with large ones, until that gains nothing.
    pub fn calibrate(&self, start: &Model) -> Model {
        const FIRST_STEP: f64 = 0.2;
        const LAST_STEP: f64 = 0.004;
        const GAIN: f64 = 0.998;
        const ROUNDS: usize = 400;

        let of = |logarithms: &[f64]| {
            let values: Vec<f64> = logarithms.iter().map(|value| value.exp()).collect();
            Model::of_values(&values)
        };
        let mut best: Vec<f64> = start.values().iter().map(|value| value.ln()).collect();
        let mut steps = vec![FIRST_STEP; best.len()];
        let mut cost = self.cost(&of(&best));
        let mut begun = f64::INFINITY;
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
                        // The way that helped comes first the next time.
                        steps[place] = 1.5 * step;
                        break;
                    }
                }
                if !found {
                    steps[place] /= 2.0;
                }
            }
            if steps.iter().all(|step| step.abs() < LAST_STEP) {
                if cost > GAIN * begun {
                    break;
                }
                begun = cost;
                steps.fill(FIRST_STEP);
            }
            let further: Vec<f64> = best
                .iter()
                .zip(&before)
                .map(|(now, before)| 2.0 * now - before)
                .collect();
            let further_cost = self.cost(&of(&further));
            if further_cost < cost {
                (best, cost) = (further, further_cost);
            }
        }
        of(&best)
    }

    /// How well constants do.
    pub fn fit(&self, model: &Model) -> Fit {
        /// Times that are counted as equal.
        const EQUAL: f64 = 1.03;

        let (mut square, mut picks) = (0.0, 0.0);
        let mut worst_pick = (1.0, String::new());
        for problem in &self.problems {
            let mut picked = (f64::INFINITY, f64::INFINITY);
            for sample in &problem.samples {
                let estimate = self.estimate(sample, model);
                square += sample.weight * (estimate / sample.us).ln().powi(2);
                if estimate < picked.0 {
                    picked = (estimate, sample.us);
                }
            }
            let pick = picked.1 / problem.least;
            if pick > EQUAL {
                picks += pick.ln();
            }
            if pick > worst_pick.0 {
                worst_pick = (pick, problem.key.clone());
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
            picks: (picks / problems).exp(),
            worst_pick,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, yaml};
    use crate::gpu::gpu;
    use crate::plan::problem_label;

    /// Rows of every tenth tile of some problems, with the times that a model tells.
    fn rows(problems: &Problems, model: &Model) -> Vec<Row> {
        let h200 = gpu("h200").unwrap();
        let mut rows = Vec::new();
        for (key, problem) in problems.iter() {
            for name in ["implicit_gemm", "direct_tiled", "direct"] {
                let scheme = scheme(name).unwrap();
                for tile in scheme.tiles(problem).into_iter().step_by(10) {
                    let launch = scheme.work(problem, &tile).launches[0];
                    let work = launch.work;
                    let us = work
                        .tiled
                        .map_or(1.0, |tiled| tiled_terms(&work, &tiled, h200, model).us());
                    rows.push(Row {
                        problem: key.to_owned(),
                        scheme: name.to_owned(),
                        tile: tile.label(scheme.tile_names()).to_string(),
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
    fn constants_are_found_again_in_the_times_that_they_make() {
        let h200 = gpu("h200").unwrap();
        let truth = Model {
            first_load: 150.0,
            instruction: 4.0,
            exchange: 1000.0,
            ..Model::START
        };
        let problems = problems();
        let rows = rows(&problems, &truth);
        let samples = Samples::new(&problems, rows.iter(), h200);
        let before = samples.fit(&Model::START);
        assert!(before.problems == 4 && before.error > 0.1, "{before:?}");
        let found = samples.calibrate(&Model::START);
        let after = samples.fit(&found);
        assert!(after.error < 0.02 && after.picks < 1.02, "{after:?}");
        assert!(
            (found.exchange / truth.exchange).ln().abs() < 0.2,
            "{found}"
        );
    }

    #[test]
    fn rows_of_other_problems_schemes_and_tiles_are_passed_over() {
        let h200 = gpu("h200").unwrap();
        let problems = problems();
        let mut rows = rows(&problems, &Model::START);
        let all = Samples::new(&problems, rows.iter(), h200).fit(&Model::START);
        let of_direct = rows.iter().filter(|row| row.scheme == "direct").count();
        assert!(of_direct > 0);
        assert_eq!(all.tiles, rows.len() - of_direct);
        let (key, _) = problems.iter().next().unwrap();
        assert!(rows.iter().any(|row| row.problem == key));
        rows[0].tile = "h1".to_owned();
        rows[1].scheme = "none".to_owned();
        rows[2].outcome = Outcome::Wrong("why".to_owned());
        rows[3].problem = problem_label(problems.iter().next().unwrap().1) + "x";
        let fewer = Samples::new(&problems, rows.iter(), h200).fit(&Model::START);
        assert_eq!(fewer.tiles, all.tiles - 4);
        assert!(Samples::new(&Problems::default(), rows.iter(), h200).is_empty());
    }
}
