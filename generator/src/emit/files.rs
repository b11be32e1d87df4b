//! The files of a folder, in memory.

use crate::plan::{LayerSetPlan, NetworkPlan, distinct_units, plans_by_gpu};
use crate::render::{
    LayerSetFile, NetworkFile, RenderError, device_header, device_header_name, layer_set_json,
    layer_set_text, network_json, network_text, unit_header, unit_source,
};
use std::collections::BTreeMap;

/// Content by path; paths are relative to the folder and use `/`.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Every file of a network's folder except its manifest; `plans` are those of its variants, at least one. Units that
/// variants share are emitted once.
///
/// # Errors
/// [`RenderError`] if a template does not match its context, or if there is no plan.
pub fn network_files(plans: &[NetworkPlan]) -> Result<Files, RenderError> {
    let name = plans.first().map_or("", |plan| plan.name.as_str());
    let mut files = Files::new();
    let mut add = |path: String, text: String| files.insert(path, text.into_bytes());
    for (path, file) in [
        (format!("include/{name}.h"), NetworkFile::Header),
        (format!("src/{name}.cu"), NetworkFile::Driver),
        ("main.cu".to_owned(), NetworkFile::Main),
        ("CMakeLists.txt".to_owned(), NetworkFile::CMake),
        ("README.md".to_owned(), NetworkFile::Readme),
    ] {
        add(path, network_text(plans, file)?);
    }
    let units = distinct_units(plans);
    let device = device_header_name(name);
    let gpus: Vec<_> = plans_by_gpu(plans)
        .iter()
        .map(|plans| plans[0].gpu)
        .collect();
    let shared: Vec<_> = units.iter().collect();
    add(
        format!("src/units/{device}"),
        device_header(name, &shared, &gpus)?,
    );
    for unit in &units {
        let unit_name = &unit.unit.name;
        add(format!("src/units/{unit_name}.h"), unit_header(unit)?);
        let source = unit_source(unit, &format!("{unit_name}.h"), &device)?;
        add(format!("src/units/{unit_name}.cu"), source);
    }
    add("plan.json".to_owned(), network_json(plans)?);
    Ok(files)
}

/// Adds the Python module of a network to its files.
///
/// # Errors
/// As [`network_files`].
pub fn add_python_module(files: &mut Files, plans: &[NetworkPlan]) -> Result<(), RenderError> {
    let text = network_text(plans, NetworkFile::Python)?;
    let name = plans.first().map_or("", |plan| plan.name.as_str());
    files.insert(format!("{name}.py"), text.into_bytes());
    Ok(())
}

/// Every file of a layer set's folder except its manifest.
///
/// # Errors
/// [`RenderError`] if a template does not match its context.
pub fn layer_set_files(plan: &LayerSetPlan) -> Result<Files, RenderError> {
    let prefix = &plan.prefix;
    let mut files = Files::new();
    let mut add = |path: String, text: String| files.insert(path, text.into_bytes());
    for (path, file) in [
        ("main.cu", LayerSetFile::Main),
        ("CMakeLists.txt", LayerSetFile::CMake),
        ("README.md", LayerSetFile::Readme),
    ] {
        add(path.to_owned(), layer_set_text(plan, file)?);
    }
    let device = device_header_name(prefix);
    let shared: Vec<_> = plan.units.iter().collect();
    add(
        format!("src/{device}"),
        device_header(prefix, &shared, &[plan.gpu])?,
    );
    for unit in &plan.units {
        let header = format!("{prefix}/{}.h", unit.unit.name);
        add(
            format!("src/{}.cu", unit.unit.name),
            unit_source(unit, &header, &device)?,
        );
        add(format!("include/{header}"), unit_header(unit)?);
    }
    add("plan.json".to_owned(), layer_set_json(plan)?);
    Ok(files)
}
