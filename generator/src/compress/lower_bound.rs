//! What no ranks can be faster than.

use super::form::{Form, LayerProblem};
use super::layer_times::{layer_problems, whole_cp};
use super::sharing::least_sum;
use super::structure::{Context, Structure};
use super::{Choice, Compression, Limit};
use crate::cost::floor_us;
use crate::gpu::Gpu;
use crate::ir::Problem;
use serde::Serialize;
use tdc_runtime::FactorRole;

/// Lower bounds of the time of the network with any forms, in microseconds; of several targets in the sense of [`Choice::us`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LowerBound {
    /// The time of the fastest forms of the grid with these kernels, whatever they lose.
    pub fastest_us: f64,
    /// What no kernels can be faster than: for each layer that may be decomposed the least [floor](crate::cost::floor_us) of its forms and a
    /// boundary to another kernel, or those of launches that several layers share, and the predicted times of all other launches. Layers read and
    /// write NCHW, or the formats of any of the plans that are searched.
    pub floor_us: f64,
}

impl LowerBound {
    /// The time of a choice over the floor.
    pub fn distance(&self, choice: &Choice) -> f64 {
        choice.us / self.floor_us
    }
}

impl Compression<'_> {
    /// The lower bounds.
    pub fn lower_bound(&mut self) -> LowerBound {
        let fastest = self.fastest();
        let replaced = self.replaced(&fastest, &[Limit::Loss(f64::INFINITY)]);
        let fastest_us = replaced.unwrap_or(fastest).us;
        let targets = self.targets.iter().enumerate();
        let floors = targets.map(|(index, target)| {
            let storages = self.storages.iter();
            let structures = storages.map(|storage| &storage.structures[index]);
            target.weight * floor_us_of(&structures.collect::<Vec<_>>(), target.clock.gpu())
        });
        LowerBound {
            fastest_us,
            floor_us: floors.sum(),
        }
    }
}

/// The floor of a network whose layers are stored as in any of these structures.
fn floor_us_of(structures: &[&Structure], gpu: &Gpu) -> f64 {
    let boundary_us = gpu.cost_model().network.boundary_us;
    let count = structures[0].layers.len();
    let alone = (0..count).map(|index| {
        let layers = structures.iter().map(|structure| &structure.layers[index]);
        let forms = layers.flat_map(|layer| {
            let contexts = layer.contexts.iter();
            contexts.flat_map(|context| {
                let forms = layer.forms.iter();
                forms.map(|&form| context.floor_us(form, gpu))
            })
        });
        boundary_us + forms.fold(f64::INFINITY, f64::min)
    });
    let alone: Vec<f64> = alone.collect();
    let saved = structures[0].groups.iter().map(|group| {
        let layers = group.sharing.iter();
        let of_layers: Vec<f64> = layers.map(|&layer| alone[layer]).collect();
        let launches = group.launches.iter().flatten();
        let joint = launches.map(|launch| {
            let indices = launch.layers.iter();
            let indices = indices.filter_map(|&op| structures[0].index_of(op));
            let bits = indices.filter_map(|index| {
                let mut layers = group.sharing.iter();
                layers.position(|&layer| layer == index)
            });
            let floor_us = boundary_us + floor_us(&launch.problem, gpu);
            (bits.map(|bit| 1 << bit).sum(), floor_us)
        });
        let joint: Vec<(u32, f64)> = joint.collect();
        of_layers.iter().sum::<f64>() - least_sum(&of_layers, &joint)
    });
    // One launch may compute all layers of a set whose shared launches are not searched.
    let not_searched = structures[0].not_searched.iter().map(|set| {
        let floors = set.iter().map(|&layer| alone[layer]);
        floors.clone().sum::<f64>() - floors.fold(0.0, f64::max)
    });
    let layers = alone.iter().sum::<f64>() - saved.chain(not_searched).sum::<f64>();
    let others = structures.iter().map(|structure| structure.other_ns);
    layers + others.min().unwrap_or(0) as f64 / 1e3
}

