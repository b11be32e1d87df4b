//! The central types of `tdc`, as plain data without dependencies.
//!
//! - [`ConvShape`]: the sizes of a convolution;
//! - [`Unit`], [`Variant`], [`Step`]: launches and memsets that compute an op;
//! - [`Kernel`]: an op with its launches and machine code, as embedded by `kernel!`;
//! - [`WeightLayout`]: the order in which a kernel reads its weights, and the packer;
//! - [`WeightFile`]: the file of packed weights that a generated driver maps.
//!
//! All of it can be constructed in a `const`, so that a macro can embed it in a program.

mod activation;
mod arch;
mod bf16;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod device_packing;
mod factor;
mod half;
mod kernel;
mod layout;
mod op;
mod shape;
mod unit;
mod weight_file;
mod winograd;

#[cfg(feature = "cuda")]
pub use cudarc;

pub use activation::{Activation, ActivationParameter};
pub use arch::{Arch, ParseArchError};
pub use bf16::{bits as bf16_bits, value as bf16_value};
pub use factor::{Decomposition, FactorRole};
pub use half::{bits as fp16_bits, value as fp16_value};
pub use kernel::{
    Image, ImageFormat, Kernel, KernelUsage, KernelVariant, NoImage, UnitChoice, is_gpu_name,
};
pub use layout::{Axis, Filter, LayoutDim, PackError, Transform, WeightLayout};
pub use op::{Conv, FusedOps, LowRank, Op, Tucker};
pub use shape::{ConvShape, Padding};
pub use unit::{Arg, Bindings, Launch, Step, Unit, Variant};
pub use weight_file::{Checksum, WeightFile, WeightRegion, WeightSlot};
pub use winograd::Winograd;
