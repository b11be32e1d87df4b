//! Measuring on the GPU that is there.

use super::{Measure, MeasureError, Timing};
use crate::compile::{CompilerVersion, Image};
use crate::gpu::{Gpu, gpu_for_device};
use crate::plan::{Environment, PlannedUnit};
use crate::verify::{CheckFailure, Device, GpuDevice, GpuDeviceError, ProblemData, time_unit};
use tdc_runtime::Arch;

/// A GPU that measures.
pub struct LocalGpu {
    device: GpuDevice,
}

impl LocalGpu {
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
        gpu_for_device(&self.name())
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
            driver: self.device.driver_version(),
            nvrtc: nvrtc.to_string(),
            generator: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl Measure for LocalGpu {
    fn measure(
        &mut self,
        unit: &PlannedUnit,
        image: &Image,
        data: &ProblemData,
        wants_full: &dyn Fn(f64) -> bool,
    ) -> Result<Timing, MeasureError> {
        let device = &mut self.device;
        let loaded = device.load_image(unit, image);
        let loaded = loaded.map_err(|error| MeasureError::LaunchFailed(error.to_string()));
        let result = loaded.and_then(|()| {
            let times = time_unit(device, unit, data, wants_full);
            times.map_err(|failure| match failure {
                CheckFailure::Device(error) => MeasureError::LaunchFailed(error.to_string()),
                wrong => MeasureError::Wrong(wrong.to_string()),
            })
        });
        let result = match result {
            Err(MeasureError::LaunchFailed(error)) if device.ensure_usable(&error).is_err() => {
                Err(MeasureError::DeviceLost(error))
            }
            result => result,
        };
        device.unload();
        let (quick_us, full_us) = result?;
        Ok(Timing { quick_us, full_us })
    }
}
