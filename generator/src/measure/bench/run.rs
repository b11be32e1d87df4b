//! The run itself: what it needs of the machine, then every problem.

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

/// Whether and where cuDNN is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CudnnSource {
    /// Where it usually is; without it only ours are measured.
    #[default]
    Search,
    /// In a file or directory that must have it.
    Path(PathBuf),
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
    /// Tiles of each scheme, see [`candidates`](super::candidates).
    pub tiles: usize,
    /// Measured times to choose by instead of the GPU's committed ones.
    pub table: Option<TuningTable>,
    /// cuDNN.
    pub cudnn: CudnnSource,
    /// Whether cuDNN's engines that compile a kernel for each shape count too: seconds for each.
    pub runtime_compiled_engines: bool,
    /// Whether cuDNN's fp16 algorithms count too.
    pub fp16: bool,
    /// A file that is given each problem's times as they are known, and that has those of earlier runs.
    pub journal: Option<PathBuf>,
}

/// Why nothing can be measured.
#[derive(Debug, Error)]
pub enum BenchError {
    /// No driver, or no device behind it.
    #[error(
        "no usable NVIDIA GPU: {0}; measuring needs one (`tdc-gen plan` predicts times without)"
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

/// Measures every problem that the journal lacks; `progress` is told what is being done.
///
/// What single candidates refuse is in their rows. After an error that leaves the GPU unusable, and when `stop` says so, the report
/// ends early and [tells why](Report::stopped).
///
/// # Errors
/// [`BenchError`] before anything was measured.
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
            // SAFETY: the device has made its context current, and it outlives the handle, as said above.
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
                data: ProblemData::new(&problem.to_problem(Reduce::Ordered), 1),
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

/// What was loaded or made of cuDNN. Where one was only looked for, there may be none: `progress` is told why.
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
