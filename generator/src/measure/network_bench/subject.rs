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

/// A mode of `torch.compile`.
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

    /// The name of its group in `--against`, and what it computes with.
    fn parts(self) -> (&'static str, Option<Arithmetic>) {
        match self {
            Self::Generated => ("generated", None),
            Self::Torch(arithmetic) => ("torch", Some(arithmetic)),
            Self::Compiled(arithmetic, CompileMode::ReduceOverhead) => {
                ("compile", Some(arithmetic))
            }
            Self::Compiled(arithmetic, CompileMode::MaxAutotune) => {
                ("compile-max", Some(arithmetic))
            }
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
        let (group, arithmetic) = self.parts();
        f.write_str(group)?;
        arithmetic.map_or(Ok(()), |arithmetic| write!(f, "-{}", arithmetic.as_str()))
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
    "`{0}` cannot be compared with; choose among torch, compile, compile-max, torch-fp32, torch-tf32, torch-fp16, compile-tf32, compile-fp16, compile-max-tf32, compile-max-fp16"
)]
pub struct ParseSubjectsError(String);

/// The subjects of PyTorch that are compared with by default. `torch.compile` in mode `max-autotune-no-cudagraphs` must be named: it may take
/// minutes to start.
pub fn default_torch_subjects() -> Vec<Subject> {
    let subjects = Subject::ALL.into_iter();
    subjects
        .filter(|subject| ["torch", "compile"].contains(&subject.parts().0))
        .collect()
}

/// The subjects of PyTorch that names select: of a group, such as `torch`, or of one arithmetic, such as `compile-fp16`.
///
/// # Errors
/// [`ParseSubjectsError`] with the first unknown name.
pub fn torch_subjects(names: &[String]) -> Result<Vec<Subject>, ParseSubjectsError> {
    let selects = |name: &String, subject: &Subject| {
        let (group, _) = subject.parts();
        *subject != Subject::Generated && (*name == subject.to_string() || name == group)
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
