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
use crate::compress::form::LayerProblem;
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
                    budget = passed_on(budget, flops(layer), rest);
                }
            }
        }
        forms
    }
}

/// The reduction of the layers after one that stays dense, so that all of them together save what was to be saved. `flops` are the operations of
/// the dense layer, `rest` those of the layers after it.
fn passed_on(reduction: f64, flops: f64, rest: f64) -> f64 {
    match rest > 0.0 {
        true => reduction + reduction * flops / rest,
        false => reduction,
    }
}

/// The ranks of a layer that are near a reduction.
fn near(layer: &LayerProblem, reduction: f64) -> Vec<[u32; 2]> {
    let [c, n] = layer.channels();
    let most = (1.0 - reduction) * layer.flops(Form::Dense) as f64;
    let is_within =
        |[d1, d2]: [u32; 2]| d1 < c && d2 < n && layer.flops(Form::Tucker([d1, d2])) as f64 <= most;
    let d2s = ranks(n, STEP);
    let pairs = ranks(c, STEP).into_iter();
    let pairs = pairs.flat_map(|d1| d2s.iter().map(move |&d2| [d1, d2]));
    let near = pairs.filter(|&[d1, d2]| {
        let raised = [[d1 + STEP, d2], [d1, d2 + STEP]];
        is_within([d1, d2]) && !raised.into_iter().any(is_within)
    });
    near.collect()
}

/// The ranks of the core that takes the least time, or of those within 1 % of it the largest ones. `cores` has ranks with times.
fn fastest(cores: &[([u32; 2], u32)]) -> Option<[u32; 2]> {
    let least = f64::from(cores.iter().map(|(_, ns)| *ns).min()?);
    let equal = cores.iter();
    let equal = equal.filter(|(_, ns)| f64::from(*ns) <= least * (1.0 + EQUAL));
    let ranks = equal.map(|(ranks, _)| *ranks);
    ranks.max_by_key(|[d1, d2]| (d1 + d2, *d1))
}

