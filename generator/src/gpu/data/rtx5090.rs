//! `whitepaper`: NVIDIA RTX Blackwell GPU Architecture, 2025, table 3. `driver`: `deviceQuery`.

use crate::gpu::capability::{CC_120, MIB};
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "rtx5090",
    title: "NVIDIA GeForce RTX 5090",
    device_name: "RTX 5090",
    sms: 170,           // whitepaper, driver
    clock_mhz: 2407,    // whitepaper, driver
    l2_bytes: 96 * MIB, // driver; the whole chip has 128 MiB
    dram_gbs: 1792,     // whitepaper
    launch_us: 0.6,     // estimate by generation and clock
    published: Published {
        fp32_tflops: 104.8,   // whitepaper
        tensor_tflops: 209.5, // whitepaper
    },
    ..CC_120
};
