//! NVIDIA RTX Blackwell GPU Architecture, 2025: all values, 104.8 TFLOP/s. L2: driver, 96 MiB of the
//! chip's 128.

use crate::gpu::{Gpu, Published};
use crate::gpu::capability::{CC_120, MIB};

pub(super) const GPU: Gpu = Gpu {
    name: "rtx5090",
    title: "NVIDIA GeForce RTX 5090",
    device_name: "RTX 5090",
    sms: 170,
    clock_mhz: 2407,
    l2_bytes: 96 * MIB,
    dram_gbs: 1792,
    launch_us: 0.6,
    published: Published {
        fp32_tflops: 104.8,
        tensor_tflops: 209.5,
    },
    ..CC_120
};
