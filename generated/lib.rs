//! Tables that were made by the compiler or measured on a GPU and are read by the planner, embedded.

/// What kernels need of a multiprocessor: lines of `key arch registers shared spill_stores spill_loads`.
///
/// Made by `tdc-gen compile configs/*.yaml --arch ... --resources generated/resources.txt`.
pub const RESOURCES: &str = include_str!("resources.txt");

/// Constants of the estimate by name of the GPU: lines of `name value`. Made by `tdc-gen calibrate` on that GPU.
pub const MODELS: &[(&str, &str)] = &[("h200", include_str!("model/h200.txt"))];

/// Measured times by name of the GPU: a heading of the environment they hold for, then lines of `problem scheme tile us text`.
///
/// Made by `tdc-gen tune` with all of `configs/` but `held-out.yaml`, on a machine with that GPU; CONTRIBUTING.md has the commands.
pub const TUNING: &[(&str, &str)] = &[("h200", include_str!("tuning/h200.txt"))];
