//! Occupancy: how many blocks an SM holds.

use super::KernelWork;
use crate::gpu::Gpu;
use serde::Serialize;

/// How many blocks an SM holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Occupancy {
    /// Resident blocks of an SM; 0 if a block does not fit.
    pub blocks_per_sm: u32,
    /// Resident threads as a fraction of the maximum, 0 to 1.
    pub fraction: f64,
    /// Waves in which the grid runs.
    pub waves: u64,
}

/// Resident blocks by threads, registers, shared memory and the block limit.
pub fn occupancy(work: &KernelWork, gpu: &Gpu) -> Occupancy {
    // Registers are allocated to warps in units of 256.
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
        fraction: f64::from(blocks_per_sm * warps * 32) / f64::from(gpu.threads_per_sm),
        waves: if resident == 0 {
            0
        } else {
            work.blocks.div_ceil(resident)
        },
    }
}

/// Blocks that run at once, in clusters of `cluster`, if an SM holds `blocks_per_sm`.
pub(crate) fn resident_blocks(cluster: u32, blocks_per_sm: f64, gpu: &Gpu) -> f64 {
    if cluster <= 1 {
        return f64::from(gpu.sms) * blocks_per_sm;
    }
    gpu.resident_clusters(cluster, blocks_per_sm) * f64::from(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::kernel_us;
    use crate::gpu::gpu;

    fn work() -> KernelWork {
        KernelWork {
            blocks: 1000,
            threads: 256,
            registers: 64,
            shared_bytes: 0,
            flops: 1e6,
            fma_fraction: 0.5,
            l2_bytes: 1e6,
            dram_bytes: 1e6,
            l2_round_trips: 1.0,
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
}
