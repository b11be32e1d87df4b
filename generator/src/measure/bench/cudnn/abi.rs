//! The functions of cuDNN 9's C interface that convolutions need, as a table that is filled when the library
//! is loaded.
//!
//! Names and values are those of `cudnn_graph.h`, `cudnn_ops.h` and `cudnn_cnn.h`. Enumerations are plain
//! integers, because a newer library may return values that are not in today's headers. cudarc's bindings are
//! not used: they look for a single file name and panic if the library or a symbol is missing.

use libloading::Library;
use std::ffi::{c_char, c_int, c_void};

/// `cudnnStatus_t`; 0 is success.
pub type Status = c_int;
/// Handles and descriptors of every kind.
pub type Opaque = *mut c_void;

pub const DATA_FLOAT: c_int = 0;
pub const DATA_HALF: c_int = 2;

pub const TENSOR_NCHW: c_int = 0;
pub const TENSOR_NHWC: c_int = 1;

pub const CROSS_CORRELATION: c_int = 1;

/// `cudnnMathType_t` values with their names in reports.
pub const MATH_TYPES: [(c_int, &str); 4] = [
    (3, "FMA"),
    (0, "default math"),
    (1, "tensor op"),
    (2, "tensor op with conversion"),
];

/// `cudnnConvolutionFwdAlgo_t`: the value of an algorithm is its index.
pub const FORWARD_ALGORITHMS: [&str; 8] = [
    "implicit_gemm",
    "implicit_precomp_gemm",
    "gemm",
    "direct",
    "fft",
    "fft_tiling",
    "winograd",
    "winograd_nonfused",
];

/// `cudnnBackendAttributeType_t`.
pub mod attribute_type {
    use std::ffi::c_int;
    pub const HANDLE: c_int = 0;
    pub const DATA_TYPE: c_int = 1;
    pub const INT64: c_int = 3;
    pub const FLOAT: c_int = 4;
    pub const VOID_PTR: c_int = 6;
    pub const CONVOLUTION_MODE: c_int = 7;
    pub const HEUR_MODE: c_int = 8;
    pub const KNOB_TYPE: c_int = 9;
    pub const BACKEND_DESCRIPTOR: c_int = 15;
    pub const BEHAVIOR_NOTE: c_int = 19;
}

/// `cudnnBackendDescriptorType_t`.
pub mod descriptor_type {
    use std::ffi::c_int;
    pub const CONVOLUTION: c_int = 1;
    pub const ENGINE: c_int = 2;
    pub const ENGINECFG: c_int = 3;
    pub const ENGINEHEUR: c_int = 4;
    pub const EXECUTION_PLAN: c_int = 5;
    pub const KNOB_CHOICE: c_int = 7;
    pub const OPERATION_CONVOLUTION_FORWARD: c_int = 10;
    pub const OPERATIONGRAPH: c_int = 15;
    pub const VARIANT_PACK: c_int = 16;
    pub const TENSOR: c_int = 17;
}

