//! `whitepaper`: NVIDIA Ampere GA102 GPU Architecture, 2020.

use crate::gpu::capability::{CC_86, MIB};
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "rtx3090",
    title: "NVIDIA GeForce RTX 3090",
    device_name: "RTX 3090",
    sms: 82,           // whitepaper
    clock_mhz: 1695,   // whitepaper
    l2_bytes: 6 * MIB, // whitepaper
    dram_gbs: 936,     // whitepaper
    launch_us: 0.8,    // estimate by generation and clock
    published: Published {
        fp32_tflops: 35.6, // whitepaper
        // NVIDIA RTX Blackwell GPU Architecture, 2025, table 3; the whitepaper rounds to 71.
        tensor_tflops: 71.2,
    },
    ..CC_86
};
