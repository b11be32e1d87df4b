//! The default command: configs to folders.

use crate::args::GenerateArgs;
use crate::config::Planned;
use crate::failure::Failure;
use std::path::{Path, PathBuf};
use tdc_generator::emit::{self, Files};
use tdc_generator::render::{layer_set_json, network_json};

/// Plans and renders every config before anything is written.
pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    if args.out.is_some() && args.configs.len() > 1 {
        return Err(Failure::Input(
            "--out names one folder, but there are several configs; run them one by one".to_owned(),
        ));
    }
    let mut folders: Vec<(PathBuf, Files, Planned)> = Vec::new();
    for path in &args.configs {
        let planned = args.config.plan(path, &args.target.gpu)?;
        let (name, files) = match &planned {
            Planned::Network(_, plan) => (&plan.name, emit::network_files(plan)),
            Planned::LayerSet(plan) => (&plan.name, emit::layer_set_files(plan)),
        };
        let folder = match &args.out {
            Some(folder) => folder.clone(),
            None => Path::new("generated").join(name),
        };
        if let Some((_, _, _)) = folders.iter().find(|(known, _, _)| *known == folder) {
            return Err(Failure::Input(format!(
                "two configs would be written to {}; give each its own name",
                folder.display()
            )));
        }
        folders.push((folder, files.map_err(Failure::input)?, planned));
    }
    let mut stale = Vec::new();
    for (folder, files, planned) in &folders {
        if args.stdout {
            print_files(files);
            continue;
        }
        if args.check {
            let differences = emit::check(files, folder).map_err(Failure::input)?;
            stale.extend(differences.iter().map(ToString::to_string));
        } else {
            let written = emit::write(files, folder, args.force).map_err(Failure::input)?;
            if !args.json {
                print_summary(folder, files, &written, planned);
            }
        }
        if args.json {
            let json = match planned {
                Planned::Network(_, plan) => network_json(plan),
                Planned::LayerSet(plan) => layer_set_json(plan),
            };
            print!("{}", json.map_err(Failure::input)?);
        }
    }
    if stale.is_empty() {
        Ok(())
    } else {
        Err(Failure::Check(format!(
            "not up to date\n{}",
            stale.join("\n")
        )))
    }
}

fn print_files(files: &Files) {
    for (path, bytes) in files {
        println!("==> {path} <==");
        println!("{}", String::from_utf8_lossy(bytes));
    }
}

fn print_summary(folder: &Path, files: &Files, written: &emit::Written, planned: &Planned) {
    println!(
        "{}: {} files, {} written, {} removed",
        folder.display(),
        files.len(),
        written.written.len(),
        written.removed.len()
    );
    match planned {
        Planned::Network(_, plan) => {
            println!(
                "  {} -> {}: {} layers, {} kernels to compile, planned for {}",
                plan.input,
                plan.output,
                plan.layers.len(),
                plan.units
                    .iter()
                    .map(|unit| unit.kernels.len())
                    .sum::<usize>(),
                plan.gpu.title
            );
            println!(
                "  arena {:.2} MB (all tensors {:.2} MB), weights {:.2} MB",
                plan.arena_bytes as f64 / 1e6,
                plan.arena_sum_bytes as f64 / 1e6,
                plan.weights.payload_bytes() as f64 / 1e6
            );
        }
        Planned::LayerSet(plan) => println!(
            "  {} layers, {} units, planned for {}",
            plan.layers.len(),
            plan.units.len(),
            plan.gpu.title
        ),
    }
}
