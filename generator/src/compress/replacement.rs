//! Replacements: a layer of a choice takes a form of another kind, where that makes the plan better.
//!
//! The search has the formats of a few plans (see [`stored`](super::stored)). It cannot find a form that is fast only in other formats, or that
//! makes other formats worth their conversions for the layers around it. Planning the network with that form does.

use super::form::LayerProblem;
use super::method::is_kept_by_all;
use super::search::Resource;
use super::{Choice, Compression, Form, LOSS_UNIT, Limit, loss_units, with_forms};
use crate::ir::OpId;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The most passes over all layers.
const MOST_PASSES: usize = 4;

/// Which factors a form has: those of a kind differ in their ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Dense,
    Tucker { has_first: bool, has_last: bool },
    LowRank,
    Cp,
}

impl Kind {
    fn of(form: Form, problem: &LayerProblem) -> Self {
        match form {
            Form::Dense => Self::Dense,
            Form::Tucker([_, d2]) => Self::Tucker {
                has_first: problem.d1(form).is_some(),
                has_last: d2 != problem.channels()[1],
            },
            Form::LowRank(_) => Self::LowRank,
            Form::Cp(_) => Self::Cp,
        }
    }
}

impl Compression<'_> {
    /// The choice after all replacements of single layers that make it better within the limits; `None` if none does, and without a limit of
    /// time or loss: then formats do not matter.
    pub(super) fn replaced(&mut self, choice: &Choice, limits: &[Limit]) -> Option<Choice> {
        let depends_on_time = |limit: &Limit| matches!(limit, Limit::Us(_) | Limit::Loss(_));
        if !limits.iter().any(depends_on_time) {
            return None;
        }
        let mut best = choice.clone();
        for _ in 0..MOST_PASSES {
            let before = best.forms.clone();
            for index in 0..best.forms.len() {
                for form in self.candidates(&best, index, limits) {
                    let other = self.with_form(&best, index, form);
                    if let Some(other) = other
                        && compared(limits, &other, &best).is_lt()
                        && is_kept_by_all(limits, &other)
                    {
                        best = other;
                    }
                }
            }
            if best.forms == before {
                break;
            }
        }
        (best.forms != choice.forms).then_some(best)
    }

    /// A choice with another form of one layer; `None` if it cannot be planned.
    fn with_form(&mut self, choice: &Choice, index: usize, form: Form) -> Option<Choice> {
        let mut forms = choice.forms.clone();
        forms[index].1 = form;
        // As in the search: of ranks that are kept the loss may not be known, and counts as the largest one.
        let units = forms.iter().map(|&(op, form)| self.loss_of(op, form));
        let loss = units.sum::<u64>() as f64 * LOSS_UNIT;
        let network = with_forms(self.dense(), forms);
        let planned = self.evaluated(&network).ok()?;
        Some(Choice { loss, ..planned })
    }

    /// Of each kind of forms other than that of a layer in a choice: the one with the fewest operations among those that keep a limit of the
    /// loss or, if there is none, that lose less than the present form.
    fn candidates(&self, choice: &Choice, index: usize, limits: &[Limit]) -> Vec<Form> {
        let (op, present) = choice.forms[index];
        let others = choice.forms.iter().filter(|(other, _)| *other != op);
        let of_others: u64 = others.map(|&(op, form)| self.loss_of(op, form)).sum();
        let most = match least_loss_limit(limits) {
            Some(limit) => limit.checked_sub(of_others),
            None => self.loss_of(op, present).checked_sub(1),
        };
        let layer = self.layers().iter().find(|layer| layer.op == op);
        let (Some(most), Some(layer)) = (most, layer) else {
            return Vec::new();
        };
        let problem = layer.contexts[0].problem;
        let mut fewest: BTreeMap<Kind, (u64, Form)> = BTreeMap::new();
        for &form in &layer.forms {
            let kind = Kind::of(form, &problem);
            if kind == Kind::of(present, &problem) || self.loss_of(op, form) > most {
                continue;
            }
            let flops = problem.flops(form);
            let known = fewest.entry(kind).or_insert((flops, form));
            if flops < known.0 {
                *known = (flops, form);
            }
        }
        fewest.into_values().map(|(_, form)| form).collect()
    }

    /// The loss of a layer in units.
    fn loss_of(&self, op: OpId, form: Form) -> u64 {
        loss_units(self.losses, op, form)
    }
}

/// The least limit of the loss, in units.
fn least_loss_limit(limits: &[Limit]) -> Option<u64> {
    let limits = limits.iter().map(Limit::of_resource);
    let losses = limits.filter(|(resource, _)| *resource == Resource::Loss);
    losses.map(|(_, limit)| limit).min()
}

/// The order of choices, the better one first: by time if the loss is limited, otherwise by loss.
pub(super) fn compared(limits: &[Limit], a: &Choice, b: &Choice) -> Ordering {
    let by_us = a.us.total_cmp(&b.us);
    let by_loss = a.loss.total_cmp(&b.loss);
    match least_loss_limit(limits) {
        Some(_) => by_us.then(by_loss),
        None => by_loss.then(by_us),
    }
}
