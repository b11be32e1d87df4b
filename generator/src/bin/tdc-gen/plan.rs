//! `tdc-gen plan`.

use crate::args::PlanArgs;
use crate::config::PlannedConfig;
use crate::failure::Failure;
use crate::output::print;
use tdc_generator::render::{layer_set_table, layer_set_terms, network_table, network_terms};

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
