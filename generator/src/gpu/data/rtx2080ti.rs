//! `whitepaper`: NVIDIA Turing GPU Architecture, 2018, reference board; the Founders Edition has 1635 MHz.

use crate::gpu::capability::CC_75;
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "rtx2080ti",
    title: "NVIDIA GeForce RTX 2080 Ti",
    device_name: "RTX 2080 Ti",
    sms: 68,               // whitepaper
    clock_mhz: 1545,       // whitepaper
    l2_bytes: 5632 * 1024, // whitepaper
    dram_gbs: 616,         // whitepaper
    launch_us: 1.0,        // estimate by generation and clock
    published: Published {
        fp32_tflops: 13.4,   // whitepaper
        tensor_tflops: 53.8, // whitepaper; 107.6 with fp16 accumulation
    },
    paper_candidate_fraction: 0.15, // TDC paper, section 5.5
    ..CC_75
};
