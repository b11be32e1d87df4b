//! Compares what `kernel!` embeds in a program outside this workspace with what the generator produces for
//! the same layers: source, launches and machine code. The program is `tests/embedded`; on a GPU it also
//! checks and times its kernels (`embedded check`, `embedded latency`).

mod toolkit;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tdc::{ActivationParameter, Checksum, Conv, ConvShape, FusedOps, LowRank, Padding, Tucker};
use tdc_generator::embed::prepare::{PrepareError, prepared_files, recorded};
use tdc_generator::embed::{PREPARED_DIR, Settings};
use tdc_generator::emit;
use tdc_generator::gpu::gpu;
use tdc_generator::ir::{
    Activation, ConvProblem, Epilogue, FusedTucker, LayerSpec, Layout, Precision, Problem,
    Prologue, TilePolicy, Tolerance, TuckerProblem,
};
use tdc_generator::plan::{KernelOp, KernelPlan, PlannedUnit, VariantPlan, plan_kernel};
use tdc_generator::render::units_text;
use tdc_generator::scheme::scheme;
use tdc_generator::verify::{CpuDevice, check_unit};
use tdc_runtime::FactorRole;
use tempfile::TempDir;

fn plain(shape: ConvShape) -> LayerSpec {
    LayerSpec {
        name: "layer".to_owned(),
        problem: ConvProblem::new(shape),
        ranks: None,
        cp_rank: None,
        rank: None,
        layout: Layout::default(),
        scheme: None,
        tile: None,
    }
}

/// A 3x3 convolution with "same" padding.
fn same(c: u32, n: u32, h: u32, w: u32) -> LayerSpec {
    plain(ConvShape {
        padding: Padding::all(1),
        ..ConvShape::new(c, n, h, w, 3, 3)
    })
}

fn by(layer: LayerSpec, scheme: &str, tile: Option<&[u32]>) -> LayerSpec {
    LayerSpec {
        scheme: Some(scheme.to_owned()),
        tile: tile.map(<[u32]>::to_vec),
        ..layer
    }
}

fn planned(layer: &LayerSpec, gpus: &[&str]) -> KernelPlan {
    planned_by(layer, gpus, TilePolicy::default())
}

fn planned_by(layer: &LayerSpec, gpus: &[&str], tiles: TilePolicy) -> KernelPlan {
    let gpus: Vec<_> = gpus.iter().map(|name| gpu(name).unwrap()).collect();
    plan_kernel(layer, &gpus, tiles, None).unwrap()
}

const ALL: Epilogue = Epilogue {
    bias: true,
    residual: true,
    activation: Activation::Relu,
};

const LEAKY_RELU: Activation = Activation::LeakyRelu {
    slope: ActivationParameter::new(0.25),
};

/// All options with values other than the default.
fn odd() -> LayerSpec {
    let mut layer = plain(ConvShape {
        batch: 3,
        stride: [2, 1],
        padding: Padding {
            top: 1,
            left: 0,
            bottom: 2,
            right: 3,
        },
        dilation: [1, 2],
        groups: 3,
        ..ConvShape::new(12, 18, 15, 13, 5, 3)
    });
    layer.problem.prologue = Some(Prologue {
        activation: Activation::Clip {
            min: ActivationParameter::new(-0.5),
            max: ActivationParameter::new(2.0),
        },
    });
    layer.problem.epilogue = Epilogue {
        activation: LEAKY_RELU,
        ..ALL
    };
    by(layer, "direct", Some(&[64, 2, 1, 1]))
}

fn tucker(scheme: &str) -> LayerSpec {
    let mut layer = same(13, 11, 9, 7);
    layer.problem.shape.stride = [2, 2];
    layer.problem.shape.batch = 2;
    layer.problem.prologue = Some(Prologue {
        activation: Activation::None,
    });
    layer.problem.epilogue = ALL;
    layer.ranks = Some([9, 8]);
    by(layer, scheme, None)
}

/// A low-rank layer with two convolutions, with the prologue or without it.
fn low_rank(has_prologue: bool) -> LayerSpec {
    let mut layer = plain(ConvShape {
        batch: 2,
        stride: [2, 3],
        padding: Padding {
            top: 1,
            left: 0,
            bottom: 2,
            right: 1,
        },
        ..ConvShape::new(13, 11, 9, 7, 1, 1)
    });
    layer.problem.prologue = has_prologue.then_some(Prologue {
        activation: Activation::None,
    });
    layer.problem.epilogue = ALL;
    layer.rank = Some(5);
    layer
}

