//! A planned unit: one problem with scheme, tile, kernels and launches.

use super::choose::{Choice, ChosenBy, Planner};
use super::error::PlanError;
use super::launch::LaunchPrediction;
use super::name::unit_name;
use crate::cost::{CostTerms, floor_us, fp32_lanes_floor_us, kernel_terms};
use crate::gpu::{Gpu, OLDEST_ARCH};
use crate::ir::{DType, Problem};
use crate::scheme::{KernelBlueprint, LaunchWork, Tile};
use tdc_runtime::{Launch, Step, Unit, Variant};

/// A kernel with its symbol.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedKernel {
    /// The kernel's symbol.
    pub symbol: String,
    /// Template, context and launch.
    pub blueprint: KernelBlueprint,
    /// Element type of the unit's input.
    pub x_dtype: DType,
    /// Element type of the unit's output, and of a residual.
    pub y_dtype: DType,
    /// Preferred shared memory of an SM while it runs, KiB; the rest of the SM's memory is L1. `None` leaves it to the driver.
    pub carveout: Option<u32>,
}

/// A unit with its problem, the choice of scheme and tile, and its kernels.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedUnit {
    /// Name, launches, workspace and weight layouts.
    pub unit: Unit,
    /// Prefix of its symbols: the name of the network or layer set.
    pub prefix: String,
    /// The problem that it computes.
    pub problem: Problem,
    /// The scheme's name.
    pub scheme: &'static str,
    /// The tile.
    pub tile: Tile,
    /// How the tile was chosen.
    pub chosen_by: ChosenBy,
    /// Predicted time, microseconds.
    pub predicted_us: f64,
    /// Measured time, microseconds, if a table has it.
    pub measured_us: Option<f64>,
    /// [Physical limit](floor_us) of a single launch, microseconds.
    pub floor_us: f64,
    /// The limit of a launch that computes on the [fp32 lanes](fp32_lanes_floor_us) only, microseconds.
    pub fp32_lanes_floor_us: f64,
    /// The kernels in order of their launches.
    pub kernels: Vec<PlannedKernel>,
}

impl PlannedUnit {
    /// The variant of this plan; the first one if several plans share the unit.
    pub fn variant(&self) -> &Variant {
        &self.unit.variants[0]
    }

    /// Its time when it is repeated, microseconds: measured if a table has it, else predicted.
    pub(crate) fn repeated_us(&self) -> f64 {
        self.measured_us.unwrap_or(self.predicted_us)
    }

    fn launches(&self) -> impl Iterator<Item = LaunchWork> {
        self.kernels.iter().map(|kernel| LaunchWork {
            role: kernel.blueprint.role,
            work: kernel.blueprint.work,
        })
    }
}

impl LaunchPrediction {
    /// Predictions for every launch of a unit, in order.
    pub fn for_unit(unit: &PlannedUnit, gpu: &Gpu) -> Vec<Self> {
        unit.launches()
            .map(|launch| Self::new(&unit.unit.name, &launch, gpu))
            .collect()
    }
}

/// The terms of the predicted time of every launch of a unit, in order; `None` for a launch whose blocks do not fit the GPU.
pub fn launch_terms(unit: &PlannedUnit, gpu: &Gpu) -> Vec<Option<CostTerms>> {
    unit.launches()
        .map(|launch| kernel_terms(&launch.with_known_registers(&unit.unit.name, gpu), gpu))
        .collect()
}

/// Plans one problem as a unit, named by the naming grammar of units.
///
/// # Errors
/// [`PlanError`], with the name of `layer`, if the requested scheme and tile are not valid for the problem or no scheme supports it.
pub fn plan_problem(
    planner: &mut Planner,
    prefix: &str,
    layer: &str,
    problem: &Problem,
    scheme: Option<&str>,
    tile: Option<&[u32]>,
) -> Result<PlannedUnit, PlanError> {
    let choice = planner.choose(layer, problem, scheme, tile)?;
    Ok(planned_unit(prefix, problem, &choice, planner.gpu()))
}

/// The unit of a choice, named by the naming grammar of units.
pub(super) fn planned_unit(
    prefix: &str,
    problem: &Problem,
    choice: &Choice,
    gpu: &Gpu,
) -> PlannedUnit {
    let name = unit_name(problem, choice.scheme, &choice.tile);
    let blueprint = choice.scheme.blueprint(problem, &choice.tile, gpu);
    let kernels: Vec<PlannedKernel> = blueprint
        .kernels
        .into_iter()
        .map(|blueprint| PlannedKernel {
            symbol: format!("{prefix}_{name}_{}", blueprint.role),
            blueprint,
            x_dtype: problem.kind().input().format.dtype,
            y_dtype: problem.kind().output().format.dtype,
            carveout: None,
        })
        .collect();
    let memset = blueprint.zeroed.map(|zeroed| Step::Memset {
        target: zeroed.target,
        bytes: zeroed.bytes,
    });
    let launches = kernels.iter().map(|kernel| {
        Step::Launch(Launch {
            kernel: kernel.symbol.clone().into(),
            grid: kernel.blueprint.grid,
            block: kernel.blueprint.block,
            cluster: kernel.blueprint.cluster,
            shared_bytes: kernel.blueprint.shared_bytes,
            pdl: kernel.blueprint.pdl,
            args: kernel.blueprint.args.clone().into(),
        })
    });
    let steps: Vec<Step> = memset.into_iter().chain(launches).collect();
    let variant = Variant {
        gpu: gpu.name.into(),
        min_arch: OLDEST_ARCH,
        steps: steps.into(),
        workspace_bytes: blueprint.workspace_bytes,
        weights: blueprint.weights,
        extra_weight_layouts: blueprint.extra_weight_layouts.into(),
        bias_len: if problem.reads_bias() {
            problem.epilogue_shape().c
        } else {
            0
        },
    };
    PlannedUnit {
        unit: Unit {
            name: name.into(),
            variants: vec![variant].into(),
        },
        prefix: prefix.to_owned(),
        problem: *problem,
        scheme: choice.scheme.name(),
        tile: choice.tile.clone(),
        chosen_by: choice.chosen_by,
        predicted_us: choice.predicted_us,
        measured_us: choice.measured_us,
        floor_us: floor_us(problem, gpu),
        fp32_lanes_floor_us: fp32_lanes_floor_us(problem.flops(), problem.bytes(), gpu),
        kernels,
    }
}
