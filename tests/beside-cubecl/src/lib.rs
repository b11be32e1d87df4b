//! A kernel of `tdc` on a device of CubeCL's.

use cubecl_cuda::CudaDevice;
use std::sync::Arc;
use tdc::cuda::{LoadError, LoadedKernel};
use tdc::cudarc::driver::{CudaContext, DriverError};

static CONV: tdc::Kernel = tdc::kernel!(conv 16,8,7,7, activation = relu, arch = sm_90);

/// The device's primary context, which CubeCL uses too.
pub fn context(device: &CudaDevice) -> Result<Arc<CudaContext>, DriverError> {
    CudaContext::new(device.index)
}

/// The kernel, loaded into a context.
pub fn load(context: &Arc<CudaContext>) -> Result<LoadedKernel, LoadError> {
    CONV.load(context)
}
