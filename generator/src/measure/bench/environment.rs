//! The environment and the method of a measurement.

use crate::verify::Repeats;
use serde::Serialize;

/// What times depend on besides the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// The generator's version.
    pub generator: String,
    /// The driver's name of the GPU.
    pub device: String,
    /// The GPU, by its name in the GPU table, for which kernels are planned and floors computed.
    pub gpu: String,
    /// Size of the GPU's L2 in bytes.
    pub l2_bytes: u64,
    /// The driver's version; `unknown` if the system does not report it.
    pub driver: String,
    /// The version of NVRTC that compiled the generated kernels.
    pub nvrtc: String,
    /// cuDNN's version; `None` without it.
    pub cudnn: Option<String>,
    /// How times were measured, one sentence each.
    pub method: Vec<String>,
}

/// The method, for readers of the report.
pub fn method() -> Vec<String> {
    let Repeats { runs, replays, .. } = Repeats::FULL;
    let quick = Repeats::QUICK.runs;
    vec![
        format!(
            "Microseconds per run: {runs} runs in one CUDA graph, median of {replays} replays, including every kernel and memset of a run."
        ),
        "Each timed replay is queued behind another, so that the launch latency of a graph on an idle GPU is excluded.".to_owned(),
        "Only the convolution; random non-zero inputs; every result is checked against float64 before it is timed.".to_owned(),
        "Generated kernels: fp32 NCHW, weights packed beforehand. cuDNN: weights in its own formats, workspace of up to 1 GiB.".to_owned(),
        format!(
            "cuDNN: every algorithm of the legacy API (layouts, math types) and every engine configuration of the graph \
             API, with up to {quick} runs each (one run if it takes over ten times the least time); then the fastest as above."
        ),
        "Rows with a rank are CP layers: generated kernels apply the factors, cuDNN computes a dense convolution of the same shape.".to_owned(),
        "Warm: the same buffers in every run. Cold: runs rotate over buffers of more than twice the L2 cache in total.".to_owned(),
    ]
}
