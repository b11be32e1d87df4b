//! `tdc-gen merge`.

use crate::args::MergeArgs;
use crate::config::tuning_table;
use crate::failure::Failure;
use crate::output::{note, print};
use tdc_generator::emit::write_atomic;
use tdc_generator::gpu::gpu;
use tdc_generator::measure::tune::present_text;
use tdc_generator::plan::{Stale, TuningTable};
use tdc_generator::wording::counted;

/// Merges the rows that were measured with the kernels of this version, reports stale rows and conflicts, and
/// writes the table.
pub fn run(args: &MergeArgs) -> Result<(), Failure> {
    let mut whole: Option<TuningTable> = None;
    for path in &args.tables {
        let mut table = tuning_table(path)?;
        for stale in remove_stale(&mut table).map_err(|error| Failure::in_file(path, &[error]))? {
            note(format_args!("{}: {stale}", path.display()));
        }
        let Some(whole) = &mut whole else {
            whole = Some(table);
            continue;
        };
        let conflicts = whole
            .merge(table)
            .map_err(|error| Failure::in_file(path, &[error]))?;
        for conflict in conflicts {
            note(format_args!("{}: {conflict}", path.display()));
        }
    }
    let Some(whole) = whole else {
        return Ok(());
    };
    write_atomic(&args.out, whole.to_string().as_bytes()).map_err(Failure::input)?;
    print(format_args!(
        "{}: {}\n",
        args.out.display(),
        counted(whole.len(), "row")
    ))
}

/// Removes rows that were measured with kernels other than those of this version.
fn remove_stale(table: &mut TuningTable) -> Result<Vec<Stale>, String> {
    let gpu = gpu(&table.environment().gpu).map_err(|error| error.to_string())?;
    table
        .remove_stale(|problem, scheme, tile| present_text(problem, scheme, tile, gpu))
        .map_err(|error| error.to_string())
}
