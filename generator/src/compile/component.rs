//! The compiler packages that can be installed, with their exact versions.

use std::fmt;
use std::str::FromStr;

/// A CUDA compiler that is found on a machine or installed into the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// NVRTC 13: compiles CUDA source to machine code for sm_75 and later, inside the process.
    Nvrtc13,
    /// NVRTC 12.9: the same for sm_70, which NVRTC 13 no longer supports.
    Nvrtc12,
    /// nvcc 13.0 with headers and the CUDA runtime, for complete C++ programs.
    Nvcc,
}

impl Component {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nvrtc13, Self::Nvrtc12, Self::Nvcc];

    /// Its name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nvrtc13 => "nvrtc",
            Self::Nvrtc12 => "nvrtc12",
            Self::Nvcc => "nvcc",
        }
    }

    /// Its name in messages.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Nvrtc13 => "NVRTC 13",
            Self::Nvrtc12 => "NVRTC 12.9",
            Self::Nvcc => "nvcc 13.0",
        }
    }

    /// The requirement for pip, with exact versions.
    ///
    /// Every package of nvcc is listed, because pip installs the newest version of those that the extras
    /// leave out, and packages of different CUDA versions do not work together.
    pub const fn requirement(self) -> &'static str {
        match self {
            Self::Nvrtc13 => "nvidia-cuda-nvrtc==13.0.88",
            Self::Nvrtc12 => "nvidia-cuda-nvrtc-cu12==12.9.86",
            Self::Nvcc => "cuda-toolkit[nvcc,crt,nvvm,cudart,nvrtc,cccl]==13.0.2",
        }
    }

    /// Approximate download size in megabytes.
    pub const fn download_megabytes(self) -> u32 {
        match self {
            Self::Nvrtc13 | Self::Nvrtc12 => 90,
            Self::Nvcc => 195,
        }
    }

    /// Its directory in the cache; the version is included, so that an update does not meet an older one.
    pub const fn directory(self) -> &'static str {
        match self {
            Self::Nvrtc13 => "nvrtc-13.0.88",
            Self::Nvrtc12 => "nvrtc-12.9.86",
            Self::Nvcc => "nvcc-13.0.2",
        }
    }

    /// The command that installs it, for error messages.
    pub fn install_command(self) -> String {
        format!("tdc-gen toolkit install {}", self.as_str())
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

/// Not the name of a component.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown component `{0}`; known are nvrtc, nvrtc12 and nvcc")]
pub struct ParseComponentError(String);

impl FromStr for Component {
    type Err = ParseComponentError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|component| component.as_str() == word)
            .ok_or_else(|| ParseComponentError(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_understood() {
        for component in Component::ALL {
            assert_eq!(component.as_str().parse(), Ok(component));
        }
        let error = "cudnn".parse::<Component>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown component `cudnn`; known are nvrtc, nvrtc12 and nvcc"
        );
    }
}
