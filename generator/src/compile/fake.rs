//! A compiler that compiles nothing, for tests.

use super::{CompileError, Compiler, CompilerVersion, Image};
use std::collections::BTreeMap;
use std::fmt;
use tdc_runtime::Arch;

/// Answers with logs that were laid down for it.
///
/// Its cubins are the source's own bytes; a source without a log of its own compiles to an image without kernels.
#[derive(Debug, Clone)]
pub struct FakeCompiler {
    version: CompilerVersion,
    archs: Vec<Arch>,
    accepted: BTreeMap<String, String>,
    refused: BTreeMap<String, String>,
}

impl FakeCompiler {
    /// A compiler of the given version for the given architectures.
    pub fn new(version: CompilerVersion, archs: &[Arch]) -> Self {
        Self {
            version,
            archs: archs.to_vec(),
            accepted: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// The source `name` compiles and gives `log`.
    pub fn accepting(mut self, name: &str, log: &str) -> Self {
        self.accepted.insert(name.to_owned(), log.to_owned());
        self
    }

    /// The source `name` does not compile and gives `log`.
    pub fn refusing(mut self, name: &str, log: &str) -> Self {
        self.refused.insert(name.to_owned(), log.to_owned());
        self
    }
}

impl Compiler for FakeCompiler {
    fn version_for(&self, arch: Arch) -> Option<CompilerVersion> {
        self.archs.contains(&arch).then_some(self.version)
    }

    fn compile(&self, source: &str, name: &str, arch: Arch) -> Result<Image, CompileError> {
        if !self.archs.contains(&arch) {
            return Err(CompileError::Unsupported {
                name: name.to_owned(),
                arch,
                compilers: self.to_string(),
            });
        }
        if let Some(log) = self.refused.get(name) {
            return Err(CompileError::Refused {
                name: name.to_owned(),
                arch,
                version: self.version,
                log: log.clone(),
            });
        }
        let log = self.accepted.get(name).map_or("", String::as_str);
        Image::from_log(source.as_bytes().to_vec(), log, name, arch, self.version)
    }
}

impl fmt::Display for FakeCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let archs: Vec<_> = self.archs.iter().map(Arch::to_string).collect();
        write!(f, "version {} knows {}", self.version, archs.join(", "))
    }
}
