//! Images and launches through the CUDA driver.

use crate::{Arch, Launch};
use cudarc::driver::{CudaContext, DriverError, result, sys};
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// Maximum number of parameters of a kernel.
const MAX_ARGUMENTS: usize = 16;

/// An image loaded into a context, unloaded when dropped.
#[derive(Debug)]
pub struct Module {
    context: Arc<CudaContext>,
    handle: sys::CUmodule,
}

// SAFETY: a module is a handle that any thread may use; it is unloaded once, when the last owner drops it.
unsafe impl Send for Module {}
// SAFETY: as above; no method changes it.
unsafe impl Sync for Module {}

impl Module {
    /// Loads a cubin, or PTX that ends with a NUL.
    ///
    /// # Errors
    /// Driver errors.
    ///
    /// # Safety
    /// `image` must be a complete cubin or PTX text with a terminating NUL: the driver determines its end
    /// from the content.
    pub unsafe fn load(context: &Arc<CudaContext>, image: &[u8]) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        // SAFETY: guaranteed by the caller; the driver copies the image.
        let handle = unsafe { result::module::load_data(image.as_ptr().cast()) }?;
        Ok(Self {
            context: context.clone(),
            handle,
        })
    }

    /// The context it was loaded into.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// A launch of one of its kernels, for an image that was compiled for `arch`.
    ///
    /// # Errors
    /// A driver error if the kernel does not exist, or if the device does not have the resources that it
    /// needs.
    pub fn launch(&self, launch: &Launch, arch: Arch) -> Result<LoadedLaunch, DriverError> {
        self.context.bind_to_thread()?;
        let symbol = CString::new(launch.kernel.as_bytes())
            .map_err(|_| DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND))?;
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(self.handle, symbol) }?;
        // SAFETY: the driver has just returned the function.
        unsafe { LoadedLaunch::new(function, launch, arch) }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // Errors are ignored in a destructor; a destroyed context has unloaded the module.
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: loaded in `load`, unloaded once; cuModuleUnload waits for running launches.
            let _ = unsafe { result::module::unload(self.handle) };
        }
    }
}

/// A launch of a loaded kernel, with its attributes.
#[derive(Clone)]
pub struct LoadedLaunch {
    function: sys::CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    attributes: Vec<sys::CUlaunchAttribute>,
}

// SAFETY: plain numbers and a handle that any thread may use.
unsafe impl Send for LoadedLaunch {}
// SAFETY: as above; no method changes it.
unsafe impl Sync for LoadedLaunch {}

impl LoadedLaunch {
    /// A launch of `function`, compiled for `arch`; raises the limits of the function to what the launch
    /// needs.
    ///
    /// # Errors
    /// A driver error if the device does not allow it.
    ///
    /// # Safety
    /// `function` must belong to a module in the current context and stay loaded as long as this is used.
    pub unsafe fn new(
        function: sys::CUfunction,
        launch: &Launch,
        arch: Arch,
    ) -> Result<Self, DriverError> {
        use sys::CUfunction_attribute::{
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as SHARED_BYTES,
            CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED as LARGE_CLUSTERS,
        };
        let mut function_attributes = Vec::new();
        if launch.shared_bytes > Launch::DEFAULT_MAX_SHARED_BYTES {
            function_attributes.push((SHARED_BYTES, launch.shared_bytes as i32));
        }
        if launch.cluster_blocks() > Launch::MAX_PORTABLE_CLUSTER
            && arch >= Launch::MIN_ATTRIBUTE_ARCH
        {
            function_attributes.push((LARGE_CLUSTERS, 1));
        }
        for (attribute, value) in function_attributes {
            // SAFETY: guaranteed by the caller.
            unsafe { sys::cuFuncSetAttribute(function, attribute, value) }.result()?;
        }
        Ok(Self {
            function,
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared_bytes,
            attributes: attributes(launch, arch),
        })
    }

    /// Enqueues the kernel on a stream; each argument is the 8 bytes of a pointer or a `long long`.
    ///
    /// # Errors
    /// Driver errors.
    ///
    /// # Safety
    /// The stream must belong to the kernel's context, which must be current; the arguments must match the
    /// kernel's parameters in number and type; and all memory that the kernel accesses must exist until it
    /// has finished.
    pub unsafe fn enqueue(&self, stream: sys::CUstream, args: &[u64]) -> Result<(), DriverError> {
        if args.len() > MAX_ARGUMENTS {
            return Err(DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE));
        }
        let mut pointers = [std::ptr::null_mut::<c_void>(); MAX_ARGUMENTS];
        for (pointer, arg) in pointers.iter_mut().zip(args) {
            *pointer = std::ptr::from_ref(arg).cast_mut().cast();
        }
        let [grid_x, grid_y, grid_z] = self.grid;
        let [block_x, block_y, block_z] = self.block;
        let config = sys::CUlaunchConfig {
            gridDimX: grid_x,
            gridDimY: grid_y,
            gridDimZ: grid_z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: self.shared_bytes,
            hStream: stream,
            attrs: self.attributes.as_ptr().cast_mut(),
            numAttrs: self.attributes.len() as u32,
        };
        // SAFETY: guaranteed by the caller. The driver only reads the configuration, the attributes and the
        // arguments, and copies them before it returns.
        unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                self.function,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .result()
    }
}

/// The attributes of a launch. PDL and clusters are used only if the kernel was compiled for an architecture
/// that has them.
fn attributes(launch: &Launch, arch: Arch) -> Vec<sys::CUlaunchAttribute> {
    let attribute = |id, value| sys::CUlaunchAttribute {
        id,
        pad: [0; 4],
        value,
    };
    let mut attributes = Vec::new();
    if arch < Launch::MIN_ATTRIBUTE_ARCH {
        return attributes;
    }
    if launch.pdl {
        attributes.push(attribute(
            sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            sys::CUlaunchAttributeValue {
                programmaticStreamSerializationAllowed: 1,
            },
        ));
    }
    if launch.cluster_blocks() > 1 {
        let [x, y, z] = launch.cluster;
        let mut value = sys::CUlaunchAttributeValue { pad: [0; 64] };
        value.clusterDim.x = x;
        value.clusterDim.y = y;
        value.clusterDim.z = z;
        attributes.push(attribute(
            sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            value,
        ));
    }
    attributes
}
