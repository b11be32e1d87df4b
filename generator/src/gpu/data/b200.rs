//! Driver: 148 SMs, L2 129536 KiB (Blackwell Tuning Guide: 126 MB), clock at most 1965 MHz. Bandwidth:
//! derived from the driver's 7680 bits at 3996 MHz, two transfers per clock; the HGX B200 datasheet has up
//! to 8 TB/s, and 600 TFLOP/s for eight GPUs, 75 each (the technical brief of 2024: 80).

use crate::gpu::{Gpu, Published};
use crate::gpu::capability::CC_100;

pub(super) const GPU: Gpu = Gpu {
    name: "b200",
    title: "NVIDIA B200 SXM",
    device_name: "B200",
    sms: 148,
    clock_mhz: 1965,
    l2_bytes: 129_536 * 1024,
    dram_gbs: 7672,
    launch_us: 0.55,
    published: Published {
        fp32_tflops: 75.0,
        tensor_tflops: 2250.0,
    },
    ..CC_100
};
