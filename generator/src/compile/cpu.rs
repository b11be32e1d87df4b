//! Runs generated CUDA source on the CPU, to check results on machines without a GPU.
//!
//! A set of headers replaces the CUDA runtime (`cpu/cuda_runtime.h` describes what it emulates and where it
//! is stricter than a GPU). [`CpuModule`] compiles kernels against it with the host's C++ compiler and
//! launches them; [`write_headers`] writes the headers for building complete emitted folders, drivers
//! included.
//!
//! Threads and blocks run in a shuffled order, which is the same in every run. The environment variable
//! `TDC_CPU_SEED` (a number) selects a different order, `TDC_CPU_THREADS` the number of OS threads of a
//! launch. `TDC_CPU_DEVICE` (a name) and `TDC_CPU_ARCH` (compute capability times ten) set the properties
//! that the device reports; below 90 it has no clusters.

use std::collections::HashMap;
use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

/// The headers by their path in the include folder.
const HEADERS: [(&str, &str); 12] = [
    ("cuda_runtime.h", include_str!("cpu/cuda_runtime.h")),
    ("cuda_runtime_api.h", include_str!("cpu/cuda_runtime_api.h")),
    ("tdc_cpu/language.h", include_str!("cpu/tdc_cpu/language.h")),
    (
        "tdc_cpu/execution.h",
        include_str!("cpu/tdc_cpu/execution.h"),
    ),
    ("tdc_cpu/device.h", include_str!("cpu/tdc_cpu/device.h")),
    ("tdc_cpu/prelude.h", include_str!("cpu/tdc_cpu/prelude.h")),
    (
        "tdc_cpu/runtime_api.h",
        include_str!("cpu/tdc_cpu/runtime_api.h"),
    ),
    ("tdc_cpu/fibers.h", include_str!("cpu/tdc_cpu/fibers.h")),
    ("tdc_cpu/half.h", include_str!("cpu/tdc_cpu/half.h")),
    ("tdc_cpu/multiply.h", include_str!("cpu/tdc_cpu/multiply.h")),
    (
        "tdc_cpu/scheduler.h",
        include_str!("cpu/tdc_cpu/scheduler.h"),
    ),
    ("tdc_cpu/runtime.h", include_str!("cpu/tdc_cpu/runtime.h")),
];

/// Number of compilers that run concurrently. A translation unit takes at most a few hundred MB.
const PARALLEL_COMPILERS: usize = 2;

/// With the requested loops unrolled, code at -O1 runs as fast as at -O2 and compiles faster. `-march=native`
/// makes `fmaf` an instruction instead of a call, which is ten times as fast.
const COMPILER_FLAGS: &[&str] = &[
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-Wno-unknown-pragmas",
    #[cfg(target_arch = "x86_64")]
    "-march=native",
];

/// Errors of compiling or launching.
#[derive(Debug, Error)]
pub enum CpuError {
    /// No compiler could be started.
    #[error(
        "no C++ compiler found (tried {}); install g++, or set CXX to a C++17 compiler",
        tried.join(", ")
    )]
    NoCompiler {
        /// Commands tried, in order.
        tried: Vec<String>,
    },
    /// The compiler or the linker failed.
    #[error("`{command}` failed to compile {what}:\n{output}")]
    Compile {
        /// The compiler's command.
        command: String,
        /// What was being built.
        what: String,
        /// The compiler's output.
        output: String,
    },
    /// A file cannot be written or read.
    #[error("cannot access {}: {source}; check free disk space and that TMPDIR is writable", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The shared library cannot be loaded, or has no launcher for a kernel.
    #[error("cannot load the compiled kernels: {0}")]
    Load(#[from] libloading::Error),
    /// The module has no kernel of this name.
    #[error("the module has no kernel `{kernel}`; it was built with: {}", known.join(", "))]
    UnknownKernel {
        /// The requested name.
        kernel: String,
        /// The kernels it was built with.
        known: Vec<String>,
    },
    /// The launch was invalid, or the kernel violated a rule of CUDA.
    #[error("launch of `{kernel}` failed with emulated CUDA error {code}: {message}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// The `cudaError_t`: 9 for an invalid launch, 719 for a violation by the kernel.
        code: i32,
        /// The violation, with the block and the line of the source.
        message: String,
    },
}

/// Source that is compiled separately, with the kernels in it that can be launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslationUnit {
    /// CUDA C++; `cuda_runtime.h` need not be included.
    pub source: String,
    /// Symbols of `extern "C"` kernels defined in `source`.
    pub kernels: Vec<String>,
}

