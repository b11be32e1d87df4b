//! Occupancy, the floor of a launch, and a first estimate of a kernel's time.

use super::Gpu;
use serde::Serialize;
use tdc_runtime::Arch;

/// What one launch does, as far as time depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KernelWork {
    /// Blocks of the grid.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread, estimated.
    pub registers: u32,
    /// Static and dynamic shared memory of a block, bytes.
    pub shared_bytes: u32,
    /// Floating-point operations of the whole launch, idle lanes counted as working.
    pub flops: f64,
    /// Share of the issued instructions that are multiply-adds, 0 to 1.
    pub fma_share: f64,
    /// Bytes read and written through the level-2 cache by the whole launch.
    pub l2_bytes: f64,
    /// Bytes moved to and from memory when every tensor is touched once.
    pub dram_bytes: f64,
    /// Dependent trips to the level-2 cache in one thread, one behind the other.
    pub trips: f64,
    /// Products of 16x16 with 16x8 fp16 matrices by the tensor cores, of the whole launch.
    pub mma: f64,
    /// Clocks that a block needs however idle its multiprocessor is, besides the trips: dependent instructions and barriers.
    pub clocks: f64,
    /// Blocks of a cluster that add up their sums; 0 or 1 for none.
    pub cluster: u32,
    /// Whether the launch may begin before the one ahead of it has ended.
    pub overlaps: bool,
}

/// How many blocks a multiprocessor holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Occupancy {
    /// Resident blocks of a multiprocessor; 0 when a block does not fit at all.
    pub blocks_per_sm: u32,
    /// Resident threads over the most possible, 0 to 1.
    pub share: f64,
    /// Rounds in which the grid is worked off.
    pub waves: u64,
}

/// Resident blocks by threads, registers, shared memory and the block limit.
pub fn occupancy(work: &KernelWork, gpu: &Gpu) -> Occupancy {
    // Registers are handed out to warps in units of 256.
    let warps = work.threads.div_ceil(32);
    let registers = (work.registers * 32).next_multiple_of(256) * warps;
    let by_shared = if work.shared_bytes > gpu.shared_per_block {
        0
    } else {
        let taken = work.shared_bytes + gpu.shared_reserved;
        gpu.shared_per_sm.checked_div(taken).unwrap_or(u32::MAX)
    };
    let blocks_per_sm = gpu
        .blocks_per_sm
        .min(gpu.threads_per_sm / (warps * 32))
        .min(gpu.registers_per_sm / registers.max(1))
        .min(by_shared);
    let resident = u64::from(blocks_per_sm * gpu.sms);
    Occupancy {
        blocks_per_sm,
        share: f64::from(blocks_per_sm * warps * 32) / f64::from(gpu.threads_per_sm),
        waves: if resident == 0 {
            0
        } else {
            work.blocks.div_ceil(resident)
        },
    }
}

/// The physical limit of one launch in fp32, microseconds: the empty launch, then arithmetic or memory, whichever takes longer, at
/// the rates that were measured, else at the peak ones.
pub fn floor_us(flops: u64, bytes: u64, gpu: &Gpu) -> f64 {
    let compute = flops as f64 / gpu.sustained_flops_per_us();
    let memory = bytes as f64 / gpu.sustained_bytes_per_us();
    gpu.launch_us + compute.max(memory)
}

/// Estimated time of setting bytes to zero in a CUDA graph, microseconds: a launch that only writes.
pub fn memset_us(bytes: u64, gpu: &Gpu) -> f64 {
    gpu.launch_us + bytes as f64 / (f64::from(gpu.dram_gbs) * 1e3)
}

