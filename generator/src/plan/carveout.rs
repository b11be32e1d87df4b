//! Carve-outs: how much of the memory that an SM has for L1 and shared memory is shared memory while a kernel of a network runs.
//!
//! The driver has a choice of its own for each kernel, and an SM must be idle before its carve-out changes, so kernels of a network should
//! have one in common. But where an SM has room for more blocks than it needs, the blocks that start early by programmatic dependent launch
//! are placed unevenly. See `docs/decisions.md`, "Carve-outs".

use super::launch::LaunchPrediction;
use super::unit::{PlannedKernel, PlannedUnit};
use crate::cost::{KernelWork, resident_blocks};
use crate::gpu::{FIRST_CLUSTER_GPU, Gpu};
use std::collections::HashMap;

/// Shared memory that an SM of sm_90 or newer may have, KiB (CUDA C++ Programming Guide, "Shared Memory", sections of the compute
/// capabilities). Some GPUs have only the smaller ones.
const CAPACITIES: [u32; 9] = [8, 16, 32, 64, 100, 132, 164, 196, 228];

/// The least carve-out in a network of one branch, KiB. Kernels that need less have it in common.
const LEAST: u64 = 100;

/// The least carve-out in a network of several branches, KiB: kernels of other branches run on the same SMs.
const LEAST_OF_BRANCHES: u64 = 164;

