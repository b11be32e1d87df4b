//! A kernel embedded in a program.

use crate::{ConvShape, Unit};

/// One convolution, planned when the program was compiled: what is launched and the CUDA C++ text of it.
///
/// `kernel!` of the crate `tdc` makes them, with an example. The text is not compiled: give it to NVRTC.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// Launches, their parameters, and how the weights are packed.
    pub unit: Unit,
    /// What is computed; where factors are given instead of a weight, what they stand for.
    pub shape: ConvShape,
    /// The algorithm's name.
    pub scheme: &'static str,
    /// The text of every kernel that the unit launches; it includes nothing.
    pub source: &'static str,
    /// Estimated time of all launches on the GPU planned for, microseconds.
    pub estimate_us: f64,
}

impl Kernel {
    /// Launches, their parameters, and how the weights are packed.
    pub const fn unit(&self) -> &Unit {
        &self.unit
    }

    /// The text of every kernel that the unit launches.
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// Floating-point operations of the convolution, a multiply-add counted as two; factors take fewer.
    pub const fn flops(&self) -> u64 {
        self.shape.flops()
    }
}
