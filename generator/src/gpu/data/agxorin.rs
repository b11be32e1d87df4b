//! Jetson AGX Orin 64 GB in its fastest power mode (MAXN). Its driver name, `Orin`, is also that of the Orin NX and Nano, which have
//! fewer SMs.
//!
//! `brief`: NVIDIA Jetson AGX Orin Series Technical Brief, v1.2, 2022. `driver`: `deviceQuery`.

use crate::gpu::capability::{CC_87, MIB};
use crate::gpu::{Gpu, Published};

pub(super) const GPU: Gpu = Gpu {
    name: "agxorin",
    title: "NVIDIA Jetson AGX Orin 64 GB",
    device_name: "Orin",
    sms: 16,           // brief: 2048 lanes; driver
    clock_mhz: 1300,   // brief, driver
    l2_bytes: 4 * MIB, // brief, driver
    dram_gbs: 205,     // brief: 204.8, shared with the CPU
    launch_us: 0.9,    // estimate: that of the A100 by clock
    published: Published {
        fp32_tflops: 5.3, // brief
        // Derived: the brief has 170 TOP/s for int8 with sparsity; fp16 is a quarter of that without, as in the A100.
        tensor_tflops: 42.5,
    },
    ..CC_87
};
