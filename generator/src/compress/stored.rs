//! Layers with their input and their output in the formats in which a plan stores them.
//!
//! Formats connect all layers that read or write a value, so the search does not choose them. In the formats of a plan, such as that of the
//! dense network, each layer has a time of its own: the least time of launches from the one format to the other, which may have any formats
//! between the factors, or convert input and output. The plan of the chosen forms chooses formats anew, and mostly takes that time or less.

use super::clock::Clock;
use super::eligible::is_requested;
use super::form::{Form, LayerProblem, form_of};
use super::groups::{LayerGroup, value_of};
use super::structure::{Context, Structure};
use crate::ir::{Format, LayerSpec, Layout, Network, OpId, OpKind, Precision, Problem};
use crate::plan::{NetworkTime, StepTime, StoredFormats, StoredLayer};

/// How a layer is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stored {
    formats: StoredFormats,
    /// How products of a linear layer may be rounded, if it is computed as a convolution.
    precision: Precision,
}

impl Structure {
    /// The structure of layers stored as in the plan of a network, the same one with any forms, with these launches. This structure has all
    /// layers in NCHW.
    pub(super) fn stored_as(&self, network: &Network, time: &NetworkTime) -> Self {
        let mut structure = self.clone();
        for layer in &mut structure.layers {
            let stored = stored(network, layer.op, &steps_of(time, layer.op));
            for context in &mut layer.contexts {
                context.stored = stored;
            }
        }
        let mut of_groups = 0;
        for LayerGroup { group, sums, .. } in &self.groups {
            let choice = group.choice(|layer| {
                let form = form_of(network, self.layers[layer].op);
                value_of(group.distinction, form.unwrap_or(Form::Dense))
            });
            of_groups += group.ns[choice];
            for sum in sums {
                structure.store_sum(sum, choice, time);
            }
        }
        structure.share_launches();
        let steps = time.steps.iter();
        let others = steps.filter(|step| {
            let mut layers = step.layers.iter();
            !layers.any(|part| self.has_layer(part.layer))
        });
        let other_ns: u64 = others.map(|step| step.ns).sum();
        structure.other_ns = other_ns.saturating_sub(of_groups);
        structure
    }

    /// Of two convolutions that are added, either may write the sum. With another choice of their group than that of the plan, both write the
    /// format in which the plan stores the sum.
    fn store_sum(&mut self, members: &[usize], choice: usize, time: &NetworkTime) {
        let layers = members.iter().map(|&member| &self.layers[member]);
        let last_steps = layers.filter_map(|layer| steps_of(time, layer.op).last().copied());
        let mut sums = last_steps.filter(|step| step.problem.reads_residual());
        let Some(sum) = sums.next().map(|step| step.problem.kind().output().format) else {
            return;
        };
        for &member in members {
            let contexts = self.layers[member].contexts.iter_mut().enumerate();
            for (_, context) in contexts.filter(|(index, _)| *index != choice) {
                if let Some(stored) = &mut context.stored {
                    stored.formats.output = sum;
                }
            }
        }
    }
}

/// The launches of a layer.
fn steps_of(time: &NetworkTime, op: OpId) -> Vec<&StepTime> {
    let steps = time.steps.iter();
    steps.filter(|step| step.computes(op)).collect()
}

/// How a layer with these launches is stored; `None` if it reads and writes NCHW in the units of its own kind without conversions between its
/// factors, or if the config requests its scheme or layout.
fn stored(network: &Network, op: OpId, steps: &[&StepTime]) -> Option<Stored> {
    let (first, last) = (steps.first()?, steps.last()?);
    let (is_linear, precision) = match &network.op(op).kind {
        OpKind::Conv(conv) => (false, conv.options.precision),
        OpKind::Linear(linear) => (true, linear.options.precision),
        _ => return None,
    };
    // Of a layer whose first factor another launch computes, what the first launch reads is not the layer's input. A unit of several layers
    // reads all inputs in one format.
    let [c, _] = LayerProblem::of(network, op)?.channels();
    let reads_input = first.problem.x().c == c || first.layers.len() > 1;
    let formats = StoredFormats {
        input: match reads_input {
            true => first.problem.kind().input().format,
            false => Format::default(),
        },
        output: last.problem.kind().output().format,
        activations: network.activations,
    };
    let is_convolution = is_linear && !matches!(first.problem, Problem::Linear(_));
    let is_nchw = [formats.input, formats.output] == [Format::default(); 2]
        && !steps
            .iter()
            .any(|step| matches!(step.problem, Problem::Convert(_)));
    let is_stored = (is_convolution || !is_nchw) && !is_requested(network, op);
    is_stored.then_some(Stored { formats, precision })
}

