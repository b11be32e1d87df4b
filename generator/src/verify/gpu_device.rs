//! A GPU as a device: kernels compiled by NVRTC, loaded and launched through the CUDA driver.

use super::{Device, DeviceError};
use crate::compile::{CompileError, Compiler, Image, Job, compile_all};
use crate::plan::PlannedUnit;
use crate::render::{RenderError, unit_text};
use cudarc::driver::{DriverError, result, sys};
use std::collections::HashMap;
use std::ffi::CString;
use std::num::NonZeroUsize;
use tdc_runtime::cuda::LoadedLaunch;
use tdc_runtime::{Arch, Launch, Step};
use thiserror::Error;

/// Why kernels cannot be run on a GPU.
#[derive(Debug, Error)]
pub enum GpuDeviceError {
    /// No driver, or no device.
    #[error(
        "no usable NVIDIA GPU: {0}; use a machine with a GPU and its driver, or check on the CPU: `tdc-gen verify` without `--local-gpu`"
    )]
    NoGpu(String),
    /// The ordinal is not less than the number of devices.
    #[error(
        "no GPU with ordinal {ordinal}: the driver reports {count} in total; choose a lower ordinal (the first is 0), or check CUDA_VISIBLE_DEVICES"
    )]
    NoSuchDevice {
        /// The requested ordinal.
        ordinal: u32,
        /// The number of devices.
        count: i32,
    },
    /// A template does not match its context.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// NVRTC reports errors in the source.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A driver error.
    #[error("CUDA driver error: {0}")]
    Driver(#[from] DriverError),
}

/// A local GPU with the kernels of several units.
pub struct GpuDevice {
    device: sys::CUdevice,
    /// The architecture that kernels are compiled for.
    arch: Arch,
    device_name: String,
    /// The stream of all work; it is ordered with the default stream.
    pub(crate) stream: sys::CUstream,
    modules: Vec<sys::CUmodule>,
    launches: HashMap<String, LoadedLaunch>,
    memory: Vec<sys::CUdeviceptr>,
}

impl GpuDevice {
    /// Opens a GPU, without kernels. `ordinal` counts the devices visible to this process, from 0.
    ///
    /// # Errors
    /// [`GpuDeviceError::NoGpu`] without a driver or device, [`GpuDeviceError::NoSuchDevice`] if the ordinal
    /// is too large.
    pub fn open(ordinal: u32) -> Result<Self, GpuDeviceError> {
        // SAFETY: only tries to load the driver's library.
        if !unsafe { sys::is_culib_present() } {
            return Err(GpuDeviceError::NoGpu(
                "the driver library libcuda was not found".to_owned(),
            ));
        }
        let no_gpu = |error: DriverError| GpuDeviceError::NoGpu(error.to_string());
        result::init().map_err(no_gpu)?;
        let count = result::device::get_count().map_err(no_gpu)?;
        let index = i32::try_from(ordinal).unwrap_or(i32::MAX);
        if count > 0 && index >= count {
            return Err(GpuDeviceError::NoSuchDevice { ordinal, count });
        }
        let device = result::device::get(index).map_err(no_gpu)?;
        let device_name = result::device::get_name(device)?;
        let arch = arch_of(device)?;
        // SAFETY: the driver has just returned the device; the context is released when this is dropped.
        let context = unsafe { result::primary_ctx::retain(device) }?;
        let mut opened = Self {
            device,
            arch,
            device_name,
            stream: result::stream::null(),
            modules: Vec::new(),
            launches: HashMap::new(),
            memory: Vec::new(),
        };
        // SAFETY: the context was retained above and exists as long as `opened`.
        unsafe { result::ctx::set_current(context) }?;
        // The default stream cannot be captured.
        opened.stream = result::stream::create(result::stream::StreamKind::Default)?;
        Ok(opened)
    }

    /// The GPU's architecture.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Size of L2 in bytes.
    ///
    /// # Errors
    /// Driver errors.
    pub fn l2_bytes(&self) -> Result<u64, GpuDeviceError> {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
        // SAFETY: the driver has returned the device.
        let bytes = unsafe { result::device::get_attribute(self.device, attribute) }?;
        Ok(u64::from(bytes.unsigned_abs()))
    }

