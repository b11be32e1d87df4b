//! Carve-outs: how much of the memory that an SM has for L1 and shared memory is shared memory while a kernel of a network runs.
//!
//! The driver's own choice lets an SM hold as many blocks of a kernel as possible. With programmatic dependent launch this costs time: blocks
//! of the successor that start early are placed in pairs on the SMs that the predecessor left empty, and every change of the carve-out makes
//! an SM wait until it is idle. See `docs/decisions.md`, "Carve-outs".

use super::launch::LaunchPrediction;
use super::unit::{PlannedKernel, PlannedUnit};
use crate::cost::KernelWork;
use crate::gpu::{FIRST_CLUSTER_GPU, Gpu};
use std::collections::HashMap;

/// Shared memory that an SM of sm_90 or newer may have, KiB (CUDA C++ Programming Guide, "Shared Memory", sections of the compute
/// capabilities). Some GPUs have only the smaller ones.
const CAPACITIES: [u32; 9] = [8, 16, 32, 64, 100, 132, 164, 196, 228];

/// The least capacity in a network of one branch, KiB. Kernels that need less have it in common, so that it need not change between them.
const LEAST: u32 = 100;

/// The least capacity in a network of several branches, KiB: kernels of other branches run on the same SMs.
const LEAST_OF_BRANCHES: u32 = 164;

/// Sets the carve-outs of a network's kernels: what the blocks of an SM need if they are distributed evenly, but not less than the least of
/// the network. GPUs without programmatic dependent launch keep the driver's choice.
pub(super) fn set_carveouts(units: &mut [PlannedUnit], branches: usize, gpu: &Gpu) {
    if gpu.arch < FIRST_CLUSTER_GPU.arch {
        return;
    }
    let least = match branches {
        1 => LEAST,
        _ => LEAST_OF_BRANCHES,
    };
    for unit in units {
        let predictions = LaunchPrediction::for_unit(unit, gpu);
        for (kernel, launch) in unit.kernels.iter_mut().zip(predictions) {
            let resident = launch.occupancy.blocks_per_sm;
            let bytes = needed_bytes(&kernel.blueprint.work, resident, gpu);
            let needed = bytes.max(u64::from(1024 * least));
            kernel.carveout = Some(percent(needed, gpu));
        }
    }
}

/// Gives kernels of the same name, which plans for several GPUs share, the largest of their carve-outs: a folder has one launcher for all plans.
pub(super) fn agree_on_carveouts<'a>(units: impl Iterator<Item = &'a mut PlannedUnit>) {
    let mut kernels: Vec<&mut PlannedKernel> = units.flat_map(|unit| &mut unit.kernels).collect();
    let mut largest: HashMap<String, Option<u32>> = HashMap::new();
    for kernel in &kernels {
        let known = largest.entry(kernel.symbol.clone()).or_default();
        *known = kernel.carveout.max(*known);
    }
    for kernel in &mut kernels {
        kernel.carveout = largest[&kernel.symbol];
    }
}

/// The shared memory that the blocks of an SM need if all SMs have as many, of which at most `resident` run at a time.
fn needed_bytes(work: &KernelWork, resident: u32, gpu: &Gpu) -> u64 {
    let blocks = work.blocks.div_ceil(gpu.sms.into()).min(resident.into());
    match work.shared_bytes {
        0 => 0,
        bytes => blocks * u64::from(bytes + gpu.shared_reserved),
    }
}

