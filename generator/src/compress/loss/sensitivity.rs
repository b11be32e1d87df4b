//! Losses that were measured: a file with the loss of each layer at some ranks.
//!
//! ```json
//! {
//!   "criterion": "rise of the loss",
//!   "layers": [
//!     {"name": "layer1.0.conv1", "d1": [8, 32], "d2": [8, 16, 64], "loss": [[0.9, 0.5, 0.4], [0.6, 0.2, 0.1]]},
//!     {"name": "fc", "rank": [16, 64], "loss": [0.5, 0.1]}
//!   ]
//! }
//! ```
//!
//! `loss` has a row for each of `d1`, or a number for each of `rank`. Between these ranks losses are interpolated (bilinearly), above them
//! they are those of the largest, and ranks below them are no candidates.

use crate::compress::form::{Form, LayerProblem};
use crate::ir::{Network, OpId};
use serde::Deserialize;

/// What is wrong with a file of losses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SensitivityError {
    /// It is no JSON, or has other keys.
    #[error("{0}")]
    Json(String),
    /// A layer is wrong.
    #[error("layer `{layer}`: {problem}")]
    Layer {
        /// Its name.
        layer: String,
        /// What is wrong, and what it should be.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    criterion: String,
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    name: String,
    d1: Option<Vec<u32>>,
    d2: Option<Vec<u32>>,
    rank: Option<Vec<u32>>,
    loss: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Row {
    One(f64),
    Many(Vec<f64>),
}

/// The criterion of a file, and the losses of its layers.
pub(super) struct Sensitivity {
    pub criterion: String,
    pub layers: Vec<(OpId, Measured)>,
}

/// The losses of a layer at some ranks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// One or two axes of ranks, each in ascending order.
    axes: Vec<Vec<u32>>,
    /// Losses, the last axis fastest.
    losses: Vec<f64>,
}

impl Sensitivity {
    /// Reads a file for a network.
    ///
    /// # Errors
    /// All that is wrong.
    pub(super) fn read(text: &str, network: &Network) -> Result<Self, Vec<SensitivityError>> {
        let file: File = serde_json::from_str(text)
            .map_err(|error| vec![SensitivityError::Json(error.to_string())])?;
        let (mut layers, mut errors) = (Vec::new(), Vec::new());
        for layer in file.layers {
            let name = layer.name.clone();
            let found = layer.measured(network).and_then(|(op, measured)| {
                let is_known = layers.iter().any(|(known, _)| *known == op);
                match is_known {
                    true => Err("it is there twice; remove one of them".to_owned()),
                    false => Ok((op, measured)),
                }
            });
            match found {
                Ok(layer) => layers.push(layer),
                Err(problem) => errors.push(SensitivityError::Layer {
                    layer: name,
                    problem,
                }),
            }
        }
        match errors.is_empty() {
            true => Ok(Self {
                criterion: file.criterion,
                layers,
            }),
            false => Err(errors),
        }
    }
}

impl Layer {
    fn measured(self, network: &Network) -> Result<(OpId, Measured), String> {
        let op = network.ops.iter().position(|op| op.name == self.name);
        let op = OpId(op.ok_or("the network has no such layer")?);
        let problem = LayerProblem::of(network, op).ok_or("it has no weight")?;
        let [c, n] = problem.channels();
        let (axes, rows) = match (self.d1, self.d2, self.rank) {
            (Some(d1), Some(d2), None) => {
                if problem.conv().is_none() {
                    return Err("a linear layer has `rank`, not `d1` and `d2`".to_owned());
                }
                (vec![("d1", d1, c), ("d2", d2, n)], self.loss)
            }
            (None, None, Some(rank)) => (vec![("rank", rank, c.min(n))], self.loss),
            _ => return Err("it needs `d1` and `d2`, or `rank`".to_owned()),
        };
        for (key, ranks, most) in &axes {
            let ascends = ranks.windows(2).all(|pair| pair[0] < pair[1]);
            let fits = ranks
                .first()
                .zip(ranks.last())
                .is_some_and(|(first, last)| *first >= 1 && last <= most);
            if !ascends || !fits {
                return Err(format!(
                    "`{key}` must have ascending ranks from 1 to {most}, but is {ranks:?}"
                ));
            }
        }
        let axes: Vec<Vec<u32>> = axes.into_iter().map(|(_, ranks, _)| ranks).collect();
        let losses = losses(&axes, rows)?;
        Ok((op, Measured { axes, losses }))
    }
}

