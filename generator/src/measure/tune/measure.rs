//! The trait for measuring candidates.

use crate::compile::Image;
use crate::plan::PlannedUnit;
use crate::verify::ProblemData;

/// Times of a unit with a correct result, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// From few runs.
    pub quick_us: f64,
    /// From many runs; `None` if the quick time was too long.
    pub full_us: Option<f64>,
}

/// Why a unit has no time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeasureError {
    /// Its result is incorrect.
    Wrong(String),
    /// The launch failed; the device is still usable.
    LaunchFailed(String),
    /// It left the device unusable for the rest of this process.
    DeviceLost(String),
}

/// Checks and times units, one after another.
pub trait Measure {
    /// Checks a unit on the operands of its problem, then times it: quickly, and in full if `wants_full`
    /// returns true.
    ///
    /// # Errors
    /// [`MeasureError`]; an incorrect result has no time.
    fn measure(
        &mut self,
        unit: &PlannedUnit,
        image: &Image,
        data: &ProblemData,
        wants_full: &dyn Fn(f64) -> bool,
    ) -> Result<Timing, MeasureError>;
}