/// A low-rank layer with two linear layers.
fn linear_low_rank() -> LayerSpec {
    let mut layer = plain(ConvShape {
        batch: 3,
        ..ConvShape::new(131, 17, 1, 1, 1, 1)
    });
    layer.problem.epilogue.bias = true;
    layer.problem.epilogue.activation = LEAKY_RELU;
    layer.rank = Some(7);
    layer
}

/// The program's expected output for a kernel, from the generator's plan; `images` are the architecture and
/// the index of the plan of each image, the last one PTX.
fn expected_report(call: &str, plan: &KernelPlan, images: &[(u16, usize)]) -> String {
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").unwrap();
    line(format!("{call} {}", plan.name));
    line(match plan.op {
        KernelOp::Conv(op) => format!("  op {op:?}"),
        KernelOp::Tucker(op) => format!("  op {op:?}"),
        KernelOp::LowRank(op) => format!("  op {op:?}"),
    });
    for variant in &plan.variants {
        line(format!(
            "  variant {} {:?}",
            variant.gpu.device_name, variant.variant
        ));
        for unit in &variant.units {
            let names = scheme(unit.scheme).unwrap().tile_fields();
            line(format!("    {} {}", unit.scheme, unit.tile.label(names)));
        }
        let us: f64 = variant.units.iter().map(|unit| unit.predicted_us).sum();
        line(format!("    estimate {us:?}"));
        let source = units_text(&variant.units).unwrap();
        line(format!("    text {:016x}", Checksum::of(source.as_bytes())));
    }
    for (index, (sm, variant)) in images.iter().enumerate() {
        let is_ptx = index + 1 == images.len();
        let kind = match is_ptx {
            true => format!("PTX for sm_{sm} and newer"),
            false => format!("machine code for sm_{sm}"),
        };
        line(format!("  {kind} of {variant}, whole: true"));
        if is_ptx {
            continue;
        }
        let mut symbols: Vec<&str> = Vec::new();
        for kernel in plan.variants[*variant]
            .units
            .iter()
            .flat_map(|unit| &unit.kernels)
        {
            if !symbols.contains(&&kernel.symbol[..]) {
                symbols.push(&kernel.symbol);
            }
        }
        symbols.sort_unstable();
        for symbol in symbols {
            line(format!("    {symbol} has registers: true"));
        }
    }
    text
}

/// Sorts consecutive lines about kernels' symbols, because the compiler decides their order.
fn with_sorted_symbols(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let is_symbol = |line: &&str| line.ends_with("has registers: true");
    for run in lines.chunk_by_mut(|a, b| is_symbol(a) && is_symbol(b)) {
        run.sort_unstable();
    }
    lines.join("\n")
}

/// Serialises tests that build and run programs: they have one target folder and equal program names.
fn build_lock() -> MutexGuard<'static, ()> {
    static BUILD_LOCK: Mutex<()> = Mutex::new(());
    BUILD_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The command `cargo` for the program of `tests/embedded`, or for a copy of it.
fn cargo(folder: &Path, words: &[&str]) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("embedded");
    cargo.args(words).current_dir(folder);
    cargo.env("CARGO_TARGET_DIR", target);
    for variable in ["TDC_KERNELS", "TDC_ARCH", "TDC_PREPARE", "DOCS_RS"] {
        cargo.env_remove(variable);
    }
    cargo
}

fn succeeded(output: Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/embedded")
}

/// A copy of the program in a separate folder.
fn copied() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().canonicalize().unwrap();
    std::fs::create_dir(copy.join("src")).unwrap();
    for file in [
        "Cargo.lock",
        "layers.yaml",
        "network.yaml",
        "src/calls.rs",
        "src/check.rs",
        "src/latency.rs",
        "src/main.rs",
        "src/report.rs",
    ] {
        std::fs::copy(program().join(file), copy.join(file)).unwrap();
    }
    let manifest = std::fs::read_to_string(program().join("Cargo.toml")).unwrap();
    let manifest = manifest.replace("../..", env!("CARGO_MANIFEST_DIR"));
    std::fs::write(copy.join("Cargo.toml"), manifest).unwrap();
    (folder, copy)
}

