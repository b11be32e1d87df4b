//! The time of a network: the sum over its launches, each with what it takes in a network beyond its time when it is repeated.
//!
//! A launch is measured, and its time predicted, by repeating it: its predecessor is the same kernel, and its weights are in L2. In a
//! network the predecessor is another kernel, and the weights come from DRAM, since all others have been read in between. The constants of
//! both are `network` of [`CostModel`](crate::gpu::CostModel); launches without arithmetic to speak of wait for all of their weights.

use super::branches::{Load, concurrent_times};
use super::choose::{Choice, Planner};
use super::error::PlanError;
use super::graph::{Task, TaskGraph};
use super::launch::LaunchPrediction;
use super::lowering::lower_by_layers;
use super::network::NetworkPlan;
use super::unit::PlannedUnit;
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Network, OpId, Precision, Problem};
use tdc_runtime::ConvShape;

/// The predicted time of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkTime {
    /// Its launches in execution order.
    pub steps: Vec<StepTime>,
}

/// The predicted time of one task of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepTime {
    /// The task's name.
    pub name: String,
    /// The layers whose weights it reads, or between whose factors it converts formats; without the next layer, whose first factor it computes
    /// too.
    pub layers: Vec<LayerPart>,
    /// What it computes.
    pub problem: Problem,
    /// Its time in the network, nanoseconds.
    pub ns: u64,
}

/// The part of a layer in a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerPart {
    /// The layer.
    pub layer: OpId,
    /// Floating-point operations, with the layer's factors in the task; 0 of a conversion.
    pub flops: u64,
}

/// When a layer of a planned network runs, as predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerTime {
    /// Its start after that of the network, microseconds.
    pub start_us: f64,
    /// Its end after the start of the network, microseconds.
    pub end_us: f64,
    /// The part of the GPU that its largest launch fills, 0 to 1.
    pub fill: f64,
    /// Bytes of its packed weights.
    pub weight_bytes: u64,
}

impl StepTime {
    /// Whether it is one of the layers that it computes.
    pub fn computes(&self, layer: OpId) -> bool {
        self.layers.iter().any(|part| part.layer == layer)
    }

    /// The part of its time that a layer takes, nanoseconds: all of it, or in a unit of several layers the part of the layer's operations.
    /// `None` if it does not compute the layer.
    pub fn ns_of(&self, layer: OpId) -> Option<f64> {
        let ns = self.ns as f64;
        let part = self.layers.iter().find(|part| part.layer == layer)?;
        if self.layers.len() == 1 {
            return Some(ns);
        }
        let flops = self.layers.iter().map(|part| part.flops);
        Some(ns * part.flops as f64 / flops.sum::<u64>() as f64)
    }
}

impl NetworkTime {
    /// The time of a network by the cost model, with the planner's correction. Tasks do not run side by side, so that rank choice can add up the
    /// times of layers.
    ///
    /// # Errors
    /// One for each task that cannot be planned.
    pub fn of_network(planner: &mut Planner, network: &Network) -> Result<Self, Vec<PlanError>> {
        let graph = lower_by_layers(planner, TaskGraph::new(network));
        let (mut steps, mut errors) = (Vec::new(), Vec::new());
        for task in &graph.tasks {
            match planner.task_ns(task) {
                Ok(ns) => steps.push(StepTime {
                    name: task.name.clone(),
                    layers: layer_parts(&graph, task),
                    problem: task.problem,
                    ns,
                }),
                Err(error) => errors.push(error),
            }
        }
        match errors.is_empty() {
            true => Ok(Self { steps }),
            false => Err(errors),
        }
    }

    /// The sum, nanoseconds.
    pub fn ns(&self) -> u64 {
        self.steps.iter().map(|step| step.ns).sum()
    }
}

