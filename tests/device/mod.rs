//! The devices of the numeric tests.

use tdc_generator::compile::nvrtc::Options;
use tdc_generator::compile::toolkit::Toolkit;
use tdc_generator::plan::PlannedUnit;
use tdc_generator::verify::{CpuDevice, Device, GpuDevice};

/// The CPU emulation with the kernels of all units.
pub fn cpu(units: &[PlannedUnit]) -> Box<dyn Device> {
    Box::new(CpuDevice::new(units).unwrap_or_else(|error| panic!("{error}")))
}

/// The local GPU with the kernels of all units.
pub fn gpu_here(units: &[PlannedUnit]) -> Box<dyn Device> {
    let mut device = GpuDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    let compiler = Toolkit::find()
        .compiler(Options::default())
        .unwrap_or_else(|error| panic!("{error}"));
    device
        .load(units, &compiler)
        .unwrap_or_else(|error| panic!("{error}"));
    Box::new(device)
}
