//! `whitepaper`: NVIDIA Turing GPU Architecture, 2018, which compares the GTX 1080 Ti with its successor.

use crate::gpu::capability::CC_61;
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "gtx1080ti",
    title: "NVIDIA GeForce GTX 1080 Ti",
    device_name: "GTX 1080 Ti",
    sms: 28,                    // whitepaper
    clock_mhz: 1582,            // whitepaper
    base_clock_mhz: Some(1480), // whitepaper
    l2_bytes: 2816 * 1024,      // whitepaper
    dram_gbs: 484,              // whitepaper
    launch_us: 1.5,             // estimate by generation and clock
    published: Published {
        fp32_tflops: 11.3,  // whitepaper
        tensor_tflops: 0.0, // has none
    },
    ..CC_61
};
