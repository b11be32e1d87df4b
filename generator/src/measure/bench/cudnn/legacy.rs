//! The legacy interface: `cudnnConvolutionForward` with each algorithm and each math type.

use super::abi::{CROSS_CORRELATION, FORWARD_ALGORITHMS, MATH_TYPES, Opaque, Status};
use super::{Algorithm, Cudnn, CudnnError, Request, RunAddresses};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;
use tdc_runtime::Padding;

/// A descriptor, destroyed when dropped.
struct Descriptor {
    raw: Opaque,
    destroy: unsafe extern "C" fn(Opaque) -> Status,
}

impl Descriptor {
    fn new(
        cudnn: &Cudnn,
        function: &'static str,
        create: unsafe extern "C" fn(*mut Opaque) -> Status,
        destroy: unsafe extern "C" fn(Opaque) -> Status,
    ) -> Result<Self, CudnnError> {
        let mut raw = ptr::null_mut();
        // SAFETY: cuDNN writes the pointer.
        cudnn.check(function, unsafe { create(&mut raw) })?;
        Ok(Self { raw, destroy })
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created in `new` by the counterpart of this function, destroyed once.
        unsafe { (self.destroy)(self.raw) };
    }
}

/// Input, weights and output.
struct Tensors {
    x: Descriptor,
    weight: Descriptor,
    y: Descriptor,
}

impl Tensors {
    fn new(cudnn: &Cudnn, request: &Request) -> Result<Self, CudnnError> {
        let functions = &cudnn.functions;
        let shape = request.shape;
        let (format, data) = (request.layout.format(), request.arithmetic.data_type());
        let tensor = |[n, c, h, w]: [u32; 4]| {
            let made = Descriptor::new(
                cudnn,
                "cudnnCreateTensorDescriptor",
                functions.create_tensor_descriptor,
                functions.destroy_tensor_descriptor,
            )?;
            let [n, c, h, w] = [n, c, h, w].map(|size| size as c_int);
            // SAFETY: the descriptor has just been created.
            let code =
                unsafe { (functions.set_tensor_4d_descriptor)(made.raw, format, data, n, c, h, w) };
            cudnn.check("cudnnSetTensor4dDescriptor", code)?;
            Ok(made)
        };
        let weight = Descriptor::new(
            cudnn,
            "cudnnCreateFilterDescriptor",
            functions.create_filter_descriptor,
            functions.destroy_filter_descriptor,
        )?;
        let [k, c, r, s] =
            [shape.n, shape.c / shape.groups, shape.r, shape.s].map(|size| size as c_int);
        // SAFETY: the descriptor has just been created.
        let code =
            unsafe { (functions.set_filter_4d_descriptor)(weight.raw, data, format, k, c, r, s) };
        cudnn.check("cudnnSetFilter4dDescriptor", code)?;
        Ok(Self {
            x: tensor([shape.batch, shape.c, shape.h, shape.w])?,
            weight,
            y: tensor([shape.batch, shape.n, shape.out_h(), shape.out_w()])?,
        })
    }
}

fn convolution(cudnn: &Cudnn, request: &Request, math: c_int) -> Result<Descriptor, CudnnError> {
    let functions = &cudnn.functions;
    let shape = request.shape;
    let made = Descriptor::new(
        cudnn,
        "cudnnCreateConvolutionDescriptor",
        functions.create_convolution_descriptor,
        functions.destroy_convolution_descriptor,
    )?;
    let sizes = [
        shape.padding.top,
        shape.padding.left,
        shape.stride[0],
        shape.stride[1],
        shape.dilation[0],
        shape.dilation[1],
    ];
    let [pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w] =
        sizes.map(|size| size as c_int);
    // SAFETY: the descriptor has just been created.
    let codes = unsafe {
        [
            (
                "cudnnSetConvolution2dDescriptor",
                (functions.set_convolution_2d_descriptor)(
                    made.raw,
                    pad_h,
                    pad_w,
                    stride_h,
                    stride_w,
                    dilation_h,
                    dilation_w,
                    CROSS_CORRELATION,
                    request.arithmetic.compute_type(),
                ),
            ),
            (
                "cudnnSetConvolutionMathType",
                (functions.set_convolution_math_type)(made.raw, math),
            ),
            (
                "cudnnSetConvolutionGroupCount",
                (functions.set_convolution_group_count)(made.raw, shape.groups as c_int),
            ),
        ]
    };
    for (function, code) in codes {
        cudnn.check(function, code)?;
    }
    Ok(made)
}

/// An algorithm of the legacy interface with a math type.
pub struct LegacyAlgorithm<'a> {
    cudnn: &'a Cudnn,
    tensors: Rc<Tensors>,
    convolution: Rc<Descriptor>,
    algorithm: c_int,
    workspace_bytes: usize,
    name: String,
}

/// Every algorithm that cuDNN has for the request; none if the padding is asymmetric, which this interface
/// cannot describe.
///
/// # Errors
/// [`CudnnError`] when the tensors cannot be described.
pub fn algorithms<'a>(
    cudnn: &'a Cudnn,
    request: &Request,
) -> Result<Vec<LegacyAlgorithm<'a>>, CudnnError> {
    let Padding {
        top,
        left,
        bottom,
        right,
    } = request.shape.padding;
    if (top, left) != (bottom, right) {
        return Ok(Vec::new());
    }
    let tensors = Rc::new(Tensors::new(cudnn, request)?);
    let mut found = Vec::new();
    for (math, math_name) in MATH_TYPES {
        let Ok(convolution) = convolution(cudnn, request, math) else {
            continue;
        };
        let convolution = Rc::new(convolution);
        for (algorithm, name) in (0..).zip(FORWARD_ALGORITHMS) {
            let mut workspace_bytes = 0;
            // SAFETY: handle and descriptors are alive, and cuDNN writes the size.
            let status = unsafe {
                (cudnn.functions.get_convolution_forward_workspace_size)(
                    cudnn.handle,
                    tensors.x.raw,
                    tensors.weight.raw,
                    convolution.raw,
                    tensors.y.raw,
                    algorithm,
                    &mut workspace_bytes,
                )
            };
            if status == 0 && workspace_bytes <= request.workspace_limit {
                found.push(LegacyAlgorithm {
                    cudnn,
                    tensors: Rc::clone(&tensors),
                    convolution: Rc::clone(&convolution),
                    algorithm,
                    workspace_bytes,
                    name: format!("{name}, {math_name}"),
                });
            }
        }
    }
    Ok(found)
}

impl Algorithm for LegacyAlgorithm<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, addresses: &RunAddresses) -> Result<(), CudnnError> {
        // alpha and beta are floats for fp16 data too.
        let (alpha, beta) = (1.0_f32, 0.0_f32);
        // SAFETY: handle and descriptors are alive; alpha and beta are read before the call returns; the
        // addresses are the caller's, of tensors as described and of a workspace that is large enough.
        let status = unsafe {
            (self.cudnn.functions.convolution_forward)(
                self.cudnn.handle,
                ptr::from_ref(&alpha).cast(),
                self.tensors.x.raw,
                addresses.x as *const c_void,
                self.tensors.weight.raw,
                addresses.weight as *const c_void,
                self.convolution.raw,
                self.algorithm,
                addresses.workspace as *mut c_void,
                self.workspace_bytes,
                ptr::from_ref(&beta).cast(),
                self.tensors.y.raw,
                addresses.y as *mut c_void,
            )
        };
        self.cudnn.check("cudnnConvolutionForward", status)
    }
}
