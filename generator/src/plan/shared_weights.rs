//! Weights that the plans of several batches share.
//!
//! Each plan has the layouts that are fastest for its batch. Where plans agree on a layer's layout, the weight file has the layer once. If
//! what is left takes more device memory than [`MEMORY_FACTOR`] allows, some layers of some plans get another tile, with the layout of
//! another plan: first those that lose the least predicted time for the bytes that this saves.

use super::choose::{Choice, Planner};
use super::error::PlanError;
use super::graph::Parameters;
use super::network::{FixedChoices, NetworkPlan, plan_network_fixed};
use crate::ir::{Network, Problem};
use std::cell::RefCell;
use std::collections::HashMap;
use tdc_runtime::{Variant, WeightFile, WeightLayout, WeightSlot};

/// The device memory of the plans of several batches, over that of the one that needs most by itself.
const MEMORY_FACTOR: f64 = 1.5;

/// The longest time that a layer may take with the layout of another plan, over its least.
const MAX_SLOWDOWN: f64 = 1.5;

/// Plans a network for each of its batches, with one weight file. `planner` returns a new planner for the GPU.
///
/// # Errors
/// Those of all batches, in their order.
pub(super) fn plan_batches(
    network: &Network,
    planner: impl Fn() -> Planner,
) -> Result<Vec<NetworkPlan>, Vec<PlanError>> {
    let batches = network.batches.as_slice();
    let plan = |images: u32, fixed: &FixedChoices| {
        plan_network_fixed(&network.with_batch(images), planner(), fixed)
    };
    let (mut plans, mut errors) = (Vec::new(), Vec::new());
    for &images in batches {
        match plan(images, &FixedChoices::new()) {
            Ok(plan) => plans.push(plan),
            Err(found) => errors.extend(found),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if plans.len() > 1 {
        let fixed = Fitting::new(&plans).fixed_choices(&planner().with_tile_policy(network.tiles));
        for (index, fixed) in fixed
            .iter()
            .enumerate()
            .filter(|(_, fixed)| !fixed.is_empty())
        {
            plans[index] = plan(batches[index], fixed)?;
        }
        share_weights(&mut plans);
    }
    Ok(plans)
}

/// Gives plans of one network for one GPU a common weight file. Parameters that several plans need in the same layout are in it once.
fn share_weights(plans: &mut [NetworkPlan]) {
    let mut units: Vec<(Vec<WeightSlot>, Parameters)> = Vec::new();
    let mut first_slots: Vec<usize> = Vec::new();
    let mut slots_end = 0;
    for plan in &mut *plans {
        let own: Vec<WeightSlot> = plan.weights.iter().map(|(slot, _)| slot.clone()).collect();
        for layer in plan
            .layers
            .iter_mut()
            .filter(|layer| !layer.slots.is_empty())
        {
            let slots: Vec<_> = layer.slots.iter().map(|&slot| own[slot].clone()).collect();
            let count = slots.len();
            let unit = (slots, layer.parameters.clone());
            let index = units.iter().position(|known| *known == unit);
            let index = index.unwrap_or_else(|| {
                first_slots.push(slots_end);
                slots_end += count;
                units.push(unit);
                units.len() - 1
            });
            layer.slots = (first_slots[index]..first_slots[index] + count).collect();
        }
    }
    let file = WeightFile::from_units(units.into_iter().map(|(slots, _)| slots));
    for plan in plans {
        plan.weights = file.clone();
    }
}

/// A layer of a plan: the index of the plan, and its own.
type LayerIndex = (usize, usize);

/// The parameters of one layer in one layout.
struct Block {
    layouts: Vec<WeightLayout>,
    bytes: u64,
    /// The layers that read the block.
    users: Vec<LayerIndex>,
}

/// A block that could be dropped.
struct Drop {
    block: usize,
    /// For each user, the block that it reads instead, and how.
    moves: Vec<(LayerIndex, usize, Choice)>,
    /// Predicted slowdown, as the sum over plans of their relative ones, for each byte.
    cost: f64,
}

/// The search for the layers that give up their own layouts.
struct Fitting<'a> {
    plans: &'a [NetworkPlan],
    /// The blocks of each layer of the network that has parameters.
    groups: Vec<Vec<Block>>,
    network_us: Vec<f64>,
    /// How units read the layouts of others, found before: networks repeat their problems.
    found: Found,
}

/// For a problem and layouts, the choice that reads them.
type Found = RefCell<HashMap<(Problem, Vec<WeightLayout>), Option<Choice>>>;

impl<'a> Fitting<'a> {
    fn new(plans: &'a [NetworkPlan]) -> Self {
        let mut parameters: Vec<&Parameters> = Vec::new();
        let mut groups: Vec<Vec<Block>> = Vec::new();
        for (plan_index, plan) in plans.iter().enumerate() {
            for (layer_index, layer) in plan.layers.iter().enumerate() {
                if layer.slots.is_empty() {
                    continue;
                }
                let unit = &plan.units[layer.unit];
                let layouts = layouts(unit.variant());
                let known = parameters
                    .iter()
                    .position(|&known| *known == layer.parameters);
                let group = known.unwrap_or_else(|| {
                    parameters.push(&layer.parameters);
                    groups.push(Vec::new());
                    groups.len() - 1
                });
                let user = (plan_index, layer_index);
                let blocks = &mut groups[group];
                match blocks.iter_mut().find(|block| block.layouts == layouts) {
                    Some(block) => block.users.push(user),
                    None => blocks.push(Block {
                        bytes: layouts.iter().map(|layout| 4 * layout.len() as u64).sum(),
                        layouts,
                        users: vec![user],
                    }),
                }
            }
        }
        Self {
            plans,
            groups,
            network_us: plans.iter().map(NetworkPlan::network_us).collect(),
            found: Found::default(),
        }
    }

    /// Bytes that the weights may take beside the arena, with copies of all inputs and outputs.
    fn budget(&self) -> u64 {
        let arenas = self.plans.iter().map(|plan| plan.arena_bytes);
        let copies = self.plans.iter().map(|plan| {
            let tensors = plan.inputs.iter().chain(&plan.outputs);
            tensors.map(|tensor| tensor.bytes()).sum::<u64>()
        });
        let arena = arenas.max().unwrap_or(0) + copies.max().unwrap_or(0);
        let alone = self.plans.iter();
        let alone = alone.map(|plan| plan.arena_bytes + plan.weights.payload_bytes());
        let most = alone.max().unwrap_or(0) as f64 * MEMORY_FACTOR;
        (most as u64).saturating_sub(arena)
    }

    /// For each plan, the choices by which the weights fit the budget, or come as close to it as the slowdown allows.
    fn fixed_choices(mut self, planner: &Planner) -> Vec<FixedChoices> {
        let mut fixed = vec![FixedChoices::new(); self.plans.len()];
        let blocks = self.groups.iter().flatten();
        let mut bytes: u64 = blocks.map(|block| block.bytes).sum();
        let budget = self.budget();
        if bytes <= budget {
            return fixed;
        }
        let mut drops: Vec<Option<Drop>> = (0..self.groups.len())
            .map(|group| self.cheapest_drop(group, planner))
            .collect();
        while bytes > budget {
            let all = drops.iter().enumerate();
            let all = all.filter_map(|(group, drop)| Some((group, drop.as_ref()?.cost)));
            let Some((group, _)) = all.min_by(|(_, a), (_, b)| a.total_cmp(b)) else {
                break;
            };
            let Some(Drop { block, moves, .. }) = drops[group].take() else {
                break;
            };
            for ((plan, layer), to, choice) in moves {
                self.groups[group][to].users.push((plan, layer));
                fixed[plan].insert(layer, choice);
            }
            bytes -= self.groups[group].remove(block).bytes;
            drops[group] = self.cheapest_drop(group, planner);
        }
        fixed
    }

    /// The block of a layer that costs the least time for its bytes; `None` if there is one block only, or if none can be replaced.
    fn cheapest_drop(&self, group: usize, planner: &Planner) -> Option<Drop> {
        let blocks = 0..self.groups[group].len();
        let drops = blocks.filter_map(|block| self.drop(group, block, planner));
        drops.min_by(|a, b| a.cost.total_cmp(&b.cost))
    }

    /// What happens if a block is dropped; `None` if a layer that reads it cannot read another one.
    fn drop(&self, group: usize, block: usize, planner: &Planner) -> Option<Drop> {
        let blocks = &self.groups[group];
        let mut moves = Vec::new();
        let mut slowdown = 0.0;
        for &(plan_index, layer) in &blocks[block].users {
            let plan = &self.plans[plan_index];
            let unit = &plan.units[plan.layers[layer].unit];
            let others = blocks
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != block);
            let limit_us = MAX_SLOWDOWN * unit.predicted_us;
            let choices = others.filter_map(|(index, other)| {
                let key = (unit.problem, other.layouts.clone());
                let find = || planner.choose_with_layouts(&unit.problem, &other.layouts, limit_us);
                let mut found = self.found.borrow_mut();
                Some((index, found.entry(key).or_insert_with(find).clone()?))
            });
            let best = choices.min_by(|(_, a), (_, b)| a.predicted_us.total_cmp(&b.predicted_us));
            let (to, choice) = best?;
            slowdown += (choice.predicted_us - unit.predicted_us) / self.network_us[plan_index];
            moves.push(((plan_index, layer), to, choice));
        }
        Some(Drop {
            block,
            moves,
            cost: slowdown / blocks[block].bytes as f64,
        })
    }
}

