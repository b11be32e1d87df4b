//! Numerics: generated kernels against an independent float64 reference, on the CPU or on a GPU.
//!
//! Nothing here shares code with schemes or templates but the plain data that says what to launch.

mod device;
mod random;
pub mod reference;
#[cfg(feature = "weights")]
mod trained;
mod verify;

pub use device::{Bindings, Device, DeviceError, run_variant};
pub use random::Random;
#[cfg(feature = "weights")]
pub use trained::TrainedParameters;
pub use verify::{
    Deviation, Failure, NetworkCheck, UnitCheck, check_network, check_unit, tolerance,
};
