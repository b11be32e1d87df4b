//! `whitepaper`: NVIDIA H100 Tensor Core GPU Architecture, 2022, SXM5. `datasheet`: NVIDIA H100 Tensor Core GPU. `driver`: `deviceQuery`.

use crate::gpu::capability::{CC_90, MIB};
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "h100",
    title: "NVIDIA H100 SXM",
    device_name: "H100",
    sms: 132,           // whitepaper, driver
    clock_mhz: 1980,    // driver
    l2_bytes: 50 * MIB, // whitepaper, driver
    dram_gbs: 3350, // datasheet; the driver's 5120 bits at 2619 MHz, two transfers per clock, are 3352
    launch_us: 0.55, // estimate: that of the H200
    published: Published {
        fp32_tflops: 66.9,    // whitepaper
        tensor_tflops: 989.4, // whitepaper, at 1830 MHz
    },
    ..CC_90
};
