//! The plan of a layer set: separate convolutions that share a folder.

use super::{PlanError, PlannedUnit, Planner, plan_problem};
use crate::gpu::Gpu;
use crate::ir::ConvProblem;
use crate::ir::{LayerSet, symbol};

/// One convolution of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct SetLayerPlan {
    /// Its name.
    pub name: String,
    /// The convolution; its unit's problem says whether factors stand for it.
    pub problem: ConvProblem,
    /// Index of its unit.
    pub unit: usize,
}

/// A layer set, planned.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerSetPlan {
    /// The set's name.
    pub name: String,
    /// The name as a C++ identifier: what its symbols begin with, and its namespace.
    pub prefix: String,
    /// The GPU planned for.
    pub gpu: &'static Gpu,
    /// Distinct units, in the order of first use.
    pub units: Vec<PlannedUnit>,
    /// The layers, in the order given.
    pub layers: Vec<SetLayerPlan>,
}

/// Plans a layer set for one GPU.
///
/// # Errors
/// Every layer that cannot be planned.
pub fn plan_layer_set(set: &LayerSet, gpu: &'static Gpu) -> Result<LayerSetPlan, Vec<PlanError>> {
    plan_layer_set_with(set, Planner::new(gpu))
}

/// As [`plan_layer_set`], for the GPU of a planner of the caller's; tiles are chosen in the set's way.
///
/// # Errors
/// As there.
pub fn plan_layer_set_with(
    set: &LayerSet,
    planner: Planner,
) -> Result<LayerSetPlan, Vec<PlanError>> {
    let prefix = symbol(&set.name);
    let mut planner = planner.with_tile_policy(set.tiles);
    let gpu = planner.gpu();
    let mut units: Vec<PlannedUnit> = Vec::new();
    let mut layers = Vec::new();
    let mut errors = Vec::new();
    for layer in &set.layers {
        let planned = plan_problem(
            &mut planner,
            &prefix,
            &layer.name,
            &layer.computes(),
            layer.scheme.as_deref(),
            layer.tile.as_deref(),
        );
        let unit = match planned {
            Ok(unit) => unit,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let known = units
            .iter()
            .position(|other| other.unit.name == unit.unit.name);
        layers.push(SetLayerPlan {
            name: layer.name.clone(),
            problem: layer.problem,
            unit: known.unwrap_or(units.len()),
        });
        if known.is_none() {
            units.push(unit);
        }
    }
    if errors.is_empty() {
        Ok(LayerSetPlan {
            name: set.name.clone(),
            prefix,
            gpu,
            units,
            layers,
        })
    } else {
        Err(errors)
    }
}