impl Context {
    fn floor_us(&self, form: Form, gpu: &Gpu) -> f64 {
        let stored = self.stored_floor_us(form, |problem| floor_us(problem, gpu));
        stored.unwrap_or_else(|| form_floor_us(&self.problem, form, gpu))
    }
}

/// The floor of a layer from and to NCHW in a form. The launch before it may compute its first factor, which then does not count.
fn form_floor_us(layer: &LayerProblem, form: Form, gpu: &Gpu) -> f64 {
    let us = |problem: &Problem| floor_us(problem, gpu);
    match (form, layer.conv()) {
        (Form::Tucker(ranks), Some(conv)) => {
            let chain = conv.tucker_chain(ranks);
            let rest = chain.iter().filter(|(role, _)| *role != FactorRole::First);
            let separate: f64 = rest.map(|(_, factor)| us(&Problem::Conv(*factor))).sum();
            let fused = layer_problems(layer, form).into_iter();
            let fused = fused.filter(|problem| matches!(problem, Problem::Tucker(_)));
            fused.map(|problem| us(&problem)).fold(separate, f64::min)
        }
        _ => {
            let separate = layer.factors(form).iter().map(us).sum();
            whole_cp(layer, form).map_or(separate, |whole| us(&whole).min(separate))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::Scope;
    use crate::gpu::gpu;
    use crate::ir::{ConvOptions, Network, NetworkBuilder, OpId, OpOptions, TensorShape};

    fn compression(network: &Network) -> Compression<'static> {
        let scope = Scope {
            step: 32,
            ..Scope::default()
        };
        let losses = &|_: OpId, form: Form| if form == Form::Dense { 0.0 } else { 1.0 };
        Compression::new(network, gpu("h200").unwrap(), &scope, false, losses).unwrap()
    }

    /// The time of a launch without work in a network, microseconds.
    fn launch_us() -> f64 {
        let gpu = gpu("h200").unwrap();
        gpu.launch_us + gpu.cost_model().network.boundary_us
    }

    /// Three branches of one input are one launch, however many operations each has.
    #[test]
    fn shared_launches_count_once() {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 64, 14, 14));
        let branch = ConvOptions {
            kernel: [1, 1],
            ..ConvOptions::new(64)
        };
        let names = ["a", "b", "c"].map(str::to_owned);
        for name in &names {
            let input = ["input".to_owned()];
            builder.op(name, Some(&input), OpOptions::Conv(branch.clone()));
        }
        builder.op("all", Some(&names), OpOptions::Concat);
        builder.op("pool", None, OpOptions::GlobalAvgPool);
        let network = builder.finish().unwrap();
        let mut compression = compression(&network);
        let bound = compression.lower_bound();
        let launches = bound.floor_us / launch_us();
        assert!((2.0..3.0).contains(&launches), "{bound:?} {launches}");
        assert!(bound.floor_us < bound.fastest_us);
        assert_eq!(bound.fastest_us, compression.dense_choice().unwrap().us);
    }

    #[test]
    fn no_choice_is_faster() {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 96, 28, 28));
        for (name, n) in [("a", 128), ("b", 192), ("c", 96)] {
            builder.op(name, None, OpOptions::Conv(ConvOptions::new(n)));
        }
        builder.op("pool", None, OpOptions::GlobalAvgPool);
        let network = builder.finish().unwrap();
        let mut compression = compression(&network);
        let bound = compression.lower_bound();
        let dense = compression.dense_choice().unwrap();
        let fastest = compression.fastest();
        assert_eq!(bound.fastest_us, fastest.us);
        assert!(bound.floor_us < fastest.us && fastest.us < dense.us);
        // Three launches, the pool and their boundaries are the least that any choice needs.
        let launches = 3.0 * launch_us();
        assert!(bound.floor_us > launches, "{bound:?} {launches}");
        assert!(bound.distance(&dense) > bound.distance(&fastest));
    }
}
