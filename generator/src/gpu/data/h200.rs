//! `datasheet`: NVIDIA H200 Tensor Core GPU, 2023. `driver`: attributes of the device, driver 580.

use crate::gpu::capability::{CC_90, MIB};
use crate::gpu::{Gpu, Published, Sustained};

pub(super) const GPU: Gpu = Gpu {
    name: "h200",
    title: "NVIDIA H200 SXM",
    device_name: "H200",
    sms: 132,        // driver
    clock_mhz: 1980, // driver
    // Measured: `cudaOccupancyMaxActiveClusters`.
    resident_clusters: Some([66.0, 39.0, 30.0, 22.0, 17.0, 15.0, 15.0]),
    l2_bytes: 60 * MIB, // driver
    dram_gbs: 4800, // datasheet; the driver's 6016 bits at 3201 MHz, two transfers per clock, are 4814
    // Measured (docs/how-it-works.md); the rates of the tensor cores by wgmma from operands that stay in shared memory.
    sustained: Some(Sustained {
        tflops: 51.0,
        split_tflops: 252.0,
        half_tflops: 858.0,
        dram_gbs: 4300,
        best_dram_gbs: 4660,
    }),
    launch_us: 0.55, // measured
    published: Published {
        fp32_tflops: 67.0,    // datasheet
        tensor_tflops: 989.4, // as H100; the datasheet has 1979 with sparsity
    },
    ..CC_90
};
