//! Schemes: their page of the reference, and their tile spaces on each GPU. Chosen tiles must be within the GPU's limits, and pruning
//! must keep the tile that the cost model would choose from the complete space.

use std::path::Path;
use tdc_generator::config::yaml;
use tdc_generator::config::{Config, Overrides};
use tdc_generator::gpu::{GPUS, Gpu};
use tdc_generator::ir::{ConvProblem, Layout, Problem};
use tdc_generator::plan::{Planner, problem_label};
use tdc_generator::scheme::{SCHEMES, Scheme, Tile, scheme_reference};
use tdc_runtime::{ConvShape, Padding};

/// The problems of `configs/core-shapes.yaml`.
fn core_shapes() -> Vec<Problem> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/core-shapes.yaml");
    match yaml::load(&path, &Overrides::default()) {
        Ok(Config::LayerSet(set)) => set
            .layers
            .iter()
            .map(|layer| Problem::Conv(layer.problem.in_layout(layer.layout)))
            .collect(),
        Ok(Config::Network(_)) => panic!("a network"),
        Err(errors) => panic!("{errors}"),
    }
}

/// Checks that a tile's launches are within the limits of a GPU.
fn check_limits(problem: &Problem, scheme: &dyn Scheme, tile: &Tile, gpu: &Gpu) {
    let name = || {
        let label = tile.label(scheme.tile_fields()).to_string();
        let problem = problem_label(problem);
        format!("{}: {problem} {} {label}", gpu.name, scheme.name())
    };
    assert!(scheme.supports(problem, tile, gpu), "{}", name());
    for kernel in scheme.blueprint(problem, tile, gpu).kernels {
        let threads: u32 = kernel.block.iter().product();
        assert!(threads <= 1024.min(gpu.threads_per_sm), "{}", name());
        let shared = kernel.shared_bytes.max(kernel.work.shared_bytes);
        assert!(shared <= gpu.shared_per_block, "{}: {shared}", name());
        let cluster: u32 = kernel.cluster.iter().product();
        assert!(cluster <= gpu.max_cluster(), "{}: {cluster}", name());
        assert!(kernel.work.mma == 0.0 || gpu.has_mma(), "{}", name());
    }
}

#[test]
fn chosen_tiles_fit_the_limits_of_each_gpu() {
    for (index, problem) in core_shapes().iter().enumerate() {
        // Each GPU is tested with some of the shapes, and each shape with some GPUs; the deep tier tests all pairs.
        for (place, gpu) in GPUS.iter().enumerate() {
            if (index + place).is_multiple_of(6) {
                check_choice(problem, gpu);
            }
        }
    }
}

fn check_choice(problem: &Problem, gpu: &'static Gpu) {
    let choice = Planner::new(gpu).choose("layer", problem, None, None);
    let choice = choice.unwrap_or_else(|error| panic!("{}: {error:?}", gpu.name));
    assert!(choice.predicted_us.is_finite(), "{}", gpu.name);
    check_limits(problem, choice.scheme, &choice.tile, gpu);
}

/// The least predicted time of a scheme's tiles; infinite if it has none.
fn least_us(planner: &Planner, problem: &Problem, scheme: &dyn Scheme, tiles: &[Tile]) -> f64 {
    let times = tiles
        .iter()
        .map(|tile| planner.predicted_us(problem, scheme, tile));
    times.fold(f64::INFINITY, f64::min)
}

/// Checks that the tile with the least predicted time is not pruned.
fn check_pruning(problem: &Problem, gpu: &'static Gpu) {
    let planner = Planner::new(gpu);
    for &scheme in SCHEMES {
        let pruned = scheme.tiles(problem, gpu);
        let all = scheme.unpruned_tiles(problem, gpu);
        if pruned.len() == all.len() {
            continue;
        }
        for tile in pruned.iter().step_by(97) {
            check_limits(problem, scheme, tile, gpu);
        }
        let [kept, best] = [&pruned, &all].map(|tiles| least_us(&planner, problem, scheme, tiles));
        assert!(
            kept <= best,
            "{}: {} {}: {kept} of {} tiles, {best} of all {}",
            gpu.name,
            problem_label(problem),
            scheme.name(),
            pruned.len(),
            all.len()
        );
    }
}

/// A tile of an NCHW problem must not be accepted for HWCN tensors by a scheme whose kernel reads NCHW.
#[test]
fn only_schemes_for_a_layout_support_it() {
    let gpu = tdc_generator::gpu::gpu("h200").unwrap();
    let conv = |c, n, k| {
        Problem::Conv(ConvProblem::new(ConvShape {
            padding: Padding::all(k / 2),
            ..ConvShape::new(c, n, 32, 32, k, k)
        }))
    };
    let problems = [conv(64, 32, 3), conv(1, 32, 3), conv(64, 64, 1)];
    for problem in problems {
        let hwcn = problem.conv().unwrap().in_layout(Layout::Hwcn);
        for &scheme in SCHEMES {
            if scheme.info().layout == Layout::Hwcn {
                continue;
            }
            for tile in scheme.tiles(&problem, gpu).iter().step_by(50) {
                assert!(scheme.supports(&problem, tile, gpu), "{}", scheme.name());
                let supported = scheme.supports(&Problem::Conv(hwcn), tile, gpu);
                assert!(!supported, "{}", scheme.name());
            }
        }
    }
}

#[test]
fn pruning_keeps_the_optimum_of_each_gpu() {
    let problems = core_shapes();
    for (place, gpu) in GPUS.iter().enumerate() {
        check_pruning(&problems[5 * place % problems.len()], gpu);
    }
}

/// `TDC_BLESS=1` rewrites the section.
#[test]
fn the_reference_has_every_scheme_and_tile() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/tiles.md");
    let page = std::fs::read_to_string(&path).expect("docs/reference/tiles.md");
    let (before, _) = page
        .split_once("## Per scheme\n")
        .expect("the section of schemes, the last of the page");
    let expected = format!("{before}{}", scheme_reference());
    if std::env::var_os("TDC_BLESS").is_some() {
        std::fs::write(&path, &expected).expect("docs is writable");
        return;
    }
    assert!(
        page == expected,
        "docs/reference/tiles.md is out of date: run this test with TDC_BLESS=1"
    );
}

mod deep {
    use super::*;

    #[test]
    #[ignore = "deep tier: all shapes on all GPUs"]
    fn chosen_tiles_of_all_shapes_fit_the_limits_of_each_gpu() {
        for problem in &core_shapes() {
            for gpu in GPUS {
                check_choice(problem, gpu);
            }
        }
    }

    #[test]
    #[ignore = "deep tier: all shapes on all GPUs"]
    fn pruning_keeps_the_optimum_of_all_shapes_on_each_gpu() {
        for problem in &core_shapes() {
            for gpu in GPUS {
                check_pruning(problem, gpu);
            }
        }
    }
}