/// `cudnnBackendAttributeName_t`.
pub mod attribute {
    use std::ffi::c_int;
    pub const CONVOLUTION_COMP_TYPE: c_int = 100;
    pub const CONVOLUTION_CONV_MODE: c_int = 101;
    pub const CONVOLUTION_DILATIONS: c_int = 102;
    pub const CONVOLUTION_FILTER_STRIDES: c_int = 103;
    pub const CONVOLUTION_POST_PADDINGS: c_int = 104;
    pub const CONVOLUTION_PRE_PADDINGS: c_int = 105;
    pub const CONVOLUTION_SPATIAL_DIMS: c_int = 106;
    pub const ENGINEHEUR_MODE: c_int = 200;
    pub const ENGINEHEUR_OPERATION_GRAPH: c_int = 201;
    pub const ENGINEHEUR_RESULTS: c_int = 202;
    pub const ENGINECFG_ENGINE: c_int = 300;
    pub const ENGINECFG_KNOB_CHOICES: c_int = 302;
    pub const EXECUTION_PLAN_HANDLE: c_int = 400;
    pub const EXECUTION_PLAN_ENGINE_CONFIG: c_int = 401;
    pub const EXECUTION_PLAN_WORKSPACE_SIZE: c_int = 402;
    pub const KNOB_CHOICE_KNOB_TYPE: c_int = 600;
    pub const KNOB_CHOICE_KNOB_VALUE: c_int = 601;
    pub const OPERATION_CONVOLUTION_FORWARD_ALPHA: c_int = 700;
    pub const OPERATION_CONVOLUTION_FORWARD_BETA: c_int = 701;
    pub const OPERATION_CONVOLUTION_FORWARD_CONV_DESC: c_int = 702;
    pub const OPERATION_CONVOLUTION_FORWARD_W: c_int = 703;
    pub const OPERATION_CONVOLUTION_FORWARD_X: c_int = 704;
    pub const OPERATION_CONVOLUTION_FORWARD_Y: c_int = 705;
    pub const OPERATIONGRAPH_HANDLE: c_int = 800;
    pub const OPERATIONGRAPH_OPS: c_int = 801;
    pub const OPERATIONGRAPH_ENGINE_GLOBAL_COUNT: c_int = 802;
    pub const TENSOR_BYTE_ALIGNMENT: c_int = 900;
    pub const TENSOR_DATA_TYPE: c_int = 901;
    pub const TENSOR_DIMENSIONS: c_int = 902;
    pub const TENSOR_STRIDES: c_int = 903;
    pub const TENSOR_UNIQUE_ID: c_int = 906;
    pub const VARIANT_PACK_UNIQUE_IDS: c_int = 1000;
    pub const VARIANT_PACK_DATA_POINTERS: c_int = 1001;
    pub const VARIANT_PACK_WORKSPACE: c_int = 1003;
    pub const ENGINE_OPERATION_GRAPH: c_int = 1300;
    pub const ENGINE_GLOBAL_INDEX: c_int = 1301;
    pub const ENGINE_BEHAVIOR_NOTE: c_int = 1305;
}

/// `cudnnBackendHeurMode_t`: mode A (the successor of the instant mode), mode B, and the fallback engines.
pub const HEURISTICS: [(c_int, &str); 3] = [(3, "A"), (1, "B"), (2, "fallback")];

/// `CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION`: the engine compiles its kernel when a plan is finalised.
pub const BEHAVIOR_NOTE_RUNTIME_COMPILATION: c_int = 0;

/// The cuDNN functions in use.
#[derive(Clone, Copy)]
pub struct Functions {
    pub get_version: unsafe extern "C" fn() -> usize,
    pub get_error_string: unsafe extern "C" fn(Status) -> *const c_char,
    pub create: unsafe extern "C" fn(*mut Opaque) -> Status,
    pub destroy: unsafe extern "C" fn(Opaque) -> Status,
    pub set_stream: unsafe extern "C" fn(Opaque, Opaque) -> Status,

    pub create_tensor_descriptor: unsafe extern "C" fn(*mut Opaque) -> Status,
    /// Layout, data type, batch, channels, height, width.
    pub set_tensor_4d_descriptor:
        unsafe extern "C" fn(Opaque, c_int, c_int, c_int, c_int, c_int, c_int) -> Status,
    pub destroy_tensor_descriptor: unsafe extern "C" fn(Opaque) -> Status,
    pub create_filter_descriptor: unsafe extern "C" fn(*mut Opaque) -> Status,
    /// Data type, layout, output channels, input channels per group, height, width.
    pub set_filter_4d_descriptor:
        unsafe extern "C" fn(Opaque, c_int, c_int, c_int, c_int, c_int, c_int) -> Status,
    pub destroy_filter_descriptor: unsafe extern "C" fn(Opaque) -> Status,
    pub create_convolution_descriptor: unsafe extern "C" fn(*mut Opaque) -> Status,
    /// Padding, stride, dilation, each vertical and horizontal; mode, compute type.
    pub set_convolution_2d_descriptor: unsafe extern "C" fn(
        Opaque,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
    ) -> Status,
    pub set_convolution_math_type: unsafe extern "C" fn(Opaque, c_int) -> Status,
    pub set_convolution_group_count: unsafe extern "C" fn(Opaque, c_int) -> Status,
    pub destroy_convolution_descriptor: unsafe extern "C" fn(Opaque) -> Status,
    /// Handle, input, filter, convolution, output, algorithm; bytes.
    pub get_convolution_forward_workspace_size:
        unsafe extern "C" fn(Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut usize) -> Status,
    /// Handle; alpha; input; filter; convolution, algorithm; workspace and its bytes; beta; output.
    pub convolution_forward: unsafe extern "C" fn(
        Opaque,
        *const c_void,
        Opaque,
        *const c_void,
        Opaque,
        *const c_void,
        Opaque,
        c_int,
        *mut c_void,
        usize,
        *const c_void,
        Opaque,
        *mut c_void,
    ) -> Status,

