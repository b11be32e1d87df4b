//! Carve-outs: how much of the memory that an SM has for L1 and shared memory is shared memory while a kernel of a network runs.
//!
//! The driver has a choice of its own for each kernel. But where an SM has room for more blocks than it needs, the blocks that start early
//! by programmatic dependent launch are placed unevenly, and an SM must be idle before its carve-out changes, so that kernels with different
//! ones cannot run side by side. See `docs/decisions.md`, "Carve-outs".

use super::branches::Branches;
use super::launch::LaunchPrediction;
use super::unit::{PlannedKernel, PlannedUnit};
use crate::cost::{KernelWork, resident_blocks};
use crate::gpu::{FIRST_CLUSTER_GPU, Gpu};
use std::collections::HashMap;

/// Shared memory that an SM of sm_90 or newer may have, KiB (CUDA C++ Programming Guide, "Shared Memory", sections of the compute
/// capabilities). Some GPUs have only the smaller ones.
const CAPACITIES: [u32; 9] = [8, 16, 32, 64, 100, 132, 164, 196, 228];

/// The least carve-out, KiB, unless L1 counts more than changes of the carve-out.
const LEAST: u32 = 32;

/// Shared memory, KiB, up to which a kernel counts as one that works with L1.
const LITTLE: u32 = 8;

/// Launches of at least this time, microseconds, are long enough for a change of the carve-out to pay.
const LONG_US: f64 = 4.0;

/// Sets the carve-outs of a network's kernels. A long one that works with L1 has as much of it as there is. Of the others, those that may run
/// side by side have the largest carve-out in common; any other one has what the blocks of an SM need if they are distributed evenly, or,
/// without shared memory, the same as the kernel before it. GPUs without programmatic dependent launch keep the driver's choice.
///
/// `unit_of_task` has the unit of each task, in execution order. Of a unit's tasks, one beside others decides, else the first one.
pub(super) fn set_carveouts(
    units: &mut [PlannedUnit],
    unit_of_task: &[usize],
    branches: &Branches,
    gpu: &Gpu,
) {
    if gpu.arch < FIRST_CLUSTER_GPU.arch {
        return;
    }
    for unit in &mut *units {
        let needs = Need::of_unit(unit, gpu);
        for (kernel, need) in unit.kernels.iter_mut().zip(needs) {
            kernel.carveout = need.works_with_l1().then(|| capacity(need.bytes, gpu));
        }
    }
    for (task, range) in branches.concurrent().into_iter().enumerate() {
        if range != [task; 2] {
            let kernels = &mut units[unit_of_task[task]].kernels;
            kernels.iter_mut().for_each(|kernel| {
                kernel.carveout.get_or_insert(capacity(u64::MAX, gpu));
            });
        }
    }
    let mut before = LEAST;
    for &unit in unit_of_task {
        let needs = Need::of_unit(&units[unit], gpu);
        for (kernel, need) in units[unit].kernels.iter_mut().zip(needs) {
            let own = match need.bytes {
                0 => before,
                bytes => capacity(bytes, gpu).max(LEAST),
            };
            before = *kernel.carveout.get_or_insert(own);
        }
    }
}

/// What a kernel needs.
struct Need {
    /// See [`needed_bytes`].
    bytes: u64,
    /// The predicted time of its launch, microseconds.
    us: f64,
}

impl Need {
    /// The needs of a unit's kernels.
    fn of_unit(unit: &PlannedUnit, gpu: &Gpu) -> Vec<Self> {
        let predictions = LaunchPrediction::for_unit(unit, gpu);
        let kernels = unit.kernels.iter().zip(predictions);
        let needs = kernels.map(|(kernel, launch)| {
            let cluster = kernel.blueprint.cluster.iter().product();
            let resident = launch.occupancy.blocks_per_sm;
            Self {
                bytes: needed_bytes(&kernel.blueprint.work, cluster, resident, gpu),
                us: launch.us,
            }
        });
        needs.collect()
    }