/// The losses in a row, after their number and values were checked.
fn losses(axes: &[Vec<u32>], rows: Vec<Row>) -> Result<Vec<f64>, String> {
    let expected = axes[0].len();
    if rows.len() != expected {
        return Err(format!(
            "`loss` has {} rows for {expected} ranks",
            rows.len()
        ));
    }
    let mut losses = Vec::new();
    for row in rows {
        match (row, axes.get(1)) {
            (Row::One(loss), None) => losses.push(loss),
            (Row::Many(row), Some(d2s)) if row.len() == d2s.len() => losses.extend(row),
            (Row::Many(row), Some(d2s)) => {
                return Err(format!(
                    "a row of `loss` has {} numbers for {} ranks `d2`",
                    row.len(),
                    d2s.len()
                ));
            }
            (Row::One(_), Some(_)) => {
                return Err("`loss` must have a row of numbers for each of `d1`".to_owned());
            }
            (Row::Many(_), None) => {
                return Err("`loss` must have a number for each of `rank`".to_owned());
            }
        }
    }
    match losses
        .iter()
        .find(|loss| !(**loss >= 0.0 && loss.is_finite()))
    {
        Some(loss) => Err(format!("a loss is at least 0, but one is {loss}")),
        None => Ok(losses),
    }
}

impl Measured {
    /// The loss of a form; `None` if it was not measured.
    pub(super) fn loss(&self, form: Form) -> Option<f64> {
        match (form, &self.axes[..]) {
            (Form::Tucker([d1, d2]), [d1s, d2s]) => {
                let (row, across) = place(d1s, d1)?;
                let (column, along) = place(d2s, d2)?;
                let row_loss = |row: usize| self.between(row * d2s.len() + column, along);
                Some(mixed(row_loss(row), across, || row_loss(row + 1)))
            }
            (Form::LowRank(rank), [ranks]) => {
                let (at, along) = place(ranks, rank)?;
                Some(self.between(at, along))
            }
            _ => None,
        }
    }

    /// The loss between two neighbours of the last axis.
    fn between(&self, at: usize, along: f64) -> f64 {
        mixed(self.losses[at], along, || self.losses[at + 1])
    }
}

/// The index of the largest known rank that is not above `rank`, and how far towards the next one it is; `None` below the least.
fn place(ranks: &[u32], rank: u32) -> Option<(usize, f64)> {
    let after = ranks.partition_point(|&known| known <= rank);
    let at = after.checked_sub(1)?;
    let along = ranks.get(after).map_or(0.0, |&next| {
        f64::from(rank - ranks[at]) / f64::from(next - ranks[at])
    });
    Some((at, along))
}

