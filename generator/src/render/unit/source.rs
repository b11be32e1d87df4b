//! The source of a unit.

use super::launcher::LauncherContext;
use super::packer::{PackerContext, packer_names};
use super::unit_banner;
use crate::plan::PlannedUnit;
use crate::render::engine::{RenderError, render};
use crate::render::kernel::kernels_text;
use serde::Serialize;

#[derive(Serialize)]
struct UnitSourceContext {
    banner: String,
    namespace: String,
    header: String,
    device_header: String,
    kernels: String,
    /// One for each weight layout.
    packers: Vec<PackerContext>,
    launcher: LauncherContext,
}

/// The source of a unit in a folder: it includes the unit's `header` and the folder's `device_header`, which
/// [`device_header`](crate::render::device_header()) renders.
///
/// # Errors
/// [`RenderError`] for a template that does not fit its context.
pub fn unit_source(
    unit: &PlannedUnit,
    header: &str,
    device_header: &str,
) -> Result<String, RenderError> {
    let variant = unit.variant();
    render(
        "unit/unit.cu",
        &UnitSourceContext {
            banner: unit_banner(unit)?,
            namespace: unit.prefix.clone(),
            header: header.to_owned(),
            device_header: device_header.to_owned(),
            kernels: kernels_text(std::slice::from_ref(unit))?,
            packers: variant
                .packed_layouts()
                .zip(packer_names(unit))
                .map(|((_, layout), name)| PackerContext::new(&name, layout))
                .collect(),
            launcher: LauncherContext::new(unit),
        },
    )
}
