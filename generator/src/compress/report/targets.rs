//! The times on several GPUs and with several batches.

use crate::compress::Choice;
use serde::Serialize;

/// The times on a GPU with a batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetReport {
    /// GPU and batch.
    pub name: String,
    /// Time of the dense network, microseconds.
    pub dense_us: f64,
    /// Time of the chosen network, microseconds.
    pub us: f64,
    /// The latter over the former.
    pub relative: f64,
}

/// The times of a choice on all targets, whose names are given.
pub fn target_reports(
    names: impl IntoIterator<Item = String>,
    choice: &Choice,
    dense: &Choice,
) -> Vec<TargetReport> {
    let times = choice.target_us.iter().zip(&dense.target_us);
    let reports = names.into_iter().zip(times);
    reports
        .map(|(name, (&us, &dense_us))| TargetReport {
            name,
            dense_us,
            us,
            relative: us / dense_us,
        })
        .collect()
}

/// The times on all targets relative to the dense network.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RelativeTimes {
    /// Mean over the targets.
    pub mean: f64,
    /// The largest.
    pub worst: f64,
    /// The name of the target that has it.
    pub worst_target: String,
}

impl RelativeTimes {
    /// `None` if there are no targets.
    pub fn of(targets: &[TargetReport]) -> Option<Self> {
        let worst = targets
            .iter()
            .max_by(|a, b| a.relative.total_cmp(&b.relative))?;
        let sum: f64 = targets.iter().map(|target| target.relative).sum();
        Some(Self {
            mean: sum / targets.len() as f64,
            worst: worst.relative,
            worst_target: worst.name.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_has_the_largest_relative_time() {
        let choice = |target_us: [f64; 3]| Choice {
            forms: Vec::new(),
            us: target_us[0],
            target_us: target_us.to_vec(),
            loss: 0.0,
            flops: 0,
            weight_bytes: 0,
        };
        let names = ["a", "b", "c"].map(str::to_owned);
        let (dense, chosen) = (choice([10.0, 1.0, 100.0]), choice([5.0, 0.75, 25.0]));
        let targets = target_reports(names, &chosen, &dense);
        let expected = RelativeTimes {
            mean: 0.5,
            worst: 0.75,
            worst_target: "b".to_owned(),
        };
        assert_eq!(RelativeTimes::of(&targets), Some(expected));
        assert_eq!(RelativeTimes::of(&[]), None);
    }
}
