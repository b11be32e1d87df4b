//! What compiles kernels, behind a trait, and what comes out.

use super::Component;
use super::ptxas_log::{KernelResources, first_warning, kernel_resources, without_times};
use std::fmt;
use tdc_runtime::Arch;

/// Compiles the text of CUDA kernels to machine code.
pub trait Compiler: Send + Sync {
    /// The version that compiles for `arch`, part of every cache key; `None` when nothing here does.
    fn version_for(&self, arch: Arch) -> Option<CompilerVersion>;

    /// Compiles `source`, which messages call `name`.
    ///
    /// # Errors
    /// [`CompileError`] when `arch` is not supported, or the text does not compile without a warning.
    fn compile(&self, source: &str, name: &str, arch: Arch) -> Result<Image, CompileError>;

    /// Compiles `source`, which messages call `name`, to PTX for `arch` and newer: text that ends with a NUL.
    ///
    /// # Errors
    /// As of [`compile`](Self::compile).
    fn ptx(&self, source: &str, name: &str, arch: Arch) -> Result<Vec<u8>, CompileError>;
}

/// Version of a compiler, as far as it tells: NVRTC keeps the third number to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompilerVersion {
    /// 13 of 13.0.
    pub major: u32,
    /// 0 of 13.0.
    pub minor: u32,
}

impl fmt::Display for CompilerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl serde::Serialize for CompilerVersion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Machine code for one architecture, and what the compiler told about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The cubin: an ELF file that the driver loads. Two compilations of one text give the same bytes.
    pub cubin: Vec<u8>,
    /// The compiler's log, without the times it took.
    pub log: String,
    /// The kernels in it.
    pub kernels: Vec<KernelResources>,
}

impl Image {
    /// The image of a compilation that succeeded, if its log holds no warning.
    ///
    /// # Errors
    /// [`CompileError::SourceWarnings`] else.
    pub(super) fn from_log(
        cubin: Vec<u8>,
        log: &str,
        name: &str,
        arch: Arch,
        version: CompilerVersion,
    ) -> Result<Self, CompileError> {
        let log = without_times(log);
        if first_warning(&log).is_some() {
            return Err(CompileError::SourceWarnings {
                name: name.to_owned(),
                arch,
                version,
                log,
            });
        }
        let kernels = kernel_resources(&log);
        Ok(Self {
            cubin,
            log,
            kernels,
        })
    }

    /// What the kernel of the given symbol uses.
    pub fn kernel(&self, name: &str) -> Option<&KernelResources> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}

/// A kernel that was not compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// No compiler at hand knows the architecture.
    #[error("{name}: cannot be compiled for {arch}; {}", remedy(*arch, compilers))]
    Unsupported {
        /// The source's name.
        name: String,
        /// The architecture asked for.
        arch: Arch,
        /// The compilers that were asked, with what they know.
        compilers: String,
    },
    /// The compiler found errors.
    #[error(
        "{name}: NVRTC {version} reports errors for {arch}:\n{}{}",
        indented(log),
        hint(log)
    )]
    SourceErrors {
        /// The source's name.
        name: String,
        /// The architecture compiled for.
        arch: Arch,
        /// The compiler's version.
        version: CompilerVersion,
        /// The compiler's log.
        log: String,
    },
    /// The compiler found something to warn of, which generated code must not give rise to.
    #[error(
        "{name}: NVRTC {version} reports warnings for {arch}, which are errors here:\n{}",
        indented(log)
    )]
    SourceWarnings {
        /// The source's name.
        name: String,
        /// The architecture compiled for.
        arch: Arch,
        /// The compiler's version.
        version: CompilerVersion,
        /// The compiler's log.
        log: String,
    },
    /// A text cannot be handed to the compiler.
    #[error("{name:?}: the {what} contains a NUL character; remove it")]
    Nul {
        /// The source's name.
        name: String,
        /// `source` or `name`.
        what: &'static str,
    },
    /// The compiler itself failed.
    #[error("{name}: {function} of NVRTC {version} failed: {message}; if this persists, remove the installed NVRTC and run `{}`",
        Component::Nvrtc13.install_command())]
    CompilerFailed {
        /// The source's name.
        name: String,
        /// The compiler's version.
        version: CompilerVersion,
        /// The function of its interface that failed.
        function: &'static str,
        /// What it said.
        message: String,
    },
}

fn remedy(arch: Arch, compilers: &str) -> String {
    if arch < Arch::new(75) {
        format!(
            "{compilers}; architectures before sm_75 need NVRTC 12.9: `{}`",
            Component::Nvrtc12.install_command()
        )
    } else {
        format!("{compilers}; choose one of these architectures")
    }
}

