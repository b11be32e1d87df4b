//! `tdc-gen prepare`.

use crate::args::PrepareArgs;
use crate::failure::Failure;
use crate::output::{note, print};
use std::path::Path;
use std::process::{Command, Stdio};
use tdc_generator::embed::prepare::{PrepareError, prepared_files, recorded};
use tdc_generator::embed::{PREPARE_VARIABLE, Settings};
use tdc_generator::emit;
use tdc_generator::wording::counted;

/// Finds the calls of `kernel!` by building the crate, compiles their kernels, and writes them to the folder.
pub fn run(args: &PrepareArgs) -> Result<(), Failure> {
    let record = tempfile::tempdir().map_err(Failure::input)?;
    build(record.path(), &args.cargo)?;
    let calls = recorded(record.path()).map_err(failure)?;
    let settings = Settings::from_env(Path::new(".")).map_err(Failure::Input)?;
    let folder = &args.out;
    let files = prepared_files(&calls, folder, !args.check, &settings, |done, all| {
        note(format_args!("compiled {done}/{all} kernels"));
    });
    let files = files.map_err(failure)?;
    if args.check {
        let differences = emit::check(&files, folder).map_err(Failure::input)?;
        if differences.is_empty() {
            return Ok(());
        }
        let lines: Vec<_> = differences.iter().map(ToString::to_string).collect();
        return Err(Failure::Check(format!(
            "{} is not up to date; run the same command without --check\n{}",
            folder.display(),
            lines.join("\n")
        )));
    }
    let written = emit::write(&files, folder, args.force).map_err(Failure::input)?;
    let bytes: usize = files.values().map(Vec::len).sum();
    print(format_args!(
        "{}: {} in {} ({:.1} kB), {} written, {} removed\n",
        folder.display(),
        counted(calls.len(), "kernel"),
        counted(written.files(), "file"),
        bytes as f64 / 1e3,
        written.written.len(),
        written.removed.len()
    ))
}

/// Runs `cargo check`; every expansion of the macro records its call.
fn build(record: &Path, more: &[String]) -> Result<(), Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(&cargo)
        .args(["check", "--all-targets"])
        .args(more)
        .env(PREPARE_VARIABLE, record)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| Failure::Machine(format!("cannot run cargo: {error}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Input(
            "the crate does not build; fix the errors above and run again".to_owned(),
        )),
    }
}

fn failure(error: PrepareError) -> Failure {
    match error {
        PrepareError::Missing(_) => Failure::Check(error.to_string()),
        PrepareError::Compiler(_) => Failure::machine(error),
        PrepareError::Io { .. } | PrepareError::Calls(_) => Failure::input(error),
    }
}
