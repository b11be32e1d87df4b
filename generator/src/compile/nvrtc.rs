//! NVRTC, NVIDIA's compiler as a library, loaded when it is needed.
//!
//! # How it is loaded
//! A directory that was found or installed ([`Nvrtc::open`]) is loaded by absolute path, a toolkit's on the loader's path by name
//! ([`Nvrtc::from_loader_path`]), each into a function table of its own. cudarc's interface is not used:
//!
//! - sm_70 needs NVRTC 12.9 beside 13 in the same process; cudarc's functions are bound to one library, found by name only, so
//!   that a toolkit on the loader's path would win against the version that was pinned;
//! - cudarc panics when the library or a symbol is missing;
//! - every program with a `kernel!` would compile cudarc once more, for the macro.
//!
//! The builtins are loaded before the library: NVRTC 13.0 opens them by bare name without a search path of
//! its own, and uses them if they are loaded already. Symbols stay local to each library, so that two
//! versions do not interfere.

use super::{CompileError, Compiler, CompilerVersion, Component, Image, NvrtcFiles};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;
use tdc_runtime::Arch;

/// Optimisation effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Effort {
    /// Full optimisation.
    #[default]
    Full,
    /// Less optimised code in a tenth of the time (`--Ofast-compile=mid`): enough to check that source
    /// compiles. Resources differ from those at full effort.
    Fast,
}

/// Compiler options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Options {
    /// Optimisation effort.
    pub effort: Effort,
    /// Upper limit of registers per thread; `None` leaves the choice to the compiler.
    pub max_registers: Option<u32>,
}

impl Options {
    /// The arguments for machine code of an architecture, or for PTX. Only machine code may use instructions that newer architectures
    /// lack.
    fn arguments(&self, arch: Arch, ptx: bool, source: &str) -> Vec<String> {
        let mut arguments = match ptx {
            true => vec![format!("--gpu-architecture=compute_{}", arch.sm)],
            false => vec![
                format!("--gpu-architecture={}", machine_name(arch, source)),
                "--ptxas-options=-v".to_owned(),
            ],
        };
        arguments.push("--std=c++17".to_owned());
        if self.effort == Effort::Fast {
            arguments.push("--Ofast-compile=mid".to_owned());
        }
        if let Some(registers) = self.max_registers {
            arguments.push(format!("--maxrregcount={registers}"));
        }
        arguments
    }
}

/// The architecture for machine code: `sm_90a` for source with products of a warpgroup, which runs on the same GPUs as `sm_90`.
fn machine_name(arch: Arch, source: &str) -> String {
    match arch == Arch::new(90) && source.contains("#define TDC_WGMMA\n") {
        true => format!("{arch}a"),
        false => arch.to_string(),
    }
}

/// Why NVRTC cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is not in the directory.
    #[error("{}: NVRTC (libnvrtc.so.13 and libnvrtc-builtins.so.13.x) was not found there; install it with `{}`",
        dir.display(), Component::Nvrtc13.install_command())]
    NotInDir {
        /// The directory.
        dir: PathBuf,
    },
    /// It was not found anywhere.
    #[error("NVRTC was not found; install it with `{}`{}", Component::Nvrtc13.install_command(), noted(notes))]
    NotFound {
        /// Libraries that were found but cannot be used, with the reasons.
        notes: Vec<String>,
    },
    /// It is not on the loader path.
    #[error("NVRTC is not on the loader path; install it with `{}`", Component::Nvrtc13.install_command())]
    NotOnLoaderPath,
    /// The file is not a library that this machine can load.
    #[error("{}: cannot be loaded: {source}; remove it and run `{}`", file.display(), Component::Nvrtc13.install_command())]
    Library {
        /// The file.
        file: PathBuf,
        /// The loader's message.
        source: libloading::Error,
    },
    /// A function is missing in the library.
    #[error("{origin}: not NVRTC of CUDA 11.2 or later: {source}; install it with `{}`",
        Component::Nvrtc13.install_command())]
    Symbol {
        /// The file, or the loader path.
        origin: String,
        /// The loader's message.
        source: libloading::Error,
    },
    /// A call of the library failed.
    #[error("{origin}: {function} failed with code {code}; install NVRTC again with `{}`", Component::Nvrtc13.install_command())]
    CallFailed {
        /// The file, or the loader path.
        origin: String,
        /// The function that failed.
        function: &'static str,
        /// Its return code.
        code: c_int,
    },
}