fn mixed(a: f64, along: f64, b: impl FnOnce() -> f64) -> f64 {
    match along > 0.0 {
        true => a + along * (b() - a),
        false => a,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{ConvOptions, LinearOptions, NetworkBuilder, OpOptions, TensorShape};

    fn network() -> Network {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 8, 9, 7));
        builder.op("a", None, OpOptions::Conv(ConvOptions::new(12)));
        builder.op("b", None, OpOptions::Flatten);
        builder.op("c", None, OpOptions::Linear(LinearOptions::new(10)));
        builder.finish().unwrap()
    }

    fn read(layers: &str) -> Result<Sensitivity, Vec<SensitivityError>> {
        let text = format!("{{\"criterion\": \"x\", \"layers\": [{layers}]}}");
        Sensitivity::read(&text, &network())
    }

    #[test]
    fn losses_are_interpolated_between_the_ranks_of_the_file() {
        let found = read(
            r#"{"name": "a", "d1": [2, 6], "d2": [1, 5, 9], "loss": [[8, 4, 2], [4, 1, 0.5]]},
               {"name": "c", "rank": [3, 7], "loss": [2, 0.25]}"#,
        );
        let found = found.unwrap();
        assert_eq!(found.criterion, "x");
        let [(a, conv), (c, linear)] = &found.layers[..] else {
            panic!("two layers");
        };
        assert_eq!((a.0, c.0), (1, 3));
        let tucker = |d1, d2| conv.loss(Form::Tucker([d1, d2]));
        assert_eq!(tucker(2, 1), Some(8.0));
        assert_eq!(tucker(6, 9), Some(0.5));
        assert_eq!(tucker(2, 2), Some(7.0));
        assert_eq!(tucker(3, 5), Some(3.25));
        // A quarter of the way from column 5 to 9 the rows have 3.5 and 0.875; half way between the rows:
        assert_eq!(tucker(4, 6), Some((3.5 + 0.875) / 2.0));
        // Above the largest: that of the largest. Below the least: none.
        assert_eq!(tucker(8, 12), Some(0.5));
        assert_eq!(tucker(1, 9), None);
        assert_eq!(conv.loss(Form::LowRank(3)), None);
        assert_eq!(linear.loss(Form::LowRank(2)), None);
        assert_eq!(linear.loss(Form::LowRank(4)), Some(2.0 - 1.75 / 4.0));
        assert_eq!(linear.loss(Form::LowRank(10)), Some(0.25));
    }

    #[test]
    fn all_mistakes_are_reported() {
        let found = read(
            r#"{"name": "z", "rank": [1], "loss": [1]},
               {"name": "b", "rank": [1], "loss": [1]},
               {"name": "c", "d1": [1], "d2": [1], "loss": [[1]]},
               {"name": "a", "d1": [1], "loss": [1]},
               {"name": "a", "d1": [1, 9], "d2": [1], "loss": [[1], [1]]},
               {"name": "a", "d1": [2, 2], "d2": [1], "loss": [[1], [1]]},
               {"name": "a", "d1": [], "d2": [1], "loss": []},
               {"name": "a", "d1": [0, 1], "d2": [1], "loss": [[1], [1]]},
               {"name": "a", "d1": [1, 2], "d2": [1], "loss": [[1]]},
               {"name": "a", "d1": [1], "d2": [1], "loss": [[1, 2]]},
               {"name": "a", "d1": [1], "d2": [1], "loss": [1]},
               {"name": "c", "rank": [1], "loss": [[1]]},
               {"name": "c", "rank": [1], "loss": [-1]},
               {"name": "c", "rank": [2], "loss": [1]},
               {"name": "c", "rank": [1], "loss": [1]}"#,
        );
        let Err(errors) = found else {
            panic!("errors expected");
        };
        let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let expected = [
            "layer `z`: the network has no such layer",
            "layer `b`: it has no weight",
            "layer `c`: a linear layer has `rank`, not `d1` and `d2`",
            "layer `a`: it needs `d1` and `d2`, or `rank`",
            "layer `a`: `d1` must have ascending ranks from 1 to 8, but is [1, 9]",
            "layer `a`: `d1` must have ascending ranks from 1 to 8, but is [2, 2]",
            "layer `a`: `d1` must have ascending ranks from 1 to 8, but is []",
            "layer `a`: `d1` must have ascending ranks from 1 to 8, but is [0, 1]",
            "layer `a`: `loss` has 1 rows for 2 ranks",
            "layer `a`: a row of `loss` has 2 numbers for 1 ranks `d2`",
            "layer `a`: `loss` must have a row of numbers for each of `d1`",
            "layer `c`: `loss` must have a number for each of `rank`",
            "layer `c`: a loss is at least 0, but one is -1",
            "layer `c`: it is there twice; remove one of them",
        ];
        assert_eq!(found, expected);
        for text in ["", "[]", "{\"criterion\": \"x\"}", "{\"layers\": []}"] {
            assert!(Sensitivity::read(text, &network()).is_err(), "{text}");
        }
    }
}
