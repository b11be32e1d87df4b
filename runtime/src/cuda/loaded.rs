//! A kernel loaded into a context.

use super::{LaunchError, LoadError, LoadedLaunch, Module, Session, packing};
use crate::{
    Arch, Arg, Bindings, Conv, Image, Kernel, KernelVariant, LowRank, Op, PackError, Step, Tucker,
};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DriverError};
use cudarc::driver::{result, sys};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A kernel loaded into a context; it can be launched from any thread.
pub struct LoadedKernel<O: Op = Conv> {
    name: &'static str,
    op: O,
    variant: &'static KernelVariant,
    image: Image,
    steps: Vec<LoadedStep>,
    /// The kernels that pack weights on the device, loaded on first use.
    packing: OnceLock<Module>,
    // Dropped last: the launches refer to its kernels.
    module: Module,
}

enum LoadedStep {
    Launch(LoadedLaunch, &'static [Arg]),
    Memset { target: Arg, bytes: u64 },
}

/// Device addresses of all tensors of a launch, for callers without `cudarc`. Each is a multiple of 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawTensors {
    /// Input, [`LoadedKernel::x_len`] floats.
    pub x: u64,
    /// The result of [`LoadedKernel::pack_weights`], [`LoadedKernel::weights_len`] floats.
    pub weights: u64,
    /// One float per output channel; 0 for a kernel without bias.
    pub bias: u64,
    /// Residual, [`LoadedKernel::y_len`] floats; 0 for a kernel without residual.
    pub residual: u64,
    /// Output, [`LoadedKernel::y_len`] floats.
    pub y: u64,
    /// Workspace, [`LoadedKernel::workspace_bytes`] bytes at a multiple of 256, not shared with launches that
    /// may run at the same time.
    pub workspace: u64,
}

impl<O: Op> Kernel<O> {
    /// Loads the code for the device of `context`, chosen by [`Kernel::image_for`].
    ///
    /// # Errors
    /// [`LoadError`] if there is no code for the device, it has too little shared memory, or the driver
    /// returns an error.
    pub fn load(&self, context: &Arc<CudaContext>) -> Result<LoadedKernel<O>, LoadError> {
        use sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN as SHARED;
        let driver = |error| LoadError::Driver {
            kernel: self.name,
            error,
        };
        let device = context.name().map_err(driver)?;
        let (major, minor) = context.compute_capability().map_err(driver)?;
        let arch = Arch::new((10 * major + minor).unsigned_abs() as u16);
        let image = *self.image_for(&device, arch).map_err(LoadError::NoImage)?;
        let Some(variant) = self.variant_of(&image) else {
            return Err(LoadError::NoImage(crate::NoImage::Stub {
                kernel: self.name,
            }));
        };
        let available = context.attribute(SHARED).map_err(driver)?.unsigned_abs();
        let needed = variant.launches().map(|launch| launch.shared_bytes).max();
        if let Some(needed) = needed.filter(|&needed| needed > available) {
            return Err(LoadError::SharedMemory {
                kernel: self.name,
                device,
                needed,
                available,
            });
        }
        // SAFETY: images are complete files from the compiler; PTX has the terminating NUL of NVRTC.
        let module = unsafe { Module::load(context, image.bytes) }.map_err(driver)?;
        let steps = variant.variant.steps.iter().map(|step| {
            Ok(match step {
                Step::Launch(launch) => {
                    LoadedStep::Launch(module.launch(launch, image.arch)?, &launch.args)
                }
                Step::Memset { target, bytes } => LoadedStep::Memset {
                    target: *target,
                    bytes: *bytes,
                },
            })
        });
        let steps = steps.collect::<Result<_, DriverError>>().map_err(driver)?;
        Ok(LoadedKernel {
            name: self.name,
            op: self.op,
            variant,
            image,
            steps,
            packing: OnceLock::new(),
            module,
        })
    }
}

