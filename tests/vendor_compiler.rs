//! Compiles kernels of the committed configs with NVRTC, and emitted folders with nvcc: a sample in the quick
//! tier; every kernel for every architecture in the deep one.
//!
//! Missing compilers are installed into the cache in their pinned versions. Kernels are compiled at low
//! effort; the full effort for all architectures is `tdc-gen compile configs/*.yaml --arch ...` (CONTRIBUTING.md).

mod committed_units;
mod toolkit;

use committed_units::{sample, units};
use std::num::NonZeroUsize;
use std::path::Path;
use tdc_generator::compile::nvrtc::{Effort, Options};
use tdc_generator::compile::{Job, compile_all};
use tdc_generator::gpu::{archs, gpu};
use tdc_generator::ir::{
    Activation, ActivationParameter, ChannelNorm, ChannelNormProblem, Elementwise,
    ElementwiseProblem, Problem, TensorShape,
};
use tdc_generator::plan::{KERNEL_PREFIX, PlannedUnit, Planner, plan_problem, problem_of_label};
use tdc_generator::render::unit_text;
use tdc_runtime::Arch;
use toolkit::toolkit;

/// The oldest and the newest default architecture; they are compiled by two versions of NVRTC.
const SOME_ARCHS: [Arch; 2] = [Arch::new(70), Arch::new(90)];

/// Compiles an emitted folder with nvcc, without warnings.
fn assert_folder_compiles(name: &str, archs: &str) {
    let toolkit = toolkit();
    let nvcc = toolkit.nvcc.as_ref().unwrap_or_else(|| panic!("{toolkit}"));
    let folder = Path::new("tests/golden").join(name);
    let objects = tempfile::tempdir().unwrap();
    let mut sources = vec![
        folder.join("main.cu"),
        folder.join(format!("src/{name}.cu")),
    ];
    for file in std::fs::read_dir(folder.join("src/units")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "cu") {
            sources.push(path);
        }
    }
    assert!(sources.len() > 5);
    let output = std::process::Command::new(&nvcc.program)
        .args(["-std=c++17", "-O1", "-t2", "-c"])
        .args(archs.split(' '))
        .args(["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra"])
        .arg("-I")
        .arg(folder.join("include"))
        .arg("-odir")
        .arg(objects.path())
        .args(&sources)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let made = std::fs::read_dir(objects.path()).unwrap().count();
    assert_eq!(made, sources.len(), "{name}");
}

/// Sources with sections of the device header: each section, all together, all with calls; the first ones
/// have functions that are never called.
fn preludes() -> Vec<String> {
    use tdc_templates::device::{
        ACCUMULATOR_OPERANDS, ASYNC_COPY, BF16, BULK_COPY, CLUSTER, DYNAMIC_SHARED, FP16, MAX_BF16,
        MAX_FP16, MMA, MMA_STEPS, PDL, PREFETCH, SATURATED_FP16, SPLIT_TENSOR, SPLIT_TF32,
    };
    // After everything that they use.
    let parts = [
        DYNAMIC_SHARED,
        ASYNC_COPY,
        BULK_COPY,
        CLUSTER,
        PREFETCH,
        PDL,
        FP16,
        SATURATED_FP16,
        SPLIT_TENSOR,
        BF16,
        MAX_FP16,
        MAX_BF16,
        MMA,
        SPLIT_TF32,
        MMA_STEPS,
        ACCUMULATOR_OPERANDS,
    ];
    let needed = |part: &str| match part {
        BULK_COPY => ASYNC_COPY.to_owned(),
        SATURATED_FP16 | SPLIT_TENSOR | MAX_FP16 => FP16.to_owned(),
        MAX_BF16 => BF16.to_owned(),
        MMA_STEPS => [FP16, MMA].concat(),
        ACCUMULATOR_OPERANDS => [FP16, MMA, MMA_STEPS].concat(),
        _ => String::new(),
    };
    let unused = "extern \"C\" __global__ void uses_none(int* y) { *y = 1; }\n";
    let mut texts: Vec<_> = parts
        .map(|part| format!("{}{part}{unused}", needed(part)))
        .to_vec();
    // Include guards: the second inclusion is empty.
    let all = parts.concat().repeat(2);
    texts.push(format!("{all}{unused}"));
    texts.push(format!(
        "{all}{}",
        include_str!("vendor_compiler/prelude.cu")
    ));
    texts
}

