//! The header and the source of a unit: the kernels, their packers and their launcher.

mod header;
mod launcher;
mod packer;
mod source;

pub use header::unit_header;
pub use packer::packer_names;
pub use source::unit_source;

use super::banner::{CommentStyle, banner, unit_title};
use super::engine::RenderError;
use crate::gpu::{Gpu, gpu};
use crate::ir::{ConvProblem, Layout, Problem};
use crate::plan::PlannedUnit;

/// Whether a unit's launcher has parameters for batch strides.
pub fn has_batch_strides(problem: &Problem) -> bool {
    let is_hwcn = |conv: &ConvProblem| conv.input.layout == Layout::Hwcn;
    problem.x().batch > 1 && !problem.conv().is_some_and(is_hwcn)
}

/// The name of a parameter; inside a comment if the function does not read it.
fn named(name: &str, read: bool) -> String {
    match read {
        true => name.to_owned(),
        false => format!("/*{name}*/"),
    }
}

fn unit_banner(unit: &PlannedUnit) -> Result<String, RenderError> {
    let gpus: Result<Vec<&Gpu>, _> = unit
        .unit
        .variants
        .iter()
        .map(|variant| gpu(&variant.gpu))
        .collect();
    let gpus = gpus.map_err(|error| RenderError::new("unit/unit.h", error))?;
    Ok(banner(CommentStyle::Cpp, &unit_title(unit), &gpus))
}
