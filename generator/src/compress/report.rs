//! The report of a rank choice: numbers as JSON, and a page with the frontier and the layers.

mod chart;
mod page;

pub use page::page;

use super::form::{LayerProblem, form_of};
use super::{Choice, Compression, Form, Ineligible, LowerBound, Method};
use crate::ir::{Network, OpId};
use crate::plan::{NetworkTime, PlanError};
use serde::Serialize;

/// What was chosen, and what else could have been.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The network's name.
    pub network: String,
    /// The GPU, or all GPUs with their batches.
    pub gpu: String,
    /// The input's shape.
    pub input: String,
    /// Where times come from.
    pub times: &'static str,
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
    /// What no ranks can be faster than.
    pub lower_bound: LowerBound,
    /// The chosen network's time over the floor.
    pub over_floor: f64,
    /// All points of the chart.
    pub series: Vec<Series>,
    /// All convolutions and linear layers, in the chosen form, or dense if nothing was chosen.
    pub layers: Vec<LayerReport>,
}

/// The times on a GPU with a batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetReport {
    /// GPU and batch.
    pub name: String,
    /// Time of the dense network, microseconds.
    pub dense_us: f64,
    /// Time of the chosen network, microseconds.
    pub us: f64,
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
        .map(|(name, (&us, &dense_us))| TargetReport { name, dense_us, us })
        .collect()
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

/// A layer of the chosen network.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerReport {
    /// Name.
    pub name: String,
    /// Shape of its weight.
    pub weight: String,
    /// The chosen form.
    pub form: String,
    /// Time of its launches in the dense network on the first target, microseconds.
    pub dense_us: f64,
    /// Where it comes from.
    pub dense_source: TimeSource,
    /// Time of its launches in the chosen network; those that compute the next layer's first factor too are counted here.
    pub us: f64,
    /// Where it comes from.
    pub source: TimeSource,
    /// Operations of the dense layer, and of the chosen form.
    pub flops: [u64; 2],
    /// Loss of the chosen form.
    pub loss: f64,
    /// Its forms in the networks that are compared.
    pub compared: Vec<String>,
    /// Why it is dense; `None` if it is not.
    pub why_dense: Option<String>,
}

/// Where the time of a layer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeSource {
    /// All its launches were measured.
    Measured,
    /// By the cost model, corrected by measured launches if there are any.
    Predicted,
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

    /// The layers of a chosen network.
    ///
    /// # Errors
    /// One for each layer that cannot be planned.
    pub fn layer_reports(
        &mut self,
        choice: &Choice,
        compared: &[Compared],
    ) -> Result<Vec<LayerReport>, Vec<PlanError>> {
        let first = &mut self.targets[0];
        let chosen = super::with_forms(&first.network, choice.forms.iter().copied());
        let dense_time = NetworkTime::of_network(first.clock.planner(), &first.network)?;
        let time = NetworkTime::of_network(first.clock.planner(), &chosen)?;
        let us = |time: &NetworkTime, op: OpId| {
            let parts = time.steps.iter().filter_map(|step| step.ns_of(op));
            parts.sum::<f64>() / 1e3
        };
        let source = |time: &NetworkTime, op: OpId| {
            let mut steps = time.steps.iter().filter(|step| step.ns_of(op).is_some());
            match steps.all(|step| self.first().clock.is_measured(&step.problem)) {
                true => TimeSource::Measured,
                false => TimeSource::Predicted,
            }
        };
        let mut reports = Vec::new();
        for op in (0..self.first().network.ops.len()).map(OpId) {
            let Some(problem) = LayerProblem::of(&self.first().network, op) else {
                continue;
            };
            let mut forms = choice.forms.iter();
            let form = forms.find(|(of, _)| *of == op);
            let form = form.map_or(Form::Dense, |(_, form)| *form);
            let dense_us = us(&dense_time, op);
            reports.push(LayerReport {
                name: self.first().network.op(op).name.clone(),
                weight: weight_of(&problem),
                form: form_text(&chosen, op),
                dense_us,
                dense_source: source(&dense_time, op),
                us: us(&time, op),
                source: source(&time, op),
                flops: [Form::Dense, form].map(|form| problem.flops(form)),
                loss: super::loss_units(self.losses, op, form) as f64 * super::LOSS_UNIT,
                compared: compared
                    .iter()
                    .map(|other| form_text(&other.network, op))
                    .collect(),
                why_dense: match form {
                    Form::Dense => Some(self.why_dense(op, dense_us, &time)),
                    _ => None,
                },
            });
        }
        Ok(reports)
    }

    /// Why a layer stays dense in a choice whose network takes this time.
    fn why_dense(&self, op: OpId, dense_us: f64, time: &NetworkTime) -> String {
        let mut ineligible = self.ineligible.iter();
        if let Some((_, reason)) = ineligible.find(|(of, _)| *of == op) {
            return Ineligible::as_str(*reason).to_owned();
        }
        let mut steps = time.steps.iter();
        if let Some(step) = steps.find(|step| step.layers.len() > 1 && step.computes(op)) {
            let others = step.layers.iter().filter(|part| part.layer != op);
            let names = others.map(|part| &self.first().network.op(part.layer).name[..]);
            let names = names.collect::<Vec<_>>().join(" and ");
            return format!("one launch computes it together with {names}");
        }
        let fastest = self.fastest_alone(op);
        match fastest {
            Some((form, us)) if us < dense_us => {
                format!("{form} would take {us:.2} us; other layers save time at less loss")
            }
            Some((form, us)) => format!("no form is faster: {form} takes {us:.2} us"),
            None => "no scheme supports its factors".to_owned(),
        }
    }

    /// The fastest form of a layer other than dense, in launches of its own, and its time.
    pub(super) fn fastest_alone(&self, op: OpId) -> Option<(Form, f64)> {
        let mut layers = self.dense_storage().structures[0].layers.iter();
        let layer = layers.find(|layer| layer.op == op)?;
        let context = layer.contexts.last()?;
        let forms = layer.forms.iter().filter(|form| **form != Form::Dense);
        let times = forms.filter_map(|&form| {
            let ns = super::layer_times::separate_ns(&self.first().clock, context, form)?;
            Some((form, f64::from(ns) / 1e3))
        });
        times.min_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

fn form_text(network: &Network, op: OpId) -> String {
    match form_of(network, op) {
        Some(form) => form.to_string(),
        None => "CP".to_owned(),
    }
}

/// The shape of a layer's weight.
fn weight_of(problem: &LayerProblem) -> String {
    let weights = problem.dense().kind().weights();
    let sizes = weights.first().map_or(&[][..], |shape| &shape[..]);
    let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
    sizes.join("x")
}