/// The launcher that the macro `TDC_CPU_EXPORT` defines for each kernel.
type Launcher = unsafe extern "C" fn(
    *const c_uint,
    *const c_uint,
    *const c_uint,
    c_uint,
    *mut *mut c_void,
) -> c_int;
type LastError = unsafe extern "C" fn() -> *const c_char;

/// Kernels compiled for the CPU and loaded into this process.
///
/// Concurrent launches from several threads are allowed; each uses its own OS threads.
#[derive(Debug)]
pub struct CpuModule {
    launchers: HashMap<String, Launcher>,
    last_error: LastError,
    /// Keeps the code of the function pointers loaded.
    _library: libloading::Library,
}

impl CpuModule {
    /// Compiles `source` and loads it. `kernels` are the symbols of the `extern "C"` kernels to launch.
    ///
    /// The compiler is the one in the environment variable `CXX`, else `c++` or `g++`.
    ///
    /// # Errors
    /// [`CpuError`] if there is no compiler, compilation fails, or a kernel is missing.
    pub fn build(source: &str, kernels: &[&str]) -> Result<Self, CpuError> {
        Self::build_units(&[TranslationUnit {
            source: source.to_owned(),
            kernels: kernels.iter().map(|&kernel| kernel.to_owned()).collect(),
        }])
    }

    /// Compiles several translation units, two at a time, and links them into one module.
    ///
    /// # Errors
    /// As [`CpuModule::build`]; the first unit that fails is reported.
    pub fn build_units(units: &[TranslationUnit]) -> Result<Self, CpuError> {
        Self::build_units_in(&std::env::temp_dir(), units)
    }

    /// As [`build_units`](Self::build_units), with all temporary files, those of the compiler included, in a
    /// folder inside `parent` that is removed before this returns.
    ///
    /// # Errors
    /// As [`build_units`](Self::build_units).
    pub fn build_units_in(parent: &Path, units: &[TranslationUnit]) -> Result<Self, CpuError> {
        let folder = tempfile::Builder::new()
            .prefix("tdc-cpu-")
            .tempdir_in(parent)
            .map_err(|source| io_error(parent, source))?;
        let library_path = build_library(folder.path(), units)?;

        // SAFETY: the library has just been built from our own headers; loading it only runs the constructors
        // of their global objects, which only initialise themselves.
        let library = unsafe { libloading::Library::new(&library_path) }?;
        let mut launchers = HashMap::new();
        for kernel in units.iter().flat_map(|unit| &unit.kernels) {
            // SAFETY: `TDC_CPU_EXPORT` defines a function of this name with exactly this signature.
            let launcher = unsafe {
                library.get::<Launcher>(format!("tdc_cpu_launch_{kernel}\0").as_bytes())
            }?;
            launchers.insert(kernel.clone(), *launcher);
        }
        // SAFETY: runtime_api.h declares the function with exactly this signature.
        let last_error = *unsafe { library.get::<LastError>(b"tdc_cpu_last_error\0") }?;
        Ok(Self {
            launchers,
            last_error,
            _library: library,
        })
    }

    /// Launches `grid` blocks of `block` threads, in clusters of `cluster` blocks if the device has clusters,
    /// and waits for them. `args` has a pointer to each parameter's value, as for `cudaLaunchKernel`.
    ///
    /// # Errors
    /// [`CpuError::Launch`] if the launch would be invalid on a GPU or the kernel violates a rule, such as a
    /// barrier that not all threads reach.
    ///
    /// # Safety
    /// `args` must have as many pointers as the kernel has parameters, each to a valid value of the
    /// parameter's type, and the kernel must not access memory out of bounds: it runs as unchecked native
    /// code.
    pub unsafe fn launch(
        &self,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        cluster: [u32; 3],
        shared_bytes: u32,
        args: &mut [*mut c_void],
    ) -> Result<(), CpuError> {
        let Some(launcher) = self.launchers.get(kernel) else {
            let mut known: Vec<_> = self.launchers.keys().cloned().collect();
            known.sort();
            return Err(CpuError::UnknownKernel {
                kernel: kernel.to_owned(),
                known,
            });
        };
        // SAFETY: the launcher reads three numbers from each of the first three pointers, and one pointer for
        // each of the kernel's parameters, which the caller guarantees.
        let code = unsafe {
            launcher(
                grid.as_ptr(),
                block.as_ptr(),
                cluster.as_ptr(),
                shared_bytes,
                args.as_mut_ptr(),
            )
        };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the function returns a C string of this thread that is unchanged until its next launch.
        let message = unsafe { CStr::from_ptr((self.last_error)()) };
        Err(CpuError::Launch {
            kernel: kernel.to_owned(),
            code,
            message: message.to_string_lossy().into_owned(),
        })
    }
}

