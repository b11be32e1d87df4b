//! A kernel in a context: its code loaded, its variant chosen.

use super::{LaunchError, LoadError, LoadedLaunch, Module, Session, packing};
use crate::{Arch, Arg, Bindings, Conv, Image, Kernel, KernelVariant, Op, PackError, Step, Tucker};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DriverError};
use cudarc::driver::{result, sys};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A kernel that is loaded into a context and can be launched from any thread.
pub struct LoadedKernel<O: Op = Conv> {
    name: &'static str,
    op: O,
    variant: &'static KernelVariant,
    image: Image,
    steps: Vec<LoadedStep>,
    /// What packs weights on the device, loaded when it is first asked for.
    packing: OnceLock<Module>,
    // Dropped last: the launches are of its kernels.
    module: Module,
}

enum LoadedStep {
    Launch(LoadedLaunch, &'static [Arg]),
    Memset { target: Arg, bytes: u64 },
}

/// Device addresses of all that a launch reads and writes, for callers that have no `cudarc`. Each is a multiple of 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawTensors {
    /// Input, [`LoadedKernel::x_len`] floats.
    pub x: u64,
    /// What [`LoadedKernel::pack_weights`] gave, [`LoadedKernel::weights_len`] floats.
    pub weights: u64,
    /// One float an output channel; 0 for a kernel without bias.
    pub bias: u64,
    /// [`LoadedKernel::y_len`] floats; 0 for a kernel without residual.
    pub residual: u64,
    /// Output, [`LoadedKernel::y_len`] floats.
    pub y: u64,
    /// [`LoadedKernel::workspace_bytes`] bytes, at a multiple of 256, of no other launch that may run at the same time.
    pub workspace: u64,
}

impl<O: Op> Kernel<O> {
    /// Loads the code for the device of `context`, chosen by [`Kernel::image_for`].
    ///
    /// # Errors
    /// [`LoadError`] when there is none for it, the device has too little shared memory, or the driver refuses.
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
        // SAFETY: images are whole files that the compiler made, PTX with the NUL that NVRTC ends it with.
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
    /// The weights (OIHW, PyTorch's order) as the loaded code reads them. Kernels for other GPUs may want another order.
    ///
    /// # Errors
    /// [`PackError`] when the length is not N x C/groups x R x S; for a kernel with a prologue, whose scale and shift are packed
    /// too: [`pack_weights_with_prologue`](Self::pack_weights_with_prologue).
    pub fn pack_weights(&self, weights: &[f32]) -> Result<Vec<f32>, PackError> {
        self.variant.variant.pack(&[weights], &[], &[])
    }

    /// The same of a kernel with a prologue, with its scale and shift of each input channel.
    ///
    /// # Errors
    /// [`PackError`] for what has the wrong length.
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
    /// The factors as the loaded code reads them, OIHW each: first D1 x C x 1 x 1, core D2 x D1 x R x S, last N x D2 x 1 x 1.
    ///
    /// # Errors
    /// [`PackError`] when a length is not that of its shape; for a kernel with a prologue see
    /// [`pack_weights_with_prologue`](Self::pack_weights_with_prologue).
    pub fn pack_weights(&self, factors: [&[f32]; 3]) -> Result<Vec<f32>, PackError> {
        self.variant.variant.pack(&factors, &[], &[])
    }

    /// The same of a kernel with a prologue, with its scale and shift of each input channel.
    ///
    /// # Errors
    /// [`PackError`] for what has the wrong length.
    pub fn pack_weights_with_prologue(
        &self,
        factors: [&[f32]; 3],
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

    /// What is computed.
    pub fn op(&self) -> &O {
        &self.op
    }

    /// The way it is carried out on this device.
    pub fn variant(&self) -> &'static KernelVariant {
        self.variant
    }

    /// The code that was loaded.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Floats of the input, `batch x C x H x W`.
    pub fn x_len(&self) -> usize {
        self.op.shape().input_len() as usize
    }

    /// Floats of the output and of a residual, `batch x N x out_H x out_W`.
    pub fn y_len(&self) -> usize {
        self.op.shape().output_len() as usize
    }

    /// Floats of the packed weights.
    pub fn weights_len(&self) -> usize {
        self.variant.variant.packed_len()
    }

    /// Values of bias; 0 for a kernel without.
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
        // Where two threads load it at once, one is dropped.
        let module = packing::load(self.context())?;
        Ok(self.packing.get_or_init(|| module))
    }

    /// Launches on one stream with a workspace of its own.
    ///
    /// # Errors
    /// [`LaunchError`] when the stream is of another context, or there is no memory for the workspace.
    pub fn session(&self, stream: &Arc<CudaStream>) -> Result<Session<'_, O>, LaunchError> {
        Session::new(self, stream)
    }

    /// Puts the kernel on a stream: `y` becomes the op of `x`. All tensors are dense NCHW; `weights` is what
    /// [`pack_weights`](LoadedKernel::pack_weights) gave; `bias` and `residual` are there exactly where the kernel was asked for with
    /// them. It returns before the kernel has ended, as everything that is put on a stream.
    ///
    /// A kernel that needs a workspace allocates it for each launch in the order of the stream; a [`Session`] does so once.
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

    /// Puts the kernel on a stream by raw addresses, for callers with a runtime of their own. `stream` is a `CUstream` or, what is the
    /// same, a `cudaStream_t`; null is the default stream.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The kernel's context is current, the stream belongs to it, and every address of `tensors` is that of as many floats as its
    /// field says, on the device, until the kernel has ended; `y` and the workspace overlap nothing else. Nothing is checked.
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
                    // SAFETY: the planner gives a kernel exactly the parameters that its text was rendered with, and the caller
                    // promises the rest.
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

    /// The tensors, dense.
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