fn noted(notes: &[String]) -> String {
    notes.iter().map(|note| format!("\nnote: {note}")).collect()
}

/// A loaded NVRTC. It stays loaded until the process ends.
#[derive(Clone)]
pub struct Nvrtc {
    functions: Functions,
    version: CompilerVersion,
    archs: Vec<Arch>,
    options: Options,
}

impl Nvrtc {
    /// Loads the newest NVRTC in `dir`.
    ///
    /// # Errors
    /// [`LoadError`] if there is none or it cannot be loaded.
    pub fn in_dir(dir: &Path) -> Result<Self, LoadError> {
        match NvrtcFiles::in_dir(dir, None) {
            Some(files) => Self::open(&files),
            None => Err(LoadError::NotInDir {
                dir: dir.to_owned(),
            }),
        }
    }

    /// Loads the NVRTC of the given files.
    ///
    /// # Errors
    /// [`LoadError`] if they cannot be loaded.
    pub fn open(files: &NvrtcFiles) -> Result<Self, LoadError> {
        load_permanently(&files.builtins)?;
        let library = load_permanently(&files.library)?;
        Self::new(library, &files.library.display().to_string())
    }

    /// Loads the NVRTC that the loader finds by name: the newest, or what a toolkit links the plain name to.
    ///
    /// # Errors
    /// [`LoadError::NotOnLoaderPath`] if there is none.
    pub fn from_loader_path() -> Result<Self, LoadError> {
        let library = NAMES.iter().find_map(|name| {
            // SAFETY: the name is one of NVRTC's, whose initialisers ask nothing of their loader.
            unsafe { Library::new(*name) }.ok()
        });
        let library = library.ok_or(LoadError::NotOnLoaderPath)?;
        Self::new(for_good(library), "NVRTC on the loader path")
    }

    /// The same library with different options.
    pub fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// The library's version.
    pub fn version(&self) -> CompilerVersion {
        self.version
    }

    /// The architectures that it supports, oldest first.
    pub fn archs(&self) -> &[Arch] {
        &self.archs
    }

    fn new(library: &'static Library, origin: &str) -> Result<Self, LoadError> {
        let functions = Functions::of(library).map_err(|source| LoadError::Symbol {
            origin: origin.to_owned(),
            source,
        })?;
        let ask = |function, code| match succeeded(code) {
            true => Ok(()),
            false => Err(LoadError::CallFailed {
                origin: origin.to_owned(),
                function,
                code,
            }),
        };
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: all three point to live integers of the type the functions write.
        let codes = unsafe {
            (
                (functions.version)(&mut major, &mut minor),
                (functions.arch_count)(&mut count),
            )
        };
        ask("nvrtcVersion", codes.0)?;
        ask("nvrtcGetNumSupportedArchs", codes.1)?;
        let mut archs = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the array has as many elements as the function has reported.
        ask("nvrtcGetSupportedArchs", unsafe {
            (functions.archs)(archs.as_mut_ptr())
        })?;
        let mut archs: Vec<_> = archs
            .into_iter()
            .filter_map(|sm| Some(Arch::new(u16::try_from(sm).ok()?)))
            .collect();
        archs.sort_unstable();
        Ok(Self {
            functions,
            version: CompilerVersion {
                major: major.unsigned_abs(),
                minor: minor.unsigned_abs(),
            },
            archs,
            options: Options::default(),
        })
    }
}

impl Compiler for Nvrtc {
    fn version_for(&self, arch: Arch) -> Option<CompilerVersion> {
        self.archs.contains(&arch).then_some(self.version)
    }

    fn compile(&self, source: &str, name: &str, arch: Arch) -> Result<Image, CompileError> {
        let (program, log) = self.compiled(source, name, arch, false)?;
        Image::from_log(program.cubin()?, &log, name, arch, self.version)
    }

