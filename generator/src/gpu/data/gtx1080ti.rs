//! NVIDIA GeForce GTX 1080 Ti specifications, 2017: 3584 lanes, clock, 484 GB/s, 11.3 TFLOP/s. SMs, L2:
//! driver.

use crate::gpu::{Gpu, Published};
use crate::gpu::capability::CC_61;

pub(super) const GPU: Gpu = Gpu {
    name: "gtx1080ti",
    title: "NVIDIA GeForce GTX 1080 Ti",
    device_name: "GTX 1080 Ti",
    sms: 28,
    clock_mhz: 1582,
    base_clock_mhz: Some(1480),
    l2_bytes: 2816 * 1024,
    dram_gbs: 484,
    launch_us: 1.5,
    published: Published {
        fp32_tflops: 11.3,
        tensor_tflops: 0.0,
    },
    ..CC_61
};
