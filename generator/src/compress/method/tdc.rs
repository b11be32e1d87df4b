//! Rank choice as in section 6 of the TDC paper.
//!
//! The text leaves open, and this module decides:
//!
//! - Only filters larger than 1x1 are decomposed.
//! - The budget B is a reduction of the operations, of each layer by itself; the operations P(D1, D2) of its three factors must be at
//!   most (1 - B) of its own.
//! - Candidates are multiples of 32 below the channels. The argmin over all of them would be the smallest ranks, so only those are
//!   compared that are near B: with either rank raised by 32, P would exceed the budget.
//! - The table T has the times of the cores. Times within 1 % of the least count as equal, and of equal ones the largest ranks are chosen: the
//!   largest sum, then the largest D1.
//! - The threshold theta compares the whole layer, as the planner would compute it alone, with the dense layer.
//! - What a layer that stays dense does not save is saved by those after it, in the order of the config: B grows for all of them alike.

use super::{Compression, Form, Forms};
use crate::compress::form::LayerProblem;
use crate::ir::{ConvProblem, Problem};
use crate::plan::Planner;

/// The step of the ranks.
const STEP: u32 = 32;

/// Times within this fraction of the least count as equal.
const EQUAL: f64 = 0.01;

impl Compression {
    /// The forms for a reduction B.
    pub(super) fn tdc_forms(&self, reduction: f64, theta: f64, planner: &mut Planner) -> Forms {
        let flops: Vec<f64> = self
            .structure
            .layers
            .iter()
            .map(|layer| layer.contexts[0].problem.flops(Form::Dense) as f64)
            .collect();
        let mut budget = reduction;
        let mut forms = Vec::new();
        for (index, layer) in self.structure.layers.iter().enumerate() {
            let chosen = match &layer.contexts[0].problem {
                LayerProblem::Conv(conv) => chosen(conv, budget, theta, planner),
                LayerProblem::Linear(_) => None,
            };
            match chosen {
                Some(ranks) => forms.push((layer.op, Form::Tucker(ranks))),
                None => {
                    let rest: f64 = flops[index + 1..].iter().sum();
                    if rest > 0.0 {
                        budget += budget * flops[index] / rest;
                    }
                }
            }
        }
        forms
    }
}

/// The ranks of a layer; `None` if it stays dense.
fn chosen(
    problem: &ConvProblem,
    budget: f64,
    theta: f64,
    planner: &mut Planner,
) -> Option<[u32; 2]> {
    let shape = &problem.shape;
    if (shape.r, shape.s) == (1, 1) || shape.groups > 1 {
        return None;
    }
    let layer = LayerProblem::Conv(*problem);
    let most = (1.0 - budget) * layer.flops(Form::Dense) as f64;
    let is_within = |ranks: [u32; 2]| layer.flops(Form::Tucker(ranks)) as f64 <= most;
    let ranks = |channels: u32| (1..).map(|i| i * STEP).take_while(move |&r| r < channels);
    let mut timed = Vec::new();
    for d1 in ranks(shape.c) {
        for d2 in ranks(shape.n) {
            let raised = [[d1 + STEP, d2], [d1, d2 + STEP]];
            if is_within([d1, d2]) && !raised.into_iter().any(is_within) {
                let [_, core, _] = problem.tucker_factors([d1, d2]);
                timed.push(([d1, d2], us(planner, Problem::Conv(core))?));
            }
        }
    }
    let least = timed
        .iter()
        .map(|(_, us)| *us)
        .fold(f64::INFINITY, f64::min);
    let equal = timed
        .into_iter()
        .filter(|(_, us)| *us <= least * (1.0 + EQUAL));
    let (ranks, _) = equal.max_by_key(|([d1, d2], _)| (d1 + d2, *d1))?;
    let dense_us = us(planner, Problem::Conv(*problem))?;
    (layer_us(planner, problem, ranks)? < (1.0 - theta) * dense_us).then_some(ranks)
}

fn us(planner: &mut Planner, problem: Problem) -> Option<f64> {
    let choice = planner.choose("", &problem, None, None).ok()?;
    Some(planner.choice_ns(&problem, &choice) as f64 / 1e3)
}

/// The least time of a layer's factors, separate or fused.
fn layer_us(planner: &mut Planner, problem: &ConvProblem, ranks: [u32; 2]) -> Option<f64> {
    let factors = problem.tucker_factors(ranks);
    let fused = crate::ir::TuckerProblem::from_factors(&factors);
    let [first, core, last] = factors.map(|factor| us(planner, Problem::Conv(factor)));
    let inner = core.zip(last).map(|(core, last)| core + last);
    let [whole, core_last] = match fused {
        Some(fused) => fused.map(|tucker| us(planner, Problem::Tucker(tucker))),
        None => [None, None],
    };
    let inner = inner.into_iter().chain(core_last).reduce(f64::min);
    let separate = first.zip(inner).map(|(first, inner)| first + inner);
    separate.into_iter().chain(whole).reduce(f64::min)
}