    fn ptx(&self, source: &str, name: &str, arch: Arch) -> Result<Vec<u8>, CompileError> {
        let (program, log) = self.compiled(source, name, arch, true)?;
        Image::from_log(program.ptx()?, &log, name, arch, self.version).map(|image| image.cubin)
    }
}

impl Nvrtc {
    /// A compiled program and its log.
    fn compiled<'a>(
        &'a self,
        source: &str,
        name: &'a str,
        arch: Arch,
        ptx: bool,
    ) -> Result<(Program<'a>, String), CompileError> {
        if !self.archs.contains(&arch) {
            return Err(CompileError::Unsupported {
                name: name.to_owned(),
                arch,
                compilers: self.to_string(),
            });
        }
        let mut program = Program::new(self, source, name)?;
        let compiled = program.compile(&self.options.arguments(arch, ptx, source));
        let log = program.log()?;
        match compiled {
            Err(error) if log.trim().is_empty() => Err(error),
            Err(_) => Err(CompileError::SourceErrors {
                name: name.to_owned(),
                arch,
                version: self.version,
                log,
            }),
            Ok(()) => Ok((program, log)),
        }
    }
}

impl fmt::Display for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let archs: Vec<_> = self.archs.iter().map(Arch::to_string).collect();
        write!(f, "NVRTC {} supports {}", self.version, archs.join(", "))
    }
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvrtc")
            .field("version", &self.version)
            .field("archs", &self.archs)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The library's names, those of CUDA 11.2 to 13.
const NAMES: &[&str] = if cfg!(windows) {
    &[
        "nvrtc64_130_0.dll",
        "nvrtc64_120_0.dll",
        "nvrtc64_112_0.dll",
    ]
} else {
    &[
        "libnvrtc.so",
        "libnvrtc.so.13",
        "libnvrtc.so.12",
        "libnvrtc.so.11.2",
    ]
};

/// Never unloads a library: its threads and thread-local destructors may outlive every handle.
fn for_good(library: Library) -> &'static Library {
    Box::leak(Box::new(library))
}

fn load_permanently(file: &Path) -> Result<&'static Library, LoadError> {
    // SAFETY: the file has the name of one of NVRTC's libraries, whose initialisers have no preconditions.
    match unsafe { Library::new(file) } {
        Ok(library) => Ok(for_good(library)),
        Err(source) => Err(LoadError::Library {
            file: file.to_owned(),
            source,
        }),
    }
}

/// `nvrtcProgram`.
type ProgramHandle = *mut c_void;

/// `NVRTC_SUCCESS`.
const SUCCESS: c_int = 0;

