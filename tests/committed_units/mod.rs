//! The units of the committed configs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::gpu::gpu;
use tdc_generator::ir::Precision;
use tdc_generator::plan::{PlannedUnit, plan_layer_set, plan_network};

/// Configs that are planned within seconds and use most schemes.
const SMALL: [&str; 6] = [
    "beyond-paper.yaml",
    "core-shapes.yaml",
    "cp-layers.yaml",
    "resnet18.yaml",
    "stride-fixed.yaml",
    "tvm-problem.yaml",
];

/// All distinct units of the committed configs.
pub fn units() -> Vec<PlannedUnit> {
    let files = std::fs::read_dir("configs").unwrap();
    units_of(files.map(|file| file.unwrap().path()))
}

/// One unit for each scheme and precision of the small configs.
pub fn sample() -> Vec<PlannedUnit> {
    let files = SMALL.map(|name| Path::new("configs").join(name));
    let mut sample = BTreeMap::new();
    for unit in units_of(files.into_iter()) {
        let precision = format!("{:?}", unit.problem.precision());
        sample.entry((unit.scheme, precision)).or_insert(unit);
    }
    sample.into_values().collect()
}

/// All distinct units of some configs, dense and with ranks; those of layer sets in all precisions. Of long
/// lists of layers only every eighth is used, to limit the time.
fn units_of(files: impl Iterator<Item = PathBuf>) -> Vec<PlannedUnit> {
    let mut units = BTreeMap::new();
    let gpu = gpu("h200").unwrap();
    for path in files {
        for (dense, precision) in [
            (false, None),
            (true, None),
            (false, Some(Precision::Tf32)),
            (false, Some(Precision::Fp16)),
            (false, Some(Precision::Bf16)),
        ] {
            let overrides = Overrides {
                dense,
                precision,
                ..Overrides::default()
            };
            let planned = match yaml::load(&path, &overrides).unwrap() {
                Config::Network(_) if precision.is_some() => continue,
                Config::Network(network) => plan_network(&network, gpu).unwrap().units,
                Config::LayerSet(mut set) => {
                    let step = if set.layers.len() > 20 { 8 } else { 1 };
                    set.layers = set.layers.into_iter().step_by(step).collect();
                    plan_layer_set(&set, gpu).unwrap().units
                }
            };
            for unit in planned {
                units.insert(unit.unit.name.to_string(), unit);
            }
        }
    }
    units.into_values().collect()
}
