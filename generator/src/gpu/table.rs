//! Figures of GPUs.
//!
//! Sources. Streaming multiprocessors, clocks, bandwidth and L2: the vendor's whitepapers and datasheets of each product (V100
//! "Tesla V100 GPU Architecture" 2017; RTX 2080 Ti "Turing GPU Architecture" 2018; A100 "A100 Tensor Core GPU Architecture"
//! 2020; RTX 3090 "GA102 GPU Architecture" 2020; RTX 4090 "Ada GPU Architecture" 2022; H100 "H100 Tensor Core GPU
//! Architecture" 2022; H200 datasheet 2023). Threads, blocks, registers and shared memory of a multiprocessor: CUDA C++
//! Programming Guide, "Technical Specifications per Compute Capability". H200: clock, L2 and launch time were measured
//! (docs/design.md); the launch times of the others are estimates scaled from it.

use crate::spec::nearest;
use serde::Serialize;
use tdc_runtime::Arch;

/// One GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gpu {
    /// Name in configs and on the command line.
    pub name: &'static str,
    /// Product name.
    pub title: &'static str,
    /// Architecture.
    pub arch: Arch,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// fp32 lanes of a multiprocessor.
    pub lanes: u32,
    /// Boost clock, MHz.
    pub clock_mhz: u32,
    /// Resident threads of a multiprocessor.
    pub threads_per_sm: u32,
    /// Resident blocks of a multiprocessor.
    pub blocks_per_sm: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers_per_sm: u32,
    /// Shared memory of a multiprocessor, bytes.
    pub shared_per_sm: u32,
    /// Largest shared memory of a block, bytes (more than 48 KiB only as dynamic memory).
    pub shared_per_block: u32,
    /// Level-2 cache, bytes.
    pub l2_bytes: u64,
    /// Memory bandwidth, GB/s.
    pub dram_gbs: u32,
    /// Time of an empty kernel in a CUDA graph, microseconds.
    pub launch_us: f64,
}

impl Gpu {
    /// Peak fp32 rate, FLOP per microsecond, of one multiprocessor.
    pub fn sm_flops_per_us(&self) -> f64 {
        2.0 * f64::from(self.lanes) * f64::from(self.clock_mhz)
    }
}

/// The GPU that is planned for when none is named.
pub const DEFAULT_GPU: &str = "h200";

const KIB: u32 = 1024;
const MIB: u64 = 1024 * 1024;

/// Every GPU that code can be planned for.
pub const GPUS: &[Gpu] = &[
    Gpu {
        name: "h200",
        title: "NVIDIA H200 SXM",
        arch: Arch::new(90),
        sms: 132,
        lanes: 128,
        clock_mhz: 1980,
        threads_per_sm: 2048,
        blocks_per_sm: 32,
        registers_per_sm: 65536,
        shared_per_sm: 228 * KIB,
        shared_per_block: 227 * KIB,
        l2_bytes: 60 * MIB,
        dram_gbs: 4800,
        launch_us: 0.55,
    },
    Gpu {
        name: "h100",
        title: "NVIDIA H100 SXM",
        arch: Arch::new(90),
        sms: 132,
        lanes: 128,
        clock_mhz: 1980,
        threads_per_sm: 2048,
        blocks_per_sm: 32,
        registers_per_sm: 65536,
        shared_per_sm: 228 * KIB,
        shared_per_block: 227 * KIB,
        l2_bytes: 50 * MIB,
        dram_gbs: 3350,
        launch_us: 0.55,
    },
    Gpu {
        name: "a100",
        title: "NVIDIA A100 SXM 80 GB",
        arch: Arch::new(80),
        sms: 108,
        lanes: 64,
        clock_mhz: 1410,
        threads_per_sm: 2048,
        blocks_per_sm: 32,
        registers_per_sm: 65536,
        shared_per_sm: 164 * KIB,
        shared_per_block: 163 * KIB,
        l2_bytes: 40 * MIB,
        dram_gbs: 2039,
        launch_us: 0.8,
    },
    Gpu {
        name: "v100",
        title: "NVIDIA V100 SXM2",
        arch: Arch::new(70),
        sms: 80,
        lanes: 64,
        clock_mhz: 1530,
        threads_per_sm: 2048,
        blocks_per_sm: 32,
        registers_per_sm: 65536,
        shared_per_sm: 96 * KIB,
        shared_per_block: 96 * KIB,
        l2_bytes: 6 * MIB,
        dram_gbs: 900,
        launch_us: 1.0,
    },
    Gpu {
        name: "rtx2080ti",
        title: "NVIDIA GeForce RTX 2080 Ti",
        arch: Arch::new(75),
        sms: 68,
        lanes: 64,
        clock_mhz: 1545,
        threads_per_sm: 1024,
        blocks_per_sm: 16,
        registers_per_sm: 65536,
        shared_per_sm: 64 * KIB,
        shared_per_block: 64 * KIB,
        l2_bytes: 11 * MIB / 2,
        dram_gbs: 616,
        launch_us: 1.0,
    },
    Gpu {
        name: "rtx3090",
        title: "NVIDIA GeForce RTX 3090",
        arch: Arch::new(86),
        sms: 82,
        lanes: 128,
        clock_mhz: 1695,
        threads_per_sm: 1536,
        blocks_per_sm: 16,
        registers_per_sm: 65536,
        shared_per_sm: 100 * KIB,
        shared_per_block: 99 * KIB,
        l2_bytes: 6 * MIB,
        dram_gbs: 936,
        launch_us: 0.8,
    },
    Gpu {
        name: "rtx4090",
        title: "NVIDIA GeForce RTX 4090",
        arch: Arch::new(89),
        sms: 128,
        lanes: 128,
        clock_mhz: 2520,
        threads_per_sm: 1536,
        blocks_per_sm: 24,
        registers_per_sm: 65536,
        shared_per_sm: 100 * KIB,
        shared_per_block: 99 * KIB,
        l2_bytes: 72 * MIB,
        dram_gbs: 1008,
        launch_us: 0.6,
    },
];

/// A GPU that the table does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no GPU named `{name}`; {}known are {}", .nearest.map(|known| format!("did you mean `{known}`? ")).unwrap_or_default(), names())]
pub struct UnknownGpu {
    name: String,
    nearest: Option<&'static str>,
}

fn names() -> String {
    let names: Vec<_> = GPUS.iter().map(|gpu| gpu.name).collect();
    names.join(", ")
}

/// The GPU of a name.
///
/// # Errors
/// [`UnknownGpu`] names the nearest and all known ones.
pub fn gpu(name: &str) -> Result<&'static Gpu, UnknownGpu> {
    GPUS.iter()
        .find(|gpu| gpu.name == name)
        .ok_or_else(|| UnknownGpu {
            name: name.to_owned(),
            nearest: nearest(name, GPUS.iter().map(|gpu| gpu.name)),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_gpu_is_guessed() {
        let error = gpu("h20").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no GPU named `h20`; did you mean `h200`? known are h200, h100, a100, v100, rtx2080ti, rtx3090, rtx4090"
        );
        assert_eq!(gpu(DEFAULT_GPU).unwrap().sms, 132);
    }
}
