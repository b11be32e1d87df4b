//! The plan of a layer set: independent convolutions that share a folder.

use super::choose::Planner;
use super::distinct::DistinctUnits;
use super::error::PlanError;
use super::unit::{PlannedUnit, plan_problem};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, LayerSet, symbol};

/// One convolution of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct SetLayerPlan {
    /// Name.
    pub name: String,
    /// The convolution. The problem of its unit differs from it if the layer has a CP rank or a layout.
    pub problem: ConvProblem,
    /// Index of its unit.
    pub unit: usize,
}

/// A layer set, planned.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerSetPlan {
    /// The set's name.
    pub name: String,
    /// The name as a C++ identifier: the namespace, and the prefix of symbols.
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
/// One for each layer that cannot be planned.
pub fn plan_layer_set(set: &LayerSet, gpu: &'static Gpu) -> Result<LayerSetPlan, Vec<PlanError>> {
    plan_layer_set_with(set, Planner::new(gpu))
}

/// As [`plan_layer_set`], for the GPU of the caller's planner; the tile policy is the set's.
///
/// # Errors
/// As [`plan_layer_set`].
pub fn plan_layer_set_with(
    set: &LayerSet,
    planner: Planner,
) -> Result<LayerSetPlan, Vec<PlanError>> {
    let prefix = symbol(&set.name);
    let mut planner = planner.with_tile_policy(set.tiles);
    let gpu = planner.gpu();
    let mut units = DistinctUnits::default();
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
        match planned {
            Ok(unit) => layers.push(SetLayerPlan {
                name: layer.name.clone(),
                problem: layer.problem,
                unit: units.add(unit).0,
            }),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        Ok(LayerSetPlan {
            name: set.name.clone(),
            prefix,
            gpu,
            units: units.into_vec(),
            layers,
        })
    } else {
        Err(errors)
    }
}