/// Compiles sources with NVRTC for some architectures, and with nvcc, without warnings.
fn assert_texts_compile(texts: &[String], archs: &[Arch]) {
    let toolkit = toolkit();
    let compiler = toolkit.compiler(Options::default()).unwrap();
    for source in texts {
        for &arch in archs {
            let job = Job {
                source,
                name: "prelude",
                arch,
            };
            let images = compile_all(&compiler, &[job], NonZeroUsize::MIN, |_, _| ());
            for image in images {
                image.unwrap_or_else(|error| panic!("{arch}: {error}\n{source}"));
            }
        }
    }

    let nvcc = toolkit.nvcc.as_ref().unwrap_or_else(|| panic!("{toolkit}"));
    let folder = tempfile::tempdir().unwrap();
    for (index, source) in texts.iter().enumerate() {
        let path = folder.path().join(format!("prelude{index}.cu"));
        std::fs::write(&path, source).unwrap();
        let output = std::process::Command::new(&nvcc.program)
            .args(["-std=c++17", "-O1", "-c"])
            .args(["-gencode", "arch=compute_75,code=sm_75"])
            .args(["-gencode", "arch=compute_80,code=compute_80"])
            .args(["-gencode", "arch=compute_90,code=sm_90"])
            .args(["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra"])
            .arg("-o")
            .arg(path.with_extension("o"))
            .arg(&path)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}\n{source}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Compiles units to machine code with NVRTC.
fn assert_units_compile(units: &[PlannedUnit], archs: &[Arch]) {
    let compiler = toolkit()
        .compiler(Options {
            effort: Effort::Fast,
            ..Options::default()
        })
        .unwrap();
    let texts: Vec<_> = units.iter().map(|unit| unit_text(unit).unwrap()).collect();
    let jobs: Vec<_> = units
        .iter()
        .zip(&texts)
        .flat_map(|(unit, source)| {
            archs.iter().map(|&arch| Job {
                source,
                name: &unit.unit.name,
                arch,
            })
        })
        .collect();
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let images = compile_all(&compiler, &jobs, threads, |_, _| ());
    let mut failures = Vec::new();
    for (job, image) in jobs.iter().zip(&images) {
        match image {
            // ELF: machine code, not text.
            Ok(image) if image.cubin.starts_with(b"\x7fELF") => {}
            Ok(_) => failures.push(format!("{} {}: not machine code", job.name, job.arch)),
            Err(error) => failures.push(error.to_string()),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn an_emitted_folder_compiles_with_nvcc_without_a_warning() {
    assert_folder_compiles("pair", "-arch=sm_90");
}

#[test]
fn the_device_prelude_compiles_without_a_warning() {
    let texts = preludes();
    assert_texts_compile(&texts[texts.len() - 2..], &SOME_ARCHS);
}

/// An op for each activation function.
fn activations() -> Vec<PlannedUnit> {
    let mut planner = Planner::new(gpu("h200").unwrap());
    let [_, activations @ ..] = &Activation::NAMES;
    let problems = activations.iter().map(|&(_, activation)| {
        let function = Elementwise::Activation(activation);
        let x = TensorShape::new(1, 3, 7, 9);
        Problem::Elementwise(ElementwiseProblem { function, x })
    });
    problems
        .map(|problem| plan_problem(&mut planner, KERNEL_PREFIX, "", &problem, None, None).unwrap())
        .collect()
}

#[test]
fn activation_functions_compile() {
    assert_units_compile(&activations(), &SOME_ARCHS);
}

/// Normalisations over channels with values in registers, and with too many of them.
fn channel_norms() -> Vec<PlannedUnit> {
    let mut planner = Planner::new(gpu("h200").unwrap());
    let eps = ActivationParameter::new(1e-6);
    let norms = [
        ChannelNorm::Softmax,
        ChannelNorm::LayerNorm { eps },
        ChannelNorm::L2 { eps },
    ];
    let mut plan = |norm, c, tile: [u32; 2]| {
        let x = TensorShape::new(2, c, 3, 3);
        let problem = Problem::ChannelNorm(ChannelNormProblem { norm, x });
        let scheme = Some("channel_norm");
        plan_problem(
            &mut planner,
            KERNEL_PREFIX,
            "",
            &problem,
            scheme,
            Some(&tile),
        )
        .unwrap()
    };
    norms
        .into_iter()
        .flat_map(|norm| [plan(norm, 37, [8, 16]), plan(norm, 1000, [1, 32])])
        .collect()
}

#[test]
fn normalisations_over_channels_compile() {
    assert_units_compile(&channel_norms(), &SOME_ARCHS);
}

/// Kernels of no committed config.
fn other_units() -> Vec<PlannedUnit> {
    let mut planner = Planner::new(gpu("h200").unwrap());
    let grouped = [2, 14, 1, 1, 4, 1, 1, 1, 1];
    let whole = [3, 14, 1, 2, 2, 3, 1, 1, 1];
    let problems: [(&str, &str, Option<&[u32]>); 10] = [
        // Conversions to the formats of outputs.
        ("convert_b2_c3_h4_w5_tonhwc", "convert", None),
        ("convert_c64_h8_w8_tonhwc", "convert", None),
        ("convert_b2_c67_h4_w5_tonhwc16", "convert", None),
        ("convert_b2_c3_h4_w5_tonchw16", "convert", None),
        ("convert_c3_h1_w1_tonhwc16", "convert", None),
        ("convert_b2_c16_h4_w5_fromnhwcsplit_tonhwc", "convert", None),
        ("convert_b2_c16_h4_w5_fromnhwc16_tonhwc", "convert", None),
        // Nothing but the group says where a block's channels begin.
        (
            "conv_c25_n40_h14_w12_k1x3_p2x0x0x0_g5_bf16",
            "implicit_gemm",
            Some(&grouped),
        ),
        // One warp has all channels.
        (
            "globalavgpool_c24_h1_w1_fromnhwcsplit",
            "global_pool",
            Some(&[1]),
        ),
        // No output is outside of the image, and its rows are counted in no batch.
        (
            "conv_c4_n32_h9_w28_k3x1_p2x0x0x0_bias_fp16_tonhwc16",
            "implicit_gemm",
            Some(&whole),
        ),
    ];
    let problems = problems.into_iter();
    problems
        .map(|(label, scheme, tile)| {
            let problem = problem_of_label(label).unwrap();
            let unit = plan_problem(
                &mut planner,
                KERNEL_PREFIX,
                "",
                &problem,
                Some(scheme),
                tile,
            );
            unit.unwrap()
        })
        .collect()
}

#[test]
fn kernels_of_no_committed_config_compile() {
    assert_units_compile(&other_units(), &SOME_ARCHS);
}

#[test]
fn kernels_of_most_schemes_compile() {
    let sample = sample();
    assert!(sample.len() > 15, "{} units", sample.len());
    assert_units_compile(&sample, &SOME_ARCHS);
}

mod deep {
    use super::*;

    #[test]
    #[ignore = "deep tier"]
    fn emitted_folders_compile_with_nvcc_without_a_warning() {
        // The flags of the second are those of its README.
        let several = "-gencode arch=compute_75,code=compute_75 -gencode arch=compute_75,code=sm_75 \
                       -gencode arch=compute_90,code=sm_90";
        assert_folder_compiles("mixed", "-arch=sm_80");
        assert_folder_compiles("pair", several);
        assert_folder_compiles("batches", "-arch=sm_90");
    }

    #[test]
    #[ignore = "deep tier"]
    fn every_part_of_the_device_prelude_compiles_for_every_architecture_without_a_warning() {
        assert_texts_compile(&preludes(), &archs());
    }

    #[test]
    #[ignore = "deep tier"]
    fn every_kernel_compiles_for_every_architecture() {
        let units = units();
        assert!(units.len() > 40, "{} units", units.len());
        assert_units_compile(&units, &archs());
    }
}