fn indented(log: &str) -> String {
    let lines = log.trim_end().lines();
    lines.map(|line| format!("    {line}\n")).collect()
}

/// NVRTC fails without a word when a kernel's static shared memory is more than a block may have.
fn hint(log: &str) -> String {
    const STATIC_SHARED_LIMIT: u32 = 48 * 1024;
    kernel_resources(log)
        .iter()
        .filter(|kernel| kernel.shared_bytes > STATIC_SHARED_LIMIT)
        .map(|kernel| {
            format!(
                "kernel `{}` has {} bytes of static shared memory, but the limit per block is {STATIC_SHARED_LIMIT}; use dynamic shared memory\n",
                kernel.name, kernel.shared_bytes
            )
        })
        .collect()
}

/// Several compilers as one: each architecture goes to the first that knows it.
#[derive(Debug, Clone)]
pub struct ByArch<C>(
    /// The compilers, the preferred one first.
    pub Vec<C>,
);

impl<C: Compiler + fmt::Display> Compiler for ByArch<C> {
    fn version_for(&self, arch: Arch) -> Option<CompilerVersion> {
        self.0
            .iter()
            .find_map(|compiler| compiler.version_for(arch))
    }

    fn compile(&self, source: &str, name: &str, arch: Arch) -> Result<Image, CompileError> {
        self.compiler_for(name, arch)?.compile(source, name, arch)
    }

    fn ptx(&self, source: &str, name: &str, arch: Arch) -> Result<Vec<u8>, CompileError> {
        self.compiler_for(name, arch)?.ptx(source, name, arch)
    }
}

impl<C: Compiler + fmt::Display> ByArch<C> {
    /// The compiler for an architecture.
    fn compiler_for(&self, name: &str, arch: Arch) -> Result<&C, CompileError> {
        let mut compilers = self.0.iter();
        compilers
            .find(|compiler| compiler.version_for(arch).is_some())
            .ok_or_else(|| CompileError::Unsupported {
                name: name.to_owned(),
                arch,
                compilers: self.to_string(),
            })
    }
}

impl<C: fmt::Display> fmt::Display for ByArch<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, compiler) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{compiler}")?;
        }
        if self.0.is_empty() {
            f.write_str("no CUDA compiler was found")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::FakeCompiler;
    use super::*;

    const NEW: CompilerVersion = CompilerVersion {
        major: 13,
        minor: 0,
    };
    const OLD: CompilerVersion = CompilerVersion {
        major: 12,
        minor: 9,
    };

    #[test]
    fn each_architecture_goes_to_the_first_that_knows_it() {
        let both = ByArch(vec![
            FakeCompiler::new(NEW, &[Arch::new(75), Arch::new(90)]),
            FakeCompiler::new(OLD, &[Arch::new(70), Arch::new(90)]),
        ]);
        assert_eq!(both.version_for(Arch::new(90)), Some(NEW));
        assert_eq!(both.version_for(Arch::new(70)), Some(OLD));
        assert_eq!(both.version_for(Arch::new(60)), None);
        assert!(both.compile("", "a.cu", Arch::new(70)).is_ok());
        let error = both.compile("", "a.cu", Arch::new(60)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a.cu: cannot be compiled for sm_60; version 13.0 knows sm_75, sm_90, version 12.9 knows sm_70, sm_90; \
             architectures before sm_75 need NVRTC 12.9: `tdc-gen toolkit install nvrtc12`"
        );
        let none = ByArch(Vec::<FakeCompiler>::new());
        let error = none.compile("", "a.cu", Arch::new(90)).unwrap_err();
        assert!(error.to_string().contains("no CUDA compiler was found"));
    }

    #[test]
    fn a_warning_is_an_error_that_shows_the_log() {
        let log = "w.cu(1): warning #177-D: unused\n  int unused;\n";
        let error = Image::from_log(vec![], log, "w.cu", Arch::new(90), NEW).unwrap_err();
        assert_eq!(
            error.to_string(),
            "w.cu: NVRTC 13.0 warns when compiling it for sm_90; remove the cause:\n    \
             w.cu(1): warning #177-D: unused\n      int unused;\n"
        );
    }

    #[test]
    fn too_much_static_shared_memory_is_named() {
        let error = CompileError::SourceErrors {
            name: "huge.cu".to_owned(),
            arch: Arch::new(80),
            version: NEW,
            log: "ptxas info    : Compiling entry function 'huge' for 'sm_80'\n\
                  ptxas info    : Used 10 registers, used 1 barriers, 80000 bytes smem, 360 bytes cmem[0]\n"
                .to_owned(),
        };
        assert!(
            error.to_string().ends_with(
                "kernel `huge` has 80000 bytes of static shared memory, a block may have 49152; make it dynamic\n"
            ),
            "{error}"
        );
    }
}
