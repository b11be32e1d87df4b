//! Layers with their input and their output in the formats in which the plan of the dense network stores them.
//!
//! Formats connect all layers that read or write a value, so the search does not choose them: with these formats each layer has a time of
//! its own. It is the time of the least of all launches between them, which may have other formats between the factors, or convert input
//! and output. The plan of the chosen forms then chooses formats anew, so it takes that time or less.

use super::clock::Clock;
use super::form::{Form, LayerProblem};
use super::structure::{Context, Structure};
use crate::ir::{Format, LayerSpec, Layout, Network, OpId, OpKind, Precision, Problem};
use crate::plan::{Layer, NetworkTime, StepTime, StoredFormats, StoredLayer};

/// How a layer is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stored {
    formats: StoredFormats,
    /// How products of a linear layer may be rounded, if it is computed as a convolution.
    precision: Precision,
}

impl Structure {
    /// The structure of layers stored as in the plan of the dense network with these launches; `None` if that stores all of them in NCHW.
    pub(super) fn stored_as(&self, network: &Network, dense: &NetworkTime) -> Option<Self> {
        let mut structure = self.clone();
        let mut differs = false;
        for layer in &mut structure.layers {
            let steps = dense.steps.iter();
            let steps: Vec<_> = steps.filter(|step| step.layer == Some(layer.op)).collect();
            let stored = stored(network, layer.op, &steps);
            differs |= stored.is_some();
            for context in &mut layer.contexts {
                context.stored = stored;
            }
        }
        // No layer of the dense network is a Tucker layer.
        let of_groups: u64 = self.groups.iter().map(|group| group.ns[0]).sum();
        let is_other = |step: &&StepTime| {
            let mut layers = self.layers.iter();
            !layers.any(|layer| Some(layer.op) == step.layer)
        };
        let others = dense.steps.iter().filter(is_other);
        let other_ns: u64 = others.map(|step| step.ns).sum();
        structure.other_ns = other_ns.saturating_sub(of_groups);
        differs.then_some(structure)
    }
}

/// How the launches of a layer store it; `None` if in NCHW.
fn stored(network: &Network, op: OpId, steps: &[&StepTime]) -> Option<Stored> {
    let (first, last) = (steps.first()?, steps.last()?);
    let formats = StoredFormats {
        input: first.problem.kind().input().format,
        output: last.problem.kind().output().format,
        activations: network.activations,
    };
    let (is_linear, precision) = match &network.op(op).kind {
        OpKind::Conv(conv) => (false, conv.options.precision),
        OpKind::Linear(linear) => (true, linear.options.precision),
        _ => return None,
    };
    let is_convolution = is_linear && !matches!(first.problem, Problem::Linear(_));
    let is_nchw = [formats.input, formats.output] == [Format::default(); 2];
    (is_convolution || !is_nchw).then_some(Stored { formats, precision })
}

impl Context {
    /// The layer in a form as it is stored; `None` if its input and output are NCHW.
    fn stored_layer(&self, form: Form) -> Option<StoredLayer> {
        let Stored { formats, precision } = self.stored?;
        let (ranks, cp_rank, rank) = form.ranks();
        Some(match self.problem {
            LayerProblem::Linear(linear) => {
                StoredLayer::new(Layer::Linear(linear, rank, precision), formats)
            }
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
                StoredLayer::new(Layer::Conv(&spec), formats)
            }
        })
    }

    /// The problems of all launches that may compute the layer in a form, as it is stored; none if its input and output are NCHW.
    pub(super) fn stored_problems(&self, form: Form) -> Vec<Problem> {
        let layer = self.stored_layer(form);
        layer.iter().flat_map(StoredLayer::problems).collect()
    }

    /// The time of the layer in a form as it is stored, if its problems were evaluated.
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
