//! A GPU as a device: kernels compiled by NVRTC, loaded and launched through the CUDA driver.

use super::{Device, DeviceError};
use crate::compile::{CompileError, Compiler, Image, Job, compile_all};
use crate::plan::PlannedUnit;
use crate::render::{RenderError, unit_text};
use cudarc::driver::{DriverError, result, sys};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::num::NonZeroUsize;
use tdc_runtime::{Arch, Launch};
use thiserror::Error;

/// Why kernels cannot be run on a GPU.
#[derive(Debug, Error)]
pub enum GpuDeviceError {
    /// No driver, or no device behind it.
    #[error("no NVIDIA GPU can be used here: {0}; leave `--gpu` out to check on the CPU")]
    NoGpu(String),
    /// A template does not fit its context.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// NVRTC refused the text.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The driver refused.
    #[error("the CUDA driver failed: {0}")]
    Driver(#[from] DriverError),
}

/// The first GPU of this machine with the kernels of several units.
pub struct GpuDevice {
    device: sys::CUdevice,
    title: String,
    /// All work is put here; it takes turns with the default stream.
    pub(crate) stream: sys::CUstream,
    modules: Vec<sys::CUmodule>,
    kernels: HashMap<String, sys::CUfunction>,
    memory: Vec<sys::CUdeviceptr>,
}

impl GpuDevice {
    /// Opens the GPU without kernels.
    ///
    /// # Errors
    /// [`GpuDeviceError::NoGpu`] without driver or device.
    pub fn open() -> Result<Self, GpuDeviceError> {
        // SAFETY: only tries to load the driver's library.
        if !unsafe { sys::is_culib_present() } {
            return Err(GpuDeviceError::NoGpu(
                "the driver's library libcuda was not found".to_owned(),
            ));
        }
        let no_gpu = |error: DriverError| GpuDeviceError::NoGpu(error.to_string());
        result::init().map_err(no_gpu)?;
        let device = result::device::get(0).map_err(no_gpu)?;
        let title = result::device::get_name(device)?;
        // SAFETY: the device was just given by the driver; the context is released when this is dropped.
        let context = unsafe { result::primary_ctx::retain(device) }?;
        let mut opened = Self {
            device,
            title,
            stream: result::stream::null(),
            modules: Vec::new(),
            kernels: HashMap::new(),
            memory: Vec::new(),
        };
        // SAFETY: the context was retained above and lives as long as `opened`.
        unsafe { result::ctx::set_current(context) }?;
        // The default stream cannot be captured.
        opened.stream = result::stream::create(result::stream::StreamKind::Default)?;
        Ok(opened)
    }

    /// The GPU's architecture.
    ///
    /// # Errors
    /// The driver's.
    pub fn arch(&self) -> Result<Arch, GpuDeviceError> {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        // SAFETY: the device was given by the driver.
        let [major, minor] = [MAJOR, MINOR]
            .map(|attribute| unsafe { result::device::get_attribute(self.device, attribute) });
        Ok(Arch::new((10 * major? + minor?) as u16))
    }

