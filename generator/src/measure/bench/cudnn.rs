//! cuDNN 9, loaded at run time on request and never linked.

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
    /// It was not found.
    #[error(
        "cuDNN 9 ({FILE}) was not found on the loader path or in the Python packages nvidia-cudnn-cu13 and nvidia-cudnn-cu12; \
         install it with `pip install nvidia-cudnn-cu13`, point to it with `--cudnn PATH`, or skip it with `--no-cudnn`"
    )]
    NotFound,
    /// The given path does not contain it.
    #[error("{}: {FILE} was not found there; give the file or its directory, or omit `--cudnn` to search for it", path.display())]
    NotAtPath {
        /// The given path.
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
    /// A function is missing in the library.
    #[error("{}: not a cuDNN 9 library: {source}; choose another with `--cudnn PATH`", file.display())]
    Symbol {
        /// The file.
        file: PathBuf,
        /// The loader's message.
        source: libloading::Error,
    },
    /// The library cannot be initialised.
    #[error("{}: {source}; choose another with `--cudnn PATH`", file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// cuDNN's error.
        source: CudnnError,
    },
}

/// A cuDNN call failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{function}: {message}")]
pub struct CudnnError {
    function: &'static str,
    message: String,
}

/// Data type and accumulator type of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// fp32; the library may still multiply in TF32.
    Float,
    /// fp16 with fp32 accumulation.
    Half,
    /// fp16 with fp16 accumulation.
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

/// The layout of all tensors of a convolution.
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

/// Device addresses for one run of an algorithm.
#[derive(Debug, Clone, Copy)]
pub struct RunAddresses {
    /// The input.
    pub x: u64,
    /// The weights.
    pub weight: u64,
    /// The output.
    pub y: u64,
    /// The workspace, of the size of the limit in the request.
    pub workspace: u64,
}

/// A cuDNN algorithm for a convolution.
pub trait Algorithm {
    /// Its name in reports, without data type and layout.
    fn name(&self) -> &str;

    /// Enqueues one run on the stream.
    ///
    /// # Errors
    /// [`CudnnError`] if cuDNN rejects the call.
    fn run(&self, addresses: &RunAddresses) -> Result<(), CudnnError>;
}

/// A request for algorithms of a convolution.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Sizes.
    pub shape: &'a ConvShape,
    /// Data type and accumulator type.
    pub arithmetic: Arithmetic,
    /// Layout of all tensors.
    pub layout: Layout,
    /// Upper limit of the workspace, in bytes.
    pub workspace_limit: usize,
    /// Whether to include engines that compile a kernel for each plan (seconds each) even if no heuristic
    /// proposes them.
    pub runtime_compiled_engines: bool,
}

/// A loaded cuDNN library. It stays loaded until the process ends.
#[derive(Clone)]
pub struct CudnnLibrary {
    file: PathBuf,
    functions: Functions,
}

impl CudnnLibrary {
    /// Loads the given library (a file or its directory), else the one on the loader path, else that of a
    /// Python package.
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

    /// Creates a handle in the current context; its work goes to `stream`.
    ///
    /// # Errors
    /// [`LoadError::Refused`].
    ///
    /// # Safety
    /// A CUDA context must be current; it and the stream must outlive the returned value.
    pub unsafe fn open(self, stream: *mut c_void) -> Result<Cudnn, LoadError> {
        let functions = self.functions;
        let mut cudnn = Cudnn {
            functions,
            handle: ptr::null_mut(),
            // SAFETY: the function has no arguments.
            version: unsafe { (functions.get_version)() },
        };
        // SAFETY: cuDNN writes the handle; the caller guarantees a current context.
        let code = unsafe { (functions.create)(&mut cudnn.handle) };
        let made = cudnn.check("cudnnCreate", code).and_then(|()| {
            // SAFETY: the handle has just been created, and the stream is the caller's.
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

/// cuDNN with a handle in the current context.
pub struct Cudnn {
    functions: Functions,
    handle: Opaque,
    /// As returned by `cudnnGetVersion`: 91900 is 9.19.0.
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

    /// Every algorithm of both interfaces that cuDNN offers for a convolution, and the reason for each
    /// interface that cannot describe the request.
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
        // SAFETY: the function accepts any code and returns a static string.
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
            // SAFETY: created in `open`, destroyed once; the caller of `open` keeps the context alive longer.
            unsafe { (self.functions.destroy)(self.handle) };
        }
    }
}

/// Loads the first library that exists.
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
    // SAFETY: the file has the name of cuDNN's library or was given as such by the user; its initialisers
    // have no preconditions.
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
            assert!(error.contains("give the file or its directory"), "{error}");
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