/// Writes the emulation's headers into a folder, for building emitted folders with a host compiler: `g++
/// -std=c++17 -x c++ -I<dir> -pthread *.cu`.
///
/// # Errors
/// The system's error if a file cannot be written.
pub fn write_headers(dir: &Path) -> std::io::Result<()> {
    for (name, text) in HEADERS {
        let path = dir.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, text)?;
    }
    Ok(())
}

/// The host's C++ compiler: a program and its leading arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Compiler {
    words: Vec<String>,
    /// Whether it is GCC, and not another compiler by one of its names.
    is_gcc: bool,
    /// Directory of its temporary files; `None` is the system's.
    temporary: Option<PathBuf>,
}

impl Compiler {
    /// `cxx` is the value of the environment variable `CXX`.
    fn find(cxx: Option<String>) -> Result<Self, CpuError> {
        let candidates = match cxx {
            Some(text) if !text.trim().is_empty() => vec![text],
            _ => vec!["c++".to_owned(), "g++".to_owned()],
        };
        for candidate in &candidates {
            let mut compiler = Self {
                words: candidate.split_whitespace().map(str::to_owned).collect(),
                is_gcc: false,
                temporary: None,
            };
            // Whether it can be started.
            if let Ok(output) = compiler.command().arg("--version").output() {
                let version = String::from_utf8_lossy(&output.stdout);
                compiler.is_gcc = version.contains("Free Software Foundation");
                return Ok(compiler);
            }
        }
        Err(CpuError::NoCompiler { tried: candidates })
    }