/// NVRTC's C interface. Functions return an integer and no enum, because a newer library may return codes that are not known here.
#[derive(Clone, Copy)]
struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    arch_count: unsafe extern "C" fn(*mut c_int) -> c_int,
    archs: unsafe extern "C" fn(*mut c_int) -> c_int,
    create: unsafe extern "C" fn(
        *mut ProgramHandle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(ProgramHandle, c_int, *const *const c_char) -> c_int,
    log_size: unsafe extern "C" fn(ProgramHandle, *mut usize) -> c_int,
    log: unsafe extern "C" fn(ProgramHandle, *mut c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(ProgramHandle, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(ProgramHandle, *mut c_char) -> c_int,
    ptx_size: unsafe extern "C" fn(ProgramHandle, *mut usize) -> c_int,
    ptx: unsafe extern "C" fn(ProgramHandle, *mut c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut ProgramHandle) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Functions {
    fn of(library: &'static Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types of the fields are the C signatures (nvrtc.h, the same from CUDA 11.2 to 13), and
        // the library is never unloaded.
        unsafe {
            Ok(Self {
                version: *library.get("nvrtcVersion")?,
                arch_count: *library.get("nvrtcGetNumSupportedArchs")?,
                archs: *library.get("nvrtcGetSupportedArchs")?,
                create: *library.get("nvrtcCreateProgram")?,
                compile: *library.get("nvrtcCompileProgram")?,
                log_size: *library.get("nvrtcGetProgramLogSize")?,
                log: *library.get("nvrtcGetProgramLog")?,
                cubin_size: *library.get("nvrtcGetCUBINSize")?,
                cubin: *library.get("nvrtcGetCUBIN")?,
                ptx_size: *library.get("nvrtcGetPTXSize")?,
                ptx: *library.get("nvrtcGetPTX")?,
                destroy: *library.get("nvrtcDestroyProgram")?,
                error_string: *library.get("nvrtcGetErrorString")?,
            })
        }
    }
}

fn succeeded(code: c_int) -> bool {
    code == SUCCESS
}

/// An NVRTC program, destroyed when dropped.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    name: &'a str,
    handle: ProgramHandle,
}

impl<'a> Program<'a> {
    fn new(nvrtc: &'a Nvrtc, source: &str, name: &'a str) -> Result<Self, CompileError> {
        let without_nul = |text: &str, what| {
            CString::new(text).map_err(|_| CompileError::Nul {
                name: name.to_owned(),
                what,
            })
        };
        let source = without_nul(source, "source")?;
        let c_name = without_nul(name, "name")?;
        let mut program = Self {
            nvrtc,
            name,
            handle: ptr::null_mut(),
        };
        // SAFETY: the handle is live, the strings end with NUL and are copied by NVRTC; without headers both arrays may be null.
        let code = unsafe {
            (nvrtc.functions.create)(
                &mut program.handle,
                source.as_ptr(),
                c_name.as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        program.check("nvrtcCreateProgram", code)?;
        Ok(program)
    }

    fn compile(&mut self, arguments: &[String]) -> Result<(), CompileError> {
        let arguments: Vec<CString> = arguments
            .iter()
            .filter_map(|argument| CString::new(argument.as_str()).ok())
            .collect();
        let pointers: Vec<*const c_char> = arguments.iter().map(|text| text.as_ptr()).collect();
        // SAFETY: the program is live, and the array has the given number of strings, which outlive the call.
        let code = unsafe {
            (self.nvrtc.functions.compile)(self.handle, pointers.len() as c_int, pointers.as_ptr())
        };
        self.check("nvrtcCompileProgram", code)
    }

    fn log(&self) -> Result<String, CompileError> {
        let functions = &self.nvrtc.functions;
        let mut bytes = self.bytes("nvrtcGetProgramLog", functions.log_size, functions.log)?;
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn cubin(&self) -> Result<Vec<u8>, CompileError> {
        let functions = &self.nvrtc.functions;
        self.bytes("nvrtcGetCUBIN", functions.cubin_size, functions.cubin)
    }

    fn ptx(&self) -> Result<Vec<u8>, CompileError> {
        let functions = &self.nvrtc.functions;
        self.bytes("nvrtcGetPTX", functions.ptx_size, functions.ptx)
    }

    fn bytes(
        &self,
        function: &'static str,
        size_of: unsafe extern "C" fn(ProgramHandle, *mut usize) -> c_int,
        write: unsafe extern "C" fn(ProgramHandle, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, CompileError> {
        let mut size = 0;
        // SAFETY: the program is live, and the function writes to `size`.
        self.check(function, unsafe { size_of(self.handle, &mut size) })?;
        let mut bytes = vec![0_u8; size];
        // SAFETY: the program is live, and the buffer has the size that NVRTC has reported.
        self.check(function, unsafe {
            write(self.handle, bytes.as_mut_ptr().cast())
        })?;
        Ok(bytes)
    }

    fn check(&self, function: &'static str, code: c_int) -> Result<(), CompileError> {
        if succeeded(code) {
            return Ok(());
        }
        // SAFETY: the function accepts any code and returns a static string.
        let message = unsafe { CStr::from_ptr((self.nvrtc.functions.error_string)(code)) };
        Err(CompileError::CompilerFailed {
            name: self.name.to_owned(),
            version: self.nvrtc.version,
            function,
            message: message.to_string_lossy().into_owned(),
        })
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle is from this library, destroyed once and not used afterwards.
            unsafe { (self.nvrtc.functions.destroy)(&mut self.handle) };
        }
    }
}
