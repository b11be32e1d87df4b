//! Errors of loading and launching.

use crate::NoImage;
use cudarc::driver::DriverError;
use std::fmt;

/// Why a kernel cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// The kernel has no code for the device.
    NoImage(NoImage),
    /// A launch needs more shared memory than the device has for a block.
    SharedMemory {
        /// The kernel's name.
        kernel: &'static str,
        /// The device's name.
        device: String,
        /// Bytes that a launch needs.
        needed: u32,
        /// Bytes that a block can have.
        available: u32,
    },
    /// A driver error.
    Driver {
        /// The kernel's name.
        kernel: &'static str,
        /// The driver's error.
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
                "{kernel}: a block needs {needed} bytes of shared memory, but {device} has {available}; plan the kernel for this \
                 GPU: add `gpu` or `arch` to the call"
            ),
            Self::Driver { kernel, error } => {
                write!(
                    f,
                    "{kernel}: the CUDA driver cannot load the kernel: {error}"
                )
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Why a kernel was not launched; nothing was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchError {
    /// A tensor does not have the number of elements of its shape.
    Length {
        /// `x`, `weights`, `bias`, `residual`, `y`, `workspace`, or `scale` and `shift` of a prologue.
        what: &'static str,
        /// Elements required; bytes of a workspace.
        expected: usize,
        /// Elements given.
        found: usize,
    },
    /// An operand that the kernel reads is missing.
    Missing(
        /// `bias`, `residual` or `prologue`.
        &'static str,
    ),
    /// An operand is given that the kernel does not read.
    Unexpected(
        /// `bias`, `residual` or `prologue`.
        &'static str,
    ),
    /// The address of a tensor is not a multiple of 16 bytes.
    Misaligned(
        /// As in [`Length`](Self::Length).
        &'static str,
    ),
    /// A tensor or the stream belongs to a context other than the kernel's.
    Context(
        /// As in [`Length`](Self::Length), or `stream`.
        &'static str,
    ),
    /// A driver error.
    Driver(DriverError),
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length {
                what,
                expected,
                found,
            } => write!(f, "`{what}` has length {found}, expected {expected}"),
            Self::Missing(what) => write!(
                f,
                "`{what}` is missing: the kernel was generated with `{what} = true`"
            ),
            Self::Unexpected(what) => write!(
                f,
                "`{what}` is given, but the kernel does not read it; add `{what} = true` to the call"
            ),
            Self::Misaligned(what) => write!(
                f,
                "`{what}` is not aligned to 16 bytes; copy the view to a separate tensor"
            ),
            Self::Context(what) => write!(
                f,
                "`{what}` belongs to a different CUDA context than the kernel; load the kernel into that context too"
            ),
            Self::Driver(error) => write!(f, "CUDA driver error: {error}"),
        }
    }
}

impl std::error::Error for LaunchError {}

impl From<DriverError> for LaunchError {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}
