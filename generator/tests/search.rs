//! The search for the tile with the least predicted time: it finds the optimum of each scheme's complete tile space, and of all schemes.

use std::path::Path;
use tdc_generator::config::yaml;
use tdc_generator::config::{Config, Overrides};
use tdc_generator::cost::{KernelWork, kernel_us};
use tdc_generator::gpu::{GPUS, Gpu, gpu};
use tdc_generator::ir::{
    Activation, ConvProblem, CpProblem, Epilogue, Format, NextFactor, Precision, Problem, Prologue,
    TuckerProblem,
};
use tdc_generator::plan::{Planner, problem_label};
use tdc_generator::scheme::{KnownRegisters, SCHEMES, Scheme, Tile, TileSearch};
use tdc_runtime::{ConvShape, Padding};

/// The convolutions of a layer set in `configs`.
fn layer_set(file: &str) -> Vec<Problem> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../configs")
        .join(file);
    match yaml::load(&path, &Overrides::default()) {
        Ok(Config::LayerSet(set)) => {
            let layers = set.layers.iter();
            layers
                .map(|layer| Problem::Conv(layer.problem.in_layout(layer.layout)))
                .collect()
        }
        Ok(Config::Network(_)) => panic!("{file} is a network"),
        Err(errors) => panic!("{errors}"),
    }
}

/// A pseudo-random sequence (a linear congruential generator).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(end)) as u32
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u32) as usize]
    }

    /// A number of channels: often a multiple of 16 or 32, sometimes a prime.
    fn channels(&mut self) -> u32 {
        match self.below(4) {
            0 => 8 + self.below(250),
            1 => self.of(&[3, 13, 31, 61, 97, 127]),
            _ => 16 * (1 + self.below(24)),
        }
    }

    fn conv(&mut self) -> ConvProblem {
        let kernel = self.of(&[1, 1, 3, 3, 3, 5, 7]);
        let size = self.of(&[1, 4, 7, 13, 14, 19, 28, 35, 56, 112]);
        let stride = self.of(&[1, 1, 1, 2]);
        let shape = ConvShape {
            batch: self.of(&[1, 1, 1, 2, 5]),
            stride: [stride; 2],
            padding: Padding::all(kernel / 2),
            ..ConvShape::new(
                self.channels(),
                self.channels(),
                size,
                size + self.below(3),
                kernel,
                kernel,
            )
        };
        ConvProblem {
            prologue: (self.below(5) == 0).then_some(Prologue {
                activation: Activation::Relu,
            }),
            epilogue: Epilogue {
                bias: true,
                residual: self.below(4) == 0,
                activation: Activation::Relu,
            },
            precision: self.of(&[
                Precision::Fp32,
                Precision::Fp32,
                Precision::Tf32,
                Precision::Fp16,
                Precision::Bf16,
            ]),
            ..ConvProblem::new(shape)
        }
    }

    /// A grouped convolution: some with groups that are merged, with a last merged group of fewer, and with padded groups.
    fn grouped_conv(&mut self) -> ConvProblem {
        let conv = self.conv();
        let groups = self.of(&[2, 5, 13, 32]);
        ConvProblem {
            shape: ConvShape {
                c: groups * self.of(&[4, 8, 16, 24, 64]),
                n: groups * self.of(&[4, 8, 16, 24, 64]),
                groups,
                ..conv.shape
            },
            ..conv
        }
    }

    fn problem(&mut self) -> Problem {
        let conv = self.conv();
        let ranks = [self.channels(), self.channels()];
        match self.below(6) {
            0 | 1 => Problem::Tucker(TuckerProblem {
                core: ConvShape {
                    c: ranks[0],
                    n: ranks[1],
                    ..conv.shape
                },
                first: (self.below(3) > 0).then_some(conv.shape.c),
                n: conv.shape.n,
                prologue: None,
                epilogue: conv.epilogue,
                next: (self.below(4) == 0).then(|| NextFactor {
                    n: self.channels(),
                    stores_layer_output: true,
                }),
                precision: conv.precision,
            }),
            2 => Problem::Cp(CpProblem {
                conv: ConvProblem {
                    precision: Precision::Fp32,
                    ..conv
                },
                rank: 1 + self.below(32),
            }),
            _ => Problem::Conv(conv),
        }
    }
}