#[test]
fn a_program_embeds_the_generated_kernels() {
    let _turn = build_lock();
    toolkit::toolkit();
    let found = succeeded(cargo(&program(), &["run", "--quiet"]).output().unwrap());

    let h200 = [(90, 0), (90, 0)];
    let relu = {
        let mut layer = plain(ConvShape::new(8, 12, 14, 10, 1, 1));
        layer.problem.epilogue.activation = Activation::Relu;
        layer
    };
    let depthwise = plain(ConvShape {
        padding: Padding::all(2),
        groups: 12,
        ..ConvShape::new(12, 12, 9, 7, 5, 5)
    });
    let symmetric = LayerSpec {
        ranks: Some([6, 6]),
        ..by(same(6, 6, 8, 8), "direct", None)
    };
    let rounded = |precision| {
        let mut layer = plain(ConvShape::new(32, 32, 16, 16, 1, 1));
        layer.problem.precision = precision;
        by(layer, "implicit_gemm", Some(&[4, 8, 1, 2, 2, 1, 1, 1, 2]))
    };
    let mut tolerant = same(32, 32, 16, 16);
    tolerant.problem.tolerance = Tolerance::new(5e-6).unwrap();
    let tolerant = by(tolerant, "winograd", Some(&[4, 8, 8, 1, 2, 1, 1, 1, 1, 2]));
    let mut square = same(16, 16, 20, 20);
    square.problem.shape.stride = [2, 2];
    let mut biased = by(same(6, 5, 9, 8), "direct", Some(&[32, 1, 1, 1]));
    biased.problem.epilogue.bias = true;
    let mut reduced = same(6, 7, 9, 8);
    reduced.problem.shape.stride = [2, 2];
    reduced.problem.epilogue.activation = Activation::Relu;
    reduced.ranks = Some([3, 4]);
    let mut block = same(7, 7, 5, 4);
    block.problem.epilogue = ALL;
    let mut low = plain(ConvShape::new(7, 9, 5, 4, 1, 1));
    low.rank = Some(3);
    let mut head = plain(ConvShape::new(9, 13, 1, 1, 1, 1));
    head.problem.epilogue.bias = true;
    let mut features = plain(ConvShape::new(13, 10, 1, 1, 1, 1));
    features.problem.epilogue.bias = true;
    features.rank = Some(2);

    let plan = |layer: &LayerSpec| planned(layer, &["h200"]);
    let a100 = |layer: &LayerSpec| planned_by(layer, &["a100"], TilePolicy::Model);
    let expected = [
        expected_report(
            "plain",
            &planned(&same(64, 32, 56, 56), &["a100", "h200"]),
            &[(80, 0), (90, 1), (90, 1)],
        ),
        expected_report("relu", &plan(&relu), &h200),
        expected_report(
            "odd",
            &planned(&odd(), &["a100", "h200"]),
            &[(80, 0), (90, 1), (90, 1)],
        ),
        expected_report(
            "pointwise",
            &plan(&plain(ConvShape::new(24, 16, 7, 5, 1, 1))),
            &h200,
        ),
        expected_report("depthwise", &plan(&depthwise), &h200),
        expected_report("one_launch", &plan(&tucker("tucker_fused")), &h200),
        expected_report("separate", &plan(&tucker("direct")), &h200),
        expected_report("symmetric", &plan(&symmetric), &h200),
        expected_report("low_rank", &plan(&low_rank(true)), &h200),
        expected_report("linear_low_rank", &plan(&linear_low_rank()), &h200),
        expected_report("tf32", &plan(&rounded(Precision::Tf32)), &h200),
        expected_report("bf16", &plan(&rounded(Precision::Bf16)), &h200),
        expected_report("winograd", &plan(&tolerant), &h200),
        expected_report("square", &plan(&square), &h200),
        expected_report(
            "set::_1X1",
            &planned(&plain(ConvShape::new(16, 8, 6, 5, 1, 1)), &["l4"]),
            &[(89, 0), (89, 0)],
        ),
        expected_report(
            "set::C6_N5_H9_W8",
            &planned(&biased, &["l4"]),
            &[(89, 0), (89, 0)],
        ),
        expected_report("network::TUCKER", &a100(&reduced), &[(80, 0), (80, 0)]),
        expected_report("network::BLOCK_CONV", &a100(&block), &[(80, 0), (80, 0)]),
        expected_report("network::LOW", &a100(&low), &[(80, 0), (80, 0)]),
        expected_report("network::HEAD", &a100(&head), &[(80, 0), (80, 0)]),
        expected_report("network::FEATURES", &a100(&features), &[(80, 0), (80, 0)]),
        expected_report("of_network", &a100(&block), &[(80, 0), (80, 0)]),
    ];
    let expected = with_sorted_symbols(&expected.concat());
    let found = with_sorted_symbols(&found);
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

/// The images in a cache of kernels.
fn images(cache: &Path) -> BTreeSet<PathBuf> {
    let files = std::fs::read_dir(cache.join("kernels")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|e| e == "cubin"))
        .collect()
}

