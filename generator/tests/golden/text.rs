//! Generated files, byte for byte. `TDC_BLESS=1 cargo test -p tdc-generator --test golden` accepts the
//! current ones.

use crate::networks::{folders, layers, mixed, pair, plan, plan_set, plans, tiny};
use std::path::{Path, PathBuf};
use tdc_generator::emit::{MANIFEST, check, write};
use tdc_generator::plan::PlannedUnit;
use tdc_generator::render::{kernel_text, layer_set_table, network_table, unit_source, unit_text};
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
fn a_unit_contains_its_kernels_unchanged() {
    let [(_, files), ..] = folders();
    for unit in &plan(&mixed()).units {
        let source = &files[&format!("src/units/{}.cu", unit.unit.name)];
        let source = std::str::from_utf8(source).unwrap();
        assert!(source.contains(&unit_text(unit).unwrap()));
    }
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
    let source = unit_source(&unit, "unit.h").unwrap();
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

/// A unit of one launch without dynamic shared memory or a cluster.
fn plain_unit() -> PlannedUnit {
    let plain = |unit: &PlannedUnit| {
        matches!(&unit.variant().steps[..],
            [Step::Launch(launch)] if launch.shared_bytes == 0 && launch.cluster == [1; 3])
    };
    plan(&mixed()).units.into_iter().find(plain).unwrap()
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
        unit_source(unit, "unit.h").unwrap()
    };

    let plain = source(&mut unit, vec![with([1; 3], false, 0)]);
    assert!(!plain.contains("ttributes"), "{plain}");

    let pdl_kernels = source(
        &mut unit,
        vec![with([1; 3], true, 0), with([1; 3], false, 0)],
    );
    assert!(!pdl_kernels.contains("luster"), "{pdl_kernels}");
    assert_in_order(
        &pdl_kernels,
        &[
            "function.ptxVersion < 90",
            "cudaLaunchAttributeProgrammaticStreamSerialization",
            "_launch(",
            "cudaLaunchAttribute attributes[1] = {};",
            "config.attrs = attributes;",
            "cudaError_t error = set_attributes(",
            "if (error != cudaSuccess) return error;",
            "error = cudaLaunchKernelEx(",
            "config.numAttrs = 0;",
            "return cudaLaunchKernelEx(",
        ],
    );

    let clusters = source(
        &mut unit,
        vec![with([2, 4, 2], true, 100_000), with([1, 1, 4], false, 0)],
    );
    assert_in_order(
        &clusters,
        &[
            "bool pdl, dim3 cluster",
            "function.ptxVersion < 90",
            "cudaLaunchAttributeClusterDimension",
            "> 8",
            "cudaFuncAttributeNonPortableClusterSizeAllowed, 1);",
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
    let small = source(&mut unit, vec![with([2, 2, 2], false, 0)]);
    assert!(!small.contains("NonPortable"), "{small}");
}

#[test]
fn each_part_of_the_prelude_is_included_once() {
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
    let mut units = [mixed(), tiny()]
        .map(|network| plan(&network).units)
        .concat();
    units.extend(plans(&pair()).into_iter().flat_map(|plan| plan.units));
    units.extend(plan_set(&layers()).units);
    let mut pdl_kernels = 0;
    for unit in &units {
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

/// The CPU emulation replaces the device header and nothing else.
#[test]
fn inline_assembly_is_in_the_device_prelude_only() {
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
            assert!(!text.contains("\n\n\n") && !text.contains('\t'), "{place}");
            assert!(
                !text.contains("<<<") && !text.contains("cooperative_groups"),
                "{place}"
            );
            for line in text.lines() {
                assert_eq!(line.trim_end(), line, "{place}");
                // Names of units and sentences may exceed the limit.
                let breakable = line.contains(", ") && path.ends_with(".cu");
                assert!(line.len() <= 130 || !breakable, "{place}: {line}");
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
    let [_, _, (_, files), _] = folders();
    let sources = files.keys().filter(|path| path.starts_with("src/units/"));
    let distinct = sources.count() / 2;
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
