//! Where and how times were taken.

use crate::check::Replays;
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

/// The version of the kernel's driver, as Linux tells it: `580.159.04`.
pub fn driver_version() -> String {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    version_in(&text).unwrap_or("unknown").to_owned()
}

fn version_in(text: &str) -> Option<&str> {
    text.lines()
        .next()?
        .split_whitespace()
        .find(|word| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// What a reader must know to judge the figures.
pub fn method() -> Vec<String> {
    let Replays { runs, replays, .. } = Replays::FULL;
    let quick = Replays::QUICK.runs;
    vec![
        format!(
            "Microseconds a launch: {runs} in one CUDA graph, median of {replays} replays, everything that a result needs inside."
        ),
        "The convolution alone, random non-zero inputs, each result checked against float64 before its time counts.".to_owned(),
        "Ours: floats, NCHW, weights packed before. cuDNN: weights as its interface takes them, one workspace of up to 1 GiB.".to_owned(),
        format!(
            "cuDNN: every algorithm of the legacy interface (layouts, math types) and every engine configuration of the graph \
             interface, {quick} launches each; then the quickest like ours."
        ),
        "Warm: the same buffers over and over. Cold: buffers take turns, together more than twice the level-2 cache.".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_found_in_both_spellings() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x)\nGCC version: 1.2\n";
        assert_eq!(version_in(open), Some("580.159.04"));
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6\n";
        assert_eq!(version_in(closed), Some("535.54.03"));
        assert_eq!(version_in("nothing"), None);
        assert_eq!(version_in(""), None);
    }
}