/// All units of a planned layer as one unit, so that the complete layer is checked.
fn as_unit(layer: &LayerSpec, plan: &VariantPlan) -> PlannedUnit {
    let mut unit = plan.units[0].clone();
    unit.unit.variants = vec![plan.variant.clone()].into();
    let kernels = plan.units.iter().flat_map(|unit| unit.kernels.clone());
    unit.kernels = kernels.collect();
    unit.kernels.dedup_by(|a, b| a.symbol == b.symbol);
    if let Some(ranks) = layer.ranks {
        let factors = layer.problem.tucker_factors(ranks);
        let factors: Vec<_> = FactorRole::TUCKER.into_iter().zip(factors).collect();
        unit.problem = Problem::Tucker(FusedTucker::new(&factors).unwrap().whole);
    }
    if layer.rank.is_some() {
        // Two 1x1 convolutions are a Tucker layer without its first factor.
        let problems = plan.units.iter().map(|unit| unit.problem);
        let [first, last] = &problems.collect::<Vec<_>>()[..] else {
            panic!("{} units", plan.units.len());
        };
        let mut core = layer.problem.shape;
        core.n = first.y().c;
        assert_eq!((last.x().c, last.y().c), (core.n, layer.problem.shape.n));
        unit.problem = Problem::Tucker(TuckerProblem {
            core,
            first: None,
            n: layer.problem.shape.n,
            prologue: None,
            epilogue: layer.problem.epilogue,
            next: None,
            precision: layer.problem.precision,
        });
    }
    unit.unit.name = format!("{}_in_{}", unit.unit.name, plan.units.len()).into();
    unit
}

/// The source and launches that programs embed, run on the CPU emulation.
#[test]
fn multi_launch_kernels_compute_their_layers() {
    let layers = [
        odd(),
        tucker("tucker_fused"),
        tucker("direct"),
        low_rank(false),
        linear_low_rank(),
    ];
    let plans = layers.each_ref().map(|layer| planned(layer, &["h200"]));
    let launches = plans.each_ref().map(|plan| plan.variants[0].units.len());
    assert_eq!(launches, [1, 1, 3, 2, 2]);
    let linear = &plans[4].variants[0].units;
    assert!(linear.iter().all(|unit| unit.scheme == "linear"));
    let units = layers.iter().zip(&plans);
    let units: Vec<_> = units
        .map(|(layer, plan)| as_unit(layer, &plan.variants[0]))
        .collect();
    let mut device = CpuDevice::new(&units).unwrap();
    for unit in &units {
        check_unit(&mut device, unit, 11)
            .unwrap_or_else(|failure| panic!("{}: {failure}", unit.unit.name));
    }
}

/// An op describes what a call computes, independently of plans.
#[test]
fn ops_describe_their_fusions() {
    let fused = FusedOps {
        prologue: true,
        bias: true,
        residual: true,
        activation: Activation::Relu,
    };
    let odd = odd();
    let shape = odd.problem.shape;
    let leaky = FusedOps {
        activation: LEAKY_RELU,
        ..fused
    };
    let expected = KernelOp::Conv(Conv {
        shape,
        fused: leaky,
    });
    assert_eq!(KernelOp::of(&odd), expected);
    let layer = tucker("direct");
    let shape = layer.problem.shape;
    let ranks = [9, 8];
    let op = Tucker {
        shape,
        ranks,
        fused,
    };
    assert_eq!(KernelOp::of(&layer), KernelOp::Tucker(op));
    let layer = low_rank(true);
    let op = LowRank {
        shape: layer.problem.shape,
        rank: 5,
        fused,
    };
    assert_eq!(KernelOp::of(&layer), KernelOp::LowRank(op));
}

