//! cuDNN 9, loaded when it is asked for and never linked.

mod abi;
mod graph;
mod legacy;

use crate::compile::toolkit::Search;
use abi::{Functions, Opaque, Status};
use libloading::Library;
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;
use tdc_runtime::ConvShape;
use thiserror::Error;

/// The library's file name.
const FILE: &str = "libcudnn.so.9";

/// cuDNN cannot be used.
#[derive(Debug, Error)]
pub enum LoadError {
    /// None was found.
    #[error(
        "cuDNN 9 ({FILE}) was not found on the loader path or in the Python packages nvidia-cudnn-cu13 and nvidia-cudnn-cu12; \
         install it with `pip install nvidia-cudnn-cu13`, point to it with `--cudnn PATH`, or skip it with `--no-cudnn`"
    )]
    NotFound,
    /// The path that was named holds none.
    #[error("{}: {FILE} was not found there; give the file or its directory, or omit `--cudnn` to search for it", path.display())]
    NotAtPath {
        /// What was named.
        path: PathBuf,
    },
    /// A file is not a library that this machine can load.
    #[error("{}: cannot be loaded: {source}; choose another with `--cudnn PATH`", file.display())]
    Library {
        /// The file.
        file: PathBuf,
        /// The loader's message.
        source: libloading::Error,
    },
    /// The library lacks a function.
    #[error("{}: not a cuDNN 9 library: {source}; choose another with `--cudnn PATH`", file.display())]
    Symbol {
        /// The file.
        file: PathBuf,
        /// The loader's message.
        source: libloading::Error,
    },
    /// The library does not work here.
    #[error("{}: {source}; choose another with `--cudnn PATH`", file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// What it said.
        source: CudnnError,
    },
}

/// cuDNN refused a call.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{function}: {message}")]
pub struct CudnnError {
    function: &'static str,
    message: String,
}

/// Numbers that a convolution reads, writes and adds in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// Floats; the library may still multiply them as TF32.
    Float,
    /// Halves, added as floats.
    Half,
    /// Halves, added as halves.
    HalfAccumulate,
}

impl Arithmetic {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Float, Self::Half, Self::HalfAccumulate];

    fn data_type(self) -> c_int {
        match self {
            Self::Float => abi::DATA_FLOAT,
            Self::Half | Self::HalfAccumulate => abi::DATA_HALF,
        }
    }

    fn compute_type(self) -> c_int {
        match self {
            Self::Float | Self::Half => abi::DATA_FLOAT,
            Self::HalfAccumulate => abi::DATA_HALF,
        }
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Float => "fp32",
            Self::Half => "fp16",
            Self::HalfAccumulate => "fp16 accumulate",
        })
    }
}

/// The order of all tensors of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Images NCHW, weights KCRS.
    Nchw,
    /// Images NHWC, weights KRSC.
    Nhwc,
}

impl Layout {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Nchw, Self::Nhwc];

    fn format(self) -> c_int {
        match self {
            Self::Nchw => abi::TENSOR_NCHW,
            Self::Nhwc => abi::TENSOR_NHWC,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nchw => "NCHW",
            Self::Nhwc => "NHWC",
        })
    }
}

/// Addresses on the device that one run of an algorithm works on.
#[derive(Debug, Clone, Copy)]
pub struct RunAddresses {
    /// The input.
    pub x: u64,
    /// The weights.
    pub weight: u64,
    /// The output.
    pub y: u64,
    /// The workspace, as large as the limit that the algorithm was asked for with.
    pub workspace: u64,
}

/// One way in which cuDNN computes a convolution.
pub trait Algorithm {
    /// What it is called in reports, without data type and layout.
    fn name(&self) -> &str;

    /// Puts it on the stream.
    ///
    /// # Errors
    /// [`CudnnError`] when cuDNN refuses after all.
    fn run(&self, addresses: &RunAddresses) -> Result<(), CudnnError>;
}

/// What a convolution is asked for with.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Sizes.
    pub shape: &'a ConvShape,
    /// Data and sums.
    pub arithmetic: Arithmetic,
    /// Order of all tensors.
    pub layout: Layout,
    /// Bytes of workspace at most.
    pub workspace_limit: usize,
    /// Whether engines that compile a kernel for each plan count even where no heuristic proposes them: seconds for each.
    pub runtime_compiled_engines: bool,
}

/// A cuDNN that was loaded. It stays loaded until the process ends.
#[derive(Clone)]
pub struct CudnnLibrary {
    file: PathBuf,
    functions: Functions,
}

