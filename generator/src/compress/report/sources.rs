//! What the times of a report come from: GPUs, cost models, tables and versions. No dates and no folders: the same command writes the same report
//! on every machine.

use crate::gpu::Gpu;
use crate::plan::Environment;
use serde::Serialize;
use std::path::Path;

/// A GPU that times are predicted for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuReport {
    /// Its name in configs.
    pub name: &'static str,
    /// Product name.
    pub title: &'static str,
    /// The name of the GPU that the constants of its cost model were fitted on.
    pub cost_model: &'static str,
}

impl From<&Gpu> for GpuReport {
    fn from(gpu: &Gpu) -> Self {
        Self {
            name: gpu.name,
            title: gpu.title,
            cost_model: gpu.cost_model_name(),
        }
    }
}

/// The table of measured times, with what measured them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableReport {
    /// Its file, without the folder.
    pub file: String,
    /// The driver's name of the GPU.
    pub device: String,
    /// The driver's version.
    pub driver: String,
    /// The version of NVRTC.
    pub nvrtc: String,
    /// The version of the generator.
    pub generator: String,
}

impl TableReport {
    /// Of a table with a path, measured in an environment.
    pub fn new(path: &Path, environment: &Environment) -> Self {
        let file = path.file_name().unwrap_or_default();
        Self {
            file: file.to_string_lossy().into_owned(),
            device: environment.device.clone(),
            driver: environment.driver.clone(),
            nvrtc: environment.nvrtc.clone(),
            generator: environment.generator.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;

    #[test]
    fn a_gpu_without_constants_has_those_of_the_default_gpu() {
        for name in ["h200", "l4"] {
            let report = GpuReport::from(gpu(name).expect("a GPU of the table"));
            assert_eq!((report.name, report.cost_model), (name, "h200"));
        }
    }

    #[test]
    fn a_table_has_no_folder() {
        let environment = Environment {
            gpu: "h200".to_owned(),
            device: "NVIDIA H200".to_owned(),
            driver: "580.1".to_owned(),
            nvrtc: "13.0".to_owned(),
            generator: "1.2.3".to_owned(),
        };
        let report = TableReport::new(Path::new("/home/user/measured.txt"), &environment);
        assert_eq!(report.file, "measured.txt");
        assert_eq!([report.driver, report.nvrtc], ["580.1", "13.0"]);
    }
}
