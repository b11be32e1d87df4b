//! From a network or a layer set to units, launches and memory.
//!
//! Data goes one way:
//!
//! 1. `fold` computes as many ops as possible by other ops' epilogues, prologues and views. The result is a [`TaskGraph`]: tasks, each
//!    of which one unit can compute, and typed values between them.
//! 2. `candidates` lists all units that could compute one or several tasks, and the conversions between formats; `times` gives each
//!    its measured or predicted time, which `choose` finds with the scheme and tile.
//! 3. `select` finds the candidates that compute the graph in the least time, `lowering` makes them the tasks of the plan.
//! 4. `unit` plans the kernels of each task, `branches` finds what runs side by side, `carveout` divides the memory of SMs, `memory` places
//!    all values and workspaces, and `network`, `layer_set` and `kernel` put the plan together.

mod arena;
mod batches;
mod branches;
mod candidates;
mod carveout;
mod chain;
mod choose;
#[cfg(feature = "compress")]
mod correction;
mod distinct;
mod error;
mod factor_order;
mod factors;
mod fold;
mod graph;
mod kernel;
mod launch;
mod layer_set;
mod lowering;
mod memory;
mod name;
mod network;
mod network_time;
mod nhwc_concats;
mod paper;
mod prefetch;
#[cfg(feature = "weights")]
mod recipe;
mod resource_table;
mod resources;
mod sections;
mod select;
mod shared_weights;
#[cfg(feature = "compress")]
mod stored_layer;
mod times;
mod tuning;
mod unit;
mod variants;
mod views;

pub use arena::{Arena, Lifetime};
pub use batches::{BatchSchedule, TENSOR_ALIGNMENT};
pub use candidates::{Candidate, FormatConversion, candidate_problems};
#[cfg(feature = "compress")]
pub(crate) use candidates::{FusableReaders, MixedLaunch, SharedLaunch};
pub use chain::chain_units;
pub use choose::{Choice, ChosenBy, Planner};
#[cfg(feature = "compress")]
pub(crate) use correction::Correction;
pub use error::PlanError;
#[cfg(feature = "compress")]
pub(crate) use factor_order::horizontal_first;
#[cfg(feature = "compress")]
pub(crate) use fold::FoldedNetwork;
pub use graph::{
    InnerLayer, MergedLayer, Parameters, Projection, Task, TaskGraph, Value, ValueId, WeightPart,
};
pub use kernel::{
    KERNEL_PREFIX, KernelOp, KernelPlan, VariantPlan, kernel_name, network_layers, plan_kernel,
};
pub use launch::LaunchPrediction;
pub use layer_set::{LayerSetPlan, SetLayerPlan, plan_layer_set, plan_layer_set_with};
pub use memory::{Location, Memory};
pub use name::{problem_label, problem_of_label, unit_name};
pub use network::{
    LayerPlan, NetworkPlan, OtherOutput, PlannedTensor, plan_network, plan_network_with,
};
pub use network_time::{LayerPart, LayerTime, NetworkTime, StepTime};
pub use paper::PaperPrediction;
pub use prefetch::{Division, Prefetch};
#[cfg(feature = "weights")]
pub use recipe::{factorized_layer, recipes, scale_shift_source, section_recipes};
pub use resource_table::{ResourceTable, ResourceTableError, Resources};
pub use resources::{known_resources, resource_key};
pub use sections::{WeightSection, weight_sections};
#[cfg(feature = "compress")]
pub(crate) use stored_layer::{StoredFormats, StoredLayer};
pub use tuning::{
    Conflict, Environment, MeasuredTile, Stale, TuningError, TuningTable, committed_tuning,
    tuning_key, tuning_keys,
};
#[cfg(feature = "tune")]
pub(crate) use tuning::{parse_microseconds, text_checksum};
pub use unit::{PlannedKernel, PlannedUnit, launch_terms, plan_problem};
pub use variants::{distinct_units, plan_variants, plan_variants_with, plans_by_gpu};
