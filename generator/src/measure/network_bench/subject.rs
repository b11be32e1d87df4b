//! What runs a network.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// The numbers that PyTorch computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arithmetic {
    /// fp32 throughout.
    Fp32,
    /// fp32 tensors whose products are rounded to TF32.
    Tf32,
    /// fp16 tensors in channels_last.
    Fp16,
}

impl Arithmetic {
    /// Its name in options and for the script.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
        }
    }
}

/// A mode of `torch.compile`. The faster one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CompileMode {
    /// `reduce-overhead`, which records a CUDA graph of its own.
    ReduceOverhead,
    /// `max-autotune-no-cudagraphs`, captured in a CUDA graph.
    MaxAutotune,
}

impl CompileMode {
    /// PyTorch's name of it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReduceOverhead => "reduce-overhead",
            Self::MaxAutotune => "max-autotune-no-cudagraphs",
        }
    }
}

/// What runs a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The generated code.
    Generated,
    /// PyTorch without compilation, in a CUDA graph.
    Torch(Arithmetic),
    /// `torch.compile`, in channels_last.
    Compiled(Arithmetic, CompileMode),
}

impl Subject {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 8] = [
        Self::Generated,
        Self::Torch(Arithmetic::Fp32),
        Self::Torch(Arithmetic::Tf32),
        Self::Torch(Arithmetic::Fp16),
        Self::Compiled(Arithmetic::Tf32, CompileMode::ReduceOverhead),
        Self::Compiled(Arithmetic::Tf32, CompileMode::MaxAutotune),
        Self::Compiled(Arithmetic::Fp16, CompileMode::ReduceOverhead),
        Self::Compiled(Arithmetic::Fp16, CompileMode::MaxAutotune),
    ];

    /// The name of it and of its other modes in options; that of a group is the part before the hyphen.
    fn option(self) -> String {
        match self {
            Self::Generated => "generated".to_owned(),
            Self::Torch(arithmetic) => format!("torch-{}", arithmetic.as_str()),
            Self::Compiled(arithmetic, _) => format!("compile-{}", arithmetic.as_str()),
        }
    }

    /// The title of its line in charts; modes of one compiler share a line.
    pub fn title(self) -> String {
        let name = |arithmetic| match arithmetic {
            Arithmetic::Fp32 => "fp32",
            Arithmetic::Tf32 => "TF32",
            Arithmetic::Fp16 => "fp16",
        };
        match self {
            Self::Generated => "generated".to_owned(),
            Self::Torch(arithmetic) => format!("PyTorch {}", name(arithmetic)),
            Self::Compiled(arithmetic, _) => format!("torch.compile {}", name(arithmetic)),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.option())?;
        match self {
            Self::Compiled(_, mode) => write!(f, "-{}", mode.as_str()),
            _ => Ok(()),
        }
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Subject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let found = Self::ALL
            .into_iter()
            .find(|known| known.to_string() == name);
        found.ok_or_else(|| serde::de::Error::custom(format!("unknown subject `{name}`")))
    }
}

/// A name in `--against` that is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` cannot be compared with; choose among torch, compile, torch-fp32, torch-tf32, torch-fp16, compile-tf32, compile-fp16"
)]
pub struct ParseSubjectsError(String);

/// The subjects of PyTorch that names select: of a group, such as `torch`, or of one arithmetic, such as `compile-fp16`.
///
/// # Errors
/// [`ParseSubjectsError`] with the first unknown name.
pub fn torch_subjects(names: &[String]) -> Result<Vec<Subject>, ParseSubjectsError> {
    let selects = |name: &String, subject: &Subject| {
        let option = subject.option();
        let group = option.split('-').next();
        *subject != Subject::Generated && (*name == option || Some(name.as_str()) == group)
    };
    let is_known = |name: &&String| Subject::ALL.iter().any(|subject| selects(name, subject));
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        return Err(ParseSubjectsError(name.clone()));
    }
    let subjects = Subject::ALL.into_iter();
    Ok(subjects
        .filter(|subject| names.iter().any(|name| selects(name, subject)))
        .collect())
}
