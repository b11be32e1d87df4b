//! Rank choice as in section 6 of the TDC paper.
//!
//! The text leaves open, and this module decides:
//!
//! - Only filters larger than 1x1 are decomposed.
//! - The budget B is a reduction of the operations, of each layer by itself; the operations P(D1, D2) of its three factors must be at
//!   most (1 - B) of its own.
//! - Candidates are multiples of 32 below the channels. The argmin over all of them would be the smallest ranks, so only those are
//!   compared that are near B: with either rank raised by 32, P would exceed the budget, or the rank would reach the channels.
//! - The table T has the times of the cores. Times within 1 % of the least count as equal, and of equal ones the largest ranks are chosen: the
//!   largest sum, then the largest D1.
//! - The threshold theta compares the whole layer, as the planner would compute it alone, with the dense layer.
//! - What a layer that stays dense does not save is saved by those after it, in the order of the config: B grows for all of them alike.

use super::{Compression, Form, Forms};
use crate::compress::Target;
use crate::compress::clock::Clock;
use crate::compress::eligible::ranks;
use crate::compress::form::LayerProblem;
use crate::compress::layer_times::{layer_problems, separate_ns};
use crate::ir::Problem;

/// The step of the ranks.
const STEP: u32 = 32;

/// Times within this fraction of the least count as equal.
const EQUAL: f64 = 0.01;

impl Compression<'_> {
    /// The forms for a reduction B.
    pub(super) fn tdc_forms(&mut self, reduction: f64, theta: f64) -> Forms {
        let Target {
            structure, clock, ..
        } = &mut self.targets[0];
        let layers = &structure.layers;
        let problems = layers.iter().map(|layer| layer.contexts[0].problem);
        let problems: Vec<LayerProblem> = problems.collect();
        let flops = |problem: &LayerProblem| problem.flops(Form::Dense) as f64;
        let mut budget = reduction;
        let mut forms = Vec::new();
        for (index, (layer, problem)) in layers.iter().zip(&problems).enumerate() {
            match chosen(problem, budget, theta, clock) {
                Some(form) => forms.push((layer.op, form)),
                None => {
                    let rest: f64 = problems[index + 1..].iter().map(flops).sum();
                    if rest > 0.0 {
                        budget += budget * flops(problem) / rest;
                    }
                }
            }
        }
        forms
    }
}

/// The form of a layer; `None` if it stays dense.
fn chosen(layer: &LayerProblem, budget: f64, theta: f64, clock: &mut Clock) -> Option<Form> {
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
            .flat_map(|form| layer_problems(layer, form)),
    );
    let ns = |form| separate_ns(clock, layer, form).map(f64::from);
    (ns(form)? < (1.0 - theta) * ns(Form::Dense)?).then_some(form)
}
