//! Reads and plans configs by the common arguments.

use crate::args::ConfigArgs;
use crate::failure::Failure;
use std::path::Path;
use tdc_generator::gpu::{Gpu, gpu};
use tdc_generator::plan::{LayerSetPlan, NetworkPlan, plan_layer_set, plan_network};
use tdc_generator::render::{layer_set_json, network_json};
use tdc_generator::spec::{Config, Network, Overrides, yaml};

/// A config that was read and planned.
pub enum Planned {
    /// A network.
    Network(Network, NetworkPlan),
    /// Separate convolutions.
    LayerSet(LayerSetPlan),
}

impl Planned {
    /// The plan as JSON, as in `plan.json`.
    pub fn json(&self) -> Result<String, Failure> {
        match self {
            Self::Network(_, plan) => network_json(plan),
            Self::LayerSet(plan) => layer_set_json(plan),
        }
        .map_err(Failure::input)
    }
}

impl ConfigArgs {
    fn overrides(&self) -> Overrides {
        Overrides {
            input: self.input,
            batch: self.batch,
            dense: self.dense,
            tiles: self.tiles,
        }
    }

    /// Reads and plans one config for the GPU of a name, for which code is to be made.
    pub fn plan(&self, path: &Path, gpu_name: &str) -> Result<Planned, Failure> {
        let gpu = gpu(gpu_name).map_err(Failure::input)?;
        self.plan_for(path, gpu.code_target().map_err(Failure::input)?)
    }

    /// Reads and plans one config for any GPU, to look at the plan alone.
    pub fn plan_only(&self, path: &Path, gpu_name: &str) -> Result<Planned, Failure> {
        self.plan_for(path, gpu(gpu_name).map_err(Failure::input)?)
    }

    fn plan_for(&self, path: &Path, gpu: &'static Gpu) -> Result<Planned, Failure> {
        match yaml::load(path, &self.overrides()).map_err(Failure::input)? {
            Config::Network(network) => {
                let plan =
                    plan_network(&network, gpu).map_err(|errors| Failure::all(path, &errors))?;
                Ok(Planned::Network(network, plan))
            }
            Config::LayerSet(set) => {
                let plan =
                    plan_layer_set(&set, gpu).map_err(|errors| Failure::all(path, &errors))?;
                Ok(Planned::LayerSet(plan))
            }
        }
    }

    /// Reads and plans the config of a network, whose weights are to be packed.
    pub fn plan_network(
        &self,
        path: &Path,
        gpu_name: &str,
    ) -> Result<(Network, NetworkPlan), Failure> {
        match self.plan(path, gpu_name)? {
            Planned::Network(network, plan) => Ok((network, plan)),
            Planned::LayerSet(_) => Err(Failure::Input(format!(
                "{}: a layer set has no weights to pack; name a network",
                path.display()
            ))),
        }
    }
}