/// See [`StepTime::layers`].
fn layer_parts(graph: &TaskGraph, task: &Task) -> Vec<LayerPart> {
    let parameters = &task.parameters;
    let part = |(layer, problem): (OpId, Problem)| LayerPart {
        layer,
        flops: match problem {
            Problem::Convert(_) => 0,
            _ => problem.flops(),
        },
    };
    let Some(layer) = layer_of(graph, task) else {
        return Vec::new();
    };
    match (&task.problem, &parameters.projection) {
        (Problem::Projected(projected), Some(shortcut)) => {
            let layers = [layer, shortcut.layer].into_iter();
            let convolutions = projected.convolutions().map(Problem::Conv);
            layers.zip(convolutions).map(part).collect()
        }
        (Problem::DenseStep(step), _) => {
            let inner = parameters.inner.iter().map(|inner| inner.layer);
            let convolutions = step.convolutions().map(Problem::Conv);
            inner.chain([layer]).zip(convolutions).map(part).collect()
        }
        (Problem::InvertedResidual(block), _) => {
            let inner = parameters.inner.iter().map(|inner| inner.layer);
            let convolutions = block.convolutions().map(Problem::Conv);
            inner.chain([layer]).zip(convolutions).map(part).collect()
        }
        (Problem::SqueezeExcite(_), _) => {
            // The products of both layers have the same size.
            let flops = task.problem.flops() / 2;
            let inner = parameters.inner.iter().map(|inner| inner.layer);
            let layers = inner.chain([layer]);
            layers.map(|layer| LayerPart { layer, flops }).collect()
        }
        (Problem::Conv(conv), _) if !parameters.merged.is_empty() => {
            let merged = parameters.merged.iter().map(|other| (other.layer, other.y));
            let all = std::iter::once((layer, task.y)).chain(merged);
            all.map(|(layer, y)| {
                let n = graph.values[y.0].shape.c;
                let shape = ConvShape { n, ..conv.shape };
                part((layer, Problem::Conv(ConvProblem { shape, ..*conv })))
            })
            .collect()
        }
        (problem, _) => vec![part((layer, *problem))],
    }
}

/// The first layer of a task.
fn layer_of(graph: &TaskGraph, task: &Task) -> Option<OpId> {
    if !matches!(task.problem, Problem::Convert(_)) {
        return task.parameters.layer;
    }
    let reader = graph.only_reader(task.y)?;
    let layer = graph.tasks[reader].parameters.layer;
    // The first factor may be part of the launch of another layer.
    let computes = |task: &Task| [task.parameters.layer, task.parameters.next].contains(&layer);
    let is_later_factor = graph.tasks[..reader].iter().any(computes);
    layer.filter(|_| is_later_factor && graph.tasks[reader].x == task.y)
}

impl Planner {
    /// The predicted time of a task in a network, nanoseconds.
    pub(crate) fn task_ns(&mut self, task: &Task) -> Result<u64, PlanError> {
        let (scheme, tile) = (task.scheme.as_deref(), task.tile.as_deref());
        let choice = self.choose(&task.name, &task.problem, scheme, tile)?;
        Ok(self.choice_ns(&task.problem, &choice))
    }

    /// The predicted time in a network of a problem whose scheme and tile are left to the planner, nanoseconds. Errors name `layer`.
    #[cfg(feature = "compress")]
    pub(crate) fn problem_ns(&mut self, layer: &str, problem: &Problem) -> Result<u64, PlanError> {
        let choice = self.choose(layer, problem, None, None)?;
        Ok(self.choice_ns(problem, &choice))
    }

    /// The predicted time of a choice in a network, nanoseconds.
    pub(crate) fn choice_ns(&self, problem: &Problem, choice: &Choice) -> u64 {
        let us = choice.predicted_us + self.in_network_us(problem, choice);
        (us * 1e3).round() as u64
    }

    /// What a unit takes in a network beyond the time of its repeated launches, microseconds.
    pub(crate) fn in_network_us(&self, problem: &Problem, choice: &Choice) -> f64 {
        let work = choice.scheme.work(problem, &choice.tile, self.gpu());
        in_network_us(problem, work.launches.len(), self.gpu())
    }
}

impl NetworkPlan {
    /// The predicted time of the planned network as a whole, microseconds.
    pub fn network_us(&self) -> f64 {
        let ends = self.timeline().into_iter().map(|layer| layer.end_us);
        ends.fold(0.0, f64::max)
    }

