//! The types that everything in `tdc` turns on, as plain data without dependencies.
//!
//! - [`ConvShape`]: what one convolution computes;
//! - [`Unit`], [`Variant`], [`Step`]: how an op is carried out, as launches and memsets;
//! - [`Kernel`]: one op with its launches and machine code, as `kernel!` embeds it;
//! - [`WeightLayout`]: how PyTorch's weights are reordered for a kernel, and the one packer;
//! - [`WeightFile`]: the packed file that a generated driver maps.
//!
//! All of it can be built in a `const`, so that a macro can embed it in a program.

mod arch;
mod bf16;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod device_packing;
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

pub use arch::{Arch, ParseArchError};
pub use kernel::{
    Image, ImageFormat, Kernel, KernelUsage, KernelVariant, NoImage, UnitChoice, is_gpu_name,
};
pub use layout::{Axis, Filter, LayoutDim, PackError, Transform, WeightLayout};
pub use op::{Activation, Conv, FusedOps, Op, Tucker};
pub use shape::{ConvShape, Padding};
pub use unit::{Arg, Bindings, Launch, Step, Unit, Variant};
pub use weight_file::{Checksum, WeightFile, WeightRegion, WeightSlot};
pub use winograd::Winograd;
