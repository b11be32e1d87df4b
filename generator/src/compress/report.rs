//! The report of a rank choice: numbers as JSON, and a page with the frontier and the layers.

mod chart;
mod layers;
mod page;
mod sources;
mod targets;

pub use layers::{LayerReport, TimeSource};
pub use page::page;
pub use sources::{GpuReport, TableReport};
pub use targets::{RelativeTimes, TargetReport, target_reports};

use super::form::WEIGHT_BYTES;
use super::{Choice, Compression, LowerBound, Method};
use crate::ir::Network;
use serde::Serialize;

/// What was chosen, and what else could have been.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The version of the generator that made the report.
    pub generator: &'static str,
    /// The network's name.
    pub network: String,
    /// The GPU, or all GPUs with their batches.
    pub gpu: String,
    /// The input's shape.
    pub input: String,
    /// Where times come from.
    pub times: &'static str,
    /// The GPUs of the predicted times.
    pub gpus: Vec<GpuReport>,
    /// The table of measured times; `None` if nothing was measured.
    pub table: Option<TableReport>,
    /// The criterion of the loss.
    pub criterion: String,
    /// The file of the weights, without its folder.
    pub weights: String,
    /// Ranks are multiples of this, or all channels.
    pub step: u32,
    /// Names of the networks that are compared.
    pub compared: Vec<String>,
    /// The times on each GPU and batch.
    pub targets: Vec<TargetReport>,
    /// Their mean and the worst of them.
    pub relative: RelativeTimes,
    /// What no ranks can be faster than.
    pub lower_bound: LowerBound,
    /// The chosen network's time over the floor.
    pub over_floor: f64,
    /// All points of the chart.
    pub series: Vec<Series>,
    /// All convolutions and linear layers, in the chosen form, or dense if nothing was chosen.
    pub layers: Vec<LayerReport>,
    /// The whole network.
    pub totals: Totals,
}

/// The whole network, dense and chosen; the same twice if nothing was chosen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Totals {
    /// Time of the dense network on the first target, microseconds. Launches that are no layers, such as pooling, are included.
    pub dense_us: f64,
    /// Time of the chosen network on the first target, microseconds, with the same launches.
    pub us: f64,
    /// Floating-point operations of all convolutions and linear layers, dense and chosen.
    pub flops: [u64; 2],
    /// Weights of all convolutions and linear layers, dense and chosen. Biases are not counted.
    pub parameters: [u64; 2],
    /// Sum of the losses of the chosen forms.
    pub loss: f64,
}

impl Totals {
    /// Of the dense network and of a choice.
    pub fn new(dense: &Choice, choice: &Choice) -> Self {
        let first_us = |choice: &Choice| choice.target_us.first().copied().unwrap_or(choice.us);
        Self {
            dense_us: first_us(dense),
            us: first_us(choice),
            flops: [dense, choice].map(|choice| choice.flops),
            parameters: [dense, choice].map(|choice| choice.weight_bytes / WEIGHT_BYTES),
            loss: choice.loss,
        }
    }
}

/// Networks with different forms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// Name.
    pub name: String,
    /// The points, the fastest first.
    pub points: Vec<Point>,
}

/// A network with some forms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Predicted time, microseconds.
    pub us: f64,
    /// Sum of the losses of its layers.
    pub loss: f64,
    /// Floating-point operations of convolutions and linear layers.
    pub flops: u64,
    /// Bytes of weights in fp32.
    pub weight_bytes: u64,
}

impl From<&Choice> for Point {
    fn from(choice: &Choice) -> Self {
        Self {
            us: choice.us,
            loss: choice.loss,
            flops: choice.flops,
            weight_bytes: choice.weight_bytes,
        }
    }
}

impl Series {
    /// The points of choices, by time.
    pub fn new<'a>(name: &str, choices: impl IntoIterator<Item = &'a Choice>) -> Self {
        let mut points: Vec<Point> = choices.into_iter().map(Point::from).collect();
        points.sort_by(|a, b| a.us.total_cmp(&b.us));
        Self {
            name: name.to_owned(),
            points,
        }
    }
}

/// Another config of the network.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// Its name in the report.
    pub name: String,
    /// The network.
    pub network: Network,
    /// Its time, loss and size.
    pub choice: Choice,
}

/// The networks of a report.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The frontier, the fastest first.
    pub frontier: &'a [Choice],
    /// Without ranks but those that are kept.
    pub dense: &'a Choice,
    /// Within the budgets, if there are any.
    pub chosen: Option<&'a Choice>,
    /// With the ranks of the config, if it has any.
    pub own: Option<&'a Choice>,
    /// Other configs.
    pub compared: &'a [Compared],
}

impl Compression<'_> {
    /// The series of a chart: all that was found, and the other methods at several reductions.
    pub fn series(&mut self, found: Found, theta: f64) -> Vec<Series> {
        let mut by_method = |method| {
            let reductions = (1..10).map(|tenth| f64::from(tenth) / 10.0);
            let choices = reductions.filter_map(|reduction| {
                let choice = self.at_reduction(method, reduction, theta);
                choice.ok().filter(|choice| choice.loss.is_finite())
            });
            choices.collect::<Vec<_>>()
        };
        let (tdc, uniform) = (by_method(Method::Tdc), by_method(Method::Uniform));
        // What comes later is drawn above.
        let mut series = vec![
            Series::new("optimal", found.frontier),
            Series::new("tdc", &tdc),
            Series::new("uniform", &uniform),
            Series::new("dense", [found.dense]),
        ];
        let mut add = |name: &str, choice: &Choice| series.push(Series::new(name, [choice]));
        if let Some(own) = found.own {
            add("ranks of the config", own);
        }
        for other in found.compared {
            add(&other.name, &other.choice);
        }
        if let Some(chosen) = found.chosen {
            add("chosen", chosen);
        }
        series
    }
}
