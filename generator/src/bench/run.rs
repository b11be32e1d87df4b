//! The run itself: every problem, both sides.

use super::cudnn::{Cudnn, CudnnLibrary, LoadError};
use super::environment::{Environment, method};
use super::rival::CudnnBench;
use super::{BenchProblem, Candidate, OursTime, Outcome, ProblemReport, Report, candidates, ours};
use crate::check::{DeviceError, GpuDevice, GpuDeviceError, ProblemData, tolerance};
use crate::compile::Compiler;
use crate::compile::nvrtc::{LoadError as NvrtcError, Options as NvrtcOptions};
use crate::compile::toolkit::Toolkit;
use crate::gpu::{Gpu, floor_us, gpu_of_device};
use crate::plan::{PlannedUnit, TuningTable};
use crate::spec::Reduce;
use std::path::PathBuf;
use std::time::Instant;
use thiserror::Error;

/// Whether and where cuDNN is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Rival {
    /// Where it usually is; without it only ours are measured.
    #[default]
    Search,
    /// In a file or directory that must have it.
    At(PathBuf),
    /// Not at all.
    None,
}

/// What is measured beside what planners pick.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The GPU to measure on, as CUDA counts them from 0.
    pub device: u32,
    /// The schemes that count; all do when it is empty.
    pub schemes: Vec<String>,
    /// Tiles of each scheme, see [`candidates`].
    pub tiles: usize,
    /// Measured times to choose by instead of the GPU's committed ones.
    pub table: Option<TuningTable>,
    /// The rival.
    pub rival: Rival,
    /// Whether the rival's engines that compile a kernel for each shape count too: seconds for each.
    pub compiled_engines: bool,
}

/// Why nothing can be measured.
#[derive(Debug, Error)]
pub enum BenchError {
    /// No driver, or no device behind it.
    #[error(
        "no NVIDIA GPU can be used here: {0}; times need one (`tdc-gen plan` estimates them without)"
    )]
    NoGpu(String),
    /// The device refused.
    #[error(transparent)]
    Device(GpuDeviceError),
    /// No compiler for our kernels.
    #[error(transparent)]
    Nvrtc(#[from] NvrtcError),
    /// The cuDNN that was named cannot be used.
    #[error(transparent)]
    Cudnn(LoadError),
    /// There is nothing to measure.
    #[error("{0}: no convolution is in it; name a network or layer set that has some")]
    NoConvolution(String),
}

impl From<GpuDeviceError> for BenchError {
    fn from(error: GpuDeviceError) -> Self {
        match error {
            GpuDeviceError::NoGpu(reason) => Self::NoGpu(reason),
            error => Self::Device(error),
        }
    }
}

/// Measures every problem; `progress` is told what is being done.
///
/// What single candidates refuse is in their rows. After an error that leaves the GPU unusable the report ends early and
/// [says so](Report::stopped).
///
/// # Errors
/// [`BenchError`] before anything was measured.
pub fn run(
    name: &str,
    gpu: &'static Gpu,
    problems: &[BenchProblem],
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    if problems.is_empty() {
        return Err(BenchError::NoConvolution(name.to_owned()));
    }
    let library = match &options.rival {
        Rival::None => None,
        Rival::Search => or_noted(CudnnLibrary::load(None), &options.rival, progress)?,
        Rival::At(path) => or_noted(CudnnLibrary::load(Some(path)), &options.rival, progress)?,
    };
    // Declared before cuDNN's handle, which must be dropped before the context.
    let mut device = GpuDevice::open(options.device)?;
    let compiler = Toolkit::find().compiler(NvrtcOptions::default())?;
    let cudnn = match library {
        None => None,
        Some(library) => {
            // SAFETY: the device has made its context current, and it outlives the handle, as said above.
            let opened = unsafe { library.open(device.stream.cast()) };
            or_noted(opened, &options.rival, progress)?
        }
    };
    let environment = environment(&device, gpu, &compiler, cudnn.as_ref())?;
    let rival = cudnn.map(|cudnn| CudnnBench {
        cudnn,
        l2_bytes: environment.l2_bytes,
        compiled_engines: options.compiled_engines,
    });
    if gpu_of_device(&environment.gpu) != Some(gpu) {
        progress(&format!(
            "note: this is {}, and the kernels and the floor are for {}; name the GPU with `--gpu`",
            environment.gpu, gpu.title
        ));
    }
    let mut report = Report {
        name: name.to_owned(),
        environment,
        problems: Vec::new(),
        published: None,
        stopped: None,
    };
    for (index, problem) in problems.iter().enumerate() {
        let begin = Instant::now();
        let mut bench = ProblemBench {
            device: &mut device,
            problem,
            data: ProblemData::new(&problem.conv(Reduce::Ordered), 1),
            l2_bytes: report.environment.l2_bytes,
        };
        match bench.measure(gpu, options, &compiler, rival.as_ref()) {
            Ok(measured) => {
                let seconds = begin.elapsed().as_secs_f64();
                let line = summary(&measured);
                progress(&format!(
                    "[{}/{}] {line} ({seconds:.1} s)",
                    index + 1,
                    problems.len()
                ));
                report.problems.push(measured);
            }
            Err(error) => {
                report.stopped = Some(format!("{}: {error}", problem.label));
                break;
            }
        }
        device.unload();
    }
    Ok(report)
}

