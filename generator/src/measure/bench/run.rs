//! Sets up the device, the compiler and cuDNN, then measures every problem.

use super::cudnn::{Cudnn, CudnnLibrary, LoadError};
use super::cudnn_bench::CudnnBench;
use super::environment::{Environment, method};
use super::journal::Journal;
use super::measure::ProblemBench;
use super::resume::{Setup, reports};
use super::{BenchProblem, Report};
use crate::compile::Compiler;
use crate::compile::nvrtc::{LoadError as NvrtcError, Options as NvrtcOptions};
use crate::compile::toolkit::Toolkit;
use crate::gpu::{Gpu, gpu_for_device};
use crate::ir::Reduce;
use crate::measure::journal::JournalError;
use crate::plan::TuningTable;
use crate::verify::{GpuDevice, GpuDeviceError, ProblemData};
use std::path::PathBuf;
use thiserror::Error;

/// Where to look for cuDNN.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CudnnSource {
    /// In the default locations; if it is not found, only generated kernels are measured.
    #[default]
    Search,
    /// In this file or directory; it must be there.
    Path(PathBuf),
    /// Do not use cuDNN.
    None,
}

/// What to measure besides the planner's choices.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// CUDA ordinal of the GPU to measure on.
    pub device: u32,
    /// The schemes to consider; empty means all.
    pub schemes: Vec<String>,
    /// Tiles of each scheme, see [`candidates`](super::candidates()).
    pub tiles: usize,
    /// A tuning table that replaces the GPU's committed one.
    pub table: Option<TuningTable>,
    /// Where to look for cuDNN.
    pub cudnn: CudnnSource,
    /// Whether to include cuDNN's engines that compile a kernel for each shape (seconds each).
    pub runtime_compiled_engines: bool,
    /// Whether to include cuDNN's fp16 algorithms.
    pub fp16: bool,
    /// A journal, to which each problem's times are appended and from which an earlier run is resumed.
    pub journal: Option<PathBuf>,
}

/// Why nothing can be measured.
#[derive(Debug, Error)]
pub enum BenchError {
    /// No driver, or no device.
    #[error(
        "no usable NVIDIA GPU: {0}; measuring needs one (`tdc-gen plan` predicts times without)"
    )]
    NoGpu(String),
    /// Device errors.
    #[error(transparent)]
    Device(GpuDeviceError),
    /// No compiler for the generated kernels.
    #[error(transparent)]
    Nvrtc(#[from] NvrtcError),
    /// The given cuDNN cannot be used.
    #[error(transparent)]
    Cudnn(LoadError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// There is nothing to measure.
    #[error(
        "{0}: the config has no convolution to time; use another config, or --dense if all convolutions are factorised"
    )]
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

/// Measures every problem that is not in the journal; `progress` receives a line for each step.
///
/// Failures of single candidates are in their rows. After an error that leaves the GPU unusable, or if `stop`
/// returns true, the report ends early with [a reason](Report::stopped).
///
/// # Errors
/// [`BenchError`], before anything is measured.
pub fn run(
    name: &str,
    gpu: &'static Gpu,
    problems: &[BenchProblem],
    options: &Options,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    if problems.is_empty() {
        return Err(BenchError::NoConvolution(name.to_owned()));
    }
    let library = match &options.cudnn {
        CudnnSource::None => None,
        CudnnSource::Search => optional_cudnn(CudnnLibrary::load(None), &options.cudnn, progress)?,
        CudnnSource::Path(path) => {
            optional_cudnn(CudnnLibrary::load(Some(path)), &options.cudnn, progress)?
        }
    };
    // Declared before cuDNN's handle, which must be dropped before the context.
    let mut device = GpuDevice::open(options.device)?;
    let compiler = Toolkit::find().compiler(NvrtcOptions::default())?;
    let cudnn = match library {
        None => None,
        Some(library) => {
            // SAFETY: the device has made its context current, and it outlives the handle (see above).
            let opened = unsafe { library.open(device.stream.cast()) };
            optional_cudnn(opened, &options.cudnn, progress)?
        }
    };
    let environment = environment(&device, gpu, &compiler, cudnn.as_ref())?;
    let mut cudnn_bench = cudnn.map(|cudnn| CudnnBench {
        cudnn,
        l2_bytes: environment.l2_bytes,
        runtime_compiled_engines: options.runtime_compiled_engines,
        fp16: options.fp16,
        known: Vec::new(),
    });
    if gpu_for_device(&environment.device) != Some(gpu) {
        progress(&format!(
            "note: the local GPU is {}, but kernels and floor are for {}; set the GPU with `--gpu`",
            environment.device, gpu.title
        ));
    }
    let journal = options.journal.as_deref();
    let mut journal = journal
        .map(|path| Journal::open(path, &environment))
        .transpose()?;
    let (problems, stopped) = reports(
        problems,
        &Setup {
            gpu,
            options,
            environment: &environment,
        },
        journal.as_mut(),
        &mut |problem, candidates, rejected_tiles| {
            let mut bench = ProblemBench {
                device: &mut device,
                gpu,
                problem,
                data: ProblemData::with_repeated_images(&problem.to_problem(Reduce::Ordered), 1),
                l2_bytes: environment.l2_bytes,
                stop,
            };
            let measured =
                bench.measure(candidates, rejected_tiles, &compiler, cudnn_bench.as_mut());
            device.unload();
            measured
        },
        progress,
    );
    Ok(Report {
        name: name.to_owned(),
        environment,
        problems,
        published: None,
        stopped,
    })
}

/// The result of loading or opening cuDNN; if it is optional, an error is reported to `progress` instead.
fn optional_cudnn<T>(
    result: Result<T, LoadError>,
    source: &CudnnSource,
    progress: &mut dyn FnMut(&str),
) -> Result<Option<T>, BenchError> {
    match (result, source) {
        (Ok(made), _) => Ok(Some(made)),
        (Err(error), CudnnSource::Path(_)) => Err(BenchError::Cudnn(error)),
        (Err(error), _) => {
            progress(&format!("note: {error}; measuring generated kernels only"));
            Ok(None)
        }
    }
}

fn environment(
    device: &GpuDevice,
    gpu: &Gpu,
    compiler: &impl Compiler,
    cudnn: Option<&Cudnn>,
) -> Result<Environment, BenchError> {
    use crate::verify::Device;
    let nvrtc = compiler.version_for(device.arch());
    Ok(Environment {
        generator: env!("CARGO_PKG_VERSION").to_owned(),
        device: device.name(),
        gpu: gpu.name.to_owned(),
        l2_bytes: device.l2_bytes()?,
        driver: device.driver_version(),
        nvrtc: nvrtc.map_or_else(|| "unknown".to_owned(), |version| version.to_string()),
        cudnn: cudnn.map(Cudnn::version),
        method: method(),
    })
}
