//! The variant with 96 GB of HBM3. The driver names it `NVIDIA GH200 480GB` or `NVIDIA GH200 120GB`, after the memory of the CPU. The
//! variant with 144 GB of HBM3e has a bandwidth of 4.9 TB/s and matches this name too.
//!
//! `datasheet`: NVIDIA GH200 Grace Hopper Superchip, 2023. `driver`: `deviceQuery` of both.

use crate::gpu::capability::{CC_90, MIB};
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "gh200",
    title: "NVIDIA GH200 96 GB",
    device_name: "GH200",
    sms: 132,           // driver
    clock_mhz: 1980,    // driver
    l2_bytes: 60 * MIB, // driver
    dram_gbs: 4022, // driver: 6144 bits at 2619 MHz, two transfers per clock; the datasheet rounds to 4 TB/s
    launch_us: 0.55, // estimate: that of the H200
    published: Published {
        fp32_tflops: 67.0,    // datasheet
        tensor_tflops: 989.5, // datasheet: 1979 with sparsity
    },
    ..CC_90
};
