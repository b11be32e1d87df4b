//! The layers of a report.

use super::Compared;
use crate::compress::form::{Form, LayerProblem, form_of};
use crate::compress::{
    Choice, Compression, Ineligible, LOSS_UNIT, layer_times, loss_units, with_forms,
};
use crate::ir::{Network, OpId};
use crate::plan::{NetworkTime, PlanError};
use serde::Serialize;

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
    /// Floating-point operations in the dense network, and in the chosen form.
    pub flops: [u64; 2],
    /// Weights in the dense network, and of all factors of the chosen form. Biases are not counted.
    pub parameters: [u64; 2],
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

impl Compression<'_> {
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
        let chosen = with_forms(&first.network, choice.forms.iter().copied());
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
        let mut forms = choice.forms.iter();
        let is_dense = forms.all(|(_, form)| *form == Form::Dense);
        let mut reports = Vec::new();
        for op in (0..self.first().network.ops.len()).map(OpId) {
            let Some(problem) = LayerProblem::of(&self.first().network, op) else {
                continue;
            };
            let form = choice.forms.iter().find(|(of, _)| *of == op);
            let form = form.map_or(Form::Dense, |(_, form)| *form);
            // Kept ranks are also those of the dense network.
            let forms = [
                form_of(&self.first().network, op).unwrap_or(Form::Dense),
                form,
            ];
            let dense_us = us(&dense_time, op);
            reports.push(LayerReport {
                name: self.first().network.op(op).name.clone(),
                weight: weight_of(&problem),
                form: form_text(&chosen, op),
                dense_us,
                dense_source: source(&dense_time, op),
                us: us(&time, op),
                source: source(&time, op),
                flops: forms.map(|form| problem.flops(form)),
                parameters: forms.map(|form| problem.parameters(form)),
                loss: loss_units(self.losses, op, form) as f64 * LOSS_UNIT,
                compared: compared
                    .iter()
                    .map(|other| form_text(&other.network, op))
                    .collect(),
                why_dense: match form {
                    Form::Dense => Some(self.why_dense(op, dense_us, &time, is_dense)),
                    _ => None,
                },
            });
        }
        Ok(reports)
    }

    /// Why a layer stays dense in a choice whose network takes this time, and may have no other forms at all.
    fn why_dense(&self, op: OpId, dense_us: f64, time: &NetworkTime, is_dense: bool) -> String {
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
            Some((form, us)) if us < dense_us && is_dense => {
                format!("{form} would take {us:.2} us, but no layer is factorised")
            }
            Some((form, us)) if us < dense_us => {
                format!("{form} would take {us:.2} us; other layers save time at less loss")
            }
            Some((form, us)) => format!("no form is faster: {form} takes {us:.2} us"),
            None => "no scheme supports its factors".to_owned(),
        }
    }

    /// The fastest form of a layer other than dense, in launches of its own, and its time.
    pub(in crate::compress) fn fastest_alone(&self, op: OpId) -> Option<(Form, f64)> {
        let mut layers = self.dense_storage().structures[0].layers.iter();
        let layer = layers.find(|layer| layer.op == op)?;
        let context = layer.contexts.last()?;
        let forms = layer.forms.iter().filter(|form| **form != Form::Dense);
        let times = forms.filter_map(|&form| {
            let ns = layer_times::separate_ns(&self.first().clock, context, form)?;
            Some((form, f64::from(ns) / 1e3))
        });
        times.min_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

fn form_text(network: &Network, op: OpId) -> String {
    form_of(network, op).unwrap_or(Form::Dense).to_string()
}

/// The shape of a layer's weight.
fn weight_of(problem: &LayerProblem) -> String {
    let weights = problem.dense().kind().weights();
    let sizes = weights.first().map_or(&[][..], |shape| &shape[..]);
    let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
    sizes.join("x")
}
