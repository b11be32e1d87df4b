//! `tdc-gen plan`.

use crate::args::PlanArgs;
use crate::config::PlannedConfig;
use crate::failure::Failure;
use crate::output::print;
use std::path::Path;
use tdc_generator::emit::write_atomic;
use tdc_generator::plan::NetworkPlan;
use tdc_generator::render::{
    Profile, layer_set_table, layer_set_terms, network_table, network_terms, network_timeline,
};

/// Plans every config, then prints all plans: as tables separated by an empty line, with the terms of
/// predicted times, or as JSON.
pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    let plans = args
        .configs
        .iter()
        .map(|path| {
            args.options
                .plan_for_any_gpu(path, args.target.gpu.as_deref())
        })
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(path) = &args.timeline {
        write_timeline(path, args.profile.as_deref(), &plans)?;
    }
    for (index, planned) in plans.iter().enumerate() {
        if args.json {
            print(planned.json()?)?;
            continue;
        }
        if index > 0 {
            print("\n")?;
        }
        let tables: Vec<_> = match planned {
            PlannedConfig::Network(_, plans) if args.terms => {
                plans.iter().map(network_terms).collect()
            }
            PlannedConfig::LayerSet(plan) if args.terms => vec![layer_set_terms(plan)],
            PlannedConfig::Network(_, plans) => plans.iter().map(network_table).collect(),
            PlannedConfig::LayerSet(plan) => vec![layer_set_table(plan)],
        };
        print(tables.join("\n"))?;
    }
    Ok(())
}

/// Draws the timeline of the only network that is planned, beside the times of a profile.
fn write_timeline(
    path: &Path,
    profile: Option<&Path>,
    plans: &[PlannedConfig],
) -> Result<(), Failure> {
    let plan = match plans {
        [PlannedConfig::Network(_, plans)] if plans.len() == 1 => &plans[0],
        _ => {
            return Err(Failure::input(
                "--timeline draws one network on one GPU; give one config of a network, and one name in --gpu",
            ));
        }
    };
    let profile = profile.map(|path| read_profile(path, plan)).transpose()?;
    let svg = network_timeline(plan, profile.as_ref());
    write_atomic(path, svg.as_bytes()).map_err(Failure::input)
}

fn read_profile(path: &Path, plan: &NetworkPlan) -> Result<Profile, Failure> {
    let failure = |message: String| Failure::input(format!("{}: {message}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failure(error.to_string()))?;
    Profile::read(&text, plan).map_err(failure)
}
