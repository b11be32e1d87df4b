//! What can go wrong on a GPU.

use crate::NoImage;
use cudarc::driver::DriverError;
use std::fmt;

/// A kernel cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// It has no code for the device.
    NoImage(NoImage),
    /// A launch needs more shared memory than a block of the device may have.
    SharedMemory {
        /// The kernel's name.
        kernel: &'static str,
        /// The device's name.
        device: String,
        /// Bytes a launch needs.
        needed: u32,
        /// Bytes a block may have.
        available: u32,
    },
    /// The driver refused.
    Driver {
        /// The kernel's name.
        kernel: &'static str,
        /// What it said.
        error: DriverError,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoImage(error) => error.fmt(f),
            Self::SharedMemory {
                kernel,
                device,
                needed,
                available,
            } => write!(
                f,
                "{kernel}: its blocks need {needed} bytes of shared memory, those of {device} may have {available}; plan it for this \
                 GPU: add `gpu` or `arch` to the call"
            ),
            Self::Driver { kernel, error } => {
                write!(f, "{kernel}: the CUDA driver does not load it: {error}")
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// A kernel was not launched; nothing was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchError {
    /// A tensor has another number of elements than its shape.
    Length {
        /// `x`, `weights`, `bias`, `residual`, `y`, `workspace`, or `scale` and `shift` of a prologue.
        what: &'static str,
        /// Elements needed; bytes of a workspace.
        expected: usize,
        /// Elements given.
        found: usize,
    },
    /// An operand is missing that the kernel reads.
    Missing(
        /// `bias`, `residual` or `prologue`.
        &'static str,
    ),
    /// An operand is given that the kernel does not read.
    Unexpected(
        /// `bias`, `residual` or `prologue`.
        &'static str,
    ),
    /// A tensor does not begin at a multiple of 16 bytes.
    Misaligned(
        /// As in [`Length`](Self::Length).
        &'static str,
    ),
    /// A tensor or the stream belongs to another context than the kernel was loaded into.
    Context(
        /// As in [`Length`](Self::Length), or `stream`.
        &'static str,
    ),
    /// The driver refused.
    Driver(DriverError),
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length {
                what,
                expected,
                found,
            } => write!(f, "`{what}` has {found} elements, {expected} are needed"),
            Self::Missing(what) => write!(
                f,
                "`{what}` is missing: the kernel was asked for with `{what} = true`"
            ),
            Self::Unexpected(what) => write!(
                f,
                "`{what}` is given, but the kernel does not read it; ask for it with `{what} = true`"
            ),
            Self::Misaligned(what) => write!(
                f,
                "`{what}` does not begin at a multiple of 16 bytes; copy the view to a tensor of its own"
            ),
            Self::Context(what) => write!(
                f,
                "`{what}` belongs to another CUDA context than the kernel; load the kernel into that one too"
            ),
            Self::Driver(error) => write!(f, "the CUDA driver refused: {error}"),
        }
    }
}

impl std::error::Error for LaunchError {}

impl From<DriverError> for LaunchError {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}
