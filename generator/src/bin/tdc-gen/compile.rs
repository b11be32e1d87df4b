//! `tdc-gen compile`.

use crate::args::CompileArgs;
use crate::failure::Failure;
use crate::inputs::in_file;
use crate::output::{note, print};
use serde_json::json;
use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use tdc_generator::compile::nvrtc::{Effort, Options};
use tdc_generator::compile::toolkit::Toolkit;
use tdc_generator::compile::{Job, compile_all};
use tdc_generator::emit::write_all_atomic;
use tdc_generator::plan::{PlannedUnit, ResourceTable, Resources, resource_key};
use tdc_generator::render::unit_text;
use tdc_runtime::Arch;

/// Compiles the units of all configs for all architectures, prints a table, and writes cubins and the
/// resource table.
pub fn run(args: &CompileArgs) -> Result<(), Failure> {
    // Fails before the long work if the file is not a resource table.
    let known = args.resources.as_ref().map(|path| Ok((path, known(path)?)));
    let known = known.transpose()?;
    let mut units: Vec<PlannedUnit> = Vec::new();
    for path in &args.configs {
        let planned = args.options.plan(path, args.target.gpu.as_deref())?;
        units.extend(planned.units());
    }
    let compiler = Toolkit::find()
        .compiler(Options {
            effort: if args.fast {
                Effort::Fast
            } else {
                Effort::Full
            },
            ..Options::default()
        })
        .map_err(Failure::machine)?;
    let texts = units
        .iter()
        .map(unit_text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::input)?;
    let (jobs, owners): (Vec<Job>, Vec<(&PlannedUnit, Arch)>) = units
        .iter()
        .zip(&texts)
        .flat_map(|(unit, source)| {
            args.arch.iter().map(move |&arch| {
                let name: &str = &unit.unit.name;
                (Job { source, name, arch }, (unit, arch))
            })
        })
        .unzip();
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let mut done = 0;
    let images = compile_all(&compiler, &jobs, threads, |index, _| {
        done += 1;
        note(format_args!(
            "[{done}/{}] {} {}",
            jobs.len(),
            jobs[index].name,
            jobs[index].arch
        ));
    });

    let mut table = ResourceTable::default();
    let mut rows = Vec::new();
    let mut files: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    let mut failures: Vec<String> = Vec::new();
    for ((unit, arch), image) in owners.into_iter().zip(images) {
        let image = match image {
            Ok(image) => image,
            Err(error) => {
                failures.push(error.to_string());
                continue;
            }
        };
        if let Some(dir) = &args.out {
            let path = dir
                .join(arch.to_string())
                .join(format!("{}.cubin", unit.unit.name));
            files.push((path, image.cubin.clone()));
        }
        for kernel in &unit.kernels {
            let Some(resources) = image.kernel(&kernel.symbol).map(Resources::from) else {
                return Err(Failure::Check(format!(
                    "the compiler's log has no entry for kernel {}",
                    kernel.symbol
                )));
            };
            let key = resource_key(&unit.unit.name, kernel.blueprint.role);
            table
                .insert(&key, arch, resources)
                .map_err(Failure::input)?;
            rows.push((key, arch, resources));
        }
    }
    if !failures.is_empty() {
        return Err(Failure::Input(failures.join("\nerror: ")));
    }
    if let Some((path, mut known)) = known {
        known.merge(table);
        files.push((path.clone(), known.to_string().into_bytes()));
    }
    let files: Vec<(&Path, &[u8])> = files
        .iter()
        .map(|(path, content)| (path.as_path(), content.as_slice()))
        .collect();
    write_all_atomic(&files).map_err(Failure::input)?;
    print_resources(args, &rows)
}

/// The existing resource table; empty if the file does not exist.
fn known(path: &Path) -> Result<ResourceTable, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => text
            .parse::<ResourceTable>()
            .map_err(|error| in_file(Some(path), &error)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(ResourceTable::default()),
        Err(error) => Err(in_file(Some(path), &error)),
    }
}

fn print_resources(args: &CompileArgs, rows: &[(String, Arch, Resources)]) -> Result<(), Failure> {
    if args.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(kernel, arch, resources)| json!({ "kernel": kernel, "arch": arch, "resources": resources }))
            .collect();
        return print(format_args!("{:#}\n", serde_json::Value::from(rows)));
    }
    print("arch    registers  shared B  spilled B  kernel\n")?;
    for (kernel, arch, r) in rows {
        print(format_args!(
            "{:<7} {:>9} {:>7} {:>8}  {kernel}\n",
            arch.to_string(),
            r.registers,
            r.shared_bytes,
            r.spill_stores + r.spill_loads
        ))?;
    }
    Ok(())
}