/// Estimated time of one launch in a CUDA graph, microseconds; infinite when a block does not fit.
///
/// The busiest multiprocessor's arithmetic (slower with too few warps to hide latency), the traffic through the level-2 cache
/// and memory, whichever is longest, behind the launch and the dependent trips to memory of each wave.
pub fn kernel_us(work: &KernelWork, gpu: &Gpu) -> f64 {
    /// Warps a multiprocessor needs to keep its lanes busy.
    const BUSY_WARPS: f64 = 12.0;
    /// Bytes a multiprocessor gets from the level-2 cache in a clock.
    const L2_BYTES_PER_CLOCK: f64 = 32.0;
    /// Clocks of one trip to the level-2 cache.
    const TRIP_CLOCKS: f64 = 280.0;
    /// Clocks of a multiprocessor for one product of the tensor cores, beside the instructions around it.
    const MMA_CLOCKS: f64 = 1.2;
    /// The oldest architecture whose launches overlap, and what that saves, microseconds.
    const OVERLAPPING: Arch = Arch::new(90);
    const OVERLAP_US: f64 = 0.35;
    /// What it takes the blocks of a cluster to add up their sums, microseconds, and more for each block.
    const EXCHANGE_US: f64 = 0.24;
    const EXCHANGE_BLOCK_US: f64 = 0.03;
    /// The oldest architecture with the tensor cores that kernels are written for; older ones exchange operands by shuffles.
    const TENSOR_CORES: Arch = Arch::new(80);

    let occupancy = occupancy(work, gpu);
    // What a fallback would take is not estimated: no plan should want it.
    let falls_back =
        work.mma > 0.0 && gpu.arch < TENSOR_CORES || work.cluster > 1 && gpu.arch < OVERLAPPING;
    if occupancy.blocks_per_sm == 0 || falls_back {
        return f64::INFINITY;
    }
    let clock = f64::from(gpu.clock_mhz);
    let busiest = work.blocks.div_ceil(u64::from(gpu.sms)) as f64;
    let resident = busiest.min(f64::from(occupancy.blocks_per_sm));
    let warps = resident * f64::from(work.threads.div_ceil(32));
    // Schemes that tell their latencies need no share of idle lanes.
    let hidden = if work.clocks > 0.0 {
        1.0
    } else {
        (warps / BUSY_WARPS).min(1.0)
    };
    let rate = gpu.sm_flops_per_us() * work.fma_share * hidden;
    let compute = work.flops / work.blocks as f64 * busiest / rate;
    let busy_sms = f64::from(gpu.sms).min(work.blocks as f64);
    let l2 = work.l2_bytes / (busy_sms * L2_BYTES_PER_CLOCK * clock);
    let dram = work.dram_bytes / (f64::from(gpu.dram_gbs) * 1e3);
    let mma = work.mma / work.blocks as f64 * busiest * MMA_CLOCKS / clock;
    let trips = work.trips * TRIP_CLOCKS / clock * occupancy.waves as f64;
    let latency = work.clocks / clock * (busiest / resident).ceil();
    let saved = if work.overlaps && gpu.arch >= OVERLAPPING {
        OVERLAP_US.min(0.5 * gpu.launch_us)
    } else {
        0.0
    };
    let exchange = if work.cluster > 1 {
        EXCHANGE_US + EXCHANGE_BLOCK_US * f64::from(work.cluster)
    } else {
        0.0
    };
    // Blocks that stage their input first, compute then and store at last overlap little with each other where there are few.
    let busy = if work.clocks > 0.0 {
        latency + compute + mma + l2
    } else {
        compute.max(l2)
    };
    gpu.launch_us - saved + trips + exchange + busy.max(dram)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::spec::{ConvProblem, Epilogue, Problem, Reduce};
    use tdc_runtime::{ConvShape, Padding};

    fn work() -> KernelWork {
        KernelWork {
            blocks: 1000,
            threads: 256,
            registers: 64,
            shared_bytes: 0,
            flops: 1e6,
            fma_share: 0.5,
            l2_bytes: 1e6,
            dram_bytes: 1e6,
            trips: 1.0,
            ..KernelWork::default()
        }
    }

    #[test]
    fn occupancy_by_each_limit() {
        let h200 = gpu("h200").unwrap();
        // 64 registers x 256 threads = 16384 registers: four blocks.
        assert_eq!(occupancy(&work(), h200).blocks_per_sm, 4);
        assert_eq!(occupancy(&work(), h200).waves, 2);
        let by_threads = KernelWork {
            registers: 16,
            ..work()
        };
        assert_eq!(occupancy(&by_threads, h200).blocks_per_sm, 8);
        let by_blocks = KernelWork {
            registers: 16,
            threads: 32,
            ..work()
        };
        assert_eq!(occupancy(&by_blocks, h200).blocks_per_sm, 32);
        let by_shared = KernelWork {
            shared_bytes: 75 * 1024,
            ..work()
        };
        assert_eq!(occupancy(&by_shared, h200).blocks_per_sm, 3);
        let too_much = KernelWork {
            shared_bytes: 300 * 1024,
            ..work()
        };
        assert_eq!(occupancy(&too_much, h200).blocks_per_sm, 0);
        assert!(kernel_us(&too_much, h200).is_infinite());
    }

    #[test]
    fn old_gpus_reserve_no_shared_memory() {
        let whole = KernelWork {
            shared_bytes: 64 * 1024,
            ..work()
        };
        assert_eq!(
            occupancy(&whole, gpu("rtx2080ti").unwrap()).blocks_per_sm,
            1
        );
        let half = KernelWork {
            shared_bytes: 48 * 1024,
            ..work()
        };
        assert_eq!(occupancy(&half, gpu("gtx1080ti").unwrap()).blocks_per_sm, 2);
        assert_eq!(occupancy(&work(), gpu("v100").unwrap()).blocks_per_sm, 4);
    }

    #[test]
    fn the_floor_is_the_longer_of_arithmetic_and_memory() {
        // Nobody has measured its rates, so the peak ones count.
        let h100 = gpu("h100").unwrap();
        let peak = 2.0 * 128.0 * 1980.0 * 132.0;
        assert!((floor_us(peak as u64 * 3, 0, h100) - 3.55).abs() < 1e-6);
        assert!((floor_us(0, 3_350_000, h100) - 1.55).abs() < 1e-6);
        let h200 = gpu("h200").unwrap();
        assert!((floor_us(51_000_000, 0, h200) - 1.55).abs() < 1e-9);
        assert!((floor_us(51_000_000, 8_600_000, h200) - 2.55).abs() < 1e-9);
    }

    #[test]
    fn floors_of_convolutions_are_those_of_the_measured_rates() {
        for (sizes, expected) in [
            // 1849.7 and 14.45 million operations at 51 million a microsecond.
            ([64, 32, 224, 224], 36.82),
            ([32, 32, 28, 28], 0.833),
            // Four bytes an operation: memory.
            ([1, 1, 4096, 4096], 0.55 + 2.0 * 4.0 * 16.777_216 / 4.3),
        ] {
            let [c, n, h, w] = sizes;
            let kernel = if c == 1 { 1 } else { 3 };
            let problem = Problem::Conv(ConvProblem {
                shape: ConvShape {
                    padding: Padding::all(kernel / 2),
                    ..ConvShape::new(c, n, h, w, kernel, kernel)
                },
                prologue: None,
                epilogue: Epilogue::default(),
                reduce: Reduce::Ordered,
                precision: crate::spec::Precision::default(),
                tolerance: crate::spec::Tolerance::default(),
            });
            let floor = floor_us(problem.flops(), problem.bytes(), gpu("h200").unwrap());
            assert!((floor / expected - 1.0).abs() < 1e-3, "{sizes:?}: {floor}");
        }
    }
}