/// The form of a layer; `None` if it stays dense.
fn chosen(context: &Context, reduction: f64, theta: f64, clock: &mut Clock) -> Option<Form> {
    let layer = &context.problem;
    let conv = layer.conv()?;
    let shape = &conv.shape;
    if (shape.r, shape.s) == (1, 1) || shape.groups > 1 {
        return None;
    }
    let cores = near(layer, reduction).into_iter();
    let cores: Vec<([u32; 2], Problem)> = cores
        .map(|ranks| (ranks, Problem::Conv(conv.tucker_factors(ranks)[1])))
        .collect();
    clock.evaluate(cores.iter().map(|(_, core)| *core));
    let timed = cores.iter();
    let timed = timed.map(|(ranks, core)| Some((*ranks, clock.ns(core)?)));
    let form = Form::Tucker(fastest(&timed.collect::<Option<Vec<_>>>()?)?);
    clock.evaluate(
        [Form::Dense, form]
            .into_iter()
            .flat_map(|form| context_problems(context, form)),
    );
    let ns = |form| separate_ns(clock, context, form).map(f64::from);
    (ns(form)? < (1.0 - theta) * ns(Form::Dense)?).then_some(form)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::Scope;
    use crate::gpu::gpu;
    use crate::ir::{ConvOptions, ConvProblem, Network, NetworkBuilder, OpOptions, TensorShape};
    use tdc_runtime::ConvShape;

    /// By the definition: ranks below the channels that keep the operations, where neither rank can be raised.
    #[test]
    fn candidates_are_the_largest_ranks_within_the_operations() {
        let cases = [
            ([256, 128], 14, 0.5),
            ([96, 160], 9, 0.3),
            ([100, 70], 7, 0.6),
            ([64, 512], 5, 0.85),
        ];
        let mut several = 0;
        for ([c, n], size, reduction) in cases {
            let shape = ConvShape::new(c, n, size, size, 3, 3);
            let layer = LayerProblem::Conv(ConvProblem::new(shape));
            let flops = |[d1, d2]: [u32; 2]| layer.flops(Form::Tucker([d1, d2]));
            let most = (1.0 - reduction) * layer.flops(Form::Dense) as f64;
            let multiples =
                |channels: u32| (1..).map(|i| 32 * i).take_while(move |&r| r < channels);
            let mut expected = Vec::new();
            for d1 in multiples(c) {
                for d2 in multiples(n).filter(|&d2| flops([d1, d2]) as f64 <= most) {
                    let more = [(d1 + 32, d2, d1 + 32 < c), (d1, d2 + 32, d2 + 32 < n)];
                    let can_rise = |(d1, d2, is_rank): &(u32, u32, bool)| {
                        *is_rank && flops([*d1, *d2]) as f64 <= most
                    };
                    if !more.iter().any(can_rise) {
                        expected.push([d1, d2]);
                    }
                }
            }
            several += usize::from(expected.len() > 1);
            assert_eq!(near(&layer, reduction), expected, "{c} {n}");
        }
        assert!(several > 1, "{several}");
        // No ranks below the channels save so much.
        let small = LayerProblem::Conv(ConvProblem::new(ConvShape::new(48, 48, 9, 9, 3, 3)));
        assert_eq!(near(&small, 0.95), [[0; 2]; 0]);
    }

    #[test]
    fn of_equally_fast_cores_the_largest_ranks_are_taken() {
        let cores = [
            ([32, 96], 1000),
            ([64, 64], 1009),
            ([96, 32], 1010),
            ([128, 64], 1011),
        ];
        // Sums of ranks are equal, then the largest D1 counts; the last core is more than 1 % slower.
        assert_eq!(fastest(&cores), Some([96, 32]));
        assert_eq!(fastest(&cores[3..]), Some([128, 64]));
        assert_eq!(fastest(&[]), None);
    }

    #[test]
    fn what_a_dense_layer_does_not_save_is_passed_on() {
        let (reduction, flops) = (0.4, [100.0, 300.0, 500.0]);
        let second = passed_on(reduction, flops[0], flops[1] + flops[2]);
        let third = passed_on(second, flops[1], flops[2]);
        assert!((second * 800.0 - 0.4 * 900.0).abs() < 1e-9, "{second}");
        assert!((third * 500.0 - 0.4 * 900.0).abs() < 1e-9, "{third}");
        assert_eq!(passed_on(third, flops[2], 0.0), third);
    }

    /// Two filters, a 1x1 and a grouped convolution.
    fn network() -> Network {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 256, 28, 28));
        let pointwise = ConvOptions {
            kernel: [1, 1],
            ..ConvOptions::new(256)
        };
        let grouped = ConvOptions {
            groups: 8,
            ..ConvOptions::new(256)
        };
        let layers = [
            ("a", ConvOptions::new(256)),
            ("pointwise", pointwise),
            ("grouped", grouped),
            ("b", ConvOptions::new(256)),
        ];
        for (name, options) in layers {
            builder.op(name, None, OpOptions::Conv(options));
        }
        builder.finish().unwrap()
    }

    #[test]
    fn layers_are_decomposed_only_where_that_saves_enough_time() {
        let network = network();
        let losses = |_: _, form: Form| if form == Form::Dense { 0.0 } else { 1.0 };
        let scope = Scope::default();
        let gpu = gpu("h200").unwrap();
        let mut compression = Compression::new(&network, gpu, &scope, false, &losses).unwrap();
        let mut decomposed = |reduction: f64, theta: f64| {
            let forms = compression.tdc_forms(reduction, theta).into_iter();
            let named = forms.map(|(op, form)| (network.op(op).name.clone(), form));
            named.collect::<Vec<_>>()
        };
        let found = decomposed(0.8, 0.15);
        let names: Vec<&str> = found.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, ["a", "b"], "{found:?}");
        for (_, form) in found {
            let Form::Tucker(ranks) = form else {
                panic!("{form:?}");
            };
            assert!(ranks.iter().all(|rank| rank % 32 == 0), "{ranks:?}");
        }
        // Nothing saves nearly all of the time.
        assert_eq!(decomposed(0.8, 0.99), []);
    }
}
