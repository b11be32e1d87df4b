//! Weights packed where they lie.

use super::session::{check_tensor, same_context};
use super::{LaunchError, LoadedKernel, Module};
use crate::{Arch, Conv, Op, Tucker, WeightLayout, device_packing};
use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaViewMut, DevicePtr, DevicePtrMut, DriverError,
};
use std::ffi::CString;
use std::sync::Arc;

/// The kernels that pack, loaded.
pub(super) fn load(context: &Arc<CudaContext>) -> Result<Module, DriverError> {
    let text = CString::new(device_packing::PTX).unwrap_or_default();
    // SAFETY: PTX with the NUL that a `CString` ends with.
    unsafe { Module::load(context, text.as_bytes_with_nul()) }
}

/// Puts on the stream what packs `weight` into `packed`, which is as long as the layout's weights with their factors.
///
/// The caller has checked the lengths, and that all is of the module's context.
fn pack(
    module: &Module,
    stream: &Arc<CudaStream>,
    layout: &WeightLayout,
    weight: &impl DevicePtr<f32>,
    packed: &mut CudaViewMut<'_, f32>,
) -> Result<(), DriverError> {
    let numbers = stream.clone_htod(&layout.device_words())?;
    let (weight, _weight) = weight.device_ptr(stream);
    let (packed, _packed) = packed.device_ptr_mut(stream);
    let (numbers, _numbers) = numbers.device_ptr(stream);
    let words = layout.packed_word_len() as u64;
    let dequant_scale = packed + 4 * words;
    // A launch without clusters or overlap is the same on every architecture.
    let oldest = Arch::new(70);
    if let Some(launch) = layout.dequant_scale_launch() {
        let launch = module.launch(&launch, oldest)?;
        // SAFETY: the kernel's own parameters; it reads the whole weight and writes the factors behind the words.
        unsafe { launch.enqueue(stream.cu_stream(), &[weight, dequant_scale, numbers]) }?;
    }
    if let Some(launch) = layout.pack_launch() {
        let launch = module.launch(&launch, oldest)?;
        // SAFETY: the kernel's own parameters; it reads the whole weight and the factors and writes `words` words.
        unsafe {
            launch.enqueue(
                stream.cu_stream(),
                &[weight, dequant_scale, packed, numbers, words],
            )
        }?;
    }
    Ok(())
}

impl<O: Op> LoadedKernel<O> {
    fn packed_on_device<D: DevicePtr<f32>>(
        &self,
        stream: &Arc<CudaStream>,
        weights: &[&D],
        prologue: Option<[&D; 2]>,
    ) -> Result<CudaSlice<f32>, LaunchError> {
        let variant = &self.variant().variant;
        let context = self.context();
        let channels = variant.weights.prologue_channels as usize;
        match prologue {
            None if channels > 0 => return Err(LaunchError::Missing("prologue")),
            Some(_) if channels == 0 => return Err(LaunchError::Unexpected("prologue")),
            _ => {}
        }
        for ((_, layout), weight) in variant.packed_layouts().zip(weights) {
            check_tensor(context, "weights", *weight, layout.source_len())?;
        }
        for (what, tensor) in ["scale", "shift"].iter().zip(prologue.iter().flatten()) {
            check_tensor(context, what, *tensor, channels)?;
        }
        if !same_context(stream.context(), context) {
            return Err(LaunchError::Context("stream"));
        }
        context.bind_to_thread()?;
        let module = self.packing()?;
        // Zeros lie between the blocks of several layouts, as on the host.
        let mut packed = stream.alloc_zeros::<f32>(variant.packed_len())?;
        for ((at, layout), weight) in variant.packed_layouts().zip(weights) {
            let mut block = packed.slice_mut(at..at + layout.weight_len());
            pack(module, stream, layout, *weight, &mut block)?;
        }
        let mut at = variant.weights.weight_len();
        for tensor in prologue.iter().flatten() {
            stream.memcpy_dtod(*tensor, &mut packed.slice_mut(at..at + channels))?;
            at += channels;
        }
        Ok(packed)
    }
}

impl LoadedKernel<Conv> {
    /// As [`pack_weights`](Self::pack_weights), of weights that lie on the device already: so does the result, which has the same
    /// bits.
    ///
    /// The first call of a loaded kernel has the driver compile the packer, some milliseconds.
    ///
    /// # Errors
    /// [`LaunchError`] for a wrong length or context, for a kernel with a prologue
    /// ([`pack_weights_with_prologue_on_device`](Self::pack_weights_with_prologue_on_device)), and when there is no memory.
    pub fn pack_weights_on_device(
        &self,
        stream: &Arc<CudaStream>,
        weights: &impl DevicePtr<f32>,
    ) -> Result<CudaSlice<f32>, LaunchError> {
        self.packed_on_device(stream, &[weights], None)
    }

    /// The same of a kernel with a prologue, with its scale and shift of each input channel.
    ///
    /// # Errors
    /// [`LaunchError`] for a wrong length or context, for a kernel without prologue, and when there is no memory.
    pub fn pack_weights_with_prologue_on_device<D: DevicePtr<f32>>(
        &self,
        stream: &Arc<CudaStream>,
        weights: &D,
        scale: &D,
        shift: &D,
    ) -> Result<CudaSlice<f32>, LaunchError> {
        self.packed_on_device(stream, &[weights], Some([scale, shift]))
    }
}

impl LoadedKernel<Tucker> {
    /// As [`pack_weights`](Self::pack_weights), of factors that lie on the device already: so does the result, which has the same
    /// bits.
    ///
    /// # Errors
    /// As of a convolution's.
    pub fn pack_weights_on_device<D: DevicePtr<f32>>(
        &self,
        stream: &Arc<CudaStream>,
        factors: [&D; 3],
    ) -> Result<CudaSlice<f32>, LaunchError> {
        self.packed_on_device(stream, &factors, None)
    }

    /// The same of a kernel with a prologue, with its scale and shift of each input channel.
    ///
    /// # Errors
    /// As of a convolution's.
    pub fn pack_weights_with_prologue_on_device<D: DevicePtr<f32>>(
        &self,
        stream: &Arc<CudaStream>,
        factors: [&D; 3],
        scale: &D,
        shift: &D,
    ) -> Result<CudaSlice<f32>, LaunchError> {
        self.packed_on_device(stream, &factors, Some([scale, shift]))
    }
}
