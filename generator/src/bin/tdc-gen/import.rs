//! `tdc-gen import`.

use crate::args::ImportArgs;
use crate::failure::Failure;
use crate::inputs::reject_overwriting;
use crate::output::print;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tdc_generator::config::{Overrides, yaml};
use tdc_generator::emit::write_all_atomic;
use tdc_generator::import::load_model;
use tdc_generator::wording::counted;

/// Writes the config of an ONNX file, and its weights if a file for them is given.
pub fn run(args: &ImportArgs) -> Result<(), Failure> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => PathBuf::from(args.model.file_name().unwrap_or_default()).with_extension("yaml"),
    };
    let outputs = [Some(&out), args.weights.as_ref()];
    reject_overwriting(
        [args.model.as_path()],
        outputs.into_iter().flatten().map(PathBuf::as_path),
    )?;
    let overrides = Overrides {
        batches: args.batch.clone(),
        ..Overrides::default()
    };
    let overrides = overrides
        .with_input_shapes(&args.input)
        .map_err(Failure::Input)?;
    let model = load_model(&args.model, &overrides).map_err(Failure::input)?;
    let (network, checkpoint) = model.imported.into_parts();
    let config = yaml::network_text(&network);
    if !args.force {
        check_unedited(&out, config.as_bytes())?;
    }
    let mut files: Vec<(&Path, &[u8])> = vec![(&out, config.as_bytes())];
    let weights;
    if let Some(path) = &args.weights {
        weights = checkpoint.to_safetensors().map_err(Failure::input)?;
        files.push((path, &weights));
    }
    write_all_atomic(&files).map_err(Failure::input)?;
    let ops = counted(network.ops.len() - 1, "op");
    print(format_args!("{}: {ops}\n", out.display()))?;
    match &args.weights {
        Some(path) => print(format_args!(
            "{}: {} bytes\n",
            path.display(),
            files[1].1.len()
        )),
        None => Ok(()),
    }
}

/// An existing config is kept if it says something else: somebody may have edited it.
fn check_unedited(path: &Path, new: &[u8]) -> Result<(), Failure> {
    match std::fs::read(path) {
        Ok(found) if found != new => Err(Failure::Input(format!(
            "{} exists and differs from what would be written; give another file by -o, or replace it by --force",
            path.display()
        ))),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure::in_file(path, &[error])),
        _ => Ok(()),
    }
}
