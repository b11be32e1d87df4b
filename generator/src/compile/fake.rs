//! A compiler that compiles nothing, for tests.

use super::{CompileError, Compiler, CompilerVersion, Image};
use std::collections::BTreeMap;
use std::fmt;
use tdc_runtime::Arch;

/// Returns logs that were set for it.
///
/// Its cubins are the bytes of the source; a source without a log compiles to an image without kernels.
#[derive(Debug, Clone)]
pub struct FakeCompiler {
    version: CompilerVersion,
    archs: Vec<Arch>,
    logs: BTreeMap<String, String>,
    error_logs: BTreeMap<String, String>,
}

impl FakeCompiler {
    /// A compiler of the given version for the given architectures.
    pub fn new(version: CompilerVersion, archs: &[Arch]) -> Self {
        Self {
            version,
            archs: archs.to_vec(),
            logs: BTreeMap::new(),
            error_logs: BTreeMap::new(),
        }
    }

    /// The source `name` compiles, with `log`.
    pub fn with_log(mut self, name: &str, log: &str) -> Self {
        self.logs.insert(name.to_owned(), log.to_owned());
        self
    }

    /// The source `name` does not compile, with `log`.
    pub fn with_errors(mut self, name: &str, log: &str) -> Self {
        self.error_logs.insert(name.to_owned(), log.to_owned());
        self
    }
}

impl Compiler for FakeCompiler {
    fn version_for(&self, arch: Arch) -> Option<CompilerVersion> {
        self.archs.contains(&arch).then_some(self.version)
    }

    fn ptx(&self, source: &str, name: &str, arch: Arch) -> Result<Vec<u8>, CompileError> {
        Ok([&self.compile(source, name, arch)?.cubin[..], &[0]].concat())
    }

    fn compile(&self, source: &str, name: &str, arch: Arch) -> Result<Image, CompileError> {
        if !self.archs.contains(&arch) {
            return Err(CompileError::Unsupported {
                name: name.to_owned(),
                arch,
                compilers: self.to_string(),
            });
        }
        if let Some(log) = self.error_logs.get(name) {
            return Err(CompileError::SourceErrors {
                name: name.to_owned(),
                arch,
                version: self.version,
                log: log.clone(),
            });
        }
        let log = self.logs.get(name).map_or("", String::as_str);
        Image::from_log(source.as_bytes().to_vec(), log, name, arch, self.version)
    }
}

impl fmt::Display for FakeCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let archs: Vec<_> = self.archs.iter().map(Arch::to_string).collect();
        write!(f, "version {} supports {}", self.version, archs.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_configured_logs() {
        let version = CompilerVersion {
            major: 13,
            minor: 0,
        };
        let arch = Arch::new(90);
        let compiler = FakeCompiler::new(version, &[arch])
            .with_log(
                "good",
                "ptxas info    : Compiling entry function 'k' for 'sm_90'\n\
                 ptxas info    : Used 10 registers, used 1 barriers, 4096 bytes smem\n",
            )
            .with_errors("bad", "bad(1): error: no");
        let image = compiler.compile("text", "good", arch).unwrap();
        assert_eq!(image.cubin, b"text");
        assert_eq!(image.kernel("k").unwrap().shared_bytes, 4096);
        let error = compiler.compile("text", "bad", arch).unwrap_err();
        assert!(error.to_string().ends_with("\n    bad(1): error: no\n"));
        let error = compiler.compile("text", "good", Arch::new(80)).unwrap_err();
        assert!(matches!(error, CompileError::Unsupported { .. }));
    }
}