/// The least capacity of at least this size, percent of the GPU's largest. CUDA rounds such a number up to the next capacity.
fn percent(bytes: u64, gpu: &Gpu) -> u32 {
    let capacities = CAPACITIES.iter().map(|kib| 1024 * kib);
    let mut sufficient = capacities.filter(|&capacity| u64::from(capacity) >= bytes);
    let capacity = sufficient.next().unwrap_or(u32::MAX);
    match capacity < gpu.shared_per_sm {
        true => 100 * capacity / gpu.shared_per_sm,
        false => 100,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides, yaml};
    use crate::gpu::gpu;
    use crate::plan::{NetworkPlan, plan_variants};

    fn plans(text: &str) -> Vec<NetworkPlan> {
        match yaml::parse(text, "net.yaml", &Overrides::default()) {
            Ok(Config::Network(network)) => plan_variants(&network).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn carveouts(plan: &NetworkPlan) -> Vec<Option<u32>> {
        let kernels = plan.units.iter().flat_map(|unit| &unit.kernels);
        kernels.map(|kernel| kernel.carveout).collect()
    }

    /// The capacity that CUDA takes for a percentage of 228 KiB, KiB.
    fn capacity(percent: u32) -> u32 {
        let sufficient = |&kib: &u32| 100 * kib >= 228 * percent;
        CAPACITIES.into_iter().find(sufficient).unwrap()
    }

    #[test]
    fn percentages_are_those_of_capacities() {
        let h200 = gpu("h200").unwrap();
        for kib in CAPACITIES {
            assert_eq!(capacity(percent(1024 * u64::from(kib), h200)), kib);
        }
        assert_eq!(capacity(percent(1024 * 100 + 1, h200)), 132);
        assert_eq!(percent(1024 * 300, h200), 100);
        // 100 KiB are all that these have.
        assert_eq!(percent(1024 * 164, gpu("rtx5090").unwrap()), 100);
        assert_eq!(percent(1024 * 33, gpu("rtx5090").unwrap()), 64);
    }

    /// Launches of one block and of several for an SM, with little and with much shared memory.
    const CHAIN: &str = "ops: [{op: conv, name: a, n: 64, kernel: 7, stride: 2}, {op: conv, name: b, n: 64}, \
        {op: global_avg_pool, name: pool}, {op: linear, name: fc, n: 10}]}";

    /// The capacity is the least that holds the blocks of an SM, or that of the network.
    fn check_capacities(plan: &NetworkPlan, least: u32) {
        let mut above_least = 0;
        for unit in &plan.units {
            let predictions = LaunchPrediction::for_unit(unit, plan.gpu);
            for (kernel, launch) in unit.kernels.iter().zip(predictions) {
                let (work, symbol) = (&kernel.blueprint.work, &kernel.symbol);
                let blocks = work.blocks.div_ceil(132);
                let blocks = blocks.min(launch.occupancy.blocks_per_sm.into());
                let needed = blocks * u64::from(work.shared_bytes + 1024);
                let capacity = capacity(kernel.carveout.unwrap());
                let holds = |kib: u32| u64::from(1024 * kib) >= needed;
                assert!(holds(capacity) && capacity >= least, "{symbol}");
                if capacity > least {
                    above_least += 1;
                    let at = CAPACITIES.iter().position(|&other| other == capacity);
                    assert!(!holds(CAPACITIES[at.unwrap() - 1]), "{symbol}");
                }
            }
        }
        assert!(above_least > 0);
    }

    #[test]
    fn an_sm_holds_its_blocks() {
        let text = format!("{{name: net, gpu: h200, input: 1x3x224x224, {CHAIN}");
        let plan = &plans(&text)[0];
        assert_eq!(plan.branches(), 1);
        check_capacities(plan, 100);
    }

    #[test]
    fn branches_have_room_for_each_other() {
        let text = "{name: net, gpu: h200, input: 1x512x28x28, ops: [{op: conv, name: a, n: 256}, \
             {op: max_pool, name: p, inputs: [input], kernel: 3, stride: 1, pad: 1}, {op: conv, name: b, n: 24, kernel: 1}, \
             {op: concat, name: c, inputs: [a, b]}]}";
        let plan = &plans(text)[0];
        assert!(plan.branches() > 1);
        check_capacities(plan, 164);
    }

    #[test]
    fn older_gpus_keep_the_choice_of_the_driver() {
        let plan = &plans(&format!(
            "{{name: net, gpu: a100, input: 1x3x64x64, {CHAIN}"
        ))[0];
        assert!(carveouts(plan).iter().all(Option::is_none));
    }

    #[test]
    fn plans_for_several_gpus_agree() {
        let text = format!("{{name: net, gpu: [h200, a100], input: 1x3x224x224, {CHAIN}");
        let plans = plans(&text);
        let of_name = |plan: &NetworkPlan| -> HashMap<String, Option<u32>> {
            let kernels = plan.units.iter().flat_map(|unit| &unit.kernels);
            kernels
                .map(|kernel| (kernel.symbol.clone(), kernel.carveout))
                .collect()
        };
        let [first, second] = [of_name(&plans[0]), of_name(&plans[1])];
        let shared = first.iter().filter(|(name, _)| second.contains_key(*name));
        let shared: Vec<_> = shared
            .map(|(name, carveout)| (second[name], *carveout))
            .collect();
        assert!(!shared.is_empty());
        assert!(
            shared.iter().all(|(a, b)| a == b && a.is_some()),
            "{shared:?}"
        );
    }
}
