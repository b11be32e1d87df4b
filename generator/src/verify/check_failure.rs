//! Why a check fails.

use super::{Deviation, DeviceError};
use crate::wording::counted;
use std::fmt;

/// Why a unit or layer has failed its check.
#[derive(Debug, Clone, PartialEq)]
pub enum CheckFailure {
    /// Its error exceeds the tolerance.
    Inaccurate {
        /// The deviation.
        deviation: Deviation,
        /// The tolerance.
        tolerance: f64,
    },
    /// It wrote outside its buffers: the number of modified guard elements.
    OutOfBounds(usize),
    /// A further run gave different bits.
    NotDeterministic,
    /// A device error.
    Device(DeviceError),
}

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckFailure::Inaccurate {
                deviation,
                tolerance,
            } => write!(f, "{deviation}; tolerance {tolerance:.1e}"),
            CheckFailure::OutOfBounds(count) => {
                write!(
                    f,
                    "modified {} outside its output",
                    counted(*count, "element")
                )
            }
            CheckFailure::NotDeterministic => write!(f, "a second run gave different bits"),
            CheckFailure::Device(error) => write!(f, "{error}"),
        }
    }
}

impl From<DeviceError> for CheckFailure {
    fn from(error: DeviceError) -> Self {
        CheckFailure::Device(error)
    }
}
