//! From a network or a layer set to units, launches and memory.

mod arena;
mod chain;
mod choose;
mod error;
mod factor_order;
mod fuse;
mod kernel;
mod launch;
mod layer_set;
mod layouts;
mod lowering;
mod name;
mod network;
mod next_fusion;
mod paper;
mod prefetch;
#[cfg(feature = "weights")]
mod recipe;
mod resources;
mod sections;
mod tuning;

pub use arena::{Arena, Lifetime};
pub use chain::chain_units;
pub use choose::{Choice, ChosenBy, Planner};
pub use error::PlanError;
pub use fuse::{FusedTasks, Parameters, Task, TaskFactor, TaskGraph, Value, ValueId};
pub use kernel::{
    KERNEL_PREFIX, KernelOp, KernelPlan, VariantPlan, kernel_name, network_layers, plan_kernel,
};
pub use launch::{LaunchPrediction, launch_terms};
pub use layer_set::{LayerSetPlan, SetLayerPlan, plan_layer_set, plan_layer_set_with};
pub use name::{problem_label, problem_of_label, unit_name};
pub use network::{
    LayerPlan, Location, Memory, NetworkPlan, PlannedKernel, PlannedUnit, distinct_units,
    plan_network, plan_network_with, plan_problem, plan_variants, plan_variants_with,
};
pub use next_fusion::NextFusion;
pub use paper::PaperPrediction;
pub use prefetch::{Division, Prefetch};
#[cfg(feature = "weights")]
pub use recipe::{factorized_layer, recipes, scale_shift_source};
pub use resources::{known_resources, resource_key};
pub use sections::{WeightSection, weight_sections};
pub use tuning::{
    Conflict, Environment, MeasuredTile, Stale, TuningError, TuningTable, committed_tuning,
    tuning_key, tuning_keys,
};
#[cfg(feature = "tune")]
pub(crate) use tuning::{parse_microseconds, text_checksum};
