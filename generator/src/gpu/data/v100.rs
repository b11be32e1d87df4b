//! `whitepaper`: NVIDIA Tesla V100 GPU Architecture, 2017, SXM2; the whitepaper of the A100 repeats its numbers.

use crate::gpu::capability::{CC_70, MIB};
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "v100",
    title: "NVIDIA V100 SXM2",
    device_name: "V100",
    sms: 80,           // whitepaper
    clock_mhz: 1530,   // whitepaper
    l2_bytes: 6 * MIB, // whitepaper
    dram_gbs: 900,     // whitepaper
    launch_us: 1.0,    // estimate by generation and clock
    published: Published {
        fp32_tflops: 15.7,    // whitepaper
        tensor_tflops: 125.0, // whitepaper
    },
    ..CC_70
};