impl LoadedKernel<Conv> {
    /// Packs weights (OIHW, PyTorch's order) for the loaded code. Kernels for other GPUs may need a different
    /// order.
    ///
    /// # Errors
    /// [`PackError`] if the length is not N x C/groups x R x S, and for a kernel with a prologue, whose scale
    /// and shift are packed too: see [`pack_weights_with_prologue`](Self::pack_weights_with_prologue).
    pub fn pack_weights(&self, weights: &[f32]) -> Result<Vec<f32>, PackError> {
        self.variant.variant.pack(&[weights], &[], &[])
    }

    /// As [`pack_weights`](Self::pack_weights), with the prologue's scale and shift of each input channel.
    ///
    /// # Errors
    /// [`PackError`] for a slice of the wrong length.
    pub fn pack_weights_with_prologue(
        &self,
        weights: &[f32],
        scale: &[f32],
        shift: &[f32],
    ) -> Result<Vec<f32>, PackError> {
        self.variant.variant.pack(&[weights], scale, shift)
    }
}

impl LoadedKernel<Tucker> {
    /// Packs the factors for the loaded code, OIHW each: first D1 x C x 1 x 1, core D2 x D1 x R x S, last N x
    /// D2 x 1 x 1.
    ///
    /// # Errors
    /// [`PackError`] if a length is not that of its shape; for a kernel with a prologue see
    /// [`pack_weights_with_prologue`](Self::pack_weights_with_prologue).
    pub fn pack_weights(&self, factors: [&[f32]; 3]) -> Result<Vec<f32>, PackError> {
        self.variant.variant.pack(&factors, &[], &[])
    }

    /// As [`pack_weights`](Self::pack_weights), with the prologue's scale and shift of each input channel.
    ///
    /// # Errors
    /// [`PackError`] for a slice of the wrong length.
    pub fn pack_weights_with_prologue(
        &self,
        factors: [&[f32]; 3],
        scale: &[f32],
        shift: &[f32],
    ) -> Result<Vec<f32>, PackError> {
        self.variant.variant.pack(&factors, scale, shift)
    }
}

impl LoadedKernel<LowRank> {
    /// Packs the factors for the loaded code: first rank x C, last N x rank.
    ///
    /// # Errors
    /// [`PackError`] if a length is not that of its shape; for a kernel with a prologue see
    /// [`pack_weights_with_prologue`](Self::pack_weights_with_prologue).
    pub fn pack_weights(&self, factors: [&[f32]; 2]) -> Result<Vec<f32>, PackError> {
        self.variant.variant.pack(&factors, &[], &[])
    }

    /// As [`pack_weights`](Self::pack_weights), with the prologue's scale and shift of each input channel.
    ///
    /// # Errors
    /// [`PackError`] for a slice of the wrong length.
    pub fn pack_weights_with_prologue(
        &self,
        factors: [&[f32]; 2],
        scale: &[f32],
        shift: &[f32],
    ) -> Result<Vec<f32>, PackError> {
        self.variant.variant.pack(&factors, scale, shift)
    }
}

impl<O: Op> LoadedKernel<O> {
    /// The problem's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The op.
    pub fn op(&self) -> &O {
        &self.op
    }