    /// The version of the driver's kernel module if the system reports it, else the newest CUDA version that
    /// the driver supports.
    pub fn driver_version(&self) -> String {
        let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        if let Some(version) = module_version(&text) {
            return version.to_owned();
        }
        let mut version = 0;
        // SAFETY: the driver was loaded and initialised when the device was opened; it writes one integer.
        let _ = unsafe { sys::cuDriverGetVersion(&mut version) };
        format!("CUDA {}.{}", version / 1000, version % 1000 / 10)
    }

    /// Compiles the kernels of all units for this GPU and loads them.
    ///
    /// # Errors
    /// [`GpuDeviceError`] with the compiler's log.
    pub fn load(
        &mut self,
        units: &[PlannedUnit],
        compiler: &impl Compiler,
    ) -> Result<(), GpuDeviceError> {
        self.load_each(units, compiler)?.into_iter().collect()
    }

    /// As [`load`](Self::load), with a result for each unit: a unit that does not compile does not affect the
    /// others.
    ///
    /// # Errors
    /// Errors that concern all units: driver errors, or a template that does not match its context.
    pub fn load_each(
        &mut self,
        units: &[PlannedUnit],
        compiler: &impl Compiler,
    ) -> Result<Vec<Result<(), GpuDeviceError>>, GpuDeviceError> {
        let arch = self.arch;
        let texts = units
            .iter()
            .map(unit_text)
            .collect::<Result<Vec<_>, RenderError>>()?;
        let jobs: Vec<_> = units
            .iter()
            .zip(&texts)
            .map(|(unit, source)| Job {
                source,
                name: &unit.unit.name,
                arch,
            })
            .collect();
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let images = compile_all(compiler, &jobs, threads, |_, _| ());
        let loaded = units.iter().zip(images);
        Ok(loaded
            .map(|(unit, image)| self.load_image(unit, &image?))
            .collect())
    }

    /// Loads the kernels of one unit, compiled for this GPU.
    ///
    /// # Errors
    /// Driver errors.
    pub fn load_image(&mut self, unit: &PlannedUnit, image: &Image) -> Result<(), GpuDeviceError> {
        // SAFETY: the image is a complete cubin from NVRTC, and the driver copies it.
        let module = unsafe { result::module::load_data(image.cubin.as_ptr().cast()) }?;
        self.modules.push(module);
        for step in unit.variant().steps.iter() {
            let Step::Launch(launch) = step else {
                continue;
            };
            let symbol = CString::new(launch.kernel.as_bytes())
                .map_err(|error| GpuDeviceError::NoGpu(error.to_string()))?;
            // SAFETY: the module has just been loaded; its functions are dropped before it is unloaded.
            let loaded = unsafe {
                let function = result::module::get_function(module, symbol)?;
                LoadedLaunch::new(function, launch, self.arch)?
            };
            self.launches.insert(launch.kernel.to_string(), loaded);
        }
        Ok(())
    }

    /// Waits until the device is idle, then unloads all kernels.
    pub fn unload(&mut self) {
        // An error of a running kernel is reported by a copy; here it only matters that the kernel has ended.
        let _ = result::ctx::synchronize();
        self.launches.clear();
        for module in self.modules.drain(..) {
            // SAFETY: loaded in `load_image`, its functions have been dropped, and nothing is running.
            let _ = unsafe { result::module::unload(module) };
        }
    }

    /// Waits for all work.
    ///
    /// # Errors
    /// Driver errors. After an error of a kernel all later calls fail too: this process can no longer use the
    /// GPU.
    pub fn synchronize(&mut self) -> Result<(), DeviceError> {
        result::ctx::synchronize().map_err(driver)
    }

    /// Checks that the device still works after `failure`: a call that was only rejected does no harm.
    ///
    /// # Errors
    /// If it does not, with the failure; this process can no longer use the GPU then.
    pub fn ensure_usable(&mut self, failure: impl std::fmt::Display) -> Result<(), DeviceError> {
        self.synchronize().map_err(|error| {
            DeviceError(format!(
                "{failure}; the CUDA context is unusable, restart the process: {error}"
            ))
        })
    }

    /// Copies bytes to the device.
    ///
    /// # Errors
    /// Driver errors.
    pub fn write_bytes(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the driver checks that the bytes are inside an allocation.
        unsafe { result::memcpy_htod_sync(address, bytes) }.map_err(driver)
    }

