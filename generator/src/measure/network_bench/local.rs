//! The runner of this machine: generated programs, and PyTorch.

use super::build::{build, nvcc_arch, output};
use super::{
    Case, Check, CompileMode, Python, Runner, Running, StartError, Subject, TorchVersions,
    random_checkpoint, torch_module,
};
use crate::compile::toolkit::Toolkit;
use crate::emit::{Files, stage, write_all_atomic};
use crate::ir::{Network, TensorShape};
use crate::plan::{Environment, NetworkPlan, recipes, section_recipes, weight_sections};
use crate::verify::{
    CheckpointParameters, Deviation, Device, GpuDevice, GpuDeviceError, Random, evaluate_network,
    network_tolerance,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tdc_runtime::Checksum;
use tdc_weights::{Checkpoint, pack, resolve};

/// Time that a round of generated code should take, in microseconds, and the limits of its runs.
const ROUND_US: f64 = 500_000.0;
const RUNS: [f64; 2] = [40.0, 1000.0];
/// Runs of the program that is checked.
const RUNS_OF_CHECK: u32 = 20;
/// Seed of parameters and inputs.
const SEED: u64 = 1;

/// Why a machine cannot measure networks.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// No driver, or no device.
    #[error(
        "no usable NVIDIA GPU: {0}; measuring needs one (`tdc-gen plan` predicts times without)"
    )]
    NoGpu(String),
    /// Device errors.
    #[error(transparent)]
    Device(GpuDeviceError),
    /// No compiler for complete programs.
    #[error(
        "nvcc was not found, which compiles generated networks; install the CUDA toolkit, add it to PATH, or run `tdc-gen toolkit install nvcc`"
    )]
    NoNvcc,
    /// PyTorch was asked for but cannot be used.
    #[error(
        "PyTorch cannot be used with {}: {reason}; install it, name another interpreter with `--python`, or compare with nothing with `--no-torch`",
        python.display()
    )]
    NoTorch {
        /// The interpreter.
        python: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file cannot be written.
    #[error("{0}")]
    Io(String),
}

/// The GPU and the compilers of this machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// What times depend on. The GPU's name in configs is that of the plans.
    pub environment: Environment,
    /// nvcc's version.
    pub nvcc_version: String,
    nvcc: PathBuf,
    /// nvcc's option for the GPU.
    arch: String,
    visible_devices: Option<String>,
}

impl Machine {
    /// Opens the GPU with a CUDA ordinal and finds nvcc. `gpu` is the one that networks are planned for.
    ///
    /// # Errors
    /// [`MachineError`] if one of them is missing.
    pub fn open(ordinal: u32, gpu: &str) -> Result<Self, MachineError> {
        let device = GpuDevice::open(ordinal).map_err(|error| match error {
            GpuDeviceError::NoGpu(reason) => MachineError::NoGpu(reason),
            error => MachineError::Device(error),
        })?;
        let nvcc = Toolkit::find().nvcc.ok_or(MachineError::NoNvcc)?;
        let known = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        Ok(Self {
            environment: Environment {
                gpu: gpu.to_owned(),
                device: device.name(),
                driver: device.driver_version(),
                nvrtc: format!("nvcc {}", nvcc.version),
                generator: env!("CARGO_PKG_VERSION").to_owned(),
            },
            arch: nvcc_arch(device.arch()),
            nvcc_version: nvcc.version,
            nvcc: nvcc.program,
            visible_devices: visible_devices(ordinal, known.as_deref()),
        })
    }
}

/// `CUDA_VISIBLE_DEVICES` of a process that should use only the device with this ordinal among those of this process.
fn visible_devices(ordinal: u32, known: Option<&str>) -> Option<String> {
    match known {
        None if ordinal == 0 => None,
        None => Some(ordinal.to_string()),
        Some(known) => {
            let mut devices = known.split(',');
            devices
                .nth(ordinal as usize)
                .map(|device| device.trim().to_owned())
        }
    }
}

