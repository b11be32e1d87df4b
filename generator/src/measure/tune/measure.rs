//! What measures candidates, behind a trait.

use crate::compile::Image;
use crate::plan::PlannedUnit;
use crate::verify::ProblemData;

/// Times of a unit whose result was found right, microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Of few runs.
    pub quick_us: f64,
    /// Of many; `None` when the quick time was not worth it.
    pub full_us: Option<f64>,
}

/// A unit that has no time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeasureError {
    /// Its result is wrong.
    Wrong(String),
    /// The device refused it, and can go on with others.
    LaunchFailed(String),
    /// It broke the device for the rest of this process.
    DeviceLost(String),
}

/// Checks and times units, one after the other.
pub trait Measure {
    /// Checks a unit on the operands of its problem, then times it: quickly, and in full if `wants_full` says so.
    ///
    /// # Errors
    /// [`MeasureError`]; a wrong result has no time.
    fn measure(
        &mut self,
        unit: &PlannedUnit,
        image: &Image,
        data: &ProblemData,
        wants_full: &dyn Fn(f64) -> bool,
    ) -> Result<Timing, MeasureError>;
}