    /// Copies bytes from the device, after all earlier work has ended.
    ///
    /// # Errors
    /// Driver errors, those of the earlier work included.
    pub fn read_bytes(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.synchronize()?;
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: as in `write_bytes`.
        unsafe { result::memcpy_dtoh_sync(bytes, address) }.map_err(driver)
    }

    /// Copies bytes on the device; the ranges do not overlap.
    ///
    /// # Errors
    /// Driver errors.
    pub fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: as in `write_bytes`.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream) }.map_err(driver)
    }

    /// Sets every byte to 0xff: NaN as fp32 and as fp16.
    ///
    /// # Errors
    /// Driver errors.
    pub fn poison(&mut self, address: u64, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: as in `write_bytes`.
        unsafe { result::memset_d8_async(address, 0xff, bytes, self.stream) }.map_err(driver)
    }
}

/// The architecture of a device.
fn arch_of(device: sys::CUdevice) -> Result<Arch, DriverError> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    // SAFETY: the driver has returned the device.
    let [major, minor] =
        [MAJOR, MINOR].map(|attribute| unsafe { result::device::get_attribute(device, attribute) });
    Ok(Arch::new((10 * major? + minor?) as u16))
}

/// The first word that consists of numbers and dots: `580.159.04` of `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64 580.159.04`.
fn module_version(text: &str) -> Option<&str> {
    text.lines()
        .next()?
        .split_whitespace()
        .find(|word| word.contains('.') && word.chars().all(|c| c == '.' || c.is_ascii_digit()))
}

impl Drop for GpuDevice {
    fn drop(&mut self) {
        self.free_all();
        self.unload();
        if self.stream != result::stream::null() {
            // SAFETY: created in `open`, and nothing is running.
            let _ = unsafe { result::stream::destroy(self.stream) };
        }
        // SAFETY: retained in `open`.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

pub(super) fn driver(error: DriverError) -> DeviceError {
    DeviceError(format!("CUDA driver error: {error}"))
}

impl Device for GpuDevice {
    fn name(&self) -> String {
        self.device_name.clone()
    }

    fn alloc(&mut self, floats: usize) -> Result<u64, DeviceError> {
        // SAFETY: a plain allocation, freed in `free_all`.
        let address = unsafe { result::malloc_sync((4 * floats).max(1)) }.map_err(driver)?;
        self.memory.push(address);
        Ok(address)
    }

    fn free_all(&mut self) {
        // An error of a running kernel is reported by a copy; memory is freed in any case.
        let _ = result::ctx::synchronize();
        for address in self.memory.drain(..) {
            // SAFETY: allocated in `alloc`, freed once, and no kernel is running.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    fn write(&mut self, address: u64, values: &[f32]) -> Result<(), DeviceError> {
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: the driver checks that the bytes are inside an allocation.
        unsafe { result::memcpy_htod_sync(address, values) }.map_err(driver)
    }

    fn read(&mut self, address: u64, values: &mut [f32]) -> Result<(), DeviceError> {
        if values.is_empty() {
            return Ok(());
        }
        result::ctx::synchronize().map_err(driver)?;
        // SAFETY: as in `write`.
        unsafe { result::memcpy_dtoh_sync(values, address) }.map_err(driver)
    }

    fn zero(&mut self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: as in `write`.
        unsafe { result::memset_d8_async(address, 0, bytes as usize, self.stream) }.map_err(driver)
    }

    fn launch(&mut self, launch: &Launch, args: &[u64]) -> Result<(), DeviceError> {
        let Some(loaded) = self.launches.get(launch.kernel.as_ref()) else {
            return Err(DeviceError(format!(
                "kernel `{}` is not loaded",
                launch.kernel
            )));
        };
        // SAFETY: the planner passes exactly the parameters with which the kernel's source was rendered; the
        // stream belongs to the context that `open` made current. Whether the kernel stays inside its memory
        // is what the check is for.
        unsafe { loaded.enqueue(self.stream, args) }.map_err(driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_version_is_read_from_its_module() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\nGCC version:  gcc 12.3.0\n";
        assert_eq!(module_version(closed), Some("535.54.03"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@host)  1.2\n";
        assert_eq!(module_version(open), Some("580.159.04"));
        assert_eq!(module_version("GCC version"), None);
        assert_eq!(module_version(""), None);
    }
}