    pub backend_create_descriptor: unsafe extern "C" fn(c_int, *mut Opaque) -> Status,
    pub backend_destroy_descriptor: unsafe extern "C" fn(Opaque) -> Status,
    pub backend_finalize: unsafe extern "C" fn(Opaque) -> Status,
    /// Descriptor, name, type, count, values.
    pub backend_set_attribute:
        unsafe extern "C" fn(Opaque, c_int, c_int, i64, *const c_void) -> Status,
    /// Descriptor, name, type, capacity of the array; number of values; values.
    pub backend_get_attribute:
        unsafe extern "C" fn(Opaque, c_int, c_int, i64, *mut i64, *mut c_void) -> Status,
    /// Handle, execution plan, variant pack.
    pub backend_execute: unsafe extern "C" fn(Opaque, Opaque, Opaque) -> Status,
}

impl Functions {
    /// Looks all functions up.
    pub fn of(library: &'static Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types of the fields are the C signatures in the headers of cuDNN 9, where every
        // enumeration is as wide as an int, and the library is never unloaded.
        unsafe {
            Ok(Self {
                get_version: *library.get("cudnnGetVersion")?,
                get_error_string: *library.get("cudnnGetErrorString")?,
                create: *library.get("cudnnCreate")?,
                destroy: *library.get("cudnnDestroy")?,
                set_stream: *library.get("cudnnSetStream")?,
                create_tensor_descriptor: *library.get("cudnnCreateTensorDescriptor")?,
                set_tensor_4d_descriptor: *library.get("cudnnSetTensor4dDescriptor")?,
                destroy_tensor_descriptor: *library.get("cudnnDestroyTensorDescriptor")?,
                create_filter_descriptor: *library.get("cudnnCreateFilterDescriptor")?,
                set_filter_4d_descriptor: *library.get("cudnnSetFilter4dDescriptor")?,
                destroy_filter_descriptor: *library.get("cudnnDestroyFilterDescriptor")?,
                create_convolution_descriptor: *library.get("cudnnCreateConvolutionDescriptor")?,
                set_convolution_2d_descriptor: *library.get("cudnnSetConvolution2dDescriptor")?,
                set_convolution_math_type: *library.get("cudnnSetConvolutionMathType")?,
                set_convolution_group_count: *library.get("cudnnSetConvolutionGroupCount")?,
                destroy_convolution_descriptor: *library
                    .get("cudnnDestroyConvolutionDescriptor")?,
                get_convolution_forward_workspace_size: *library
                    .get("cudnnGetConvolutionForwardWorkspaceSize")?,
                convolution_forward: *library.get("cudnnConvolutionForward")?,
                backend_create_descriptor: *library.get("cudnnBackendCreateDescriptor")?,
                backend_destroy_descriptor: *library.get("cudnnBackendDestroyDescriptor")?,
                backend_finalize: *library.get("cudnnBackendFinalize")?,
                backend_set_attribute: *library.get("cudnnBackendSetAttribute")?,
                backend_get_attribute: *library.get("cudnnBackendGetAttribute")?,
                backend_execute: *library.get("cudnnBackendExecute")?,
            })
        }
    }
}