/// A network with one batch, planned.
#[derive(Debug)]
pub struct NetworkOfBatch {
    /// The network with its batch.
    pub network: Network,
    /// The plans, at least one.
    pub plans: Vec<NetworkPlan>,
    /// The files of the generated folder.
    pub files: Files,
}

impl NetworkOfBatch {
    /// Checksum of the code, without the files that describe it.
    fn checksum(&self) -> u64 {
        let is_code = |path: &str| [".cu", ".cuh", ".h"].iter().any(|end| path.ends_with(end));
        let code = self.files.iter().filter(|(path, _)| is_code(path));
        let sums = code.flat_map(|(path, content)| {
            [path.as_bytes(), content].map(|bytes| Checksum::of(bytes).to_le_bytes())
        });
        Checksum::of(&sums.flatten().collect::<Vec<_>>())
    }
}

/// Runs generated programs and PyTorch on this machine.
pub struct LocalRunner {
    machine: Machine,
    /// Generated folders, modules and logs.
    work: PathBuf,
    networks: BTreeMap<u32, NetworkOfBatch>,
    torch: Option<(Python, TorchVersions)>,
    /// Longest time in which PyTorch is ready to be timed.
    start_limit: Duration,
    /// The batch whose inputs were written last.
    prepared: Option<u32>,
}

impl LocalRunner {
    /// A runner for planned networks, at least one. `work` is a folder for what it makes, `start_limit` the longest time in which PyTorch is
    /// ready to be timed, compiled if the subject says so.
    ///
    /// # Errors
    /// [`MachineError::Io`] if the folder cannot be written.
    pub fn new(
        machine: Machine,
        work: &Path,
        networks: Vec<NetworkOfBatch>,
        start_limit: Duration,
    ) -> Result<Self, MachineError> {
        let with_batch = |network: NetworkOfBatch| (network.network.batch(), network);
        let runner = Self {
            machine,
            work: work.to_owned(),
            networks: networks.into_iter().map(with_batch).collect(),
            torch: None,
            start_limit,
            prepared: None,
        };
        let files = [
            (
                runner.path("bench.py"),
                tdc_templates::TORCH_BENCH.to_owned(),
            ),
            (runner.path("module.py"), runner.module()),
        ];
        let files = files.each_ref();
        let files = files.map(|(path, text)| (path.as_path(), text.as_bytes()));
        write_all_atomic(&files).map_err(|error| MachineError::Io(error.to_string()))?;
        Ok(runner)
    }

    /// Uses PyTorch of an interpreter.
    ///
    /// # Errors
    /// [`MachineError::NoTorch`].
    pub fn use_torch(&mut self, program: &Path) -> Result<&TorchVersions, MachineError> {
        let python = Python {
            program: program.to_owned(),
            script: self.path("bench.py"),
            visible_devices: self.machine.visible_devices.clone(),
        };
        let no_torch = |reason| MachineError::NoTorch {
            python: program.to_owned(),
            reason,
        };
        let versions = python.versions(&self.path("probe.log")).map_err(no_torch)?;
        if versions.device.is_none() {
            return Err(no_torch("it finds no GPU".to_owned()));
        }
        Ok(&self.torch.insert((python, versions)).1)
    }

