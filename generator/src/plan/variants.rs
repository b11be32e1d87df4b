//! The plans of a network for several GPUs, and the units that they share.

use super::carveout::agree_on_carveouts;
use super::choose::Planner;
use super::distinct::DistinctUnits;
use super::error::PlanError;
use super::network::NetworkPlan;
use super::shared_weights::plan_batches;
use super::unit::PlannedUnit;
use crate::gpu::Gpu;
use crate::ir::Network;

/// Plans a network for each of its GPUs, in their order, and for each by ascending batch. Plans for one GPU have one weight file.
///
/// # Errors
/// One for each layer that cannot be planned. An error that several GPUs or batches have in common is listed once.
pub fn plan_variants(network: &Network) -> Result<Vec<NetworkPlan>, Vec<PlanError>> {
    plan_variants_with(network, Planner::new)
}

/// As [`plan_variants`], with the caller's planner for each GPU; the tile policy is the network's.
///
/// # Errors
/// As [`plan_variants`].
pub fn plan_variants_with(
    network: &Network,
    planner: impl Fn(&'static Gpu) -> Planner,
) -> Result<Vec<NetworkPlan>, Vec<PlanError>> {
    let mut plans = Vec::new();
    let mut errors: Vec<PlanError> = Vec::new();
    for gpu in network.gpus.gpus() {
        match plan_batches(network, || planner(gpu)) {
            Ok(of_gpu) => plans.extend(of_gpu),
            Err(found) => {
                for error in found {
                    if !errors.contains(&error) {
                        errors.push(error);
                    }
                }
            }
        }
    }
    agree_on_carveouts(plans.iter_mut().flat_map(|plan| &mut plan.units));
    match errors.is_empty() {
        true => Ok(plans),
        false => Err(errors),
    }
}

/// The plans of each GPU, by ascending batch.
pub fn plans_by_gpu(plans: &[NetworkPlan]) -> Vec<&[NetworkPlan]> {
    plans.chunk_by(|a, b| a.gpu == b.gpu).collect()
}

/// The distinct units of several plans of one network, in the order of first use. A unit of several plans has the variants of all of
/// them.
pub fn distinct_units(plans: &[NetworkPlan]) -> Vec<PlannedUnit> {
    let mut units = DistinctUnits::default();
    for unit in plans.iter().flat_map(|plan| &plan.units) {
        let (index, is_new) = units.add(unit.clone());
        if !is_new {
            units.add_variants(index, unit);
        }
    }
    units.into_vec()
}
