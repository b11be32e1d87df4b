//! NVIDIA H100 Tensor Core GPU Architecture, 2022, SXM5: SMs, L2, 66.9 TFLOP/s. Clock: driver. Bandwidth:
//! H100 datasheet, 3.35 TB/s.

use crate::gpu::{Gpu, Published};
use crate::gpu::capability::{CC_90, MIB};

pub(super) const GPU: Gpu = Gpu {
    name: "h100",
    title: "NVIDIA H100 SXM",
    device_name: "H100",
    sms: 132,
    clock_mhz: 1980,
    l2_bytes: 50 * MIB,
    dram_gbs: 3350,
    launch_us: 0.55,
    published: Published {
        fp32_tflops: 66.9,
        tensor_tflops: 989.4,
    },
    ..CC_90
};