    /// The cases in ascending order of their batches.
    pub fn cases(&self) -> Vec<Case> {
        let versions = self.torch.as_ref().map(|(_, versions)| versions);
        let torch = format!(
            "{versions:?}\n{}\n{}",
            tdc_templates::TORCH_BENCH,
            self.module()
        );
        let networks = self.networks.iter();
        networks
            .map(|(&batch, network)| Case {
                batch,
                generated: network.checksum(),
                torch: Checksum::of(torch.as_bytes()),
            })
            .collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    /// The PyTorch module, the same for every batch.
    fn module(&self) -> String {
        let first = self.networks.values().next();
        first.map_or_else(String::new, |of_batch| torch_module(&of_batch.network))
    }

    fn of_batch(&self, batch: u32) -> Result<&NetworkOfBatch, String> {
        let network = self.networks.get(&batch);
        network.ok_or_else(|| format!("there is no network of batch {batch}"))
    }

    /// Files of the inputs of a batch.
    fn inputs(&self, of_batch: &NetworkOfBatch) -> Vec<PathBuf> {
        let inputs = 0..of_batch.network.inputs().len();
        inputs
            .map(|index| self.path(&format!("input{index}.bin")))
            .collect()
    }

    /// The random parameters, which do not depend on the batch.
    fn checkpoint(&self, of_batch: &NetworkOfBatch) -> Checkpoint {
        random_checkpoint(&of_batch.network, &of_batch.plans[0], SEED)
    }

    /// Writes parameters and inputs of a batch, once.
    fn prepare(&mut self, batch: u32) -> Result<(), String> {
        if self.prepared == Some(batch) {
            return Ok(());
        }
        let of_batch = self.of_batch(batch)?;
        let parameters = self.checkpoint(of_batch).to_safetensors();
        let mut files = vec![(
            self.path("parameters.safetensors"),
            parameters.map_err(|error| error.to_string())?,
        )];
        for (path, values) in self
            .inputs(of_batch)
            .into_iter()
            .zip(input_values(&of_batch.network))
        {
            files.push((
                path,
                values
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect(),
            ));
        }
        let files: Vec<_> = files
            .iter()
            .map(|(path, bytes)| (path.as_path(), &bytes[..]))
            .collect();
        write_all_atomic(&files).map_err(|error| error.to_string())?;
        self.prepared = Some(batch);
        Ok(())
    }

    /// Generates, compiles and checks.
    fn generated(&self, case: &Case) -> Result<Program, String> {
        let of_batch = self.of_batch(case.batch)?;
        let folder = self.path(&format!("{}_b{}", of_batch.network.name, case.batch));
        let staged = stage(&of_batch.files, &folder, true).map_err(|error| error.to_string())?;
        staged.commit().map_err(|error| error.to_string())?;
        let weights = self.packed_weights(of_batch)?;
        write_all_atomic(&[(folder.join("weights.bin").as_path(), &weights)])
            .map_err(|error| error.to_string())?;
        let machine = &self.machine;
        let program = build(&machine.nvcc, &machine.arch, &folder, case.generated)?;
        let mut program = Program {
            program: absolute(&program)?,
            arguments: vec!["--weights".into(), absolute(&folder.join("weights.bin"))?],
            visible_devices: machine.visible_devices.clone(),
            us: 0.0,
            check: None,
        };
        for input in self.inputs(of_batch) {
            program
                .arguments
                .extend(["--input".into(), absolute(&input)?]);
        }
        let outputs: Vec<PathBuf> = (0..of_batch.network.outputs.len())
            .map(|index| folder.join(format!("output{index}.bin")))
            .collect();
        let mut writes = Vec::new();
        for output in &outputs {
            writes.extend([PathBuf::from("--output"), absolute(output)?]);
        }
        program.us = program.run(RUNS_OF_CHECK, &writes)?;
        let check = self.check(of_batch, &outputs)?;
        if check.relative_error.is_nan() || check.relative_error > check.tolerance {
            return Err(format!(
                "wrong results: relative error {:.1e} against {}, the bound is {:.1e}",
                check.relative_error, check.reference, check.tolerance
            ));
        }
        program.check = Some(check);
        Ok(program)
    }

    fn packed_weights(&self, of_batch: &NetworkOfBatch) -> Result<Vec<u8>, String> {
        let checkpoint = self.checkpoint(of_batch);
        let mut bytes = Vec::new();
        for section in weight_sections(&of_batch.plans) {
            let recipes = section_recipes(&of_batch.network, &section);
            let resolved = resolve(&recipes, &checkpoint).map_err(|error| error.to_string())?;
            let packed = pack(section.file(), &resolved.values);
            bytes.extend(packed.map_err(|error| error.to_string())?.bytes);
        }
        Ok(bytes)
    }

    /// Compares outputs with PyTorch in float64, or without it with the float64 reference of this crate, which is slow and computes only
    /// two images.
    fn check(&self, of_batch: &NetworkOfBatch, outputs: &[PathBuf]) -> Result<Check, String> {
        let batch = of_batch.network.batch();
        let (reference, errors) = match &self.torch {
            Some((python, versions)) => {
                let files = [&self.inputs(of_batch)[..], outputs].concat();
                let errors = python.check(
                    &self.path("module.py"),
                    &self.path("parameters.safetensors"),
                    batch,
                    &files,
                    &self.path("check.log"),
                )?;
                let reference = format!("PyTorch {} in float64, all images", versions.torch);
                (reference, errors)
            }
            None => {
                let images = match batch {
                    1 => vec![0],
                    batch => vec![0, batch as usize - 1],
                };
                let errors = self.errors_of_images(of_batch, outputs, &images)?;
                let images = if batch == 1 {
                    "the image"
                } else {
                    "the first and the last image"
                };
                (
                    format!("the float64 reference of tdc-gen, {images}"),
                    errors,
                )
            }
        };
        if errors.len() != outputs.len() {
            return Err(format!(
                "the check has {} of {} outputs",
                errors.len(),
                outputs.len()
            ));
        }
        let plans = of_batch.plans.iter();
        Ok(Check {
            reference,
            relative_error: errors.into_iter().fold(0.0, f64::max),
            tolerance: plans.map(network_tolerance).fold(0.0, f64::max),
        })
    }

    /// The relative L2 error of each output over some images.
    fn errors_of_images(
        &self,
        of_batch: &NetworkOfBatch,
        outputs: &[PathBuf],
        images: &[usize],
    ) -> Result<Vec<f64>, String> {
        let (network, plan) = (&of_batch.network, &of_batch.plans[0]);
        let checkpoint = self.checkpoint(of_batch);
        let resolved = resolve(&recipes(network, plan), &checkpoint).map_err(|e| e.to_string())?;
        let parameters = CheckpointParameters::new(network, plan, &checkpoint, &resolved)
            .map_err(|error| error.to_string())?;
        let of_one_image = network.with_batch(1);
        let inputs = input_values(network);
        // For each output what was found and what the reference has, image by image.
        let mut compared = vec![(Vec::new(), Vec::new()); outputs.len()];
        let files = outputs.iter().map(|path| {
            let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
            let values = bytes.chunks_exact(4);
            Ok(values
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect())
        });
        let files = files.collect::<Result<Vec<Vec<f32>>, String>>()?;
        for &image in images {
            let of_image = network.inputs().iter().zip(&inputs).map(|(input, values)| {
                let len = input.y.image_len() as usize;
                let values = &values[image * len..][..len];
                values.iter().map(|&x| f64::from(x)).collect()
            });
            let of_image: Vec<Vec<f64>> = of_image.collect();
            let values = evaluate_network(&of_one_image, &parameters, &of_image);
            for ((output, file), (found, expected)) in
                network.outputs.iter().zip(&files).zip(&mut compared)
            {
                let of_output = &values[output.op.0];
                found.extend(
                    file.chunks_exact(of_output.len())
                        .nth(image)
                        .into_iter()
                        .flatten(),
                );
                expected.extend(of_output);
            }
        }
        let shapes = network.outputs.iter().map(|output| TensorShape {
            batch: images.len() as u32,
            ..network.op(output.op).y
        });
        Ok(shapes
            .zip(&compared)
            .map(|(shape, (found, expected))| relative_error(shape, found, expected))
            .collect())
    }
}

/// The relative error of an output; infinite if values are missing.
fn relative_error(shape: TensorShape, found: &[f32], expected: &[f64]) -> f64 {
    match found.len() == expected.len() {
        true => Deviation::between(shape, found, expected).relative,
        false => f64::INFINITY,
    }
}

impl Runner for LocalRunner {
    fn start(
        &mut self,
        case: &Case,
        subject: Subject,
        stop: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Running>, StartError> {
        self.prepare(case.batch)?;
        let (arithmetic, mode) = match subject {
            Subject::Generated => return Ok(Box::new(self.generated(case)?)),
            Subject::Torch(arithmetic) => (arithmetic, "graph"),
            Subject::Compiled(arithmetic, mode) => (arithmetic, CompileMode::as_str(mode)),
        };
        let Some((python, _)) = &self.torch else {
            return Err("PyTorch is not used".to_owned().into());
        };
        let [module, parameters] =
            ["module.py", "parameters.safetensors"].map(|name| self.path(name));
        let batch = case.batch.to_string();
        let process = python.time(
            [&module, &parameters],
            [&batch, arithmetic.as_str(), mode],
            (self.start_limit, stop),
            &self.path(&format!("{subject}_b{batch}.log")),
        )?;
        Ok(Box::new(process))
    }
}

/// The random values of each input of a network.
fn input_values(network: &Network) -> Vec<Vec<f32>> {
    let mut random = Random::new(SEED);
    let inputs = network.inputs().iter();
    inputs
        .map(|input| random.values(input.y.len() as usize))
        .collect()
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// A compiled network.
struct Program {
    program: PathBuf,
    /// Weights and inputs.
    arguments: Vec<PathBuf>,
    visible_devices: Option<String>,
    /// The last time of a run in microseconds.
    us: f64,
    check: Option<Check>,
}

impl Program {
    /// Microseconds of a run, the median of samples of a CUDA graph.
    fn run(&self, runs: u32, more: &[PathBuf]) -> Result<f64, String> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(more);
        command.args(["--top", "0", "--runs", &runs.to_string()]);
        if let Some(devices) = &self.visible_devices {
            command.env("CUDA_VISIBLE_DEVICES", devices);
        }
        let printed = output(&mut command)?;
        time_of(&printed).ok_or_else(|| {
            let mut reason = String::new();
            let _ = write!(reason, "the program printed no time: {}", printed.trim());
            reason
        })
    }
}

/// The time that a program prints, such as `12.34 us per run (CUDA graph, median)`.
fn time_of(printed: &str) -> Option<f64> {
    let mut lines = printed.lines();
    lines.find_map(|line| line.split_once(" us per run")?.0.trim().parse().ok())
}

impl Running for Program {
    fn check(&self) -> Option<Check> {
        self.check.clone()
    }

