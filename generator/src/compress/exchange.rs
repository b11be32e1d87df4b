//! Exchanges: a layer of a choice takes a form of another kind, where that makes the plan better.
//!
//! The search has the formats of a few plans (see [`stored`](super::stored)). A form that is fast only in other formats, or that makes other
//! formats worth their conversions for the layers around it, is not found by it, but by planning it.

use super::form::LayerProblem;
use super::method::is_kept_by_all;
use super::{Choice, Compression, Form, Limit, loss_units, with_forms};
use crate::ir::OpId;
use std::cmp::Ordering;
use std::collections::BTreeMap;

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
        let [c, n] = problem.channels();
        match form {
            Form::Dense => Self::Dense,
            Form::Tucker([d1, d2]) => Self::Tucker {
                has_first: d1 != c,
                has_last: d2 != n,
            },
            Form::LowRank(_) => Self::LowRank,
            Form::Cp(_) => Self::Cp,
        }
    }
}

impl Compression<'_> {
    /// The choice after all exchanges of single layers that make it better; `None` if none does. With a limit of the loss the better choice
    /// takes less time, otherwise it has a smaller loss.
    pub(super) fn exchanged(&mut self, choice: &Choice, limits: &[Limit]) -> Option<Choice> {
        let mut best = choice.clone();
        let mut unchanged = 0;
        // Until all layers in turn stay as they are.
        for index in (0..best.forms.len()).cycle() {
            if unchanged == best.forms.len() {
                break;
            }
            unchanged += 1;
            for form in self.exchanges(&best, index, limits) {
                let mut forms = best.forms.clone();
                forms[index].1 = form;
                let network = with_forms(self.dense(), forms);
                let Ok(other) = self.evaluated(&network) else {
                    continue;
                };
                let is_better = compared(limits, &other, &best).is_lt();
                if is_better && is_kept_by_all(limits, &other) {
                    best = other;
                    unchanged = 0;
                }
            }
        }
        (best.forms != choice.forms).then_some(best)
    }

    /// Of each kind of forms other than that of a layer in a choice: the one with the fewest operations whose loss may make the choice better.
    fn exchanges(&self, choice: &Choice, index: usize, limits: &[Limit]) -> Vec<Form> {
        let (op, present) = choice.forms[index];
        let units = |op: OpId, form: Form| loss_units(self.losses, op, form);
        let others = choice.forms.iter().filter(|(other, _)| *other != op);
        let of_others: u64 = others.map(|&(op, form)| units(op, form)).sum();
        let losses = limits.iter().filter_map(Limit::loss_units);
        let most = match losses.min() {
            Some(limit) => limit.checked_sub(of_others),
            None => units(op, present).checked_sub(1),
        };
        let layer = self.layers().iter().find(|layer| layer.op == op);
        let (Some(most), Some(layer)) = (most, layer) else {
            return Vec::new();
        };
        let problem = layer.contexts[0].problem;
        let mut fewest: BTreeMap<Kind, (u64, Form)> = BTreeMap::new();
        for &form in &layer.forms {
            let kind = Kind::of(form, &problem);
            if kind == Kind::of(present, &problem) || units(op, form) > most {
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
}

/// The order of choices, the better one first: by time if the loss is limited, otherwise by loss.
pub(super) fn compared(limits: &[Limit], a: &Choice, b: &Choice) -> Ordering {
    let by_us = a.us.total_cmp(&b.us);
    let by_loss = a.loss.total_cmp(&b.loss);
    match limits.iter().any(|limit| limit.loss_units().is_some()) {
        true => by_us.then(by_loss),
        false => by_loss.then(by_us),
    }
}
