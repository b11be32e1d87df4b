//! Installs a compiler package into the cache; needs python3, but neither root nor a GPU.

use super::{Component, NvrtcFiles};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

/// Installs compiler packages into a cache directory, each with its own virtual environment and pip.
///
/// A package is built in a directory next to its final path and renamed when it is complete, so a package at
/// its final path is complete. A lock serialises installations of a package; the second one finds the result
/// of the first.
#[derive(Debug, Clone)]
pub struct Installer {
    cache_dir: PathBuf,
    python: OsString,
}

/// Progress of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Waiting for another process that installs the same component.
    Waiting(Component),
    /// Creating the virtual environment.
    Preparing(Component),
    /// pip is downloading and unpacking.
    Downloading(Component),
    /// Installed.
    Installed(Component),
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(component) => write!(f, "{component}: waiting for another installation"),
            Self::Preparing(component) => write!(f, "{component}: creating a virtual environment"),
            Self::Downloading(component) => write!(
                f,
                "{component}: downloading {} (about {} MB)",
                component.requirement(),
                component.download_megabytes()
            ),
            Self::Installed(component) => write!(f, "{component}: installed"),
        }
    }
}

/// Why an installation failed; an incomplete package is never used later.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// python3 was not found.
    #[error("cannot install {component}: cannot run `{}` ({source}); install Python 3 (Debian, Ubuntu: apt install python3 python3-venv)",
        python.display())]
    NoPython {
        /// The component.
        component: Component,
        /// The program that was tried.
        python: OsString,
        /// The system's error.
        source: io::Error,
    },
    /// python3 cannot create a virtual environment.
    #[error(
        "cannot install {component}: python3 cannot create a virtual environment with pip (Debian, Ubuntu: apt install python3-venv)\n{}",
        indented(output)
    )]
    NoVenv {
        /// The component.
        component: Component,
        /// Output of python3.
        output: String,
    },
    /// pip failed.
    #[error(
        "cannot install {component}: pip failed; it needs network access, or a mirror set with PIP_INDEX_URL or PIP_FIND_LINKS\n{}",
        indented(output)
    )]
    Pip {
        /// The component.
        component: Component,
        /// Output of pip.
        output: String,
    },
    /// The package is incomplete.
    #[error("cannot install {component}: {} lacks {missing}; NVIDIA may have no package for this platform", component.requirement())]
    Incomplete {
        /// The component.
        component: Component,
        /// The file or directory that is missing.
        missing: &'static str,
    },
    /// A file or directory of the cache cannot be accessed.
    #[error("cannot install {component}: {}: {source}; set TDC_CACHE_DIR to a writable directory", path.display())]
    Cache {
        /// The component.
        component: Component,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

fn indented(output: &str) -> String {
    let lines: Vec<_> = output
        .trim_end()
        .lines()
        .map(|line| format!("    {line}"))
        .collect();
    lines.join("\n")
}

/// Prefix of the names of incomplete directories.
const PARTIAL: &str = "partial-";

/// The directory of a component in a cache; it need not exist.
pub(super) fn component_dir(cache_dir: &Path, component: Component) -> PathBuf {
    cache_dir.join(component.directory())
}

impl Installer {
    /// Installs into `cache_dir`, which is created if necessary, with `python3`.
    pub fn new(cache_dir: &Path) -> Self {
        Self {
            cache_dir: cache_dir.to_owned(),
            python: "python3".into(),
        }
    }

    /// Uses a different Python.
    pub fn with_python(mut self, python: impl Into<OsString>) -> Self {
        self.python = python.into();
        self
    }

    /// Installs a component unless it is installed already; returns its directory.
    ///
    /// # Errors
    /// [`InstallError`]; only the lock file is left in the cache then.
    pub fn install(
        &self,
        component: Component,
        mut on_progress: impl FnMut(Progress),
    ) -> Result<PathBuf, InstallError> {
        let component_dir = component_dir(&self.cache_dir, component);
        if component_dir.is_dir() {
            return Ok(component_dir);
        }
        let cache = |path: &Path, source| InstallError::Cache {
            component,
            path: path.to_owned(),
            source,
        };
        fs::create_dir_all(&self.cache_dir).map_err(|error| cache(&self.cache_dir, error))?;
        let _lock = self.lock(component, &mut on_progress)?;
        if component_dir.is_dir() {
            return Ok(component_dir);
        }
        self.remove_partials(component)?;
        // With the process id in its name, a pip that survives a killed installation cannot write to this
        // directory.
        let partial = self.sibling(component, &format!("{PARTIAL}{}", process::id()));
        let built = self
            .build(component, &partial, &mut on_progress)
            .and_then(|root| {
                fs::rename(&root, &component_dir).map_err(|error| cache(&component_dir, error))
            });
        let removed = self.remove_partials(component);
        built?;
        removed?;
        on_progress(Progress::Installed(component));
        Ok(component_dir)
    }

    fn sibling(&self, component: Component, ending: &str) -> PathBuf {
        self.cache_dir
            .join(format!("{}.{ending}", component.directory()))
    }

    /// Removes what this or an interrupted installation has left. The lock must be held.
    fn remove_partials(&self, component: Component) -> Result<(), InstallError> {
        let prefix = format!("{}.{PARTIAL}", component.directory());
        let remove = || {
            for entry in fs::read_dir(&self.cache_dir)? {
                let entry = entry?;
                if entry.file_name().to_string_lossy().starts_with(&prefix) {
                    fs::remove_dir_all(entry.path())?;
                }
            }
            Ok(())
        };
        remove().map_err(|source| InstallError::Cache {
            component,
            path: self.sibling(component, PARTIAL),
            source,
        })
    }

    /// Waits for other installations of the component. The lock is released with the file handle, even if the
    /// process is killed.
    fn lock(
        &self,
        component: Component,
        on_progress: &mut impl FnMut(Progress),
    ) -> Result<File, InstallError> {
        let path = self.sibling(component, "lock");
        let mut locked = || {
            let file = File::create(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    on_progress(Progress::Waiting(component));
                    file.lock()?;
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
            Ok(file)
        };
        locked().map_err(|source| InstallError::Cache {
            component,
            path,
            source,
        })
    }

    /// Builds the component inside `partial`; returns the directory to rename.
    fn build(
        &self,
        component: Component,
        partial: &Path,
        on_progress: &mut impl FnMut(Progress),
    ) -> Result<PathBuf, InstallError> {
        let (venv, root) = (partial.join("venv"), partial.join("package"));
        let no_python = |source| InstallError::NoPython {
            component,
            python: self.python.clone(),
            source,
        };

        on_progress(Progress::Preparing(component));
        let mut command = Command::new(&self.python);
        command.args(["-m", "venv"]).arg(&venv);
        if let Err(output) = run_command(&mut command).map_err(no_python)? {
            return Err(InstallError::NoVenv { component, output });
        }

        on_progress(Progress::Downloading(component));
        let mut command = Command::new(venv.join("bin").join("python"));
        command
            .args(["-m", "pip", "install", "--target"])
            .arg(&root)
            .args(["--only-binary", ":all:", "--no-compile", "--no-input"])
            .args(["--disable-pip-version-check", "--progress-bar", "off"])
            .arg(component.requirement())
            // A user's setting of this variable would conflict with --target.
            .env("PIP_USER", "0");
        if let Err(output) = run_command(&mut command).map_err(no_python)? {
            return Err(InstallError::Pip { component, output });
        }

        if let Some(missing) = missing(component, &root) {
            return Err(InstallError::Incomplete { component, missing });
        }
        if component == Component::Nvcc {
            link_lib64(&root).map_err(|source| InstallError::Cache {
                component,
                path: root.clone(),
                source,
            })?;
        }
        Ok(root)
    }
}

/// Runs a command; the inner error is its output if it fails.
fn run_command(command: &mut Command) -> io::Result<Result<(), String>> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    Ok(Err(String::from_utf8_lossy(&text).into_owned()))
}

fn missing(component: Component, root: &Path) -> Option<&'static str> {
    let nvrtc = |libraries: PathBuf, major| NvrtcFiles::in_dir(&libraries, Some(major)).is_some();
    let (there, what) = match component {
        Component::Nvrtc13 => (nvrtc(root.join("nvidia/cu13/lib"), 13), "libnvrtc.so.13"),
        Component::Nvrtc12 => (
            nvrtc(root.join("nvidia/cuda_nvrtc/lib"), 12),
            "libnvrtc.so.12",
        ),
        Component::Nvcc => (root.join("nvidia/cu13/bin/nvcc").is_file(), "bin/nvcc"),
    };
    (!there).then_some(what)
}

/// nvcc 13.0 looks for its libraries in `lib64`; the packages have them in `lib`.
fn link_lib64(root: &Path) -> io::Result<()> {
    #[cfg(unix)]
    std::os::unix::fs::symlink("lib", root.join("nvidia/cu13/lib64"))?;
    #[cfg(not(unix))]
    let _ = root;
    Ok(())
}