    fn time_us(&mut self) -> Result<f64, String> {
        let [least, most] = RUNS;
        let runs = (ROUND_US / self.us.max(1e-3)).clamp(least, most);
        self.us = self.run(runs as u32, &[])?;
        Ok(self.us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_program_is_found() {
        let printed = "variant h200\n  12  0.5\n317.25 us per run (CUDA graph, median)\n";
        assert_eq!(time_of(printed), Some(317.25));
        assert_eq!(time_of("  12  0.5\n"), None);
    }

    #[test]
    fn missing_values_and_values_that_are_no_numbers_are_errors() {
        let shape = TensorShape::new(1, 3, 1, 1);
        let expected = [1.0, 2.0, 2.0];
        assert_eq!(relative_error(shape, &[1.0, 2.0, 2.0], &expected), 0.0);
        assert_eq!(relative_error(shape, &[1.0, 2.0, 5.0], &expected), 1.0);
        for found in [&[1.0, f32::NAN, 2.0][..], &[1.0, 2.0], &[f32::INFINITY; 3]] {
            assert_eq!(relative_error(shape, found, &expected), f64::INFINITY);
        }
    }

    #[test]
    fn ordinals_count_the_visible_devices() {
        assert_eq!(visible_devices(0, None), None);
        assert_eq!(visible_devices(2, None).as_deref(), Some("2"));
        assert_eq!(visible_devices(1, Some("4, 6,7")).as_deref(), Some("6"));
        assert_eq!(visible_devices(3, Some("4,6")), None);
    }
}