    /// When each layer runs, as predicted, in the order of the layers.
    pub fn timeline(&self) -> Vec<LayerTime> {
        let layers = || self.layers.iter();
        let of_task: Vec<_> = layers().map(|layer| layer.branch).collect();
        let waits: Vec<_> = layers().map(|layer| layer.waits.clone()).collect();
        let loads: Vec<_> = layers()
            .map(|layer| self.units[layer.unit].load(self.gpu))
            .collect();
        let times = concurrent_times(&of_task, &waits, &loads);
        let all = layers().zip(loads).zip(times);
        all.map(|((layer, load), [start_us, end_us])| LayerTime {
            start_us,
            end_us,
            fill: load.fill,
            weight_bytes: packed_bytes(&self.units[layer.unit].problem),
        })
        .collect()
    }
}

impl PlannedUnit {
    /// Its time in a network, and the part of the GPU that its largest launch fills.
    pub(super) fn load(&self, gpu: &Gpu) -> Load {
        let fill = LaunchPrediction::for_unit(self, gpu)
            .iter()
            .zip(&self.kernels)
            .map(|(launch, kernel)| {
                let blocks: f64 = kernel.blueprint.grid.map(f64::from).iter().product();
                let resident = f64::from(launch.occupancy.blocks_per_sm) * f64::from(gpu.sms);
                (blocks / resident.max(1.0)).min(1.0)
            })
            .fold(0.0, f64::max);
        Load {
            us: self.repeated_us() + in_network_us(&self.problem, self.kernels.len(), gpu),
            fill,
        }
    }
}

/// Operations for each weight from which on the arithmetic of a launch hides a part of the time in which its weights come from DRAM. A
/// convolution of 7x7 pixels has 98, a linear layer of one image two.
const HIDING: u64 = 16;

/// What the launches of a problem take in a network beyond their time when they are repeated, microseconds.
fn in_network_us(problem: &Problem, launches: usize, gpu: &Gpu) -> f64 {
    let constants = gpu.cost_model().network;
    let weights = packed_bytes(problem);
    // Most of larger weights come from DRAM when the launch is repeated, too.
    let cold_bytes = match weights < gpu.l2_bytes {
        true => weights as f64,
        false => constants.kept_weights * gpu.l2_bytes as f64,
    };
    let cold_us = cold_bytes / gpu.sustained_bytes_per_us();
    let not_hidden = match problem.flops() < HIDING * problem.weight_len() {
        true => 1.0,
        false => constants.cold_weights,
    };
    constants.boundary_us * launches as f64 + not_hidden * cold_us
}

/// Bytes of the packed weights of a problem. In fp32 an element has four bytes, also as two fp16 numbers.
fn packed_bytes(problem: &Problem) -> u64 {
    let bytes = match problem.precision() {
        Precision::Fp32 => 4,
        Precision::Tf32 | Precision::Fp16 | Precision::Bf16 => 2,
    };
    bytes * problem.weight_len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{Epilogue, LinearProblem};

    #[test]
    fn arithmetic_hides_a_part_of_the_time_of_cold_weights() {
        let gpu = gpu("h200").unwrap();
        let constants = gpu.cost_model().network;
        let cold_bytes = |problem: Problem| {
            let us = in_network_us(&problem, 1, gpu) - constants.boundary_us;
            us * gpu.sustained_bytes_per_us()
        };
        let cold_us = |problem: Problem| cold_bytes(problem) / packed_bytes(&problem) as f64;
        let conv = ConvProblem::new(ConvShape::new(512, 512, 7, 7, 1, 1));
        let linear = |batch, c, n| {
            Problem::Linear(LinearProblem {
                batch,
                c,
                n,
                epilogue: Epilogue::default(),
            })
        };
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        close(cold_us(Problem::Conv(conv)), constants.cold_weights);
        close(cold_us(linear(1, 512, 512)), 1.0);
        close(cold_us(linear(7, 512, 512)), 1.0);
        close(cold_us(linear(8, 512, 512)), constants.cold_weights);
        // Most of the weights that L2 does not hold come from DRAM when the launch is repeated, too.
        let kept = cold_bytes(linear(1, 25088, 4096)) / gpu.l2_bytes as f64;
        close(kept, constants.kept_weights);
    }
}
