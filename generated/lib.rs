//! Tables that the planner reads: made by the compiler or measured on a GPU, committed, and built in.

/// Registers, shared memory and spills of kernels: lines of `key arch registers shared spill_stores spill_loads`.
///
/// Made by `tdc-gen compile CONFIG... --resources generated/resources.txt` for the tiles that plans of the networks, the core shapes and
/// the CP layers have by default; `docs/how-to/measure.md` has the commands.
pub const RESOURCES: &str = include_str!("resources.txt");

/// Constants of the cost model by name of the GPU: lines of `name value`. Made by `tdc-gen calibrate` on that GPU.
pub const MODELS: &[(&str, &str)] = &[("h200", include_str!("model/h200.txt"))];

/// Tuning tables by name of the GPU: a header with the environment, then lines of `problem scheme tile us text`.
///
/// Made by `tdc-gen tune` on that GPU with the configs of `configs/` except `held-out.yaml`, which is the test set, and
/// `tvm-problem.yaml`, which takes too long; `docs/how-to/measure.md` has the commands.
pub const TUNING: &[(&str, &str)] = &[("h200", include_str!("tuning/h200.txt"))];
