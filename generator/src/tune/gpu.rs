//! Measuring on the GPU that is there.

use super::{Measure, MeasureError, Timing};
use crate::check::{Device, Failure, GpuDevice, GpuDeviceError, ProblemData, time_unit_if};
use crate::compile::{CompilerVersion, Image};
use crate::gpu::{Gpu, gpu_of_device};
use crate::plan::{Environment, PlannedUnit};
use cudarc::driver::sys;
use tdc_runtime::Arch;

/// A GPU that measures.
pub struct GpuMeasure {
    device: GpuDevice,
}

impl GpuMeasure {
    /// Opens the GPU of an ordinal, as [`GpuDevice::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(ordinal: u32) -> Result<Self, GpuDeviceError> {
        let device = GpuDevice::open(ordinal)?;
        Ok(Self { device })
    }

    /// The driver's name of the device.
    pub fn name(&self) -> String {
        self.device.name()
    }

    /// The entry of the GPU table for the device; `None` when there is none.
    pub fn gpu(&self) -> Option<&'static Gpu> {
        gpu_of_device(&self.name())
    }

    /// The architecture to compile for.
    pub fn arch(&self) -> Arch {
        self.device.arch()
    }

    /// What times of this device hold for, which is `gpu` of the table, with kernels of that compiler.
    pub fn environment(&self, gpu: &Gpu, nvrtc: CompilerVersion) -> Environment {
        Environment {
            gpu: gpu.name.to_owned(),
            device: self.name(),
            driver: driver_version(),
            nvrtc: nvrtc.to_string(),
            generator: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl Measure for GpuMeasure {
    fn measure(
        &mut self,
        unit: &PlannedUnit,
        image: &Image,
        data: &ProblemData,
        worth: &dyn Fn(f64) -> bool,
    ) -> Result<Timing, MeasureError> {
        let device = &mut self.device;
        let loaded = device.load_image(unit, image);
        let loaded = loaded.map_err(|error| MeasureError::Refused(error.to_string()));
        let result = loaded.and_then(|()| {
            let times = time_unit_if(device, unit, data, worth);
            times.map_err(|failure| match failure {
                Failure::Device(error) => MeasureError::Refused(error.to_string()),
                wrong => MeasureError::Wrong(wrong.to_string()),
            })
        });
        let result = match result {
            Err(MeasureError::Refused(error)) if device.is_lost() => Err(MeasureError::Lost(error)),
            result => result,
        };
        device.unload();
        let (quick_us, full_us) = result?;
        Ok(Timing { quick_us, full_us })
    }
}

/// The version of the driver's kernel module where the system tells it, else the newest CUDA that the driver knows.
fn driver_version() -> String {
    let told = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    if let Some(version) = module_version(&told) {
        return version.to_owned();
    }
    let mut version = 0;
    // SAFETY: the driver was loaded and initialised when the device was opened; it writes one integer.
    let _ = unsafe { sys::cuDriverGetVersion(&mut version) };
    format!("CUDA {}.{}", version / 1000, version % 1000 / 10)
}

/// The first word that is a number with dots: `580.159.04` of `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64 580.159.04`.
fn module_version(text: &str) -> Option<&str> {
    text.lines()
        .next()?
        .split_whitespace()
        .find(|word| word.contains('.') && word.chars().all(|c| c == '.' || c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_told_by_its_module() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\nGCC version:  gcc 12.3.0\n";
        assert_eq!(module_version(closed), Some("535.54.03"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@host)  1.2\n";
        assert_eq!(module_version(open), Some("580.159.04"));
        assert_eq!(module_version("GCC version"), None);
        assert_eq!(module_version(""), None);
    }
}
