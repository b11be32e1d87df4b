//! Generated files, byte for byte. `TDC_BLESS=1 cargo test -p tdc-generator --test golden` accepts the
//! current ones.

use crate::networks::{folders, layers, mixed, pair, plan, plan_set, plans, tiny};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tdc_generator::emit::{Files, MANIFEST, check, write};
use tdc_generator::gpu::gpu;
use tdc_generator::plan::{PlannedUnit, Planner, plan_problem, problem_of_label};
use tdc_generator::render::{
    device_header, kernel_text, layer_set_table, network_table, unit_source, unit_text,
};
use tdc_generator::scheme::DevicePart;
use tdc_runtime::{Arg, Launch, Step};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden")
        .join(name)
}

/// Paths of all files in a folder.
fn paths(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(current) = pending.pop() {
        for entry in std::fs::read_dir(&current).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => pending.push(path),
                false => found.push(
                    path.strip_prefix(folder)
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .replace('\\', "/"),
                ),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn generated_folders_match_the_golden_files() {
    let bless = std::env::var_os("TDC_BLESS").is_some();
    for (name, files) in folders() {
        let folder = golden(name);
        if bless {
            write(&files, &folder, true).unwrap();
        }
        let differences = check(&files, &folder).unwrap();
        let shown: String = differences.iter().map(|d| format!("{d}\n")).collect();
        assert!(
            shown.is_empty(),
            "{name} (TDC_BLESS=1 accepts this):\n{shown}"
        );
        let mut expected: Vec<_> = files.keys().cloned().chain([MANIFEST.to_owned()]).collect();
        expected.sort();
        assert_eq!(paths(&folder), expected, "{name}");
    }
}

#[test]
fn plan_tables_match_the_golden_files() {
    let tables = [
        network_table(&plan(&mixed())),
        network_table(&plan(&tiny())),
        layer_set_table(&plan_set(&layers())),
    ]
    .join("\n");
    let path = golden("plans.txt");
    if std::env::var_os("TDC_BLESS").is_some() {
        std::fs::write(&path, &tables).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert_eq!(tables, committed, "TDC_BLESS=1 accepts what is there now");
}

#[test]
fn the_same_request_gives_the_same_bytes() {
    assert!(folders() == folders());
}

#[test]
fn a_unit_contains_its_kernels_unchanged_and_the_folder_its_device_functions_once() {
    let [(_, files), ..] = folders();
    let text = |path: &str| std::str::from_utf8(&files[path]).unwrap();
    let device = text("src/units/mixed_device.cuh");
    for unit in &plan(&mixed()).units {
        let source = text(&format!("src/units/{}.cu", unit.unit.name)).to_owned();
        assert!(
            source.contains("#include \"mixed_device.cuh\"\n"),
            "{source}"
        );
        assert!(!source.contains("__forceinline__"), "{source}");
        for kernel in &unit.kernels {
            assert!(source.contains(&kernel_text(kernel).unwrap()), "{source}");
        }
        // What NVRTC and `kernel!` compile needs no other file.
        let alone = unit_text(unit).unwrap();
        assert!(!alone.contains("#include"), "{alone}");
        for group in alone
            .lines()
            .filter(|line| line.starts_with("#ifndef TDC_"))
        {
            assert!(
                alone.contains(&group.replace("ifndef", "define")),
                "{group}"
            );
            assert_eq!(device.matches(&format!("{group}\n")).count(), 1, "{group}");
        }
    }
    // The macros of groups stay undefined, or the header of another network in the same source file would lack them.
    let defined: Vec<_> = device
        .lines()
        .filter(|line| line.starts_with("#define"))
        .collect();
    let [guard, dynamic_shared] = &defined[..] else {
        panic!("{defined:?}");
    };
    assert_eq!(*guard, "#define MIXED_DEVICE_CUH");
    assert!(dynamic_shared.starts_with("#define TDC_DYNAMIC_SHARED(type, name)"));
    assert!(device.contains("\nnamespace mixed {\n"));
}

/// The READMEs say which file computes a layer.
#[test]
fn readmes_have_an_index_from_layer_to_file() {
    let [(_, mixed), (_, tiny), (_, pair), _, (_, set)] = folders();
    let readme = |files: &Files| String::from_utf8(files["README.md"].clone()).unwrap();
    let unit = &plan_set(&layers()).units[0];
    for row in [
        format!(
            "| plain.again | {} | `{}.cu` |",
            unit.scheme, unit.unit.name
        ),
        format!("| plain | {} | `{}.cu` |", unit.scheme, unit.unit.name),
    ] {
        assert!(readme(&set).contains(&row), "{row}");
    }
    let plan = plan(&crate::networks::mixed());
    for layer in &plan.layers {
        let unit = &plan.units[layer.unit];
        let row = format!("| {} | `{}.cu` |", unit.scheme, unit.unit.name);
        assert!(readme(&mixed).contains(&row), "{row}");
    }
    assert!(readme(&mixed).contains(
        "\n| input | input | fp32 | NCHW | 2x3x13x11 | 3432 |\n| output | scores | fp32 |"
    ));
    assert!(readme(&tiny).contains("\n| a\\\"quoted\\\\name\\\\ | elementwise |"));
    assert!(readme(&pair).contains("\n## Layers of variant `rtx2080ti`\n"));
}

#[test]
fn launchers_request_memsets_and_large_shared_memory() {
    let mut unit = plain_unit();
    let mut variant = unit.variant().clone();
    let [Step::Launch(launch)] = &variant.steps[..] else {
        panic!("one launch");
    };
    let large = Launch {
        shared_bytes: 100_000,
        ..launch.clone()
    };
    let memset = |target| Step::Memset { target, bytes: 64 };
    let workspace = |offset| Arg::Workspace { offset };
    variant.steps = vec![
        memset(workspace(0)),
        memset(workspace(256)),
        memset(Arg::Y),
        Step::Launch(large),
        Step::Launch(launch.clone()),
    ]
    .into();
    unit.unit.variants = vec![variant].into();
    let source = unit_source(&unit, "unit.h", "device.cuh").unwrap();
    let launcher = &source[source.find("_launch(").unwrap()..];
    let parts = [
        "void* workspace",
        "cudaError_t error = cudaMemsetAsync(workspace, 0, 64, stream);",
        "error = cudaMemsetAsync(static_cast<char*>(workspace) + 256, 0, 64, stream);",
        "error = cudaMemsetAsync(y, 0, 64, stream);",
        "error = cudaFuncSetAttribute(",
        "cudaFuncAttributeMaxDynamicSharedMemorySize,",
        "100000);",
        "config.dynamicSmemBytes = 100000;",
        "error = cudaLaunchKernelEx(",
        "config.dynamicSmemBytes = 0;",
        "return cudaLaunchKernelEx(",
    ];
    assert_in_order(launcher, &parts);
}

/// A unit of one launch without dynamic shared memory, a cluster or a carve-out.
fn plain_unit() -> PlannedUnit {
    let plain = |unit: &PlannedUnit| {
        matches!(&unit.variant().steps[..],
            [Step::Launch(launch)] if launch.shared_bytes == 0 && launch.cluster == [1; 3])
    };
    let mut unit = plan(&mixed()).units.into_iter().find(plain).unwrap();
    unit.kernels[0].carveout = None;
    unit
}

#[test]
fn launchers_request_carveouts() {
    let mut unit = plain_unit();
    let launcher = |unit: &PlannedUnit| {
        let source = unit_source(unit, "unit.h", "device.cuh").unwrap();
        source[source.find("_launch(").unwrap()..].to_owned()
    };
    assert!(!launcher(&unit).contains("set_carveout"));
    // A second kernel, after a memset.
    let mut variant = unit.variant().clone();
    let [Step::Launch(first)] = &variant.steps[..] else {
        panic!("one launch");
    };
    let second = Launch {
        kernel: "second".into(),
        ..first.clone()
    };
    let memset = Step::Memset {
        target: Arg::Y,
        bytes: 64,
    };
    variant.steps = vec![memset, Step::Launch(first.clone()), Step::Launch(second)].into();
    unit.unit.variants = vec![variant].into();
    let mut kernel = unit.kernels[0].clone();
    kernel.symbol = "second".to_owned();
    unit.kernels.push(kernel);
    unit.kernels[0].carveout = Some(132);
    unit.kernels[1].carveout = Some(164);
    let parts = [
        "cudaError_t error = cudaMemsetAsync(",
        "error = set_carveout(",
        &unit.kernels[0].symbol,
        "132);",
        "error = cudaLaunchKernelEx(",
        "error = set_carveout(second, 164);",
        "return cudaLaunchKernelEx(&config, second,",
    ];
    assert_in_order(&launcher(&unit), &parts);
    let header = |unit| device_header("net", &[unit], &[gpu("h200").unwrap()]).unwrap();
    assert!(header(&unit).contains("set_carveout(Kernel* kernel, int kib)"));
    assert!(!header(&plain_unit()).contains("set_carveout"));
}

/// Checks that the parts occur in this order.
fn assert_in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest
            .find(part)
            .unwrap_or_else(|| panic!("{part} in\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn clusters_and_pdl_are_requested_where_kernels_use_them() {
    let mut unit = plain_unit();
    let mut variant = unit.variant().clone();
    let [Step::Launch(launch)] = &variant.steps[..] else {
        panic!("one launch");
    };
    let launch = launch.clone();
    let with = |cluster, pdl, shared_bytes| {
        Step::Launch(Launch {
            cluster,
            pdl,
            shared_bytes,
            ..launch.clone()
        })
    };
    let mut source = |unit: &mut PlannedUnit, steps: Vec<Step>| {
        variant.steps = steps.into();
        unit.unit.variants = vec![variant.clone()].into();
        let device = device_header("net", &[unit], &[gpu("h200").unwrap()]).unwrap();
        (unit_source(unit, "unit.h", "device.cuh").unwrap(), device)
    };

    let (plain, device) = source(&mut unit, vec![with([1; 3], false, 0)]);
    assert!(!plain.contains("ttributes"), "{plain}");
    assert!(!device.contains("set_attributes"), "{device}");

    let (pdl_kernels, device) = source(
        &mut unit,
        vec![with([1; 3], true, 0), with([1; 3], false, 0)],
    );
    assert_in_order(
        &device,
        &[
            "constexpr int min_arch = 90;",
            "portable_cluster_blocks = 8;",
            "function.ptxVersion < min_arch",
            "if (pdl)",
            "cudaLaunchAttributeProgrammaticStreamSerialization",
            "cudaLaunchAttributeClusterDimension",
            "cluster_blocks > portable_cluster_blocks",
            "cudaFuncAttributeNonPortableClusterSizeAllowed, 1);",
        ],
    );
    assert_in_order(
        &pdl_kernels,
        &[
            "_launch(",
            "cudaLaunchAttribute attributes[1] = {};",
            "config.attrs = attributes;",
            "cudaError_t error = set_attributes(",
            "true);",
            "if (error != cudaSuccess) return error;",
            "error = cudaLaunchKernelEx(",
            "config.numAttrs = 0;",
            "return cudaLaunchKernelEx(",
        ],
    );

    let (clusters, _) = source(
        &mut unit,
        vec![with([2, 4, 2], true, 100_000), with([1, 1, 4], false, 0)],
    );
    assert_in_order(
        &clusters,
        &[
            "_launch(",
            "cudaLaunchAttribute attributes[2] = {};",
            "cudaFuncAttributeMaxDynamicSharedMemorySize,",
            "set_attributes(",
            "true, dim3(2, 4, 2));",
            "cudaLaunchKernelEx(",
            "false, dim3(1, 1, 4));",
            "config.dynamicSmemBytes = 0;",
            "return cudaLaunchKernelEx(",
        ],
    );
}

#[test]
fn each_group_of_device_functions_is_included_once() {
    let mut unit = plain_unit();
    let mut second = unit.kernels[0].clone();
    second.symbol += "_second";
    unit.kernels[0].blueprint.device = &[DevicePart::Mma, DevicePart::DynamicShared];
    second.blueprint.device = &[DevicePart::AsyncCopy, DevicePart::Mma];
    unit.kernels.push(second);
    let text = unit_text(&unit).unwrap();
    assert_in_order(
        &text,
        &[
            "#ifndef TDC_DYNAMIC_SHARED",
            "#ifndef TDC_ASYNC_COPY",
            "#ifndef TDC_MMA",
            "extern \"C\"",
        ],
    );
    assert_eq!(text.matches("#ifndef").count(), 3, "{text}");
}

/// Kernels launched with PDL must trigger their successor, and wait before they access anything that a
/// predecessor writes. The wait must not be in a loop or branch: it is for all threads that have not exited.
#[test]
fn pdl_kernels_wait_for_their_inputs() {
    let mut pdl_kernels = 0;
    for unit in &golden_units() {
        let steps = unit.variant().steps.iter();
        let launches = steps.filter_map(|step| match step {
            Step::Launch(launch) => Some(launch),
            Step::Memset { .. } => None,
        });
        for (kernel, launch) in unit.kernels.iter().zip(launches) {
            let text = kernel_text(kernel).unwrap();
            let places = |calls: &[&str]| -> Vec<usize> {
                let found = calls.iter().flat_map(|call| text.match_indices(call));
                found.map(|(at, _)| at).collect()
            };
            let both = "    tdc_pdl_wait_and_trigger();\n";
            let waits = places(&[both, "    tdc_pdl_wait();\n"]);
            let triggers = places(&[both, "    tdc_pdl_trigger();"]);
            let uses = kernel.blueprint.device.contains(&DevicePart::Pdl);
            assert_eq!(waits.len(), usize::from(launch.pdl), "{text}");
            assert_eq!(triggers.len(), usize::from(launch.pdl), "{text}");
            assert_eq!(uses, launch.pdl, "{text}");
            if !launch.pdl {
                continue;
            }
            pdl_kernels += 1;
            assert!(waits <= triggers, "{text}");
            let body = text.find("\n{\n").unwrap() + 3;
            for place in [waits[0], triggers[0]] {
                let before = &text[body..place];
                let opened = before.matches('{').count();
                assert_eq!(opened, before.matches('}').count(), "{text}");
            }
            let before = &text[body..waits[0]];
            for access in ["x", "residual", "workspace", "y"]
                .iter()
                .flat_map(|name| {
                    [
                        format!("__ldg({name}"),
                        format!("{name}["),
                        format!("*{name}"),
                    ]
                })
                .chain(["atomicAdd".to_owned()])
            {
                assert!(!before.contains(&access), "{access} in\n{text}");
            }
        }
    }
    assert!(pdl_kernels > 20, "{pdl_kernels}");
}

/// The CPU emulation replaces the device functions, and only those.
#[test]
fn inline_assembly_is_in_device_functions_only() {
    for (name, text) in tdc_templates::FILES {
        assert!(!text.contains("asm"), "{name}");
    }
    assert!(tdc_templates::device::MMA.contains("asm"));
}

#[test]
fn text_follows_the_style_rules() {
    for (name, files) in folders() {
        for (path, content) in files {
            let text = String::from_utf8(content).unwrap();
            let place = format!("{name}/{path}");
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{place}");
            // Python separates definitions by two lines.
            let is_python = path.ends_with(".py");
            assert!(is_python || !text.contains("\n\n\n"), "{place}");
            assert!(
                !text.contains("\n\n\n\n") && !text.contains('\t'),
                "{place}"
            );
            assert!(
                !text.contains("<<<") && !text.contains("cooperative_groups"),
                "{place}"
            );
            for line in text.lines() {
                assert_eq!(line.trim_end(), line, "{place}");
            }
            if !path.ends_with(".json") {
                assert!(text.contains("SPDX-License-Identifier: 0BSD"), "{place}");
                assert!(
                    text.contains(concat!("tdc ", env!("CARGO_PKG_VERSION"))),
                    "{place}"
                );
            }
        }
    }
}

#[test]
fn units_have_single_blank_lines() {
    for unit in units_of_several_layers() {
        let text = unit_text(&unit).unwrap();
        let (name, ends_blank) = (&unit.unit.name, text.contains("\n\n}\n"));
        assert!(
            !text.contains("\n\n\n") && !text.contains("\n\n    }\n"),
            "{name}:\n{text}"
        );
        // Only the namespace ends after a blank line.
        assert!(!ends_blank && !text.ends_with("\n\n"), "{name}:\n{text}");
    }
}

#[test]
fn python_modules_are_valid_python() {
    let mut modules = 0;
    for (name, files) in folders() {
        for (path, content) in files {
            if !path.ends_with(".py") {
                continue;
            }
            let mut python = Command::new("python3")
                .args(["-c", "import ast, sys; ast.parse(sys.stdin.read())"])
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            python.stdin.take().unwrap().write_all(&content).unwrap();
            assert!(python.wait().unwrap().success(), "{name}/{path}");
            modules += 1;
        }
    }
    assert!(modules >= 2, "{modules} modules");
}

/// Every text that is compiled: of the folders, and of kernels on their own.
fn compiled_texts() -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for (name, files) in folders() {
        for (path, content) in files {
            let is_cpp = [".cu", ".cuh", ".h"].iter().any(|end| path.ends_with(end));
            if is_cpp || path.ends_with("CMakeLists.txt") || path.ends_with(".py") {
                texts.push((
                    format!("{name}/{path}"),
                    String::from_utf8(content).unwrap(),
                ));
            }
        }
    }
    for unit in golden_units().into_iter().chain(units_of_several_layers()) {
        texts.push((unit.unit.name.to_string(), unit_text(&unit).unwrap()));
    }
    texts
}

/// Inverted residuals and dense steps, which no golden folder has: by single blocks and by clusters, with and without what is optional.
fn units_of_several_layers() -> Vec<PlannedUnit> {
    let mut planner = Planner::new(gpu("h200").unwrap());
    let requests = [
        (
            "invertedresidual_c24_e96_n40_h14_w14_k3x3_p1_bias_relu_depthwise_bias_relu_project_bias_residual",
            "inverted_residual",
            &[2, 7, 1, 8][..],
        ),
        (
            "invertedresidual_b2_c17_e40_n19_h9_w9_k1x3_s1x2_depthwise_project_tf32",
            "inverted_residual",
            &[1, 4, 3, 4],
        ),
        (
            "densestep_c64_grow32_before64_n128_h14_w14_k3x3_p1_bias_relu_concat_prologuerelu_bias_relu",
            "dense_step",
            &[1, 14, 4, 8, 2],
        ),
        (
            "densestep_b2_c17_grow7_before12_n19_h9_w9_k1x3_s1x2_concat_tf32",
            "dense_step",
            &[1, 4, 1, 4, 1],
        ),
    ];
    let unit = |(label, scheme, tile): (&str, &str, &[u32])| {
        let problem = problem_of_label(label).unwrap();
        plan_problem(
            &mut planner,
            "net",
            "layer",
            &problem,
            Some(scheme),
            Some(tile),
        )
        .unwrap()
    };
    requests.map(unit).to_vec()
}

/// The units of all golden folders.
fn golden_units() -> Vec<PlannedUnit> {
    let mut units = [mixed(), tiny()]
        .map(|network| plan(&network).units)
        .concat();
    units.extend(plans(&pair()).into_iter().flat_map(|plan| plan.units));
    units.extend(plan_set(&layers()).units);
    units
}

/// A line is longer only if a name in it is, which cannot be broken.
#[test]
fn no_generated_line_is_longer_than_110_columns() {
    const COLUMNS: usize = 110;
    const LONG_NAME: usize = 60;
    let mut long = Vec::new();
    for (place, text) in compiled_texts() {
        for line in text.lines().filter(|line| line.chars().count() > COLUMNS) {
            let words: Vec<_> = line.split_whitespace().collect();
            let has_long_name = words.iter().any(|word| word.len() > LONG_NAME);
            // Of a name and what cannot be parted from it, such as `return` or `#include`.
            if !has_long_name || words.len() > 3 {
                long.push(format!("{place}: {line}"));
            }
        }
    }
    assert!(
        long.is_empty(),
        "{} lines:\n{}",
        long.len(),
        long.join("\n")
    );
}

#[test]
fn no_template_line_is_longer_than_120_columns() {
    use tdc_templates::device::*;
    const COLUMNS: usize = 120;
    let device = [
        ACCUMULATOR_OPERANDS,
        ASYNC_COPY,
        BF16,
        BULK_COPY,
        CLUSTER,
        DYNAMIC_SHARED,
        FP16,
        MMA,
        MMA_STEPS,
        PDL,
        PREFETCH,
        SPLIT_TENSOR,
        SPLIT_TF32,
    ];
    let device = device.iter().map(|text| ("device", *text));
    let templates = tdc_templates::FILES.iter().copied().chain(device);
    let mut long = Vec::new();
    for (name, text) in templates {
        let lines = text.lines().filter(|line| line.chars().count() > COLUMNS);
        long.extend(lines.map(|line| format!("{name}: {line}")));
    }
    assert!(
        long.is_empty(),
        "{} lines:\n{}",
        long.len(),
        long.join("\n")
    );
}

/// Numbers have names where they are used, so that no division by one, sum with zero or loop over one element is written out.
#[test]
fn generated_code_has_no_trivial_arithmetic() {
    let mut trivial = Vec::new();
    for (place, text) in compiled_texts() {
        for line in text.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let ends = |found: &str, at: usize| {
                let rest = &code[at + found.len()..];
                !rest.starts_with(|c: char| c.is_alphanumeric() || c == '.' || c == '_')
            };
            let has = |found: &str| code.match_indices(found).any(|(at, _)| ends(found, at));
            let loops_once = code.contains("for (") && code.contains(" = 0;") && has(" < 1");
            if has(" / 1") || has(" % 1") || has(" * 1") || has(" + 0") || has(" - 0") || loops_once
            {
                trivial.push(format!("{place}: {}", line.trim()));
            }
        }
    }
    assert!(
        trivial.is_empty(),
        "{} lines:\n{}",
        trivial.len(),
        trivial.join("\n")
    );
}

#[test]
fn plans_are_json_and_name_each_layer() {
    for (name, files) in folders() {
        let plan: serde_json::Value = serde_json::from_slice(&files["plan.json"]).unwrap();
        assert_eq!(plan["name"], name);
        let layers = match name {
            "some-layers" => &plan["layers"],
            _ => &plan["variants"][0]["layers"],
        };
        assert!(!layers.as_array().unwrap().is_empty());
    }
    let tiny = plan(&tiny());
    assert_eq!(tiny.layers[0].name, "a\"quoted\\name\\");
}

/// Assumptions of the tests with two variants.
#[test]
fn plans_for_two_gpus_differ_and_share_what_is_the_same() {
    let plans = plans(&pair());
    let [a, b] = &plans[..] else {
        panic!("two plans");
    };
    assert_ne!(a.weights.layouts_checksum(), b.weights.layouts_checksum());
    assert_ne!(a.arena_bytes, b.arena_bytes);
    let [_, _, (_, files), ..] = folders();
    let sources = files.keys().filter(|path| path.starts_with("src/units/"));
    let distinct = sources.filter(|path| path.ends_with(".cu")).count();
    assert!(distinct < a.units.len() + b.units.len());
    let shared = &a.units[0].unit.name;
    assert_eq!(*shared, b.units[0].unit.name);
    let text = String::from_utf8(files[&format!("src/units/{shared}.cu")].clone()).unwrap();
    assert!(text.contains("for NVIDIA H200 SXM (sm_90) and NVIDIA GeForce RTX 2080 Ti (sm_75)."));
}

#[test]
fn a_network_is_emitted_for_at_least_one_gpu() {
    let error = tdc_generator::emit::network_files(&[]).unwrap_err();
    assert!(error.to_string().contains("there is no plan"), "{error}");
}
