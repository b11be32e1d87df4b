//! NVIDIA L4 datasheet, 2023: 300 GB/s, 30.3 TFLOP/s. SMs, clock and L2: driver.

use crate::gpu::{Gpu, Published};
use crate::gpu::capability::{CC_89, MIB};

pub(super) const GPU: Gpu = Gpu {
    name: "l4",
    title: "NVIDIA L4",
    device_name: "L4",
    tensor_flops: 1024,
    sms: 58,
    clock_mhz: 2040,
    l2_bytes: 48 * MIB,
    dram_gbs: 300,
    launch_us: 0.7,
    published: Published {
        fp32_tflops: 30.3,
        tensor_tflops: 121.0,
    },
    ..CC_89
};
