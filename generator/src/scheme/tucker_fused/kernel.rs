//! The kernel's blueprint.

use super::context::TuckerFusedContext;
use super::geometry::{TuckerFusedGeometry, core_problem};
use crate::gpu::Gpu;
use crate::ir::{Problem, TuckerProblem};
use crate::scheme::{DevicePart, KernelBlueprint, batch_stride_args, context};
use tdc_runtime::{Arg, WeightLayout};

pub(super) fn kernel(
    problem: &TuckerProblem,
    sizes: &TuckerFusedGeometry,
    layouts: &[WeightLayout],
    gpu: &Gpu,
) -> KernelBlueprint {
    let [tiles, _] = sizes.output.tiles(&core_problem(problem));
    let (batch, cluster) = (problem.core.batch, sizes.tile.cluster);
    let epilogue = problem.epilogue;
    let mut args = vec![Arg::X, Arg::Packed];
    args.extend(epilogue.bias.then_some(Arg::Bias));
    args.extend(epilogue.residual.then_some(Arg::Residual));
    args.push(Arg::Y);
    args.extend(batch_stride_args(batch, epilogue.residual));
    KernelBlueprint {
        role: "kernel",
        template: "kernel/tucker_fused.cu",
        grid: [tiles * batch, 1, cluster],
        block: [32 * sizes.tile.warps, 1, 1],
        cluster: [1, 1, cluster],
        shared_bytes: 4 * sizes.memory.floats,
        pdl: true,
        device: device_parts(sizes),
        args,
        work: sizes.work(problem, Problem::Tucker(*problem).bytes() as f64, gpu),
        context: context(&TuckerFusedContext::new(problem, sizes, layouts)),
    }
}

/// The parts of the device header that the kernel uses.
fn device_parts(sizes: &TuckerFusedGeometry) -> &'static [DevicePart] {
    let first = usize::from(sizes.tile.cluster == 1);
    let rounds = sizes.sums.first_in_registers
        || sizes.sums.core_in_registers
        || sizes.factors.next.is_some();
    &DEVICE[first..DEVICE.len() - usize::from(!rounds)]
}

/// The first part is needed only with clusters, the last only if accumulators are converted in registers.
const DEVICE: &[DevicePart] = &[
    DevicePart::Cluster,
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::BulkCopy,
    DevicePart::Pdl,
    DevicePart::Fp16,
    DevicePart::Mma,
    DevicePart::MmaSteps,
    DevicePart::AccumulatorOperands,
];
