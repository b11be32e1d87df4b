//! Launches on one stream.

use super::{LaunchError, LoadedKernel, RawTensors};
use crate::{Conv, Op};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceSlice};
use std::sync::Arc;

/// A kernel on one stream, with the workspace that its launches share.
///
/// Launching takes `&mut self`, because the steps of two launches that share a workspace must not be enqueued
/// concurrently by two threads. Launches can be captured into a CUDA graph, which refers to the addresses:
/// keep the session and the tensors as long as the graph.
#[derive(Debug)]
pub struct Session<'k, O: Op = Conv> {
    kernel: &'k LoadedKernel<O>,
    stream: Arc<CudaStream>,
    workspace: Option<CudaSlice<u8>>,
}

impl<'k, O: Op> Session<'k, O> {
    pub(super) fn new(
        kernel: &'k LoadedKernel<O>,
        stream: &Arc<CudaStream>,
    ) -> Result<Self, LaunchError> {
        if !same_context(stream.context(), kernel.context()) {
            return Err(LaunchError::Context("stream"));
        }
        let workspace = match kernel.workspace_bytes() {
            0 => None,
            // SAFETY: kernels write their workspace before they read it.
            bytes => Some(unsafe { stream.alloc::<u8>(bytes) }?),
        };
        Ok(Self {
            kernel,
            stream: stream.clone(),
            workspace,
        })
    }

    /// As [`LoadedKernel::launch`], on the session's stream.
    ///
    /// # Errors
    /// As [`LoadedKernel::launch`].
    pub fn launch(
        &mut self,
        x: &impl DevicePtr<f32>,
        weights: &impl DevicePtr<f32>,
        bias: Option<&CudaSlice<f32>>,
        residual: Option<&CudaSlice<f32>>,
        y: &mut impl DevicePtrMut<f32>,
    ) -> Result<(), LaunchError> {
        let kernel = self.kernel;
        let fused = kernel.op().fused();
        let context = kernel.context();
        check_tensor(context, "x", x, kernel.x_len())?;
        check_tensor(context, "weights", weights, kernel.weights_len())?;
        check_tensor(context, "y", y, kernel.y_len())?;
        self.check_operand("bias", bias, fused.bias, kernel.bias_len())?;
        self.check_operand("residual", residual, fused.residual, kernel.y_len())?;
        let stream = &self.stream;
        // Each comes with a guard; dropping it after the launch orders later uses of the tensor by other
        // streams.
        let (x, _x) = x.device_ptr(stream);
        let (weights, _weights) = weights.device_ptr(stream);
        let (y, _y) = y.device_ptr_mut(stream);
        let bias = bias.map(|bias| bias.device_ptr(stream));
        let residual = residual.map(|residual| residual.device_ptr(stream));
        let workspace = self.workspace.as_mut().map(|w| w.device_ptr_mut(stream));
        let tensors = RawTensors {
            x,
            weights,
            bias: bias.as_ref().map_or(0, |(address, _)| *address),
            residual: residual.as_ref().map_or(0, |(address, _)| *address),
            y,
            workspace: workspace.as_ref().map_or(0, |(address, _)| *address),
        };
        for (what, address) in [
            ("x", tensors.x),
            ("weights", tensors.weights),
            ("bias", tensors.bias),
            ("residual", tensors.residual),
            ("y", tensors.y),
        ] {
            if address % 16 != 0 {
                return Err(LaunchError::Misaligned(what));
            }
        }
        stream.context().bind_to_thread()?;
        // SAFETY: the context has just been made current and the stream belongs to it; every length was
        // checked above; `cudarc` keeps borrowed memory until the work that reads it has finished, and `y`
        // and the workspace are borrowed mutably.
        unsafe { kernel.launch_raw(stream.cu_stream(), &tensors) }?;
        Ok(())
    }

    fn check_operand(
        &self,
        what: &'static str,
        operand: Option<&CudaSlice<f32>>,
        is_read: bool,
        expected: usize,
    ) -> Result<(), LaunchError> {
        match (operand, is_read) {
            (Some(operand), true) => check_tensor(self.kernel.context(), what, operand, expected),
            (None, false) => Ok(()),
            (None, true) => Err(LaunchError::Missing(what)),
            (Some(_), false) => Err(LaunchError::Unexpected(what)),
        }
    }
}

/// Checks a tensor's length and context.
pub(super) fn check_tensor(
    context: &CudaContext,
    what: &'static str,
    tensor: &impl DeviceSlice<f32>,
    expected: usize,
) -> Result<(), LaunchError> {
    let found = tensor.len();
    if found != expected {
        return Err(LaunchError::Length {
            what,
            expected,
            found,
        });
    }
    match same_context(tensor.stream().context(), context) {
        true => Ok(()),
        false => Err(LaunchError::Context(what)),
    }
}

pub(super) fn same_context(a: &CudaContext, b: &CudaContext) -> bool {
    a.cu_ctx() == b.cu_ctx()
}
