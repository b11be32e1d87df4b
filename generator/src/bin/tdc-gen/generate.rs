//! The default command: generates folders from configs.

use crate::args::GenerateArgs;
use crate::config::PlannedConfig;
use crate::failure::Failure;
use crate::output::{note, print};
use crate::pack::packed;
use std::path::{Path, PathBuf};
use tdc_generator::emit::{self, Files};
use tdc_generator::plan::{NetworkPlan, PlannedUnit, weight_sections};
use tdc_generator::wording::counted;
use tdc_weights::Checkpoint;

/// Plans and renders every config before anything is written.
pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    if args.out.is_some() && args.configs.len() > 1 {
        return Err(Failure::Input(
            "--out is one folder, but several configs were given; generate them one by one"
                .to_owned(),
        ));
    }
    let mut folders: Vec<Folder> = Vec::new();
    for path in &args.configs {
        let gpus = args.target.gpu.as_deref();
        let (planned, weights) = args.config.plan_with_weights(path, gpus)?;
        let name = match &planned {
            PlannedConfig::Network(network, _) => &network.name,
            PlannedConfig::LayerSet(plan) => &plan.name,
        };
        let folder = match &args.out {
            Some(folder) => folder.clone(),
            None => Path::new("generated").join(name),
        };
        if folders.iter().any(|known| known.path == folder) {
            return Err(Failure::Input(format!(
                "two configs would be written to {}; give them different names",
                folder.display()
            )));
        }
        folders.push(Folder {
            path: folder,
            files: files(path, &planned, args.python)?,
            weights: weight_file(path, &planned, weights)?,
            planned,
        });
    }
    if args.stdout {
        folders
            .iter()
            .try_for_each(|folder| print_files(&folder.files))
    } else if args.check {
        check(args, &folders)
    } else {
        write(args, &folders)
    }
}

/// The files of a folder.
fn files(source: &Path, planned: &PlannedConfig, python: bool) -> Result<Files, Failure> {
    match planned {
        PlannedConfig::Network(_, plans) => {
            let mut files = emit::network_files(plans).map_err(Failure::input)?;
            if python {
                emit::add_python_module(&mut files, plans).map_err(Failure::input)?;
            }
            Ok(files)
        }
        PlannedConfig::LayerSet(_) if python => Err(Failure::Input(format!(
            "{}: --python is for networks; the kernels of a layer set have no driver",
            source.display()
        ))),
        PlannedConfig::LayerSet(plan) => emit::layer_set_files(plan).map_err(Failure::input),
    }
}

/// A folder to write.
struct Folder {
    path: PathBuf,
    files: Files,
    /// The content of the weight file, if the network came with its weights.
    weights: Option<Vec<u8>>,
    /// What the files were rendered from.
    planned: PlannedConfig,
}

/// Name of the weight file in a folder.
const WEIGHTS: &str = "weights.bin";

/// The packed weights of an ONNX file.
fn weight_file(
    source: &Path,
    planned: &PlannedConfig,
    weights: Option<Checkpoint>,
) -> Result<Option<Vec<u8>>, Failure> {
    let (PlannedConfig::Network(network, plans), Some(weights)) = (planned, weights) else {
        return Ok(None);
    };
    let (bytes, _) = packed(network, &weight_sections(plans), &weights, Some(source))?;
    Ok(Some(bytes))
}

/// Moves all folders into place after the files of all have been written to disk.
fn write(args: &GenerateArgs, folders: &[Folder]) -> Result<(), Failure> {
    let prepared = folders
        .iter()
        .map(|folder| emit::stage(&folder.files, &folder.path, args.force))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::input)?;
    for (folder, prepared) in folders.iter().zip(prepared) {
        let Folder {
            path,
            weights,
            planned,
            ..
        } = folder;
        let written = prepared.commit().map_err(Failure::input)?;
        if let Some(weights) = weights {
            emit::write_atomic(&path.join(WEIGHTS), weights).map_err(Failure::input)?;
        }
        if args.json {
            print(planned.json()?)?;
        } else {
            print_summary(path, &written, planned)?;
            if let Some(weights) = weights {
                print(format_args!(
                    "  {}: {} bytes\n",
                    path.join(WEIGHTS).display(),
                    weights.len()
                ))?;
            }
        }
    }
    Ok(())
}

fn check(args: &GenerateArgs, folders: &[Folder]) -> Result<(), Failure> {
    let mut stale = Vec::new();
    for folder in folders {
        let mut differences = emit::check(&folder.files, &folder.path).map_err(Failure::input)?;
        if let Some(weights) = &folder.weights {
            let weights = emit::check_bytes(WEIGHTS, weights, &folder.path);
            differences.extend(weights.map_err(Failure::input)?);
        }
        if !differences.is_empty() {
            let lines: Vec<_> = differences.iter().map(ToString::to_string).collect();
            stale.push(format!(
                "{} is not up to date; run the same command without --check\n{}",
                folder.path.display(),
                lines.join("\n")
            ));
        }
        if args.json {
            print(folder.planned.json()?)?;
        }
    }
    if stale.is_empty() {
        Ok(())
    } else {
        Err(Failure::Check(stale.join("\nfailed: ")))
    }
}

fn print_files(files: &Files) -> Result<(), Failure> {
    for (path, bytes) in files {
        let text = String::from_utf8_lossy(bytes);
        print(format_args!("==> {path} <==\n{text}\n"))?;
    }
    Ok(())
}

fn print_summary(
    folder: &Path,
    written: &emit::WriteSummary,
    planned: &PlannedConfig,
) -> Result<(), Failure> {
    print(format_args!(
        "{}: {}, {} written, {} removed\n",
        folder.display(),
        counted(written.files(), "file"),
        written.written.len(),
        written.removed.len()
    ))?;
    for path in &written.kept {
        note(format_args!(
            "note: {path} is no longer generated but was edited, so it was kept"
        ));
    }
    match planned {
        PlannedConfig::Network(_, plans) => {
            plans.iter().try_for_each(print_variant)?;
            match plans.len() {
                1 => Ok(()),
                _ => print(format_args!(
                    "  {} to compile in total\n",
                    counted(kernel_count(&planned.units()), "kernel")
                )),
            }
        }
        PlannedConfig::LayerSet(plan) => print(format_args!(
            "  {}, {}, planned for {}\n",
            counted(plan.layers.len(), "layer"),
            counted(plan.units.len(), "unit"),
            plan.gpu.title
        )),
    }
}

fn kernel_count(units: &[PlannedUnit]) -> usize {
    units.iter().map(|unit| unit.kernels.len()).sum()
}

fn print_variant(plan: &NetworkPlan) -> Result<(), Failure> {
    print(format_args!(
        "  {} -> {}: {}, {} to compile, planned for {}\n",
        plan.input_shapes(),
        plan.output_shapes(),
        counted(plan.layers.len(), "layer"),
        counted(kernel_count(&plan.units), "kernel"),
        plan.gpu.title
    ))?;
    print(format_args!(
        "  arena {:.2} MB (without reuse {:.2} MB), weights {:.2} MB\n",
        plan.arena_bytes as f64 / 1e6,
        plan.arena_bytes_without_reuse as f64 / 1e6,
        plan.weights.payload_bytes() as f64 / 1e6
    ))
}