    fn with_temporary_files_in(self, folder: &Path) -> Self {
        Self {
            temporary: Some(folder.to_owned()),
            ..self
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        if let Some(folder) = &self.temporary {
            command.env("TMPDIR", folder);
        }
        command
    }

    fn run(
        &self,
        what: &str,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Result<(), CpuError> {
        let mut command = self.command();
        command.args(args.into_iter().map(Into::into));
        let output = command
            .output()
            .map_err(|source| io_error(Path::new(&self.words[0]), source))?;
        if output.status.success() {
            return Ok(());
        }
        Err(CpuError::Compile {
            command: self.words.join(" "),
            what: what.to_owned(),
            output: String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr),
        })
    }

    /// Compiles the file `source` to an object; the headers in `include` come first.
    fn compile(
        &self,
        what: &str,
        include: &Path,
        source: &Path,
        object: &Path,
        define: Option<&str>,
    ) -> Result<(), CpuError> {
        let mut args = compiler_flags(define, "c++");
        args.extend(["-I".into(), include.into()]);
        args.extend(["-include".into(), "cuda_runtime.h".into()]);
        args.extend(["-c".into(), source.into(), "-o".into(), object.into()]);
        self.run(what, args)
    }

    /// Compiles the header `header` for later compilations of units, to the file `output`.
    fn precompile(&self, header: &Path, output: &Path) -> Result<(), CpuError> {
        let mut args = compiler_flags(Some(WITHOUT_ENGINE), "c++-header");
        args.extend([header.into(), "-o".into(), output.into()]);
        self.run("the headers of the CPU emulation", args)
    }
}

/// Defined in units, which are linked with the engine's object.
const WITHOUT_ENGINE: &str = "TDC_CPU_ENGINE_ELSEWHERE";

fn compiler_flags(define: Option<&str>, language: &str) -> Vec<OsString> {
    let mut args: Vec<OsString> = COMPILER_FLAGS.iter().map(Into::into).collect();
    args.extend(["-x".into(), language.into()]);
    args.extend(define.map(|name| format!("-D{name}").into()));
    args
}

/// Builds the shared library in `folder`; returns its path.
fn build_library(folder: &Path, units: &[TranslationUnit]) -> Result<PathBuf, CpuError> {
    let compiler = Compiler::find(std::env::var("CXX").ok())?.with_temporary_files_in(folder);
    write_headers(folder).map_err(|source| io_error(folder, source))?;
    let precompiled = precompiled_headers(&compiler, folder, units.len());

    // Job 0 is the emulation's engine, followed by the units.
    let next_job = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let work = || {
        loop {
            let job = next_job.fetch_add(1, Ordering::Relaxed);
            let result = match job.checked_sub(1) {
                None => engine_object(&compiler, folder),
                Some(index) if index < units.len() => {
                    let precompiled = precompiled.as_deref();
                    compile_unit(&compiler, folder, precompiled, index, &units[index])
                }
                Some(_) => return,
            };
            if let Err(error) = result {
                lock(&failures).push((job, error));
                // Starts no more jobs; the first failure in the order of jobs is reported.
                next_job.store(units.len() + 1, Ordering::Relaxed);
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..PARALLEL_COMPILERS {
            scope.spawn(work);
        }
        work();
    });
    let mut failures = failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    failures.sort_by_key(|(job, _)| *job);
    if let Some((_, error)) = failures.into_iter().next() {
        return Err(error);
    }

    let library = folder.join("kernels.so");
    let mut args: Vec<OsString> = vec!["-shared".into(), "-pthread".into(), "-o".into()];
    args.push(library.clone().into());
    args.push(folder.join("engine.o").into());
    args.extend((0..units.len()).map(|index| object_path(folder, index).into()));
    compiler.run("linking", args)?;
    Ok(library)
}

fn object_path(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("unit{index}.o"))
}

/// Compiles a unit to its object in `folder`, with the headers of the folder `precompiled` if there is one.
fn compile_unit(
    compiler: &Compiler,
    folder: &Path,
    precompiled: Option<&Path>,
    index: usize,
    unit: &TranslationUnit,
) -> Result<(), CpuError> {
    let mut text = unroll_for_gcc(&unit.source);
    text.push('\n');
    for kernel in &unit.kernels {
        text += &format!("TDC_CPU_EXPORT({kernel})\n");
    }
    let path = folder.join(format!("unit{index}.cu"));
    std::fs::write(&path, text).map_err(|source| io_error(&path, source))?;
    let what = match unit.kernels.as_slice() {
        [] => format!("unit {index}"),
        kernels => format!("unit {index} ({})", kernels.join(", ")),
    };
    let object = object_path(folder, index);
    let compile =
        |include: &Path| compiler.compile(&what, include, &path, &object, Some(WITHOUT_ENGINE));
    // GCC may fail to load a precompiled header into the address space that it gets. Errors of the unit itself are those of the second try.
    if precompiled.is_some_and(|include| compile(include).is_ok()) {
        return Ok(());
    }
    compile(folder)
}

/// Output of the compiler that is the same for every module, so that it is made once per process.
struct SharedOutput(Mutex<Option<Made>>);

/// The command line of a compiler, with its output.
type Made = (Vec<String>, Arc<[u8]>);

impl SharedOutput {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn is_made_by(&self, compiler: &Compiler) -> bool {
        let latest = lock(&self.0);
        latest
            .as_ref()
            .is_some_and(|(words, _)| *words == compiler.words)
    }

