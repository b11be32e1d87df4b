//! Measures on a local GPU.

use super::{Measure, MeasureError, Timing};
use crate::compile::{CompilerVersion, Image};
use crate::gpu::{Gpu, gpu_for_device};
use crate::plan::{Environment, PlannedUnit};
use crate::verify::{CheckFailure, Device, GpuDevice, GpuDeviceError, ProblemData, time_unit};
use tdc_runtime::Arch;

/// A local GPU for measurements.
pub struct LocalGpu {
    device: GpuDevice,
}

impl LocalGpu {
    /// Opens the GPU with a CUDA ordinal.
    ///
    /// # Errors
    /// Those of [`GpuDevice::open`].
    pub fn open(ordinal: u32) -> Result<Self, GpuDeviceError> {
        let device = GpuDevice::open(ordinal)?;
        Ok(Self { device })
    }

    /// The driver's name of the device.
    pub fn name(&self) -> String {
        self.device.name()
    }

    /// The device's entry in the GPU table; `None` if it has none.
    pub fn gpu(&self) -> Option<&'static Gpu> {
        gpu_for_device(&self.name())
    }

    /// The architecture to compile for.
    pub fn arch(&self) -> Arch {
        self.device.arch()
    }

    /// The environment for times of this device (`gpu` in the table) with kernels of the given compiler.
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
