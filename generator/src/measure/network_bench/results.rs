//! Results of one network with one batch.

use super::Subject;
use serde::{Deserialize, Serialize};

/// How outputs were compared with a reference before their time counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The reference, and the images that were compared.
    pub reference: String,
    /// The largest relative L2 error of an output.
    pub relative_error: f64,
    /// The bound.
    pub tolerance: f64,
}

/// A time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Images of a run.
    pub batch: u32,
    /// What ran the network.
    pub subject: Subject,
    /// Microseconds of a run: the median over the rounds.
    pub us: f64,
    /// Images per second.
    pub images_per_second: f64,
    /// The median of each round, in microseconds.
    pub rounds_us: Vec<f64>,
    /// The check of generated code; `None` for PyTorch.
    pub check: Option<Check>,
}

impl Row {
    /// The row of some rounds, at least one.
    pub fn new(batch: u32, subject: Subject, rounds_us: Vec<f64>, check: Option<Check>) -> Self {
        let us = median(&rounds_us);
        Self {
            batch,
            subject,
            us,
            images_per_second: 1e6 * f64::from(batch) / us,
            rounds_us,
            check,
        }
    }
}

/// Something that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Images of a run.
    pub batch: u32,
    /// What should have run the network.
    pub subject: Subject,
    /// Why it did not.
    pub reason: String,
}

/// The median; of an even number of values the mean of the two in the middle.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.len() % 2, &sorted[..]) {
        (_, []) => f64::NAN,
        (0, sorted) => 0.5 * (sorted[middle - 1] + sorted[middle]),
        (_, sorted) => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_of_its_rounds() {
        let row = |rounds: &[f64]| Row::new(8, Subject::Generated, rounds.to_vec(), None);
        assert_eq!(row(&[30.0, 10.0, 20.0]).us, 20.0);
        assert_eq!(row(&[40.0, 10.0, 20.0, 30.0]).us, 25.0);
        assert_eq!(row(&[20.0]).images_per_second, 400_000.0);
    }
}
