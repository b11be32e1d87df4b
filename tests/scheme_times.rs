//! Times of the convolution schemes on the 18 core shapes, each with the best of many tiles; on a GPU only.
//!
//! `tests/gpu/run.sh schemes` runs it beside cuDNN. `TDC_TILES=100` tries so many tiles of each scheme instead of 40: three
//! quarters are those that the estimate likes best, the others are taken at random.

use std::path::Path;
use tdc_generator::check::{GpuDevice, ProblemData, Random, time_unit_with};
use tdc_generator::compile::nvrtc::Options;
use tdc_generator::compile::toolkit::Toolkit;
use tdc_generator::gpu::{floor_us, gpu};
use tdc_generator::plan::{ChosenBy, PlannedUnit, Planner, plan_problem};
use tdc_generator::scheme::scheme;
use tdc_generator::spec::{Config, ConvProblem, Overrides, Problem, Reduce, Tiles, yaml};

/// Schemes that are compared, with the ways to add partial sums that they know.
const COLUMNS: [(&str, Reduce); 5] = [
    ("tdc", Reduce::Ordered),
    ("tdc", Reduce::Atomic),
    ("tdc_rows", Reduce::Ordered),
    ("tdc_rows", Reduce::Atomic),
    ("direct", Reduce::Ordered),
];

fn core_shapes() -> Vec<ConvProblem> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/core-shapes.yaml");
    // Where the program was copied to a machine without the sources, the configs lie beside it.
    let path = if path.exists() {
        path
    } else {
        Path::new("configs/core-shapes.yaml").to_owned()
    };
    match yaml::load(&path, &Overrides::default()) {
        Ok(Config::LayerSet(set)) => set.layers.into_iter().map(|layer| layer.problem).collect(),
        Ok(Config::Network(_)) => panic!("{} is a network", path.display()),
        Err(errors) => panic!("{errors}"),
    }
}

/// Units of one scheme: the tiles with the smallest estimates, random ones, and the tile that the paper's planner takes, where the
/// scheme is one of the paper.
fn candidates(
    problem: &Problem,
    name: &str,
    count: usize,
    random: &mut Random,
) -> Vec<PlannedUnit> {
    let h200 = gpu("h200").unwrap();
    let plan = |planner: &mut Planner, tile: Option<&[u32]>| {
        plan_problem(planner, "t", "layer", problem, Some(name), tile).unwrap()
    };
    let mut planner = Planner::new(h200);
    let mut units: Vec<PlannedUnit> = scheme(name)
        .unwrap()
        .tiles(problem)
        .iter()
        .map(|tile| plan(&mut planner, Some(&tile.0)))
        .collect();
    units.sort_by(|a, b| a.estimate_us.total_cmp(&b.estimate_us));
    let liked = (count - count / 4).min(units.len());
    for index in liked..count.min(units.len()) {
        let other = index + random.below((units.len() - index) as u64) as usize;
        units.swap(index, other);
    }
    units.truncate(count);
    let by_paper = plan(&mut Planner::new(h200).with_tiles(Tiles::Paper), None);
    if by_paper.chosen_by == ChosenBy::Paper {
        units.retain(|unit| unit.tile != by_paper.tile);
        units.push(by_paper);
    }
    units
}

#[test]
#[ignore = "needs a GPU"]
fn times_on_the_core_shapes() {
    let count = std::env::var("TDC_TILES").map_or(40, |count| count.parse().unwrap());
    let compiler = Toolkit::find()
        .compiler(Options::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let mut random = Random::new(1);
    let mut failures = Vec::new();
    println!(
        "microseconds in a CUDA graph: the best tile, that of the estimate, that of the paper"
    );
    for conv in core_shapes() {
        let shape = conv.shape;
        let problem = Problem::Conv(conv);
        let data = ProblemData::new(&problem, 1);
        let floor = floor_us(problem.flops(), problem.bytes(), gpu("h200").unwrap());
        print!(
            "{},{},{},{} floor {floor:.2}",
            shape.c, shape.n, shape.h, shape.w
        );
        for (name, reduce) in COLUMNS {
            let problem = Problem::Conv(ConvProblem { reduce, ..conv });
            let units = candidates(&problem, name, count, &mut random);
            let mut device = GpuDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
            device
                .load(&units, &compiler)
                .unwrap_or_else(|error| panic!("{error}"));
            let estimates = units.iter().map(|unit| unit.estimate_us);
            let least_estimate = estimates.fold(f64::INFINITY, f64::min);
            let mut best: Option<(f64, &PlannedUnit)> = None;
            let (mut liked, mut by_paper) = (None, None);
            for unit in &units {
                match time_unit_with(&mut device, unit, &data) {
                    Ok(us) => {
                        if unit.estimate_us <= least_estimate {
                            liked.get_or_insert(us);
                        }
                        if unit.chosen_by == ChosenBy::Paper {
                            by_paper = Some(us);
                        }
                        if best.is_none_or(|(least, _)| us < least) {
                            best = Some((us, unit));
                        }
                    }
                    Err(failure) => failures.push(format!("{}: {failure}", unit.unit.name)),
                }
            }
            if let Some((us, unit)) = best {
                let tile = unit
                    .tile
                    .label(scheme(name).unwrap().tile_names())
                    .to_string();
                print!(" | {name} {reduce:?} {us:.2} {tile}");
                for (who, us) in [("estimate", liked), ("paper", by_paper)] {
                    if let Some(us) = us {
                        print!(" {who} {us:.2}");
                    }
                }
            }
        }
        println!();
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
