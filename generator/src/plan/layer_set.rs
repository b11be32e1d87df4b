//! The plan of a layer set: separate convolutions that share a folder.

use super::{PlanError, PlannedUnit};
use crate::gpu::Gpu;
use crate::spec::{ConvProblem, Problem};

/// One convolution of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedLayer {
    /// Its name.
    pub name: String,
    /// What it computes.
    pub problem: ConvProblem,
    /// Index of its unit.
    pub unit: usize,
}

/// A layer set, planned.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerSetPlan {
    name: String,
    prefix: String,
    gpu: &'static Gpu,
    units: Vec<PlannedUnit>,
    layers: Vec<PlannedLayer>,
}

impl LayerSetPlan {
    /// A set of named layers; equal units are kept once. The units must have been planned with [`Self::symbol_prefix`].
    ///
    /// # Errors
    /// [`PlanError`] for a layer that is no convolution or carries another prefix, and for a set without layers.
    pub fn new(
        name: &str,
        gpu: &'static Gpu,
        layers: Vec<(String, PlannedUnit)>,
    ) -> Result<Self, PlanError> {
        let prefix = Self::symbol_prefix(name);
        if layers.is_empty() {
            return Err(PlanError::new(
                name,
                "the layer set has no layers",
                "list at least one",
            ));
        }
        let mut units: Vec<PlannedUnit> = Vec::new();
        let mut planned = Vec::new();
        for (layer, unit) in layers {
            let Problem::Conv(problem) = unit.problem else {
                return Err(PlanError::new(
                    &layer,
                    "only convolutions can be in a layer set",
                    "put it into a network",
                ));
            };
            if unit.prefix != prefix {
                return Err(PlanError::new(
                    &layer,
                    format!("its symbols begin with `{}`, not `{prefix}`", unit.prefix),
                    "plan the layer for this set",
                ));
            }
            let known = units
                .iter()
                .position(|other| other.unit.name == unit.unit.name);
            planned.push(PlannedLayer {
                name: layer,
                problem,
                unit: known.unwrap_or(units.len()),
            });
            if known.is_none() {
                units.push(unit);
            }
        }
        Ok(Self {
            name: name.to_owned(),
            prefix,
            gpu,
            units,
            layers: planned,
        })
    }

    /// The C++ identifier of a set's name: what its symbols begin with, and its namespace.
    pub fn symbol_prefix(name: &str) -> String {
        let mut prefix = name.replace(['-', '.'], "_");
        if prefix.starts_with(|c: char| c.is_ascii_digit()) {
            prefix.insert(0, '_');
        }
        prefix
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its symbols begin with, and its namespace.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The GPU planned for.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Distinct units, in the order of first use.
    pub fn units(&self) -> &[PlannedUnit] {
        &self.units
    }

    /// The layers, in the order given.
    pub fn layers(&self) -> &[PlannedLayer] {
        &self.layers
    }
}
