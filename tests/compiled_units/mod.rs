//! Units as machine code.

use std::num::NonZeroUsize;
use tdc_generator::compile::{Compiler, Image, Job, compile_all};
use tdc_generator::plan::PlannedUnit;
use tdc_generator::render::unit_text;
use tdc_runtime::Arch;

/// The image of each unit, for the architecture that `arch` returns.
pub fn compiled(
    compiler: &dyn Compiler,
    units: &[&PlannedUnit],
    arch: impl Fn(&PlannedUnit) -> Arch,
) -> Vec<Image> {
    let texts: Vec<_> = units.iter().map(|unit| unit_text(unit).unwrap()).collect();
    let jobs: Vec<_> = units
        .iter()
        .zip(&texts)
        .map(|(unit, source)| Job {
            source,
            name: &unit.unit.name,
            arch: arch(unit),
        })
        .collect();
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    compile_all(compiler, &jobs, threads, |_, _| ())
        .into_iter()
        .map(|image| image.unwrap_or_else(|error| panic!("{error}")))
        .collect()
}
