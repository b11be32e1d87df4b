//! `datasheet`: NVIDIA L40S, 2023. `driver`: `deviceQuery`.

use crate::gpu::capability::{CC_89, MIB};
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "l40s",
    title: "NVIDIA L40S",
    device_name: "L40S",
    tensor_flops: 1024, // derived from the published rate
    sms: 142,           // datasheet: 18176 lanes; driver
    clock_mhz: 2520,    // driver
    l2_bytes: 96 * MIB, // driver
    dram_gbs: 864,      // datasheet
    launch_us: 0.6,     // estimate by generation and clock
    published: Published {
        fp32_tflops: 91.6,     // datasheet
        tensor_tflops: 362.05, // datasheet
    },
    ..CC_89
};
