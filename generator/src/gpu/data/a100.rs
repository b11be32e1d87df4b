//! `whitepaper`: NVIDIA A100 Tensor Core GPU Architecture, 2020. `datasheet`: NVIDIA A100 Tensor Core GPU, 80 GB SXM.

use crate::gpu::capability::{CC_80, MIB};
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "a100",
    title: "NVIDIA A100 SXM 80 GB",
    device_name: "A100",
    sms: 108,           // whitepaper
    clock_mhz: 1410,    // whitepaper
    l2_bytes: 40 * MIB, // whitepaper
    dram_gbs: 2039,     // datasheet
    launch_us: 0.8,     // estimate by generation and clock
    published: Published {
        fp32_tflops: 19.5,    // whitepaper
        tensor_tflops: 312.0, // whitepaper
    },
    ..CC_80
};
