//! Packs weights on the device.

use super::session::{check_tensor, same_context};
use super::{LaunchError, LoadedKernel, Module};
use crate::{Arch, Conv, LowRank, Op, Tucker, WeightLayout, device_packing};
use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaViewMut, DevicePtr, DevicePtrMut, DriverError,
};
use std::ffi::CString;
use std::sync::Arc;

/// Loads the packing kernels.
pub(super) fn load(context: &Arc<CudaContext>) -> Result<Module, DriverError> {
    let text = CString::new(device_packing::PTX).unwrap_or_default();
    // SAFETY: PTX with the terminating NUL of a `CString`.
    unsafe { Module::load(context, text.as_bytes_with_nul()) }
}

/// Enqueues the packing of `weight` into `packed`, which has the length of the layout's weights including
/// dequantisation scales.
///
/// The caller has checked the lengths, and that all tensors belong to the module's context.
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
    // A launch without clusters and PDL is the same on every architecture.
    let oldest = Arch::new(70);
    if let Some(launch) = layout.dequant_scale_launch() {
        let launch = module.launch(&launch, oldest)?;
        // SAFETY: these are the kernel's parameters; it reads `weight` and writes the dequantisation scales.
        unsafe { launch.enqueue(stream.cu_stream(), &[weight, dequant_scale, numbers]) }?;
    }
    if let Some(launch) = layout.pack_launch() {
        let launch = module.launch(&launch, oldest)?;
        // SAFETY: these are the kernel's parameters; it reads the weight and the dequantisation scales and
        // writes `words` words.
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
        // The padding between the blocks of several layouts is zero, as on the host.
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
    /// As [`pack_weights`](Self::pack_weights), for weights in device memory; the result is in device memory
    /// and has the same bits.
    ///
    /// In the first call of a loaded kernel the driver compiles the packing kernels, which takes some
    /// milliseconds.
    ///
    /// # Errors
    /// [`LaunchError`] for a wrong length or context, for a kernel with a prologue (see
    /// [`pack_weights_with_prologue_on_device`](Self::pack_weights_with_prologue_on_device)), and if memory
    /// cannot be allocated.
    pub fn pack_weights_on_device(
        &self,
        stream: &Arc<CudaStream>,
        weights: &impl DevicePtr<f32>,
    ) -> Result<CudaSlice<f32>, LaunchError> {
        self.packed_on_device(stream, &[weights], None)
    }

    /// As [`pack_weights_on_device`](Self::pack_weights_on_device), with the prologue's scale and shift of
    /// each input channel.
    ///
    /// # Errors
    /// [`LaunchError`] for a wrong length or context, for a kernel without a prologue, and if memory cannot
    /// be allocated.
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
    /// As [`pack_weights`](Self::pack_weights), for factors in device memory; the result is in device memory
    /// and has the same bits.
    ///
    /// # Errors
    /// As for a convolution.
    pub fn pack_weights_on_device<D: DevicePtr<f32>>(
        &self,
        stream: &Arc<CudaStream>,
        factors: [&D; 3],
    ) -> Result<CudaSlice<f32>, LaunchError> {
        self.packed_on_device(stream, &factors, None)
    }

    /// As [`pack_weights_on_device`](Self::pack_weights_on_device), with the prologue's scale and shift of
    /// each input channel.
    ///
    /// # Errors
    /// As for a convolution.
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

impl LoadedKernel<LowRank> {
    /// As [`pack_weights`](Self::pack_weights), for factors in device memory; the result is in device memory
    /// and has the same bits.
    ///
    /// # Errors
    /// As for a convolution.
    pub fn pack_weights_on_device<D: DevicePtr<f32>>(
        &self,
        stream: &Arc<CudaStream>,
        factors: [&D; 2],
    ) -> Result<CudaSlice<f32>, LaunchError> {
        self.packed_on_device(stream, &factors, None)
    }

    /// As [`pack_weights_on_device`](Self::pack_weights_on_device), with the prologue's scale and shift of
    /// each input channel.
    ///
    /// # Errors
    /// As for a convolution.
    pub fn pack_weights_with_prologue_on_device<D: DevicePtr<f32>>(
        &self,
        stream: &Arc<CudaStream>,
        factors: [&D; 2],
        scale: &D,
        shift: &D,
    ) -> Result<CudaSlice<f32>, LaunchError> {
        self.packed_on_device(stream, &factors, Some([scale, shift]))
    }
}
