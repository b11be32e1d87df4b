//! The run itself: what it needs of the machine, then every problem.

use super::cudnn::{Cudnn, CudnnLibrary, LoadError};
use super::environment::{Environment, method};
use super::journal::Journal;
use super::measure::ProblemBench;
use super::resume::{Setup, reports};
use super::rival::CudnnBench;
use super::{BenchProblem, Report};
use crate::compile::Compiler;
use crate::compile::nvrtc::{LoadError as NvrtcError, Options as NvrtcOptions};
use crate::compile::toolkit::Toolkit;
use crate::gpu::{Gpu, gpu_of_device};
use crate::ir::Reduce;
use crate::measure::journal::JournalError;
use crate::plan::TuningTable;
use crate::verify::{GpuDevice, GpuDeviceError, ProblemData};
use std::path::PathBuf;
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
    /// Tiles of each scheme, see [`candidates`](super::candidates).
    pub tiles: usize,
    /// Measured times to choose by instead of the GPU's committed ones.
    pub table: Option<TuningTable>,
    /// The rival.
    pub rival: Rival,
    /// Whether the rival's engines that compile a kernel for each shape count too: seconds for each.
    pub compiled_engines: bool,
    /// Whether the rival's algorithms on halves count too.
    pub halves: bool,
    /// A file that is given each problem's times as they are known, and that has those of earlier runs.
    pub journal: Option<PathBuf>,
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
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// There is nothing to measure.
    #[error(
        "{0}: no convolution is in it; name a network or layer set that has some, or --dense where factors stand for the weights"
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
    let mut rival = cudnn.map(|cudnn| CudnnBench {
        cudnn,
        l2_bytes: environment.l2_bytes,
        compiled_engines: options.compiled_engines,
        halves: options.halves,
        known: Vec::new(),
    });
    if gpu_of_device(&environment.gpu) != Some(gpu) {
        progress(&format!(
            "note: this is {}, and the kernels and the floor are for {}; name the GPU with `--gpu`",
            environment.gpu, gpu.title
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
        &mut |problem, candidates, refusals| {
            let mut bench = ProblemBench {
                device: &mut device,
                gpu,
                problem,
                data: ProblemData::new(&problem.ours(Reduce::Ordered), 1),
                l2_bytes: environment.l2_bytes,
                stop,
            };
            let measured = bench.measure(candidates, refusals, &compiler, rival.as_mut());
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
        gpu: device.name(),
        planned_for: gpu.name.to_owned(),
        l2_bytes: device.l2_bytes()?,
        driver: device.driver_version(),
        nvrtc: nvrtc.map_or_else(|| "unknown".to_owned(), |version| version.to_string()),
        cudnn: cudnn.map(Cudnn::version),
        method: method(),
    })
}