/// The layouts of all weights of a unit.
fn layouts(variant: &Variant) -> Vec<WeightLayout> {
    let layouts = variant.packed_layouts();
    layouts.map(|(_, layout)| layout.clone()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ir::{Batches, ConvOptions, NetworkBuilder, OpOptions, TensorShape};
    use crate::plan::{BatchSchedule, plan_variants};

    /// Two convolutions and a pooling, planned for these batches.
    pub fn network(batches: &[u32]) -> Network {
        let batches = Batches::new(batches).unwrap();
        let input = TensorShape::new(batches.largest(), 3, 20, 22);
        let mut builder = NetworkBuilder::new("net", input);
        builder.op("a", None, OpOptions::Conv(ConvOptions::new(32)));
        builder.op("b", None, OpOptions::Conv(ConvOptions::new(64)));
        builder.op("pool", None, OpOptions::GlobalAvgPool);
        let mut network = builder.finish().unwrap();
        network.batches = batches;
        network
    }

    #[test]
    fn plans_share_weights_of_equal_layouts() {
        let plans = plan_variants(&network(&[1, 2, 64])).unwrap();
        assert_eq!(
            plans.iter().map(NetworkPlan::batch).collect::<Vec<_>>(),
            [1, 2, 64]
        );
        let alone = |batch| {
            let plans = plan_variants(&network(&[batch])).unwrap();
            let [plan] = &plans[..] else {
                panic!("{} plans", plans.len());
            };
            plan.clone()
        };
        for plan in &plans {
            assert_eq!(plan.weights, plans[0].weights);
            let alone = alone(plan.batch());
            for (layer, own) in plan.layers.iter().zip(&alone.layers) {
                assert_eq!(layer.name, own.name);
                let slots = |plan: &NetworkPlan, indices: &[usize]| {
                    let all: Vec<_> = plan.weights.iter().map(|(slot, _)| slot.clone()).collect();
                    indices
                        .iter()
                        .map(|&slot| all[slot].clone())
                        .collect::<Vec<_>>()
                };
                assert_eq!(slots(plan, &layer.slots), slots(&alone, &own.slots));
            }
        }
        let bytes = |batch| alone(batch).weights.payload_bytes();
        let shared = plans[0].weights.payload_bytes();
        assert!(shared >= bytes(64) && shared < bytes(1) + bytes(2) + bytes(64));
    }

    /// Bytes of arena and weights together.
    fn memory(plans: &[NetworkPlan]) -> u64 {
        let arena = plans.iter().map(|plan| plan.arena_bytes).max().unwrap();
        arena + plans[0].weights.payload_bytes()
    }

    #[test]
    fn weights_in_several_layouts_fit_the_memory() {
        // Small images of many channels: most memory is weights. Both batches are too small for NHWC formats.
        let network = |batches: &[u32]| {
            let batches = Batches::new(batches).unwrap();
            let input = TensorShape::new(batches.largest(), 192, 14, 14);
            let mut builder = NetworkBuilder::new("net", input);
            for name in ["a", "b", "c"] {
                builder.op(name, None, OpOptions::Conv(ConvOptions::new(192)));
            }
            let mut network = builder.finish().unwrap();
            network.batches = batches;
            network
        };
        let batches = [1, 2];
        let alone = batches.map(|batch| plan_variants(&network(&[batch])).unwrap());
        let largest = alone.iter().map(|plans| memory(plans)).max().unwrap();
        let bound = MEMORY_FACTOR * largest as f64;
        let payloads = alone.iter().map(|plans| plans[0].weights.payload_bytes());
        assert!(
            payloads.sum::<u64>() as f64 > bound,
            "layouts have to be shared"
        );
        let plans = plan_variants(&network(&batches)).unwrap();
        let arena = BatchSchedule::new(&plans).arena_bytes;
        assert!((arena + plans[0].weights.payload_bytes()) as f64 <= bound);
        for (plan, alone) in plans.iter().zip(&alone) {
            assert!(plan.network_us() <= 1.1 * alone[0].network_us());
        }
    }
}
