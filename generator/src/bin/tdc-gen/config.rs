//! Reads and plans configs with the common options.

use crate::args::{ConfigArgs, ConvolutionArgs};
use crate::failure::Failure;
use std::io::ErrorKind;
use std::path::Path;
use tdc_generator::config::schema::Key;
use tdc_generator::config::yaml::Places;
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::gpu::{Gpu, Targets};
use tdc_generator::import::{ImportedModel, is_onnx, load_model};
use tdc_generator::ir::Network;
use tdc_generator::plan::{
    LayerSetPlan, NetworkPlan, PlanError, PlannedUnit, Planner, TuningTable, distinct_units,
    plan_layer_set_with, plan_variants_with,
};
use tdc_generator::render::{layer_set_json, network_json};
use tdc_weights::Checkpoint;

/// A config that has been read and planned.
pub enum PlannedConfig {
    /// A network, with a plan for each GPU.
    Network(Network, Vec<NetworkPlan>),
    /// A set of independent convolutions.
    LayerSet(LayerSetPlan),
}

impl PlannedConfig {
    /// Every distinct unit.
    pub fn units(&self) -> Vec<PlannedUnit> {
        match self {
            Self::Network(_, plans) => distinct_units(plans),
            Self::LayerSet(plan) => plan.units.clone(),
        }
    }

    /// The plans as JSON, as in `plan.json`.
    pub fn json(&self) -> Result<String, Failure> {
        match self {
            Self::Network(_, plans) => network_json(plans),
            Self::LayerSet(plan) => layer_set_json(plan),
        }
        .map_err(Failure::input)
    }
}

impl ConvolutionArgs {
    /// The overrides of these options.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            batches: self.batch.clone(),
            dense: self.dense,
            precision: self.types.precision,
            tolerance: self.tolerance,
            activations: self.types.activations,
            ..Overrides::default()
        }
    }
}

impl ConfigArgs {
    /// The overrides of these options, with the given GPUs.
    pub fn overrides(&self, gpus: Option<&[String]>) -> Result<Overrides, Failure> {
        let gpus = gpus.map(Targets::named).transpose();
        let gpus = gpus.map_err(|errors| Failure::list(&errors))?;
        let overrides = Overrides {
            tiles: self.tiles,
            gpus,
            ..self.convolutions.overrides()
        };
        overrides
            .with_input_shapes(&self.input)
            .map_err(Failure::Input)
    }

    /// Reads and plans one config for the given GPUs, else for those that it names. Fails for GPUs that code
    /// cannot be generated for.
    pub fn plan(&self, path: &Path, gpus: Option<&[String]>) -> Result<PlannedConfig, Failure> {
        Ok(self.plan_with_weights(path, gpus)?.0)
    }

    /// As [`plan`](Self::plan), with the weights of an ONNX file.
    pub fn plan_with_weights(
        &self,
        path: &Path,
        gpus: Option<&[String]>,
    ) -> Result<(PlannedConfig, Option<Checkpoint>), Failure> {
        let (planned, source) = self.planned(path, gpus)?;
        let targets: Vec<&'static Gpu> = match &planned {
            PlannedConfig::Network(_, plans) => plans.iter().map(|plan| plan.gpu).collect(),
            PlannedConfig::LayerSet(plan) => vec![plan.gpu],
        };
        let unsupported = targets.iter().filter_map(|gpu| gpu.code_target().err());
        let unsupported: Vec<_> = unsupported.collect();
        match (unsupported.is_empty(), gpus, source) {
            (true, _, Source::Config(_)) => Ok((planned, None)),
            (true, _, Source::Onnx(weights, _)) => Ok((planned, Some(weights))),
            (false, None, Source::Config(places) | Source::Onnx(_, Some(places))) => {
                let unsupported = unsupported.iter();
                let located =
                    unsupported.map(|error| (places.of_config(Key::Gpu), error.to_string()));
                Err(Failure::input(places.errors(located)))
            }
            (false, ..) => Err(Failure::list(&unsupported)),
        }
    }

    /// The tuning table that replaces the built-in one.
    pub fn measured_times(&self) -> Result<Option<TuningTable>, Failure> {
        self.table.as_deref().map(tuning_table).transpose()
    }

    /// Reads and plans one config for any GPUs, for looking at plans only.
    pub fn plan_for_any_gpu(
        &self,
        path: &Path,
        gpus: Option<&[String]>,
    ) -> Result<PlannedConfig, Failure> {
        Ok(self.planned(path, gpus)?.0)
    }

    fn planned(
        &self,
        path: &Path,
        gpus: Option<&[String]>,
    ) -> Result<(PlannedConfig, Source), Failure> {
        let table = self.measured_times()?;
        let planner = |gpu| planner(gpu, table.as_ref());
        let overrides = self.overrides(gpus)?;
        let (config, source) = load(path, &overrides)?;
        let planned = match config {
            Config::Network(network) => plan_variants_with(&network, planner)
                .map(|plans| PlannedConfig::Network(network, plans)),
            Config::LayerSet(set) => {
                plan_layer_set_with(&set, planner(set.gpu)).map(PlannedConfig::LayerSet)
            }
        };
        match (planned, source) {
            (Ok(planned), source) => Ok((planned, source)),
            (Err(errors), Source::Config(places) | Source::Onnx(_, Some(places))) => {
                let at = |error: &PlanError| places.of_layer(&error.layer, error.key);
                let located = errors.iter().map(|error| (at(error), error.to_string()));
                Err(Failure::input(places.errors(located)))
            }
            (Err(errors), Source::Onnx(_, None)) => Err(Failure::in_file(path, &errors)),
        }
    }

    /// Reads and plans the config of a network whose weights are to be packed.
    pub fn plan_network(
        &self,
        path: &Path,
        gpus: Option<&[String]>,
    ) -> Result<(Network, Vec<NetworkPlan>, Option<Checkpoint>), Failure> {
        match self.plan_with_weights(path, gpus)? {
            (PlannedConfig::Network(network, plans), weights) => Ok((network, plans, weights)),
            (PlannedConfig::LayerSet(_), _) => Err(Failure::Input(format!(
                "{}: a layer set has no weights to pack; give the config of a network",
                path.display()
            ))),
        }
    }
}

/// What a config was read from, besides itself.
pub enum Source {
    /// A YAML file: the positions in it.
    Config(Places),
    /// An ONNX file: its weights, and the positions in its options, if it has any.
    Onnx(Checkpoint, Option<Places>),
}

/// Reads a config or an ONNX file.
pub fn load(path: &Path, overrides: &Overrides) -> Result<(Config, Source), Failure> {
    if is_onnx(path) {
        let ImportedModel { imported, places } =
            load_model(path, overrides).map_err(Failure::input)?;
        let (network, weights) = imported.into_parts();
        return Ok((Config::Network(network), Source::Onnx(weights, places)));
    }
    let (config, places) = yaml::load_with_places(path, overrides).map_err(Failure::input)?;
    Ok((config, Source::Config(places)))
}

/// A planner with the given tuning table, if any.
pub fn planner(gpu: &'static Gpu, table: Option<&TuningTable>) -> Planner {
    match table {
        Some(table) => Planner::new(gpu).with_table(table.clone()),
        None => Planner::new(gpu),
    }
}

/// Reads a tuning table.
pub fn tuning_table(path: &Path) -> Result<TuningTable, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::in_file(path, &["no such file; check the path"]),
        _ => Failure::in_file(path, &[error]),
    })?;
    text.parse()
        .map_err(|error| Failure::in_file(path, &[error]))
}