impl CudnnLibrary {
    /// Loads the library that was named (a file or its directory), else the one on the loader's path, else one of Python's
    /// packages.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(named: Option<&Path>) -> Result<Self, LoadError> {
        let (file, library) = find(named)?;
        match Functions::of(library) {
            Ok(functions) => Ok(Self { file, functions }),
            Err(source) => Err(LoadError::Symbol { file, source }),
        }
    }

    /// Makes a handle on the current context, whose work goes to `stream`.
    ///
    /// # Errors
    /// [`LoadError::Refused`].
    ///
    /// # Safety
    /// A CUDA context must be current, and it and the stream must outlive the result.
    pub unsafe fn open(self, stream: *mut c_void) -> Result<Cudnn, LoadError> {
        let functions = self.functions;
        let mut cudnn = Cudnn {
            functions,
            handle: ptr::null_mut(),
            // SAFETY: takes nothing.
            version: unsafe { (functions.get_version)() },
        };
        // SAFETY: the handle is written to; the caller has made a context current.
        let code = unsafe { (functions.create)(&mut cudnn.handle) };
        let made = cudnn.check("cudnnCreate", code).and_then(|()| {
            // SAFETY: the handle was just made, and the stream is the caller's.
            let code = unsafe { (functions.set_stream)(cudnn.handle, stream) };
            cudnn.check("cudnnSetStream", code)
        });
        match made {
            Ok(()) => Ok(cudnn),
            Err(source) => Err(LoadError::Refused {
                file: self.file,
                source,
            }),
        }
    }
}

/// cuDNN with a handle on the current context.
pub struct Cudnn {
    functions: Functions,
    handle: Opaque,
    /// As `cudnnGetVersion` tells it: 91900 is 9.19.0.
    version: usize,
}

impl Cudnn {
    /// `9.19.0`.
    pub fn version(&self) -> String {
        let version = self.version;
        format!(
            "{}.{}.{}",
            version / 10_000,
            version / 100 % 100,
            version % 100
        )
    }

    /// Every algorithm of both interfaces that takes a convolution, as far as cuDNN tells before it runs, and why an interface has
    /// none at all where it cannot even describe the request.
    pub fn algorithms<'a>(
        &'a self,
        request: &Request,
    ) -> (Vec<Box<dyn Algorithm + 'a>>, Vec<CudnnError>) {
        let mut found: Vec<Box<dyn Algorithm>> = Vec::new();
        let mut errors = Vec::new();
        match legacy::algorithms(self, request) {
            Ok(algorithms) => {
                for algorithm in algorithms {
                    found.push(Box::new(algorithm));
                }
            }
            Err(error) => errors.push(error),
        }
        match graph::plans(self, request) {
            Ok(plans) => {
                for plan in plans {
                    found.push(Box::new(plan));
                }
            }
            Err(error) => errors.push(error),
        }
        (found, errors)
    }

    fn check(&self, function: &'static str, status: Status) -> Result<(), CudnnError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function takes any code and returns a string of static life.
        let message = unsafe { CStr::from_ptr((self.functions.get_error_string)(status)) };
        Err(CudnnError {
            function,
            message: message.to_string_lossy().into_owned(),
        })
    }
}

impl Drop for Cudnn {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: made in `open`, destroyed once; whoever opened this keeps the context alive longer.
            unsafe { (self.functions.destroy)(self.handle) };
        }
    }
}

/// Loads the first library there is.
fn find(named: Option<&Path>) -> Result<(PathBuf, &'static Library), LoadError> {
    if let Some(path) = named {
        let places = [
            path.to_owned(),
            path.join(FILE),
            path.join("lib").join(FILE),
        ];
        let file = places.into_iter().find(|place| place.is_file());
        let file = file.ok_or_else(|| LoadError::NotAtPath {
            path: path.to_owned(),
        })?;
        return load(file);
    }
    if let Ok(found) = load(PathBuf::from(FILE)) {
        return Ok(found);
    }
    let packages = Search::from_env().nvidia_packages().into_iter();
    let mut files = packages.map(|dir| dir.join("cudnn/lib").join(FILE));
    match files.find(|file| file.is_file()) {
        Some(file) => load(file),
        None => Err(LoadError::NotFound),
    }
}

fn load(file: PathBuf) -> Result<(PathBuf, &'static Library), LoadError> {
    // SAFETY: the file has the name of cuDNN's library or was named by a person as that; its initialisers ask nothing of their
    // loader.
    match unsafe { Library::new(&file) } {
        Ok(library) => Ok((file, Box::leak(Box::new(library)))),
        Err(source) => Err(LoadError::Library { file, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_named_library_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("libcudnn.so.9")] {
            let error = find(Some(&path)).unwrap_err().to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
            assert!(error.contains("name the file or its directory"), "{error}");
        }
    }

    #[test]
    fn a_missing_library_error_names_the_remedies() {
        let error = LoadError::NotFound.to_string();
        for remedy in ["pip install", "--cudnn PATH", "--no-cudnn"] {
            assert!(error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_not_a_library_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "not a library").unwrap();
        let error = find(Some(dir.path())).unwrap_err().to_string();
        assert!(error.contains("cannot be loaded"), "{error}");
        assert!(error.contains("--cudnn PATH"), "{error}");
    }
}
