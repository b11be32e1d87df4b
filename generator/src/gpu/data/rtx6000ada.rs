//! `datasheet`: NVIDIA RTX 6000 Ada Generation, 2022. `whitepaper`: NVIDIA RTX PRO Blackwell GPU Architecture, 2025, table 4, which
//! compares it with its successor.

use crate::gpu::capability::{CC_89, MIB};
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "rtx6000ada",
    title: "NVIDIA RTX 6000 Ada Generation",
    device_name: "RTX 6000 Ada",
    tensor_flops: 1024, // derived from the published rate
    sms: 142,           // datasheet: 18176 lanes
    clock_mhz: 2505,    // derived from the published fp32 rate; GPU databases have the same
    l2_bytes: 96 * MIB, // as the L40S, which has the same chip and as many SMs; GPU databases have the same
    dram_gbs: 960,      // datasheet
    launch_us: 0.6,     // estimate: that of the L40S
    published: Published {
        fp32_tflops: 91.1,    // datasheet
        tensor_tflops: 364.0, // whitepaper
    },
    ..CC_89
};