/// Sets the carve-outs of a network's kernels: what the blocks of an SM need if they are distributed evenly, but not less than the least of
/// the network. GPUs without programmatic dependent launch keep the driver's choice.
pub(super) fn set_carveouts(units: &mut [PlannedUnit], branches: usize, gpu: &Gpu) {
    if gpu.arch < FIRST_CLUSTER_GPU.arch {
        return;
    }
    let least = match branches {
        1 => 1024 * LEAST,
        _ => 1024 * LEAST_OF_BRANCHES,
    };
    for unit in units {
        let predictions = LaunchPrediction::for_unit(unit, gpu);
        for (kernel, launch) in unit.kernels.iter_mut().zip(predictions) {
            let resident = launch.occupancy.blocks_per_sm;
            let cluster = kernel.blueprint.cluster.iter().product();
            let needed = needed_bytes(&kernel.blueprint.work, cluster, resident, gpu);
            kernel.carveout = Some(capacity(needed.max(least), gpu));
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

/// The shared memory that the blocks of the busiest SM need if they are distributed evenly, of which at most `resident` run at a time.
/// Clusters of `cluster` blocks do not occupy all SMs.
fn needed_bytes(work: &KernelWork, cluster: u32, resident: u32, gpu: &Gpu) -> u64 {
    let on_each_sm = resident_blocks(cluster, 1.0, gpu);
    let blocks = (work.blocks as f64 / on_each_sm).ceil() as u64;
    match work.shared_bytes {
        0 => 0,
        bytes => blocks.min(resident.into()) * u64::from(bytes + gpu.shared_reserved),
    }
}

/// The least capacity of at least this size that the GPU has, else its largest, KiB.
fn capacity(bytes: u64, gpu: &Gpu) -> u32 {
    let of_gpu = CAPACITIES.into_iter();
    let of_gpu = of_gpu.filter(|kib| 1024 * kib <= gpu.shared_per_sm);
    let sufficient = of_gpu.clone().find(|&kib| u64::from(1024 * kib) >= bytes);
    sufficient.or(of_gpu.max()).unwrap_or_default()
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

    #[test]
    fn capacities_are_those_of_the_gpu() {
        let h200 = gpu("h200").unwrap();
        assert_eq!(capacity(1, h200), 8);
        assert_eq!(capacity(1024 * 100, h200), 100);
        assert_eq!(capacity(1024 * 100 + 1, h200), 132);
        assert_eq!(capacity(u64::MAX, h200), 228);
        assert_eq!(capacity(u64::MAX, gpu("rtx5090").unwrap()), 100);
    }

    #[test]
    fn blocks_are_distributed_over_the_sms_that_clusters_can_occupy() {
        let h200 = gpu("h200").unwrap();
        let work = |blocks| KernelWork {
            blocks,
            shared_bytes: 59 * 1024,
            ..KernelWork::default()
        };
        let kib =
            |blocks, cluster, resident| needed_bytes(&work(blocks), cluster, resident, h200) / 1024;
        assert_eq!(
            [kib(132, 1, 3), kib(133, 1, 3), kib(500, 1, 3)],
            [60, 120, 180]
        );
        // 15 clusters of eight run at a time, with one block on each of 120 SMs.
        assert_eq!(
            [kib(120, 8, 3), kib(128, 8, 3), kib(128, 8, 1)],
            [60, 120, 60]
        );
        let no_shared_memory = KernelWork {
            shared_bytes: 0,
            ..work(1000)
        };
        assert_eq!(needed_bytes(&no_shared_memory, 1, 8, h200), 0);
    }

    /// Launches of one block and of several for an SM, with little and with much shared memory.
    const CHAIN: &str = "ops: [{op: conv, name: a, n: 64, kernel: 7, stride: 2}, {op: conv, name: b, n: 64}, \
        {op: global_avg_pool, name: pool}, {op: linear, name: fc, n: 10}]}";

    /// The capacities of a plan's kernels, which hold their blocks, and are not all the least.
    fn check_capacities(plan: &NetworkPlan, least: u32) {
        let capacities = carveouts(plan).into_iter().map(Option::unwrap);
        let capacities: Vec<u32> = capacities.collect();
        assert_eq!(capacities.iter().min(), Some(&least));
        assert!(capacities.iter().any(|&kib| kib > least), "{capacities:?}");
        for kernel in plan.units.iter().flat_map(|unit| &unit.kernels) {
            let block = kernel.blueprint.work.shared_bytes;
            assert!(1024 * kernel.carveout.unwrap() > block, "{}", kernel.symbol);
        }
    }

    #[test]
    fn kernels_of_a_network_have_a_carveout_in_common_as_far_as_they_can() {
        let text = format!("{{name: net, gpu: h200, input: 1x3x224x224, {CHAIN}");
        let plan = &plans(&text)[0];
        assert_eq!(plan.branches(), 1);
        check_capacities(plan, 100);
        let text = "{name: net, gpu: h200, input: 1x512x28x28, ops: [{op: conv, name: a, n: 256}, \
             {op: max_pool, name: p, inputs: [input], kernel: 3, stride: 1, pad: 1}, {op: conv, name: b, n: 24, kernel: 1}, \
             {op: concat, name: c, inputs: [a, b]}]}";
        let plan = &plans(text)[0];
        assert!(plan.branches() > 1);
        check_capacities(plan, 164);
    }

    #[test]
    fn older_gpus_keep_the_choice_of_the_driver() {
        let text = format!("{{name: net, gpu: a100, input: 1x3x64x64, {CHAIN}");
        assert!(carveouts(&plans(&text)[0]).iter().all(Option::is_none));
        // 100 KiB are all that this GPU has.
        let text = format!("{{name: net, gpu: rtx5090, input: 1x3x64x64, {CHAIN}");
        assert!(
            carveouts(&plans(&text)[0])
                .iter()
                .all(|&kib| kib == Some(100))
        );
    }

    #[test]
    fn plans_that_share_kernels_agree() {
        let text = format!("{{name: net, gpu: h200, input: 1x3x64x64, {CHAIN}");
        let mut plans = [plans(&text).remove(0), plans(&text).remove(0)];
        let set =
            |plan: &mut NetworkPlan, unit: usize, kib| plan.units[unit].kernels[0].carveout = kib;
        for (unit, [first, second]) in [
            [Some(132), Some(196)],
            [Some(228), Some(64)],
            [None, Some(8)],
        ]
        .into_iter()
        .enumerate()
        {
            set(&mut plans[0], unit, first);
            set(&mut plans[1], unit, second);
        }
        agree_on_carveouts(plans.iter_mut().flat_map(|plan| &mut plan.units));
        assert_eq!(carveouts(&plans[0]), carveouts(&plans[1]));
        assert_eq!(carveouts(&plans[0])[..3], [Some(196), Some(228), Some(8)]);
    }
}
