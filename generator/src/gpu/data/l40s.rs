//! NVIDIA L40S datasheet, 2023: 18176 lanes, 864 GB/s, 91.6 TFLOP/s. Clock and L2: driver.

use crate::gpu::{Gpu, Published};
use crate::gpu::capability::{CC_89, MIB};

pub(super) const GPU: Gpu = Gpu {
    name: "l40s",
    title: "NVIDIA L40S",
    device_name: "L40S",
    tensor_flops: 1024,
    sms: 142,
    clock_mhz: 2520,
    l2_bytes: 96 * MIB,
    dram_gbs: 864,
    launch_us: 0.6,
    published: Published {
        fp32_tflops: 91.6,
        tensor_tflops: 362.0,
    },
    ..CC_89
};
