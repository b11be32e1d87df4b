//! Times of generated units.

use super::buffers::{Buffers, bytes_of};
use super::{Candidate, CandidateResult, Measurement, RejectedTile, Timed};
use crate::ir::Reduce;
use crate::plan::PlannedUnit;
use crate::scheme::scheme;
use crate::verify::{
    Bindings, CheckFailure, Device, DeviceError, GpuDevice, ProblemData, check_unit_on, run_variant,
};

/// Checks a loaded candidate and measures its warm time, on the same buffers in every run.
///
/// # Errors
/// An incorrect result, or a device error.
pub fn timed(
    device: &mut GpuDevice,
    candidate: &Candidate,
    data: &ProblemData,
) -> Result<Timed, CheckFailure> {
    let check = check_unit_on(device, &candidate.unit, data, 2)?;
    Ok(Timed {
        us: time_on_copies(device, &candidate.unit, data, 1)?,
        cold_us: None,
        relative_error: check.deviation.relative,
    })
}

/// Cold time of a loaded unit in microseconds, on rotating buffers; `None` if its tensors are too small for
/// that.
///
/// # Errors
/// Device errors.
pub fn cold_us(
    device: &mut GpuDevice,
    unit: &PlannedUnit,
    data: &ProblemData,
    l2_bytes: u64,
) -> Result<Option<f64>, DeviceError> {
    let bytes = unit.problem.bytes() as usize;
    let copies = Buffers::copies_exceeding_cache(bytes, l2_bytes);
    copies
        .map(|copies| time_on_copies(device, unit, data, copies))
        .transpose()
}

fn time_on_copies(
    device: &mut GpuDevice,
    unit: &PlannedUnit,
    data: &ProblemData,
    copies: usize,
) -> Result<f64, DeviceError> {
    let us = time_unit_us(device, unit, data, copies);
    device.free_all();
    us
}

fn time_unit_us(
    device: &mut GpuDevice,
    unit: &PlannedUnit,
    data: &ProblemData,
    copies: usize,
) -> Result<f64, DeviceError> {
    let variant = unit.variant();
    let packed = data
        .pack(variant)
        .map_err(|error| DeviceError(error.to_string()))?;
    let (x, y) = (unit.problem.x(), unit.problem.y());
    let buffers = Buffers::new(
        device,
        &bytes_of(data.x()),
        &bytes_of(&packed),
        4 * y.len() as usize,
        copies,
    )?;
    let workspace = device.alloc(variant.workspace_bytes.div_ceil(4) as usize)?;
    device.graph_us(buffers.repeats(), &mut |device, run| {
        let operands = buffers.for_run(run);
        let bindings = Bindings {
            x: operands.x,
            packed: operands.weight,
            y: operands.y,
            workspace,
            x_batch_stride: x.image_len(),
            y_batch_stride: y.image_len(),
            ..Bindings::default()
        };
        run_variant(device, variant, &bindings)
    })
}

/// The row of a candidate.
pub fn row(candidate: &Candidate, outcome: Measurement) -> CandidateResult {
    let unit = &candidate.unit;
    let tile = scheme(unit.scheme).map(|scheme| unit.tile.label(scheme.tile_fields()).to_string());
    CandidateResult {
        scheme: unit.scheme.to_owned(),
        reduce: unit
            .problem
            .conv()
            .map_or(Reduce::Ordered, |conv| conv.reduce),
        tile: tile.unwrap_or_default(),
        selected_by: candidate.selected_by.clone(),
        predicted_us: Some(unit.predicted_us),
        outcome,
    }
}

/// The row of a named tile that the planner rejected.
pub fn rejected_row(rejected_tile: &RejectedTile) -> CandidateResult {
    let named = &rejected_tile.named;
    CandidateResult {
        scheme: named.scheme.clone(),
        reduce: named.reduce,
        tile: format!("{:?}", named.tile),
        selected_by: vec![named.label.clone()],
        predicted_us: None,
        outcome: Measurement::Failed {
            failure: rejected_tile.reason.to_string(),
        },
    }
}
