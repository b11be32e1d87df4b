//! `tdc-gen merge`.

use crate::args::MergeArgs;
use crate::config::tuning_table;
use crate::failure::Failure;
use crate::output::{note, print};
use tdc_generator::emit::write_whole;
use tdc_generator::plan::TuningTable;

/// Joins tables, tells of conflicts, and writes the whole.
pub fn run(args: &MergeArgs) -> Result<(), Failure> {
    let mut whole: Option<TuningTable> = None;
    for path in &args.tables {
        let table = tuning_table(path)?;
        let Some(whole) = &mut whole else {
            whole = Some(table);
            continue;
        };
        let conflicts = whole
            .merge(table)
            .map_err(|error| Failure::all(path, &[error]))?;
        for conflict in conflicts {
            note(format_args!("{}: {conflict}", path.display()));
        }
    }
    let Some(whole) = whole else {
        return Ok(());
    };
    write_whole(&args.out, whole.to_string().as_bytes()).map_err(Failure::input)?;
    print(format_args!(
        "{}: {} rows\n",
        args.out.display(),
        whole.len()
    ))
}
