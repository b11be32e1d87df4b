//! Reads and plans configs by the common arguments.

use crate::args::ConfigArgs;
use crate::failure::Failure;
use std::path::Path;
use tdc_generator::gpu::gpu;
use tdc_generator::plan::{LayerSetPlan, NetworkPlan, plan_layer_set, plan_network};
use tdc_generator::spec::{Config, Network, Overrides, yaml};

/// A config that was read and planned.
pub enum Planned {
    /// A network.
    Network(Network, NetworkPlan),
    /// Separate convolutions.
    LayerSet(LayerSetPlan),
}

impl ConfigArgs {
    fn overrides(&self) -> Overrides {
        Overrides {
            input: self.input,
            batch: self.batch,
            dense: self.dense,
        }
    }

    /// Reads and plans one config for the GPU of a name.
    pub fn plan(&self, path: &Path, gpu_name: &str) -> Result<Planned, Failure> {
        let gpu = gpu(gpu_name).map_err(Failure::input)?;
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
