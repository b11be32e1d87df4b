//! NVIDIA H200 datasheet, 2023: 4.8 TB/s, 67 TFLOP/s. Multiprocessors: driver. L2, clock, launch and sustained
//! rates: measured (docs/design.md), those of the tensor cores by wgmma from operands that stay in shared memory.

use crate::gpu::capability::{CC_90, MIB};
use crate::gpu::{Gpu, Published, Sustained};

pub(super) const GPU: Gpu = Gpu {
    name: "h200",
    title: "NVIDIA H200 SXM",
    device_name: "H200",
    sms: 132,
    clock_mhz: 1980,
    resident_clusters: Some([66.0, 39.0, 30.0, 22.0, 17.0, 15.0, 15.0]),
    l2_bytes: 60 * MIB,
    dram_gbs: 4800,
    sustained: Some(Sustained {
        tflops: 51.0,
        split_tflops: 252.0,
        half_tflops: 858.0,
        dram_gbs: 4300,
        best_dram_gbs: 4660,
    }),
    launch_us: 0.55,
    published: Published {
        fp32_tflops: 67.0,
        tensor_tflops: 989.4,
    },
    ..CC_90
};
