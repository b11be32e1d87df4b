//! The objective of calibration, and how well constants predict measured times.

use super::Samples;
use super::pattern_search::minimize;
use super::samples::Prediction;
use crate::gpu::CostModel;

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

impl Samples<'_> {
    /// The model with constants of the group that predict the times best; deterministic for the same samples. All other constants are
    /// those of `model`.
    pub fn calibrate(&self, model: &CostModel) -> CostModel {
        let initial = CostModel::INITIAL.group(self.group.name);
        let with = |values: &[f64]| model.with_group(self.group.name, values);
        let found = minimize(&initial, |values| {
            self.loss(&with(values)) + distance(values, &initial)
        });
        with(&found)
    }

    /// A sum over problems of [`problem_loss`].
    fn loss(&self, model: &CostModel) -> f64 {
        let losses = self.predictions(model).map(|(problem, predictions)| {
            problem.weight * problem_loss(&predictions, problem.least_us)
        });
        losses.sum()
    }

    /// How well constants fit the samples.
    pub fn fit(&self, model: &CostModel) -> Fit {
        /// Ratio up to which times count as equal.
        const TIE_RATIO: f64 = 1.03;

        let (mut square, mut selection_ratio) = (0.0, 0.0);
        let mut worst_selection = (1.0, String::new());
        for (problem, predictions) in self.predictions(model) {
            let mut selected = (f64::INFINITY, f64::INFINITY);
            for sample in predictions {
                square += sample.weight * sample.error().powi(2);
                if sample.predicted_us < selected.0 {
                    selected = (sample.predicted_us, sample.us);
                }
            }
            let ratio = selected.1 / problem.least_us;
            if ratio > TIE_RATIO {
                selection_ratio += ratio.ln();
            }
            if ratio > worst_selection.0 {
                worst_selection = (ratio, problem.key.to_owned());
            }
        }
        let problems = self.problems.len() as f64;
        Fit {
            problems: self.problems.len(),
            tiles: self.tiles(),
            error: (square / problems).sqrt(),
            selection_ratio: (selection_ratio / problems).exp(),
            worst_selection,
        }
    }
}

impl Prediction {
    /// The logarithm of predicted time over measured time.
    fn error(&self) -> f64 {
        (self.predicted_us / self.us).ln()
    }
}

/// What constants lose at one problem, whose least time is `least_us`:
///
/// - the errors without the part that all tiles of the problem have in common, with a Huber loss, since the planner chooses among these
///   tiles;
/// - that common error, with a smaller weight;
/// - the expected error of the choice, which is that of plans: of many predictions the least one tends to be too short;
/// - the expected loss of the choice if predicted times were uncertain by a few percent, and its square, which weights the worst
///   problems.
fn problem_loss(predictions: &[Prediction], least_us: f64) -> f64 {
    /// Errors beyond it count linearly.
    const HUBER_THRESHOLD: f64 = 0.15;
    const COMMON_ERROR_WEIGHT: f64 = 0.16;
    const CHOICE_ERROR_WEIGHT: f64 = 0.5;
    const REGRET_WEIGHT: f64 = 0.1;
    const REGRET_SQUARE_WEIGHT: f64 = 0.3;
    const PREDICTION_UNCERTAINTY: f64 = 0.03;

    let predicted = predictions.iter().map(|sample| sample.predicted_us);
    let least_predicted = predicted.fold(f64::INFINITY, f64::min);
    let common: f64 = predictions
        .iter()
        .map(|sample| sample.weight * sample.error())
        .sum();
    let (mut own, mut regret, mut regret_square) = (0.0, 0.0, 0.0);
    let (mut chosen, mut choice_error) = (0.0, 0.0);
    for sample in predictions {
        let error = (sample.error() - common).abs();
        own += sample.weight
            * if error < HUBER_THRESHOLD {
                error * error
            } else {
                HUBER_THRESHOLD * (2.0 * error - HUBER_THRESHOLD)
            };
        let choice_weight =
            (least_predicted / sample.predicted_us).powf(1.0 / PREDICTION_UNCERTAINTY);
        chosen += choice_weight;
        choice_error += choice_weight * sample.error();
        let times = sample.us / least_us;
        regret += choice_weight * times.ln();
        regret_square += choice_weight * (times - 1.0).powi(2);
    }
    let choice = (REGRET_WEIGHT * regret + REGRET_SQUARE_WEIGHT * regret_square) / chosen;
    let choice_error = choice_error / chosen;
    own + COMMON_ERROR_WEIGHT * common * common
        + CHOICE_ERROR_WEIGHT * choice_error * choice_error
        + choice
}