mod deep {
    use super::*;

    /// The steps of `tdc-gen prepare`, then a build without a compiler and without the feature that uses one.
    #[test]
    #[ignore = "deep tier"]
    fn prepared_kernels_need_no_compiler() {
        let _turn = build_lock();
        toolkit::toolkit();
        let (_folder, copy) = copied();
        let nothing = tempfile::tempdir().unwrap();
        let offline = |words: &[&str]| {
            let mut cargo = cargo(&copy, words);
            cargo.arg("--no-default-features");
            cargo.env("TDC_CACHE_DIR", nothing.path());
            cargo.output().unwrap()
        };
        let refused = offline(&["check", "--quiet"]);
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success());
        assert!(
            errors.contains("`conv_c64_n32_h56_w56_k3x3_p1` is not in generated/kernels of this crate or of a folder above it, and \
                             the feature `nvrtc` of tdc is off; run `tdc-gen prepare` and commit what it writes"),
            "{errors}"
        );

        let record = tempfile::tempdir().unwrap();
        let mut check = cargo(&copy, &["check", "--quiet", "--no-default-features"]);
        check.env("TDC_PREPARE", record.path());
        succeeded(check.output().unwrap());
        let calls = recorded(record.path()).unwrap();
        // Only distinct kernels are counted: `of_network` is also one of the network's.
        assert_eq!(calls.len(), 21);
        let prepared = copy.join(PREPARED_DIR);
        let settings = Settings::from_env(&copy).unwrap();
        let missing = prepared_files(&calls, &prepared, false, &settings, |_, _| ());
        assert!(matches!(missing, Err(PrepareError::Missing(_))));
        let files = prepared_files(&calls, &prepared, true, &settings, |_, _| ()).unwrap();
        emit::write(&files, &prepared, false).unwrap();
        let again = prepared_files(&calls, &prepared, false, &settings, |_, _| ()).unwrap();
        assert_eq!(again, files);
        assert!(emit::check(&again, &prepared).unwrap().is_empty());

        let found = succeeded(offline(&["run", "--quiet"]));
        assert_eq!(
            found
                .lines()
                .filter(|line| line.ends_with("whole: true"))
                .count(),
            2 * 22 + 2
        );
        assert!(!found.contains("whole: false"));
        assert_eq!(std::fs::read_dir(nothing.path()).unwrap().count(), 0);
    }

    #[test]
    #[ignore = "deep tier"]
    fn cargo_compiles_each_kernel_once() {
        let _turn = build_lock();
        // Found before the cache folder changes, because NVRTC may be installed there.
        let nvrtc = toolkit::toolkit().nvrtc13.unwrap();
        let (_folder, copy) = copied();
        let cache = tempfile::tempdir().unwrap();
        let run = |words: &[&str], mode: &str| {
            let mut cargo = cargo(&copy, words);
            cargo.env("TDC_CACHE_DIR", cache.path());
            // If its files are unknown, NVRTC is on the loader's path, where the build finds it too.
            if let Some(files) = &nvrtc.files {
                cargo.env("TDC_NVRTC_DIR", files.library.parent().unwrap());
            }
            cargo.env("TDC_KERNELS", mode);
            succeeded(cargo.output().unwrap())
        };
        run(&["check", "--quiet"], "auto");
        let made = images(cache.path());
        // From here on, a kernel that would have to be compiled is an error.
        for words in [
            &["build", "--quiet"][..],
            &["test", "--quiet", "--no-run"],
            &["clippy", "--quiet"],
            &["doc", "--quiet", "--no-deps"],
        ] {
            run(words, "offline");
        }
        assert_eq!(images(cache.path()), made);

        // A layer of the config changes.
        let config = std::fs::read_to_string(copy.join("layers.yaml")).unwrap();
        let edited = config.replace("[16, 8, 6, 5]", "[16, 8, 6, 7]");
        assert_ne!(config, edited);
        std::fs::write(copy.join("layers.yaml"), edited).unwrap();
        let output = run(&["run", "--quiet"], "auto");
        assert!(
            output.contains("set::_1X1 conv_c16_n8_h6_w7_k1x1"),
            "{output}"
        );
        let now = images(cache.path());
        assert!(now.is_superset(&made));
        assert_eq!(now.len(), made.len() + 1);
    }
}
