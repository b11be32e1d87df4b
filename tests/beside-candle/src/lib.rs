//! A kernel of `tdc` on candle's stream, in candle's context.

use candle_core::CudaDevice;
use tdc::cuda::{LoadError, LoadedKernel};

static CONV: tdc::Kernel = tdc::kernel!(conv 16,8,7,7, activation = relu, arch = sm_90);

/// The kernel, loaded into the context that candle uses.
pub fn load(device: &CudaDevice) -> Result<LoadedKernel, LoadError> {
    CONV.load(device.cuda_stream().context())
}