    /// The variant for this device.
    pub fn variant(&self) -> &'static KernelVariant {
        self.variant
    }

    /// The image that was loaded.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Number of floats of the input, `batch x C x H x W`.
    pub fn x_len(&self) -> usize {
        self.op.shape().input_len() as usize
    }

    /// Number of floats of the output and of a residual, `batch x N x out_H x out_W`.
    pub fn y_len(&self) -> usize {
        self.op.shape().output_len() as usize
    }

    /// Number of floats of the packed weights.
    pub fn weights_len(&self) -> usize {
        self.variant.variant.packed_len()
    }

    /// Number of bias values; 0 for a kernel without bias.
    pub fn bias_len(&self) -> usize {
        self.variant.variant.bias_len as usize
    }

    /// Bytes of workspace that a launch needs.
    pub fn workspace_bytes(&self) -> usize {
        self.variant.variant.workspace_bytes as usize
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        self.module.context()
    }

    /// The kernels that pack weights on the device.
    pub(super) fn packing(&self) -> Result<&Module, DriverError> {
        if let Some(module) = self.packing.get() {
            return Ok(module);
        }
        // If two threads load it at once, one of the modules is dropped.
        let module = packing::load(self.context())?;
        Ok(self.packing.get_or_init(|| module))
    }

    /// A session on one stream, with its own workspace.
    ///
    /// # Errors
    /// [`LaunchError`] if the stream belongs to a different context, or if the workspace cannot be allocated.
    pub fn session(&self, stream: &Arc<CudaStream>) -> Result<Session<'_, O>, LaunchError> {
        Session::new(self, stream)
    }

    /// Enqueues the kernel on a stream; `y` receives the result for the input `x`. All tensors are dense
    /// NCHW. `weights` is the result of [`pack_weights`](LoadedKernel::pack_weights). `bias` and `residual`
    /// must be given exactly if the kernel was generated with them. The call returns before the kernel has
    /// finished.
    ///
    /// If the kernel needs a workspace, it is allocated in stream order for each launch; a [`Session`]
    /// allocates it once.
    ///
    /// # Errors
    /// [`LaunchError`]; nothing is launched then.
    pub fn launch(
        &self,
        stream: &Arc<CudaStream>,
        x: &impl DevicePtr<f32>,
        weights: &impl DevicePtr<f32>,
        bias: Option<&CudaSlice<f32>>,
        residual: Option<&CudaSlice<f32>>,
        y: &mut impl DevicePtrMut<f32>,
    ) -> Result<(), LaunchError> {
        self.session(stream)?.launch(x, weights, bias, residual, y)
    }

    /// Enqueues the kernel on a stream by raw addresses, for callers with their own runtime. `stream` is a
    /// `CUstream` or, equivalently, a `cudaStream_t`; null is the default stream.
    ///
    /// # Errors
    /// Driver errors.
    ///
    /// # Safety
    /// The kernel's context must be current and the stream must belong to it. Every address in `tensors` must
    /// be that of device memory of the size that its field documents, until the kernel has finished; `y` and
    /// the workspace must not overlap anything else. Nothing is checked.
    pub unsafe fn launch_raw(
        &self,
        stream: sys::CUstream,
        tensors: &RawTensors,
    ) -> Result<(), DriverError> {
        let bindings = self.bindings(tensors);
        for step in &self.steps {
            match step {
                LoadedStep::Launch(launch, args) => {
                    let mut values = [0; 16];
                    for (value, &arg) in values.iter_mut().zip(*args) {
                        *value = bindings.get(arg);
                    }
                    let count = args.len().min(values.len());
                    // SAFETY: the planner passes exactly the parameters with which the kernel's source was
                    // rendered, and the caller guarantees the rest.
                    unsafe { launch.enqueue(stream, &values[..count]) }?;
                }
                LoadedStep::Memset { target, bytes } => {
                    let address = bindings.get(*target);
                    // SAFETY: the planner zeroes only the output or a part of the workspace.
                    unsafe { result::memset_d8_async(address, 0, *bytes as usize, stream) }?;
                }
            }
        }
        Ok(())
    }

    /// The arguments for dense tensors.
    fn bindings(&self, tensors: &RawTensors) -> Bindings {
        let shape = self.op.shape();
        let images = u64::from(shape.batch.max(1));
        let y_batch_stride = shape.output_len() / images;
        Bindings {
            x: tensors.x,
            residual: tensors.residual,
            packed: tensors.weights,
            bias: tensors.bias,
            y: tensors.y,
            workspace: tensors.workspace,
            x_batch_stride: shape.input_len() / images,
            residual_batch_stride: y_batch_stride,
            y_batch_stride,
        }
    }
}

impl<O: Op> fmt::Debug for LoadedKernel<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedKernel")
            .field("name", &self.name)
            .field("image", &self.image.to_string())
            .field("choices", &self.variant.choices)
            .finish_non_exhaustive()
    }
}
