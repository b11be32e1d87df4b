//! NVIDIA Ada GPU Architecture, 2022: all values, 82.6 TFLOP/s. L2: driver, 72 MiB of the chip's 96.

use crate::gpu::{Gpu, Published};
use crate::gpu::capability::{CC_89, MIB};

pub(super) const GPU: Gpu = Gpu {
    name: "rtx4090",
    title: "NVIDIA GeForce RTX 4090",
    device_name: "RTX 4090",
    sms: 128,
    clock_mhz: 2520,
    l2_bytes: 72 * MIB,
    dram_gbs: 1008,
    launch_us: 0.6,
    published: Published {
        fp32_tflops: 82.6,
        tensor_tflops: 165.2,
    },
    ..CC_89
};