/// The tile with the least predicted time of all tiles of a scheme. Among equal times it is that with the smallest numbers.
fn exhaustive(
    planner: &Planner,
    problem: &Problem,
    scheme: &dyn Scheme,
    gpu: &Gpu,
) -> Option<(f64, Tile)> {
    let tiles = scheme.unpruned_tiles(problem, gpu).into_iter();
    let timed = tiles.map(|tile| (planner.predicted_us(problem, scheme, &tile), tile));
    timed
        .filter(|(us, _)| us.is_finite())
        .min_by(|(a, tile_a), (b, tile_b)| a.total_cmp(b).then_with(|| tile_a.cmp(tile_b)))
}

/// The search of each scheme, and the choice among the default schemes, are those of an exhaustive pass.
fn check(problem: &Problem, gpu: &'static Gpu) {
    let planner = Planner::new(gpu);
    let label = problem_label(problem);
    let mut best: Option<(f64, &str)> = None;
    for &scheme in SCHEMES {
        let name = format!("{}: {label} {}", gpu.name, scheme.name());
        let expected = exhaustive(&planner, problem, scheme, gpu);
        let mut search = TileSearch::new(gpu, &[], f64::INFINITY);
        scheme.search(problem, &mut search);
        let found = search.best();
        // `predicted_us` knows the registers of compiled kernels, the search of this test does not.
        assert_eq!(found.is_some(), expected.is_some(), "{name}");
        let (Some((expected_us, expected)), Some((us, tile))) = (expected, found) else {
            continue;
        };
        assert_eq!(us, expected_us, "{name}: {tile:?}, not {expected:?}");
        if scheme.is_default() && best.is_none_or(|(best_us, _)| us < best_us) {
            best = Some((us, scheme.name()));
        }
    }
    let choice = Planner::new(gpu).choose("layer", problem, None, None);
    match (choice, best) {
        (Ok(choice), Some((us, scheme))) => {
            assert_eq!((choice.scheme.name(), choice.predicted_us), (scheme, us));
        }
        (choice, None) => assert!(
            choice.is_err() || !choice.is_ok_and(|choice| choice.scheme.is_default()),
            "{label}"
        ),
        (Err(error), Some(_)) => panic!("{label}: {error:?}"),
    }
}

#[test]
fn the_search_finds_the_optimum_of_random_problems() {
    let mut random = Random(7);
    for _ in 0..24 {
        let problem = random.problem();
        let gpu = &GPUS[random.below(GPUS.len() as u32) as usize];
        check(&problem, gpu);
        check(&random.problem(), self::gpu("h200").unwrap());
    }
}

#[test]
fn the_search_finds_the_optimum_of_grouped_convolutions() {
    let mut random = Random(5);
    for _ in 0..12 {
        check(&Problem::Conv(random.grouped_conv()), gpu("h200").unwrap());
    }
}

#[test]
fn the_search_finds_the_optimum_with_fp16_outputs() {
    let mut random = Random(13);
    for _ in 0..6 {
        let conv = random.conv();
        let shape = ConvShape {
            batch: random.of(&[2, 8, 32]),
            c: random.of(&[3, 4, 37, 64]),
            n: 8 * (1 + random.below(20)),
            ..conv.shape
        };
        let problem = ConvProblem {
            shape,
            precision: Precision::Fp16,
            ..conv.in_formats(Format::default(), Format::FP16_NHWC)
        };
        check(&Problem::Conv(problem), gpu("h200").unwrap());
    }
}

