//! NVIDIA Ampere GA102 GPU Architecture, 2020: all values, 35.6 TFLOP/s.

use crate::gpu::{Gpu, Published};
use crate::gpu::capability::{CC_86, MIB};

pub(super) const GPU: Gpu = Gpu {
    name: "rtx3090",
    title: "NVIDIA GeForce RTX 3090",
    device_name: "RTX 3090",
    sms: 82,
    clock_mhz: 1695,
    l2_bytes: 6 * MIB,
    dram_gbs: 936,
    launch_us: 0.8,
    published: Published {
        fp32_tflops: 35.6,
        tensor_tflops: 71.0,
    },
    ..CC_86
};
