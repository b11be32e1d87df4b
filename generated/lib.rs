//! Tables that were made by the compiler and are read by the planner, embedded.

/// What kernels need of a multiprocessor: lines of `key arch registers shared spill_stores spill_loads`.
///
/// Made by `tdc-gen compile configs/*.yaml --arch ... --resources generated/resources.txt`.
pub const RESOURCES: &str = include_str!("resources.txt");