/// What was loaded or made of a rival. Where one was only looked for, there may be none: `progress` is told why.
fn or_noted<T>(
    result: Result<T, LoadError>,
    rival: &Rival,
    progress: &mut dyn FnMut(&str),
) -> Result<Option<T>, BenchError> {
    match (result, rival) {
        (Ok(made), _) => Ok(Some(made)),
        (Err(error), Rival::At(_)) => Err(BenchError::Cudnn(error)),
        (Err(error), _) => {
            progress(&format!("note: {error}; only our kernels are measured"));
            Ok(None)
        }
    }
}

/// A problem's times in a line.
fn summary(problem: &ProblemReport) -> String {
    let us = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.2}"));
    let mut line = format!("{}: {} us", problem.label, us(problem.planned_us()));
    if let Some(cudnn) = &problem.cudnn {
        line += &format!(
            ", cuDNN {} us of {} algorithms",
            us(problem.rival(|cudnn| &cudnn.fp32).map(|best| best.timed.us)),
            cudnn.candidates.len()
        );
    }
    line
}

fn environment(
    device: &GpuDevice,
    gpu: &Gpu,
    compiler: &impl Compiler,
    cudnn: Option<&Cudnn>,
) -> Result<Environment, BenchError> {
    use crate::check::Device;
    let nvrtc = compiler.version_for(device.arch());
    Ok(Environment {
        generator: env!("CARGO_PKG_VERSION").to_owned(),
        gpu: device.name(),
        planned_for: gpu.name.to_owned(),
        l2_bytes: device.l2_bytes()?,
        driver: device.driver_version(),
        nvrtc: nvrtc.map_or_else(|| "unknown".to_owned(), |version| version.to_string()),
        cudnn: cudnn.map(Cudnn::version),
        method: method(),
    })
}

/// The measuring of one problem.
struct ProblemBench<'a> {
    device: &'a mut GpuDevice,
    problem: &'a BenchProblem,
    data: ProblemData,
    l2_bytes: u64,
}

impl ProblemBench<'_> {
    fn measure(
        &mut self,
        gpu: &'static Gpu,
        options: &Options,
        compiler: &impl Compiler,
        rival: Option<&CudnnBench>,
    ) -> Result<ProblemReport, DeviceError> {
        let conv = self.problem.conv(Reduce::Ordered);
        let mut report = ProblemReport {
            label: self.problem.label.clone(),
            shape: self.problem.shape,
            flops: conv.flops(),
            bytes: conv.bytes(),
            floor_us: floor_us(conv.flops(), conv.bytes(), gpu),
            tolerance: tolerance(&conv),
            planned_by: None,
            ours: Vec::new(),
            cudnn: None,
        };
        let (candidates, refusals) = candidates(
            gpu,
            self.problem,
            &options.schemes,
            options.tiles,
            options.table.as_ref(),
        );
        report.ours = refusals.iter().map(ours::refused_row).collect();
        let before = report.ours.len();
        report.ours.extend(self.ours(&candidates, compiler)?);
        report.planned_by = report.picked("plan").and(self.problem.planned_by);
        let shown: Vec<usize> = {
            let best = report.best();
            let planned = report.planned();
            let is_shown = |row: &OursTime| {
                [best, planned]
                    .into_iter()
                    .flatten()
                    .any(|shown| std::ptr::eq(shown, row))
            };
            (before..report.ours.len())
                .filter(|&index| is_shown(&report.ours[index]))
                .collect()
        };
        for index in shown {
            let unit = &candidates[index - before].unit;
            let cold = ours::cold_us(self.device, unit, &self.data, self.l2_bytes);
            let cold = self.unless_unusable(cold)?;
            if let Outcome::Timed(timed) = &mut report.ours[index].outcome {
                timed.cold_us = cold.ok().flatten();
            }
        }
        let rival = rival.map(|rival| rival.measure(self.device, self.problem, &self.data));
        report.cudnn = rival.transpose()?;
        Ok(report)
    }

    /// Compiles, checks and times our candidates.
    fn ours(
        &mut self,
        candidates: &[Candidate],
        compiler: &impl Compiler,
    ) -> Result<Vec<OursTime>, DeviceError> {
        let units: Vec<PlannedUnit> = candidates
            .iter()
            .map(|candidate| candidate.unit.clone())
            .collect();
        let loaded = self.device.load_each(&units, compiler);
        let loaded = loaded.map_err(|error| DeviceError(error.to_string()))?;
        candidates
            .iter()
            .zip(loaded)
            .map(|(candidate, loaded)| {
                let timed = match loaded {
                    Ok(()) => ours::timed(self.device, candidate, &self.data)
                        .map_err(|failure| failure.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                Ok(ours::row(
                    candidate,
                    match self.unless_unusable(timed)? {
                        Ok(timed) => Outcome::Timed(timed),
                        Err(refused) => Outcome::Refused { refused },
                    },
                ))
            })
            .collect()
    }

    /// The same result, unless what failed has left the device unusable.
    fn unless_unusable<T, E: std::fmt::Display>(
        &mut self,
        result: Result<T, E>,
    ) -> Result<Result<T, E>, DeviceError> {
        if let Err(error) = &result {
            self.device.survives(error)?;
        }
        Ok(result)
    }
}