/// With registers that a compiler reported, for some tiles and not for others: fewer than estimated, or more.
#[test]
fn the_search_uses_known_registers() {
    let gpu = gpu("h200").unwrap();
    let mut random = Random(3);
    let problems = (0..10).map(|_| random.problem());
    let mut changed = 0;
    for problem in problems.collect::<Vec<_>>() {
        for &scheme in SCHEMES {
            let tiles = scheme.unpruned_tiles(&problem, gpu);
            let launches = |tile: &Tile| scheme.work(&problem, tile, gpu).launches;
            let Some(fastest) = exhaustive(&Planner::new(gpu), &problem, scheme, gpu) else {
                continue;
            };
            if launches(&fastest.1).len() != 1
                || scheme
                    .work(&problem, &fastest.1, gpu)
                    .zeroed_bytes
                    .is_some()
            {
                continue;
            }
            let known: Vec<KnownRegisters> = tiles
                .iter()
                .filter(|tile| **tile == fastest.1 || random.below(400) == 0)
                .flat_map(|tile| {
                    let percent = if *tile == fastest.1 { 300 } else { 60 };
                    launches(tile)
                        .into_iter()
                        .map(move |launch| KnownRegisters {
                            tile: tile.clone(),
                            role: launch.role.to_owned(),
                            registers: (launch.work.registers * percent / 100).clamp(16, 255),
                        })
                })
                .collect();
            let us = |tile: &Tile| {
                let times = launches(tile).into_iter().map(|launch| {
                    let own =
                        |known: &&KnownRegisters| known.tile == *tile && known.role == launch.role;
                    let registers = known.iter().find(own).map(|known| known.registers);
                    let work = KernelWork {
                        registers: registers.unwrap_or(launch.work.registers),
                        ..launch.work
                    };
                    kernel_us(&work, gpu)
                });
                times.sum::<f64>()
            };
            let expected = tiles.iter().map(us).fold(f64::INFINITY, f64::min);
            let mut search = TileSearch::new(gpu, &known, f64::INFINITY);
            scheme.search(&problem, &mut search);
            let (found, _) = search.best().unwrap();
            assert_eq!(
                found,
                expected,
                "{} {}",
                problem_label(&problem),
                scheme.name()
            );
            changed += u32::from(found != fastest.0);
        }
    }
    assert!(changed > 5, "known registers changed {changed} results");
}

mod deep {
    use super::*;
    use std::time::Instant;

    #[test]
    #[ignore = "deep tier: many exhaustive passes"]
    fn the_search_finds_the_optimum_of_many_problems() {
        let h200 = gpu("h200").unwrap();
        let mut random = Random(2026);
        for _ in 0..1000 {
            check(&random.problem(), h200);
        }
        for gpu in GPUS {
            for _ in 0..8 {
                check(&random.problem(), gpu);
            }
        }
    }

    #[test]
    #[ignore = "deep tier: exhaustive passes over all core and held-out shapes"]
    fn choices_for_known_shapes_are_those_of_an_exhaustive_pass() {
        let gpu = gpu("h200").unwrap();
        for file in ["core-shapes.yaml", "held-out.yaml"] {
            for problem in layer_set(file) {
                let planner = Planner::new(gpu);
                let default = SCHEMES.iter().filter(|scheme| scheme.is_default());
                let times = default
                    .filter_map(|&scheme| exhaustive(&planner, &problem, scheme, gpu))
                    .map(|(us, _)| us);
                let expected = times.fold(f64::INFINITY, f64::min);
                let choice = Planner::new(gpu).choose("layer", &problem, None, None);
                assert_eq!(choice.unwrap().predicted_us, expected);
            }
        }
    }

    /// A release build on an idle core takes at most 2 ms for most problems. The profile of tests is several times slower, and so is a
    /// busy machine.
    #[test]
    #[ignore = "deep tier: measures time"]
    fn choices_are_fast() {
        let gpu = gpu("h200").unwrap();
        let mut random = Random(11);
        let mut times: Vec<(f64, String)> = (0..100)
            .map(|_| {
                let problem = random.problem();
                let runs = (0..3).map(|_| {
                    let start = Instant::now();
                    let _choice = Planner::new(gpu).choose("layer", &problem, None, None);
                    1e3 * start.elapsed().as_secs_f64()
                });
                (runs.fold(f64::INFINITY, f64::min), problem_label(&problem))
            })
            .collect();
        times.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let [median, most_of_them, slowest] = [50, 85, 99].map(|index| &times[index]);
        println!(
            "choices, ms: median {median:?}, 85 % at most {most_of_them:?}, slowest {slowest:?}"
        );
        let limit_ms = if cfg!(debug_assertions) { 40.0 } else { 5.0 };
        assert!(most_of_them.0 < limit_ms, "{most_of_them:?}");
    }
}
