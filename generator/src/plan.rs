//! From a network or a layer set to units, launches and memory.

mod arena;
mod chain;
mod choose;
mod error;
mod factor_order;
mod fuse;
mod join;
mod kernel;
mod launch;
mod launches;
mod layer_set;
mod layouts;
mod name;
mod network;
mod paper;
mod prefetch;
#[cfg(feature = "weights")]
mod recipe;
mod resources;
mod sections;
mod tuning;

pub use arena::{Arena, Lifetime};
pub use chain::chained;
pub use choose::{Choice, ChosenBy, Planner};
pub use error::PlanError;
pub use fuse::{Fusions, Parameters, Task, TaskGraph, TaskPart, Value, ValueId};
pub use join::Join;
pub use kernel::{
    KERNEL_PREFIX, KernelOp, KernelPlan, VariantPlan, kernel_name, network_layers, plan_kernel,
};
pub use launch::{LaunchEstimate, launch_terms};
pub use layer_set::{LayerSetPlan, PlannedLayer, plan_layer_set, plan_layer_set_by};
pub use name::{problem_label, problem_of_label, unit_name};
pub use network::{
    Layer, Location, Memory, NetworkPlan, PlannedKernel, PlannedUnit, plan_network,
    plan_network_by, plan_problem, plan_variants, plan_variants_by, shared_units,
};
pub use paper::PaperEstimate;
pub use prefetch::{Division, Prefetch};
#[cfg(feature = "weights")]
pub use recipe::{affine, factored_layer, recipes};
pub use resources::{known_resources, resource_key};
pub use sections::{WeightSection, weight_sections};
pub use tuning::{
    Conflict, Environment, Measured, Stale, TuningError, TuningTable, committed_tuning,
    measured_problem, tuning_key, tuning_keys,
};
#[cfg(feature = "tune")]
pub(crate) use tuning::{microseconds, text_checksum};
