//! NVIDIA Tesla V100 GPU Architecture, 2017, SXM2: all values, 15.7 TFLOP/s.

use crate::gpu::{Gpu, Published};
use crate::gpu::capability::{CC_70, MIB};

pub(super) const GPU: Gpu = Gpu {
    name: "v100",
    title: "NVIDIA V100 SXM2",
    device_name: "V100",
    sms: 80,
    clock_mhz: 1530,
    l2_bytes: 6 * MIB,
    dram_gbs: 900,
    launch_us: 1.0,
    published: Published {
        fp32_tflops: 15.7,
        tensor_tflops: 125.0,
    },
    ..CC_70
};