impl Context {
    /// The layer in a form as it is stored; `None` unless it has [`stored`](Self::stored).
    fn stored_layer(&self, form: Form) -> Option<StoredLayer> {
        let Stored { formats, precision } = self.stored?;
        let (ranks, cp_rank, rank) = form.ranks();
        Some(match self.problem {
            LayerProblem::Linear(linear) => StoredLayer::linear(linear, rank, precision, formats),
            LayerProblem::Conv(problem) => {
                let spec = LayerSpec {
                    name: String::new(),
                    problem,
                    ranks,
                    layout: Layout::Nchw,
                    cp_rank,
                    rank,
                    scheme: None,
                    tile: None,
                };
                StoredLayer::conv(&spec, formats)
            }
        })
    }

    /// The problems of all launches that may compute the layer in a form, as it is stored.
    pub(super) fn stored_problems(&self, form: Form) -> Vec<Problem> {
        let layer = self.stored_layer(form);
        layer.iter().flat_map(StoredLayer::problems).collect()
    }

    /// Whether the layer reads this format; and writes it, if it writes the sum with a residual.
    pub(super) fn is_stored_in(&self, format: Format) -> bool {
        let is_sum = self.problem.dense().reads_residual();
        self.stored.is_some_and(|Stored { formats, .. }| {
            formats.input == format && (!is_sum || formats.output == format)
        })
    }

    /// The time of the layer in a form as it is stored, in launches of its own, if its problems were evaluated.
    pub(super) fn stored_ns(&self, clock: &Clock, form: Form) -> Option<u32> {
        let layer = self.stored_layer(form)?;
        layer.least_ns(|problem| clock.ns(problem))
    }

    /// The floor of the layer in a form as it is stored, microseconds: the least sum of the floors of launches that compute it.
    pub(super) fn stored_floor_us(
        &self,
        form: Form,
        floor_us: impl Fn(&Problem) -> f64,
    ) -> Option<f64> {
        let layer = self.stored_layer(form)?;
        let ns = layer.least_ns(|problem| Some((floor_us(problem) * 1e3) as u32))?;
        Some(f64::from(ns) / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::super::layer_times::{layer_problems, separate_ns};
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{ConvProblem, DType};
    use tdc_runtime::{ConvShape, Padding};

    /// A layer from NCHW to NCHW takes the same time in both ways in which the search knows its launches. Where formats between its factors
    /// are faster, which only the planner's candidates have, it takes less.
    #[test]
    fn layers_in_nchw_take_the_time_of_their_launches() {
        let mut clock = Clock::new(gpu("h200").unwrap());
        let conv = |c, n, size, kernel, stride| {
            let shape = ConvShape {
                stride: [stride; 2],
                padding: Padding::all(kernel / 2),
                ..ConvShape::new(c, n, size, size, kernel, kernel)
            };
            LayerProblem::Conv(ConvProblem::new(shape))
        };
        let tucker = |d1, d2| Form::Tucker([d1, d2]);
        let layers = [
            (conv(64, 96, 14, 3, 1), tucker(32, 16)),
            (conv(64, 96, 14, 3, 1), tucker(64, 32)),
            (conv(64, 96, 14, 3, 1), tucker(32, 96)),
            (conv(48, 31, 27, 5, 2), tucker(16, 24)),
            (conv(48, 31, 27, 5, 2), Form::Dense),
            (conv(256, 512, 7, 1, 1), Form::LowRank(64)),
            (conv(32, 40, 28, 3, 1), Form::Cp(16)),
            (conv(512, 512, 56, 3, 1), tucker(384, 384)),
        ];
        let mut equal = 0;
        for (problem, form) in layers {
            let nchw = Context {
                problem,
                stored: None,
                part: None,
                exits: Vec::new(),
                stores_output: false,
            };
            let formats = StoredFormats {
                input: Format::default(),
                output: Format::default(),
                activations: DType::Fp32,
            };
            let stored = Context {
                stored: Some(Stored {
                    formats,
                    precision: Precision::Fp32,
                }),
                ..nchw.clone()
            };
            clock.evaluate(layer_problems(&problem, form));
            clock.evaluate(stored.stored_problems(form));
            let launches = separate_ns(&clock, &nchw, form).unwrap();
            let least = stored.stored_ns(&clock, form).unwrap();
            assert!(
                least <= launches,
                "{problem:?} {form:?}: {least} {launches}"
            );
            equal += usize::from(least == launches);
        }
        // All but the last layer, whose core is large enough for NHWC.
        assert_eq!(equal, layers.len() - 1);
    }
}
