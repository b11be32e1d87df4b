//! NVIDIA Turing GPU Architecture, 2018, reference board (the Founders Edition has 1635 MHz): all values,
//! 13.4 TFLOP/s.

use crate::gpu::{Gpu, Published};
use crate::gpu::capability::CC_75;

pub(super) const GPU: Gpu = Gpu {
    name: "rtx2080ti",
    title: "NVIDIA GeForce RTX 2080 Ti",
    device_name: "RTX 2080 Ti",
    sms: 68,
    clock_mhz: 1545,
    l2_bytes: 5632 * 1024,
    dram_gbs: 616,
    launch_us: 1.0,
    published: Published {
        fp32_tflops: 13.4,
        tensor_tflops: 53.8,
    },
    paper_candidate_fraction: 0.15,
    ..CC_75
};