    /// Whether the kernel has little shared memory, and runs long enough for a change of the carve-out to pay.
    fn works_with_l1(&self) -> bool {
        self.us >= LONG_US && self.bytes <= u64::from(1024 * LITTLE)
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

    #[test]
    fn kernels_that_run_alone_have_what_their_blocks_need() {
        let text = format!("{{name: net, gpu: h200, input: 1x3x224x224, {CHAIN}");
        let plan = &plans(&text)[0];
        assert_eq!(plan.branches(), 1);
        let mut without = 0;
        let mut before = LEAST;
        for layer in &plan.layers {
            let unit = &plan.units[layer.unit];
            let predictions = LaunchPrediction::for_unit(unit, plan.gpu);
            for (kernel, launch) in unit.kernels.iter().zip(predictions) {
                let work = &kernel.blueprint.work;
                let cluster = kernel.blueprint.cluster.iter().product();
                let resident = launch.occupancy.blocks_per_sm;
                let needed = capacity(needed_bytes(work, cluster, resident, plan.gpu), plan.gpu);
                let expected = match work.shared_bytes {
                    _ if launch.us >= LONG_US && needed <= LITTLE => needed,
                    0 => {
                        without += 1;
                        before
                    }
                    _ => needed.max(LEAST),
                };
                assert_eq!(kernel.carveout, Some(expected), "{}", kernel.symbol);
                before = expected;
            }
        }
        assert!(without > 0);
        let several: Vec<_> = carveouts(plan).into_iter().flatten().collect();
        assert!(several.iter().any(|&kib| kib > LEAST), "{several:?}");
    }

    #[test]
    fn long_kernels_with_little_shared_memory_have_l1() {
        let plan = |size| {
            let text = format!(
                "{{name: net, gpu: h200, input: 1x64x{size}x{size}, \
                 ops: [{{op: conv, name: a, n: 64}}, {{op: max_pool, name: p, kernel: 2}}]}}"
            );
            plans(&text).remove(0)
        };
        for (size, is_long) in [(56, false), (256, true)] {
            let plan = plan(size);
            let [conv, pool] = carveouts(&plan)[..] else {
                panic!("{:?}", carveouts(&plan));
            };
            assert!(conv > Some(LEAST), "{conv:?}");
            assert_eq!(pool, if is_long { Some(8) } else { conv });
        }
    }

    #[test]
    fn kernels_that_run_side_by_side_have_the_largest() {
        // `first` has the same unit as `a`, which runs beside `p`.
        let text = "{name: net, gpu: h200, input: 1x512x28x28, ops: [{op: conv, name: first, n: 512}, \
             {op: conv, name: a, n: 512}, {op: max_pool, name: p, inputs: [first], kernel: 3, stride: 1, pad: 1}, \
             {op: conv, name: b, n: 24, kernel: 1}, {op: concat, name: c, inputs: [a, b]}, \
             {op: conv, name: tail, n: 24, kernel: 1}]}";
        let plan = &plans(text)[0];
        assert!(plan.branches() > 1);
        let of_layer = |name: &str| {
            let layer = plan.layers.iter().find(|layer| layer.name == name).unwrap();
            plan.units[layer.unit].kernels[0].carveout.unwrap()
        };
        assert_eq!(["first", "a", "p", "b"].map(of_layer), [228; 4]);
        assert!(of_layer("tail") < 228);
    }

    #[test]
    fn older_gpus_keep_the_choice_of_the_driver() {
        let text = format!("{{name: net, gpu: a100, input: 1x3x64x64, {CHAIN}");
        assert!(carveouts(&plans(&text)[0]).iter().all(Option::is_none));
        // 100 KiB are all that this GPU has.
        let text = format!("{{name: net, gpu: rtx5090, input: 32x3x224x224, {CHAIN}");
        let of_rtx5090 = carveouts(&plans(&text)[0]);
        assert!(
            of_rtx5090
                .iter()
                .all(|kib| (Some(8)..=Some(100)).contains(kib))
        );
        assert!(of_rtx5090.contains(&Some(100)));
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
