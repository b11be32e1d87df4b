//! Calls as in users' programs: in statics and constants, by other macros, from configs, with a renamed
//! crate.

use convolutions::{Kernel, LowRank, Tucker, kernel, kernels};

pub static PLAIN: Kernel = kernel!(conv 64,32,56,56);
pub const RELU: Kernel = convolutions::kernel!(conv 8, 12, 14, 10, kernel = 1, activation = relu, gpu = h200,);

/// All options with values other than the default.
pub static ODD: Kernel = kernel!(conv 12,18,15,13, kernel = [5, 3], stride = [2, 1], pad = [1, 0, 2, 3], dilation = [1, 2],
    groups = 3, batch = 3, bias = true, activation = {leaky_relu: 0.25}, residual = true, prologue = {activation: {clip: [-0.5, 2]}},
    gpu = ["a100", h200],
    scheme = direct, tile = [64, 2, 1, 1], arch = [sm_90, sm_80]);

pub static POINTWISE: Kernel = kernel!(pointwise 24,16,7,5, gpu = h200);
pub static DEPTHWISE: Kernel = kernel!(depthwise 12,9,7, kernel = 5, gpu = h200);

pub static ONE_LAUNCH: Kernel<Tucker> = kernel!(tucker 13,11,9,7, ranks = [9, 8], stride = 2, batch = 2, bias = true,
    residual = true, activation = relu, prologue = true, gpu = h200, scheme = tucker_fused);
pub static SEPARATE: Kernel<Tucker> = kernel!(tucker 13,11,9,7, ranks = [9, 8], stride = 2, batch = 2, bias = true,
    residual = true, activation = relu, prologue = true, gpu = h200, scheme = direct);
/// First and last factor are the same problem: one kernel, launched twice.
pub static SYMMETRIC: Kernel<Tucker> = kernel!(tucker 6,6,8,8, ranks = [6, 6], gpu = h200, scheme = direct);

pub static LOW_RANK: Kernel<LowRank> = kernel!(low_rank 13,11,9,7, rank = 5, stride = [2, 3], pad = [1, 0, 2, 1], batch = 2,
    bias = true, residual = true, activation = relu, prologue = true, gpu = h200);
/// Two linear layers.
pub static LINEAR_LOW_RANK: Kernel<LowRank> = kernel!(low_rank 131,17,1,1, rank = 7, batch = 3, bias = true,
    activation = {leaky_relu: 0.25}, gpu = h200);

/// With lower precision, and with Winograd points.
pub static TF32: Kernel = kernel!(conv 32,32,16,16, kernel = 1, precision = tf32, gpu = h200, scheme = implicit_gemm,
    tile = [4, 8, 1, 2, 2, 1, 1, 1, 2]);
pub static BF16: Kernel = kernel!(conv 32,32,16,16, kernel = 1, precision = bf16, gpu = h200, scheme = implicit_gemm,
    tile = [4, 8, 1, 2, 2, 1, 1, 1, 2]);
pub static WINOGRAD: Kernel = kernel!(conv 32,32,16,16, tolerance = 5e-6, gpu = h200, scheme = winograd,
    tile = [4, 8, 8, 1, 2, 1, 1, 1, 1, 2]);

/// Sizes that another macro passes on.
macro_rules! square {
    ($channels:literal, $size:literal) => {
        kernel!(conv $channels, $channels, $size, $size, stride = 2, gpu = h200)
    };
}

/// An expression in a function.
pub fn square() -> Kernel {
    square!(16, 20)
}

kernels! {
    /// A layer set.
    pub mod set = "layers.yaml";
    pub mod network = "network.yaml", arch = sm_80, tiles = model;
}

pub static OF_NETWORK: Kernel = kernel!("network.yaml", layer = "block.conv", arch = sm_80, tiles = model);
