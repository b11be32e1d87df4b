//! Properties that are the same for all GPUs of a compute capability.

use super::{Gpu, Published};
use tdc_runtime::Arch;

pub(super) const KIB: u32 = 1024;
pub(super) const MIB: u64 = 1024 * 1024;

/// Values that most compute capabilities have in common; those of single products are not set.
const CC: Gpu = Gpu {
    name: "",
    title: "",
    device_name: "",
    arch: Arch::new(0),
    sms: 0,
    fp32_lanes: 128,
    tensor_flops: 0,
    clock_mhz: 0,
    base_clock_mhz: None,
    memory_latency: 466, // measured for 8.0: Luo et al.; elsewhere an estimate
    threads_per_sm: 2048,
    blocks_per_sm: 32,
    registers_per_sm: 64 * 1024,
    shared_per_sm: 0,
    shared_per_block: 0,
    shared_reserved: KIB,
    resident_clusters: None,
    l2_bytes: 0,
    dram_gbs: 0,
    sustained: None,
    launch_us: 0.0,
    published: Published {
        fp32_tflops: 0.0,
        tensor_tflops: 0.0,
    },
    paper_candidate_fraction: 0.05,
    calibrated: None,
};

// Threads, blocks, registers and shared memory: CUDA C++ Programming Guide, "Technical Specifications per
// Compute Capability" (12.9 for 6.1 and 7.0, 13.0 for the others); `cuda::arch_traits` of CCCL has the same
// numbers and the KiB that is reserved since 8.0. 9.0 agrees with the attributes of an H200.
//
// Lanes: the guide, "Arithmetic Instructions", fp32 multiply-adds per clock and SM.
//
// Tensor cores: fp16 with fp32 accumulation, without sparsity, from the architecture's whitepaper. GeForce
// GPUs from 7.5 on have half of the rate with fp16 accumulation; it is stated for 7.5, 8.6, 8.9 and 12.0, and
// other products with these capabilities state twice as much. A test compares the rates with the published
// ones of each GPU.
//
// Memory latency: see `Gpu::memory_latency`.
pub(super) const CC_61: Gpu = Gpu {
    arch: Arch::new(61),
    memory_latency: 258, // measured: stride-fixed paper, table 1
    shared_per_sm: 96 * KIB,
    shared_per_block: 48 * KIB,
    shared_reserved: 0,
    ..CC
};
pub(super) const CC_70: Gpu = Gpu {
    arch: Arch::new(70),
    fp32_lanes: 64,
    tensor_flops: 1024, // whitepaper: 8 tensor cores, 64 multiply-adds each
    shared_per_sm: 96 * KIB,
    shared_per_block: 96 * KIB,
    shared_reserved: 0,
    ..CC
};
pub(super) const CC_75: Gpu = Gpu {
    arch: Arch::new(75),
    fp32_lanes: 64,
    tensor_flops: 512, // half of the whitepaper's 8 tensor cores, 64 multiply-adds each
    threads_per_sm: 1024,
    blocks_per_sm: 16,
    shared_per_sm: 64 * KIB,
    shared_per_block: 64 * KIB,
    shared_reserved: 0,
    ..CC
};
pub(super) const CC_80: Gpu = Gpu {
    arch: Arch::new(80),
    fp32_lanes: 64,
    tensor_flops: 2048, // whitepaper: 4 tensor cores, 256 multiply-adds each
    shared_per_sm: 164 * KIB,
    shared_per_block: 163 * KIB,
    ..CC
};
pub(super) const CC_86: Gpu = Gpu {
    arch: Arch::new(86),
    tensor_flops: 512, // half of the whitepaper's 4 tensor cores, 128 multiply-adds each
    threads_per_sm: 1536,
    blocks_per_sm: 16,
    shared_per_sm: 100 * KIB,
    shared_per_block: 99 * KIB,
    ..CC
};
pub(super) const CC_87: Gpu = Gpu {
    arch: Arch::new(87),
    // Derived: a quarter of the published int8 rate with sparsity. An Orin Nano reaches 10.9 TFLOP/s in bf16
    // with 8 SMs at 1.02 GHz (github.com/zzc0721/torch-performance-test-data, issue 110), which is more than
    // half of this rate would allow, so fp32 accumulation is not slower.
    tensor_flops: 2048,
    shared_per_sm: 164 * KIB,
    shared_per_block: 163 * KIB,
    ..CC_86
};
pub(super) const CC_89: Gpu = Gpu {
    arch: Arch::new(89),
    memory_latency: 541, // measured: Luo et al.
    blocks_per_sm: 24,
    ..CC_86
};
pub(super) const CC_90: Gpu = Gpu {
    arch: Arch::new(90),
    tensor_flops: 4096,  // whitepaper: 4 tensor cores, 512 multiply-adds each
    memory_latency: 479, // measured: Luo et al.
    shared_per_sm: 228 * KIB,
    shared_per_block: 227 * KIB,
    ..CC
};
pub(super) const CC_100: Gpu = Gpu {
    arch: Arch::new(100),
    tensor_flops: 8192, // derived: 2250 TFLOP/s of a B200 are 148 SMs at 1.86 GHz
    ..CC_90
};
pub(super) const CC_120: Gpu = Gpu {
    arch: Arch::new(120),
    ..CC_89
};
