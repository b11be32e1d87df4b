//! `whitepaper`: NVIDIA Ada GPU Architecture, 2022, appendix A.

use crate::gpu::capability::{CC_89, MIB};
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "rtx4090",
    title: "NVIDIA GeForce RTX 4090",
    device_name: "RTX 4090",
    sms: 128,           // whitepaper
    clock_mhz: 2520,    // whitepaper
    l2_bytes: 72 * MIB, // whitepaper; the whole chip has 96 MiB
    dram_gbs: 1008,     // whitepaper
    launch_us: 0.6,     // estimate by generation and clock
    published: Published {
        fp32_tflops: 82.6,    // whitepaper
        tensor_tflops: 165.2, // whitepaper
    },
    ..CC_89
};
