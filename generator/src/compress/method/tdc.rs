//! Rank choice as in section 6 of the TDC paper.
//!
//! The text leaves open, and this module decides:
//!
//! - Only filters larger than 1x1 are decomposed.
//! - The budget B is a reduction of the operations, of each layer by itself; the operations P(D1, D2) of its three factors must be at
//!   most (1 - B) of its own.
//! - Candidates are multiples of 32 below the channels. The argmin over all of them would be the smallest ranks, so only those are
//!   compared that are near B: with either rank raised by 32, P would exceed the budget, or the rank would reach the channels.
//! - The table T has the times of the cores, from and to NCHW. Times within 1 % of the least count as equal, and of equal ones the largest
//!   ranks are chosen: the largest sum, then the largest D1.
//! - The threshold theta compares the whole layer, as the planner would compute it alone, with the dense layer.
//! - What a layer that stays dense does not save is saved by those after it, in the order of the config: B grows for all of them alike.

use super::{Compression, Form, Forms};
use crate::compress::clock::Clock;
use crate::compress::eligible::ranks;
use crate::compress::layer_times::{context_problems, separate_ns};
use crate::compress::structure::{Context, Layer};
use crate::ir::Problem;

/// The step of the ranks.
const STEP: u32 = 32;

/// Times within this fraction of the least count as equal.
const EQUAL: f64 = 0.01;

impl Compression<'_> {
    /// The forms for a reduction B.
    pub(super) fn tdc_forms(&mut self, reduction: f64, theta: f64) -> Forms {
        let mut layers = self.dense_storage().structures[0].layers.clone();
        layers.retain(Layer::may_be_decomposed);
        let clock = &mut self.targets[0].clock;
        let flops = |layer: &Layer| layer.contexts[0].problem.flops(Form::Dense) as f64;
        let mut budget = reduction;
        let mut forms = Vec::new();
        for (index, layer) in layers.iter().enumerate() {
            match chosen(&layer.contexts[0], budget, theta, clock) {
                Some(form) => forms.push((layer.op, form)),
                None => {
                    let rest: f64 = layers[index + 1..].iter().map(flops).sum();
                    if rest > 0.0 {
                        budget += budget * flops(layer) / rest;
                    }
                }
            }
        }
        forms
    }
}

/// The form of a layer; `None` if it stays dense.
fn chosen(context: &Context, budget: f64, theta: f64, clock: &mut Clock) -> Option<Form> {
    let layer = &context.problem;
    let conv = layer.conv()?;
    let shape = &conv.shape;
    if (shape.r, shape.s) == (1, 1) || shape.groups > 1 {
        return None;
    }
    let most = (1.0 - budget) * layer.flops(Form::Dense) as f64;
    let is_within = |[d1, d2]: [u32; 2]| {
        let fits = d1 < shape.c && d2 < shape.n;
        fits && layer.flops(Form::Tucker([d1, d2])) as f64 <= most
    };
    let d2s = ranks(shape.n, STEP);
    let pairs = ranks(shape.c, STEP).into_iter();
    let pairs = pairs.flat_map(|d1| d2s.iter().map(move |&d2| [d1, d2]));
    let near = pairs.filter(|&[d1, d2]| {
        let raised = [[d1 + STEP, d2], [d1, d2 + STEP]];
        is_within([d1, d2]) && !raised.into_iter().any(is_within)
    });
    let cores: Vec<([u32; 2], Problem)> = near
        .map(|ranks| (ranks, Problem::Conv(conv.tucker_factors(ranks)[1])))
        .collect();
    clock.evaluate(cores.iter().map(|(_, core)| *core));
    let timed = cores
        .iter()
        .map(|(ranks, core)| Some((*ranks, clock.ns(core)?)));
    let timed: Vec<([u32; 2], u32)> = timed.collect::<Option<_>>()?;
    let least = f64::from(timed.iter().map(|(_, ns)| *ns).min()?);
    let equal = timed
        .into_iter()
        .filter(|(_, ns)| f64::from(*ns) <= least * (1.0 + EQUAL));
    let (ranks, _) = equal.max_by_key(|([d1, d2], _)| (d1 + d2, *d1))?;
    let form = Form::Tucker(ranks);
    clock.evaluate(
        [Form::Dense, form]
            .into_iter()
            .flat_map(|form| context_problems(context, form)),
    );
    let ns = |form| separate_ns(clock, context, form).map(f64::from);
    (ns(form)? < (1.0 - theta) * ns(Form::Dense)?).then_some(form)
}