    /// Bytes of the level-2 cache.
    ///
    /// # Errors
    /// The driver's.
    pub fn l2_bytes(&self) -> Result<u64, GpuDeviceError> {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
        // SAFETY: the device was given by the driver.
        let bytes = unsafe { result::device::get_attribute(self.device, attribute) }?;
        Ok(u64::from(bytes.unsigned_abs()))
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

    /// As [`load`](Self::load), with a result for each unit: one that the compiler refuses does not keep the others away.
    ///
    /// # Errors
    /// What concerns all units: the driver's, or a template that does not fit its context.
    pub fn load_each(
        &mut self,
        units: &[PlannedUnit],
        compiler: &impl Compiler,
    ) -> Result<Vec<Result<(), GpuDeviceError>>, GpuDeviceError> {
        let arch = self.arch()?;
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

    fn load_image(&mut self, unit: &PlannedUnit, image: &Image) -> Result<(), GpuDeviceError> {
        // SAFETY: the image is a whole cubin made by NVRTC, and the driver copies it.
        let module = unsafe { result::module::load_data(image.cubin.as_ptr().cast()) }?;
        self.modules.push(module);
        for kernel in &unit.kernels {
            let symbol = CString::new(kernel.symbol.as_str())
                .map_err(|error| GpuDeviceError::NoGpu(error.to_string()))?;
            // SAFETY: the module was just loaded and is unloaded only in `unload`.
            let function = unsafe { result::module::get_function(module, symbol) }?;
            self.kernels.insert(kernel.symbol.clone(), function);
        }
        Ok(())
    }

    /// Gives all memory back and forgets all kernels.
    pub fn unload(&mut self) {
        self.free_all();
        self.kernels.clear();
        for module in self.modules.drain(..) {
            // SAFETY: loaded in `load_image`, and nothing runs any more: `free_all` waited.
            let _ = unsafe { result::module::unload(module) };
        }
    }

    /// Waits for all work.
    ///
    /// # Errors
    /// The driver's. After an error of a kernel every later call fails too: the process can do nothing more on this GPU.
    pub fn synchronize(&mut self) -> Result<(), DeviceError> {
        result::ctx::synchronize().map_err(driver)
    }

    /// Whether the device still works after `failure`: what was only refused leaves it as it was.
    ///
    /// # Errors
    /// When it does not, with the failure; then nothing more can be done in this process.
    pub fn survives(&mut self, failure: impl std::fmt::Display) -> Result<(), DeviceError> {
        self.synchronize().map_err(|error| {
            DeviceError(format!(
                "{failure}; nothing more can be done on this GPU in this process: {error}"
            ))
        })
    }

    /// Copies bytes to the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn write_bytes(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the driver checks that the bytes lie in an allocation.
        unsafe { result::memcpy_htod_sync(address, bytes) }.map_err(driver)
    }

    /// Copies bytes from the device, after all work before has ended.
    ///
    /// # Errors
    /// The driver's, and those of the work before.
    pub fn read_bytes(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.synchronize()?;
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: as in `write_bytes`.
        unsafe { result::memcpy_dtoh_sync(bytes, address) }.map_err(driver)
    }

    /// Copies bytes from one place on the device to another that does not overlap it.
    ///
    /// # Errors
    /// The driver's.
    pub fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: as in `write_bytes`.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream) }.map_err(driver)
    }

    /// Sets every byte to 0xff: not-a-number as float and as half.
    ///
    /// # Errors
    /// The driver's.
    pub fn poison(&mut self, address: u64, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: as in `write_bytes`.
        unsafe { result::memset_d8_async(address, 0xff, bytes, self.stream) }.map_err(driver)
    }
}

impl Drop for GpuDevice {
    fn drop(&mut self) {
        self.unload();
        if self.stream != result::stream::null() {
            // SAFETY: created in `open`, and nothing runs any more.
            let _ = unsafe { result::stream::destroy(self.stream) };
        }
        // SAFETY: retained in `open`.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

pub(super) fn driver(error: DriverError) -> DeviceError {
    DeviceError(format!("the CUDA driver failed: {error}"))
}

impl Device for GpuDevice {
    fn name(&self) -> String {
        self.title.clone()
    }

    fn alloc(&mut self, floats: usize) -> Result<u64, DeviceError> {
        // SAFETY: a plain allocation, freed in `free_all`.
        let address = unsafe { result::malloc_sync((4 * floats).max(1)) }.map_err(driver)?;
        self.memory.push(address);
        Ok(address)
    }

    fn free_all(&mut self) {
        // An error of a kernel still running was or will be told by the next copy; memory is freed all the same.
        let _ = result::ctx::synchronize();
        for address in self.memory.drain(..) {
            // SAFETY: allocated in `alloc`, freed once, and no kernel runs.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    fn write(&mut self, address: u64, values: &[f32]) -> Result<(), DeviceError> {
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: the driver checks that the bytes lie in an allocation.
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
        let Some(&function) = self.kernels.get(launch.kernel.as_ref()) else {
            return Err(DeviceError(format!(
                "kernel `{}` was not loaded",
                launch.kernel
            )));
        };
        let mut values = args.to_vec();
        let mut pointers: Vec<*mut c_void> = values
            .iter_mut()
            .map(|value| std::ptr::from_mut(value).cast())
            .collect();
        let tuple = |[x, y, z]: [u32; 3]| (x, y, z);
        // SAFETY: the planner gives a kernel exactly the parameters that its text was rendered with, each of 8 bytes: a
        // pointer or a long long. That the kernel stays inside its memory is what is being checked.
        unsafe {
            result::launch_kernel(
                function,
                tuple(launch.grid),
                tuple(launch.block),
                launch.shared_bytes,
                self.stream,
                &mut pointers,
            )
        }
        .map_err(driver)
    }
}
