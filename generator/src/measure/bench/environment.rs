//! Where and how times were taken.

use crate::verify::Repeats;
use serde::Serialize;

/// What figures depend on beside the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// The generator's version.
    pub generator: String,
    /// The GPU, as its driver names it.
    pub gpu: String,
    /// The GPU that our kernels are planned for, and whose floor is shown, as the table of GPUs names it.
    pub planned_for: String,
    /// Bytes of the GPU's level-2 cache.
    pub l2_bytes: u64,
    /// The driver's version; `unknown` where the system does not tell it.
    pub driver: String,
    /// The version of NVRTC that compiled our kernels.
    pub nvrtc: String,
    /// cuDNN's version; `None` without it.
    pub cudnn: Option<String>,
    /// How times were taken, a sentence each.
    pub method: Vec<String>,
}

/// What a reader must know to judge the figures.
pub fn method() -> Vec<String> {
    let Repeats { runs, replays, .. } = Repeats::FULL;
    let quick = Repeats::QUICK.runs;
    vec![
        format!(
            "Microseconds a launch: {runs} in one CUDA graph, median of {replays} replays, everything that a result needs inside."
        ),
        "Each replay is put behind another one that still runs, so that no figure has the way of a graph to an idle GPU in it.".to_owned(),
        "The convolution alone, random non-zero inputs, each result checked against float64 before its time counts.".to_owned(),
        "Ours: floats, NCHW, weights packed before. cuDNN: weights as its interface takes them, one workspace of up to 1 GiB.".to_owned(),
        format!(
            "cuDNN: every algorithm of the legacy interface (layouts, math types) and every engine configuration of the graph \
             interface, up to {quick} launches each, one where it takes ten times the least; then the quickest like ours."
        ),
        "A row with a rank is a CP layer: ours computes its factors, cuDNN the dense convolution that they stand for, with weights of its own.".to_owned(),
        "Warm: the same buffers over and over. Cold: buffers take turns, together more than twice the level-2 cache.".to_owned(),
    ]
}
