//! Tables from compilers and measurements, embedded for the planner.

/// The resource table: lines of `key arch registers shared spill_stores spill_loads`.
///
/// Written by `tdc-gen compile configs/*.yaml --arch ... --resources generated/resources.txt`.
pub const RESOURCES: &str = include_str!("resources.txt");

/// Constants of the cost model by name of the GPU: lines of `name value`. Written by `tdc-gen calibrate` on
/// that GPU.
pub const MODELS: &[(&str, &str)] = &[("h200", include_str!("model/h200.txt"))];

/// Tuning tables by name of the GPU: a header with the environment, then lines of `problem scheme tile us
/// text`.
///
/// Written by `tdc-gen tune` with all of `configs/` except `held-out.yaml`, on a machine with that GPU;
/// CONTRIBUTING.md has the commands.
pub const TUNING: &[(&str, &str)] = &[("h200", include_str!("tuning/h200.txt"))];
