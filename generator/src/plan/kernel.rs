//! The plan of one kernel asked for by itself.

use super::{PlanError, PlannedUnit, Planner, plan_problem};
use crate::spec::KernelRequest;

/// What the symbols of kernels outside networks and layer sets begin with.
const PREFIX: &str = "tdc";

/// Plans the unit of one request.
///
/// # Errors
/// [`PlanError`] when the request's scheme and tile do not fit or nothing does.
pub fn plan_kernel(request: &KernelRequest) -> Result<PlannedUnit, PlanError> {
    let layer = &request.layer;
    plan_problem(
        &mut Planner::new(request.gpu).with_tiles(request.tiles),
        PREFIX,
        &layer.name,
        &layer.computes(),
        layer.scheme.as_deref(),
        layer.tile.as_deref(),
    )
}
