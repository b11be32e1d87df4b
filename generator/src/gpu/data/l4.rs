//! `datasheet`: NVIDIA L4, 2023. `driver`: `deviceQuery`.

use crate::gpu::capability::{CC_89, MIB};
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "l4",
    title: "NVIDIA L4",
    device_name: "L4",
    tensor_flops: 1024, // derived from the published rate
    sms: 58,            // driver
    clock_mhz: 2040,    // driver
    l2_bytes: 48 * MIB, // driver
    dram_gbs: 300,      // datasheet, driver
    launch_us: 0.7,     // estimate by generation and clock
    published: Published {
        fp32_tflops: 30.3,    // datasheet
        tensor_tflops: 121.0, // datasheet: 242 with sparsity
    },
    ..CC_89
};
