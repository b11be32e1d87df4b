//! The trait of kernel compilers, and their output.

use super::Component;
use super::ptxas_log::{KernelResources, first_warning, kernel_resources, without_times};
use std::fmt;
use tdc_runtime::Arch;

/// Compiles CUDA source to machine code.
pub trait Compiler: Send + Sync {
    /// The version that compiles for `arch`, part of every cache key; `None` if `arch` is not supported.
    fn version_for(&self, arch: Arch) -> Option<CompilerVersion>;

    /// Compiles `source`, which messages name `name`.
    ///
    /// # Errors
    /// [`CompileError`] if `arch` is not supported or the source causes an error or a warning.
    fn compile(&self, source: &str, name: &str, arch: Arch) -> Result<Image, CompileError>;

    /// Compiles `source`, which messages name `name`, to PTX for `arch` and newer, as text that ends with
    /// NUL.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    fn ptx(&self, source: &str, name: &str, arch: Arch) -> Result<Vec<u8>, CompileError>;
}

/// Version of a compiler, without the patch number, which NVRTC does not report.
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

/// Machine code for one architecture, with the compiler's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The cubin: an ELF file that the driver loads. Compiling the same source again gives the same bytes.
    pub cubin: Vec<u8>,
    /// The compiler's log, without compile times.
    pub log: String,
    /// The kernels in the image.
    pub kernels: Vec<KernelResources>,
}

impl Image {
    /// The image of a successful compilation.
    ///
    /// # Errors
    /// [`CompileError::SourceWarnings`] if the log has a warning.
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

    /// The resources of the kernel with the given symbol.
    pub fn kernel(&self, name: &str) -> Option<&KernelResources> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}

/// Why a kernel was not compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// No available compiler supports the architecture.
    #[error("{name}: cannot be compiled for {arch}; {}", remedy(*arch, compilers))]
    Unsupported {
        /// The source's name.
        name: String,
        /// The requested architecture.
        arch: Arch,
        /// The available compilers with their architectures.
        compilers: String,
    },
    /// The source has errors.
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
    /// The source causes warnings, which generated code must not.
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
    /// A string cannot be passed to the compiler.
    #[error("{name:?}: the {what} contains a NUL character; remove it")]
    Nul {
        /// The source's name.
        name: String,
        /// `source` or `name`.
        what: &'static str,
    },
    /// A call of the compiler failed.
    #[error("{name}: {function} of NVRTC {version} failed: {message}; if this persists, remove the installed NVRTC and run `{}`",
        Component::Nvrtc13.install_command())]
    CompilerFailed {
        /// The source's name.
        name: String,
        /// The compiler's version.
        version: CompilerVersion,
        /// The function that failed.
        function: &'static str,
        /// Its error message.
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

/// NVRTC fails without a message if a kernel's static shared memory exceeds the limit of a block.
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

/// Several compilers as one: each architecture is compiled by the first that supports it.
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
    fn each_architecture_goes_to_the_first_that_supports_it() {
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
            "a.cu: cannot be compiled for sm_60; version 13.0 supports sm_75, sm_90, version 12.9 supports sm_70, sm_90; \
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
            "w.cu: NVRTC 13.0 reports warnings for sm_90, which are errors here:\n    \
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
                "kernel `huge` has 80000 bytes of static shared memory, but the limit per block is 49152; use dynamic shared memory\n"
            ),
            "{error}"
        );
    }
}
