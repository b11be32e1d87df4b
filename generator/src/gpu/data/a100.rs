//! NVIDIA A100 Tensor Core GPU Architecture, 2020: SMs, clock, L2, 19.5 TFLOP/s. Bandwidth: 80 GB
//! datasheet.

use crate::gpu::{Gpu, Published};
use crate::gpu::capability::{CC_80, MIB};

pub(super) const GPU: Gpu = Gpu {
    name: "a100",
    title: "NVIDIA A100 SXM 80 GB",
    device_name: "A100",
    sms: 108,
    clock_mhz: 1410,
    l2_bytes: 40 * MIB,
    dram_gbs: 2039,
    launch_us: 0.8,
    published: Published {
        fp32_tflops: 19.5,
        tensor_tflops: 312.0,
    },
    ..CC_80
};