/// A small penalty on the distance from the initial constants, which keeps those sane that no sample determines.
fn distance(values: &[f64], initial: &[f64]) -> f64 {
    const WEIGHT: f64 = 1e-4;

    let pairs = values.iter().zip(initial);
    WEIGHT
        * pairs
            .map(|(value, start)| (value / start).ln().powi(2))
            .sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::super::{GROUPS, Group};
    use super::*;
    use crate::config::{Overrides, yaml};
    use crate::gpu::{Gpu, gpu};
    use crate::ir::Precision;
    use crate::measure::tune::{Outcome, Problems, Row};
    use crate::plan::problem_label;
    use crate::scheme::scheme;

    fn group(name: &str) -> Group {
        *GROUPS.iter().find(|group| group.name == name).unwrap()
    }

    /// Rows of every `step`-th tile of the schemes, with the times that a model predicts.
    fn rows(problems: &Problems, schemes: &[&str], step: usize, model: &CostModel) -> Vec<Row> {
        let h200 = Gpu {
            calibrated: Some(*model),
            ..gpu("h200").unwrap().clone()
        };
        let mut rows = Vec::new();
        for (key, problem) in problems.iter() {
            for name in schemes {
                let scheme = scheme(name).unwrap();
                for tile in scheme.tiles(problem, &h200).into_iter().step_by(step) {
                    let us = scheme.work(problem, &tile, &h200).us(&h200);
                    rows.push(Row {
                        problem: key.to_owned(),
                        scheme: (*name).to_owned(),
                        tile: tile.label(scheme.tile_fields()).to_string(),
                        text: 0,
                        outcome: Outcome::Timed(us, us),
                    });
                }
            }
        }
        rows
    }

    fn problems(precision: Precision) -> Problems {
        let text = "name: some\ndefaults: {kernel: 3}\nlayers:\n  - {conv: [64, 32, 28, 28]}\n  - {conv: [37, 50, 15, 17]}\n  - {conv: [128, 96, 14, 14], kernel: 1}\n  - {conv: [64, 32, 56, 56]}\n";
        let overrides = Overrides {
            precision: Some(precision),
            ..Overrides::default()
        };
        let mut problems = Problems::default();
        problems.add(&yaml::parse(text, "some.yaml", &overrides).unwrap());
        problems
    }

    #[test]
    fn calibration_recovers_known_constants() {
        let mut truth = CostModel::INITIAL;
        truth.tiled.first_chunk_latency = 150.0;
        truth.tiled.instruction_issue = 4.0;
        truth.tiled.cluster_exchange_latency = 1000.0;
        let problems = problems(Precision::Fp32);
        let rows = rows(&problems, &["implicit_gemm", "direct_tiled"], 10, &truth);
        let samples = Samples::new(group("tiled"), &problems, rows.iter(), gpu("h200").unwrap());
        let before = samples.fit(&CostModel::INITIAL);
        assert!(before.problems == 4 && before.error > 0.1, "{before:?}");
        let found = samples.calibrate(&CostModel::INITIAL);
        let after = samples.fit(&found);
        assert!(
            after.error < 0.02 && after.selection_ratio < 1.02,
            "{after:?}"
        );
        let ratio = found.tiled.cluster_exchange_latency / 1000.0;
        assert!(ratio.ln().abs() < 0.2, "{found:?}");
        assert_eq!(found.winograd, CostModel::INITIAL.winograd);
        assert_eq!(found.tiled_half, CostModel::INITIAL.tiled_half);
    }

    /// Constants by which a scheme computes the work of its kernels.
    #[test]
    fn calibration_recovers_constants_of_a_scheme() {
        let mut truth = CostModel::INITIAL;
        truth.winograd.step_latency = 600.0;
        truth.winograd.l2_traffic = 2.5;
        let problems = problems(Precision::Fp32);
        let rows = rows(&problems, &["winograd"], 10, &truth);
        let samples = Samples::new(
            group("winograd"),
            &problems,
            rows.iter(),
            gpu("h200").unwrap(),
        );
        let before = samples.fit(&CostModel::INITIAL);
        assert!(before.error > 0.1, "{before:?}");
        let found = samples.calibrate(&CostModel::INITIAL);
        assert!(samples.fit(&found).error < 0.01, "{found:?}");
        assert_eq!(found.tiled, CostModel::INITIAL.tiled);
    }

    /// Each precision has constants of its own.
    #[test]
    fn products_select_the_constants() {
        let mut truth = CostModel::INITIAL;
        truth.tiled_half.mma_issue = 30.0;
        for (precision, of, changes) in [
            (Precision::Fp32, "tiled", false),
            (Precision::Tf32, "tiled_tf32", false),
            (Precision::Fp16, "tiled_half", true),
            (Precision::Bf16, "tiled_half", true),
        ] {
            let problems = problems(precision);
            let rows = rows(&problems, &["implicit_gemm"], 50, &CostModel::INITIAL);
            for group in GROUPS {
                let samples = Samples::new(*group, &problems, rows.iter(), gpu("h200").unwrap());
                assert_eq!(
                    samples.is_empty(),
                    group.name != of,
                    "{precision:?} {}",
                    group.name
                );
            }
            let samples = Samples::new(group(of), &problems, rows.iter(), gpu("h200").unwrap());
            assert_eq!(samples.fit(&truth).error > 0.05, changes, "{precision:?}");
        }
    }

    #[test]
    fn unrelated_rows_are_ignored() {
        let h200 = gpu("h200").unwrap();
        let problems = problems(Precision::Fp32);
        let initial = CostModel::INITIAL;
        let schemes = ["implicit_gemm", "direct_tiled", "direct"];
        let mut rows = rows(&problems, &schemes, 10, &initial);
        let tiled = group("tiled");
        let all = Samples::new(tiled, &problems, rows.iter(), h200).fit(&initial);
        let of_direct = rows.iter().filter(|row| row.scheme == "direct").count();
        assert!(of_direct > 0);
        assert_eq!(all.tiles, rows.len() - of_direct);
        rows[0].tile = "h1".to_owned();
        rows[1].scheme = "none".to_owned();
        rows[2].outcome = Outcome::Wrong("why".to_owned());
        rows[3].problem = problem_label(problems.iter().next().unwrap().1) + "x";
        let fewer = Samples::new(tiled, &problems, rows.iter(), h200).fit(&initial);
        assert_eq!(fewer.tiles, all.tiles - 4);
        assert!(Samples::new(tiled, &Problems::default(), rows.iter(), h200).is_empty());
    }
}