    /// Writes the output to the file `path`; `make` makes it there the first time.
    fn write(
        &self,
        compiler: &Compiler,
        path: &Path,
        make: impl FnOnce() -> Result<(), CpuError>,
    ) -> Result<(), CpuError> {
        let mut latest = lock(&self.0);
        if let Some((words, bytes)) = &*latest
            && *words == compiler.words
        {
            let bytes = Arc::clone(bytes);
            drop(latest);
            return std::fs::write(path, bytes).map_err(|source| io_error(path, source));
        }
        make()?;
        let bytes = std::fs::read(path).map_err(|source| io_error(path, source))?;
        *latest = Some((compiler.words.clone(), bytes.into()));
        Ok(())
    }
}

/// Writes the engine's object into `folder`. It takes longer to compile than a kernel.
fn engine_object(compiler: &Compiler, folder: &Path) -> Result<(), CpuError> {
    static ENGINE: SharedOutput = SharedOutput::new();

    let path = folder.join("engine.o");
    ENGINE.write(compiler, &path, || {
        let source = folder.join("engine.cu");
        std::fs::write(&source, "").map_err(|error| io_error(&source, error))?;
        compiler.compile("the CPU emulation", folder, &source, &path, None)
    })
}

/// Writes the headers into a folder inside `folder`, in the form in which GCC loads them fastest, and returns
/// it. Half of the time of compiling a small unit is that of its headers. `None` if it would not pay for this
/// number of units, or if the compiler is another one (Clang finds precompiled headers in other places).
fn precompiled_headers(compiler: &Compiler, folder: &Path, units: usize) -> Option<PathBuf> {
    /// Making it takes as long as it saves in six units, two at a time.
    const UNITS_TO_PAY: usize = 7;
    static PRECOMPILED: SharedOutput = SharedOutput::new();

    if !compiler.is_gcc || units < UNITS_TO_PAY && !PRECOMPILED.is_made_by(compiler) {
        return None;
    }
    let include = folder.join("precompiled");
    write_headers(&include).ok()?;
    let header = include.join("cuda_runtime.h");
    let output = include.join("cuda_runtime.h.gch");
    PRECOMPILED
        .write(compiler, &output, || compiler.precompile(&header, &output))
        .ok()?;
    Some(include)
}

/// Translates CUDA's `#pragma unroll` to GCC's, line by line. Without it register tiles stay in memory.
fn unroll_for_gcc(source: &str) -> String {
    // Tiles are smaller; unrolling long loops completely would only increase compile time.
    const DEFAULT_FACTOR: u32 = 16;

    let mut text = String::with_capacity(source.len() + source.len() / 16);
    for line in source.split_inclusive('\n') {
        let factor =
            line.trim()
                .strip_prefix("#pragma unroll")
                .and_then(|rest| match rest.trim() {
                    "" => Some(DEFAULT_FACTOR),
                    number => number
                        .trim_matches(['(', ')'])
                        .trim()
                        .parse()
                        .ok()
                        .filter(|factor| (1..65535).contains(factor)),
                });
        match factor {
            Some(factor) => text += &format!("#pragma GCC unroll {factor}\n"),
            None => text += line,
        }
    }
    text
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn io_error(path: &Path, source: std::io::Error) -> CpuError {
    CpuError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unroll_pragmas_are_translated_and_lines_stay_where_they_are() {
        let source =
            "a\n  #pragma unroll\nb\n#pragma unroll 4\n#pragma unroll (1)\n#pragma unroll N\nc";
        assert_eq!(
            unroll_for_gcc(source),
            "a\n#pragma GCC unroll 16\nb\n#pragma GCC unroll 4\n#pragma GCC unroll 1\n#pragma unroll N\nc"
        );
    }

    #[test]
    fn a_missing_compiler_error_names_the_remedy() {
        let error = Compiler::find(Some("/nowhere/c++ -m64".to_owned())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no C++ compiler found (tried /nowhere/c++ -m64); install g++, or set CXX to a C++17 compiler"
        );
    }

    #[test]
    fn units_are_compiled_with_the_precompiled_headers() {
        let compiler = Compiler::find(std::env::var("CXX").ok()).unwrap();
        if !compiler.is_gcc {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let precompiled = precompiled_headers(&compiler, folder.path(), 100).unwrap();
        // The text of the header is not read.
        let header = precompiled.join("cuda_runtime.h");
        std::fs::write(header, "#error not precompiled\n").unwrap();
        compile_unit(&compiler, folder.path(), Some(&precompiled), 0, &unit()).unwrap();
        assert!(object_path(folder.path(), 0).is_file());
    }

    fn unit() -> TranslationUnit {
        TranslationUnit {
            source: "extern \"C\" __global__ void k(int* out) { *out = 1; }".to_owned(),
            kernels: vec!["k".to_owned()],
        }
    }

    #[test]
    fn units_compile_without_a_precompiled_header_that_cannot_be_loaded() {
        let folder = tempfile::tempdir().unwrap();
        write_headers(folder.path()).unwrap();
        let unusable = folder.path().join("unusable");
        std::fs::create_dir(&unusable).unwrap();
        let error = "#error the precompiled header cannot be loaded\n";
        std::fs::write(unusable.join("cuda_runtime.h"), error).unwrap();

        let compiler = Compiler::find(std::env::var("CXX").ok()).unwrap();
        compile_unit(&compiler, folder.path(), Some(&unusable), 0, &unit()).unwrap();
        assert!(object_path(folder.path(), 0).is_file());
    }

    #[test]
    fn every_header_is_written_where_it_is_included() {
        let dir = tempfile::tempdir().unwrap();
        write_headers(dir.path()).unwrap();
        for (name, text) in HEADERS {
            for line in text.lines() {
                let Some(included) = line.strip_prefix("#include \"") else {
                    continue;
                };
                let base = dir.path().join(name);
                let path = base.parent().unwrap().join(included.trim_end_matches('"'));
                assert!(path.is_file(), "{name} includes {included}");
            }
        }
    }
}
