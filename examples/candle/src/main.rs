//! A convolution of `tdc` as an op of candle: on candle's tensors, context and stream, without copies.
//!
//!     cargo run --release
//!
//! compares it with candle's own convolution. It needs a GPU, and the CUDA toolkit, which candle builds its kernels with.

use candle_core::cuda_backend::CudaStorage;
use candle_core::{CpuStorage, CudaDevice, CustomOp1, DType, Device, Error, Layout, Result, Shape, Tensor};
use std::sync::Arc;
use tdc::cuda::LoadedKernel;
use tdc::cudarc::driver::{CudaSlice, CudaStream};

static CONV: tdc::Kernel = tdc::kernel!(conv 64,96,28,28, stride = 2, bias = true, activation = relu);
const X: (usize, usize, usize, usize) = (1, 64, 28, 28);
const Y: (usize, usize, usize, usize) = (1, 96, 14, 14);

/// The kernel with its weights on a device.
struct Conv {
    kernel: LoadedKernel,
    stream: Arc<CudaStream>,
    weights: CudaSlice<f32>,
    bias: CudaSlice<f32>,
}

impl Conv {
    /// Loads the kernel into candle's context, and packs weights (96 x 64 x 3 x 3) and bias for it.
    fn new(device: &CudaDevice, weights: &Tensor, bias: &Tensor) -> Result<Self> {
        let stream = device.cuda_stream();
        let kernel = CONV.load(stream.context()).map_err(Error::wrap)?;
        let packed = kernel.pack_weights(&weights.flatten_all()?.to_vec1()?).map_err(Error::wrap)?;
        let weights = stream.clone_htod(&packed).map_err(Error::wrap)?;
        let bias = stream.clone_htod(&bias.to_vec1::<f32>()?).map_err(Error::wrap)?;
        Ok(Self { kernel, stream, weights, bias })
    }
}

impl CustomOp1 for Conv {
    fn name(&self) -> &'static str {
        CONV.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        candle_core::bail!("{} needs a tensor on a CUDA device", self.name())
    }

    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let Some((start, end)) = layout.contiguous_offsets().filter(|_| layout.dims() == Shape::from(X).dims()) else {
            candle_core::bail!("{} needs a contiguous tensor of {X:?}, not {layout:?}", self.name())
        };
        let device = x.device.clone();
        let x = x.as_cuda_slice::<f32>()?.slice(start..end);
        // SAFETY: the kernel writes every element before anything reads it.
        let mut y = unsafe { device.alloc::<f32>(self.kernel.y_len()) }?;
        let launched = self.kernel.launch(&self.stream, &x, &self.weights, Some(&self.bias), None, &mut y);
        launched.map_err(Error::wrap)?;
        Ok((CudaStorage::wrap_cuda_slice(y, device), Shape::from(Y)))
    }
}

fn main() -> Result<()> {
    let device = Device::new_cuda(0)?;
    let random = |shape: &[usize], deviation: f32| Tensor::randn(0f32, deviation, shape, &device);
    let (weights, bias) = (random(&[96, 64, 3, 3], 0.06)?, random(&[96], 0.5)?);
    let x = random(&[1, 64, 28, 28], 1.0)?;

    let conv = Conv::new(device.as_cuda_device()?, &weights, &bias)?;
    let found = x.apply_op1_no_bwd(&conv)?;

    let expected = x.conv2d(&weights, 1, 2, 1, 1)?.broadcast_add(&bias.reshape((1, 96, 1, 1))?)?.relu()?;
    let norm = |tensor: Tensor| tensor.sqr()?.sum_all()?.to_dtype(DType::F64)?.to_scalar::<f64>();
    let error = (norm((found - &expected)?)? / norm(expected)?).sqrt();
    println!("{}: relative error to candle's convolution {error:.1e}", CONV.name);
    match error < 1e-5 {
        true => Ok(()),
        false => candle_core::bail!("the results differ"),
    }
}
