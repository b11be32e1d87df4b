//! `driver`: `deviceQuery`. `datasheet`: NVIDIA HGX B200, of eight GPUs.

use crate::gpu::capability::CC_100;
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "b200",
    title: "NVIDIA B200 SXM",
    device_name: "B200",
    sms: 148,                 // driver
    clock_mhz: 1965,          // driver
    l2_bytes: 129_536 * 1024, // driver; the Blackwell Tuning Guide has 126 MB
    dram_gbs: 7672, // driver: 7680 bits at 3996 MHz, two transfers per clock; the datasheet has up to 8 TB/s
    launch_us: 0.55, // estimate: that of the H200
    published: Published {
        fp32_tflops: 75.0, // datasheet: 600 for eight; the technical brief of 2024 has 80
        tensor_tflops: 2250.0, // datasheet: 36 PFLOP/s with sparsity for eight
    },
    ..CC_100
};
