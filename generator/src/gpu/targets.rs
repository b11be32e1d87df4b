//! The GPUs that a folder is planned for.

use super::{DEFAULT_GPU, GPUS, Gpu, UnknownGpu, gpu};
use serde::Serialize;

/// Maximal number of names.
const MAX_GPUS: usize = 64;

/// One or more GPUs, without duplicates. If several are equally suitable, generated code uses the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Targets(Vec<&'static Gpu>);

/// Why a list of names is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetsError {
    /// It is empty.
    #[error("the list of GPUs is empty; give at least one, such as {DEFAULT_GPU}")]
    Empty,
    /// It has too many names.
    #[error("the list has {count} GPUs; at most {MAX_GPUS} are supported")]
    TooMany {
        /// The number of names.
        count: usize,
    },
    /// An empty name, because of an extra comma.
    #[error("empty GPU name; remove the extra comma")]
    EmptyName {
        /// Index of the name.
        index: usize,
    },
    /// An unknown name.
    #[error("{error}")]
    Unknown {
        /// Index of the name.
        index: usize,
        /// The name, with the nearest known one.
        error: UnknownGpu,
    },
    /// A duplicate name.
    #[error("`{name}` is listed twice; remove one of the two")]
    Duplicate {
        /// Index of the second occurrence.
        index: usize,
        /// The name.
        name: &'static str,
    },
}

impl TargetsError {
    /// Index of the invalid name; `None` if the error concerns the list.
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::Empty | Self::TooMany { .. } => None,
            Self::EmptyName { index }
            | Self::Unknown { index, .. }
            | Self::Duplicate { index, .. } => Some(*index),
        }
    }
}

impl Targets {
    /// A single GPU.
    pub fn one(gpu: &'static Gpu) -> Self {
        Self(vec![gpu])
    }

    /// The GPUs with these names.
    ///
    /// # Errors
    /// All unknown and duplicate names, or the error of the list; at least one.
    pub fn named<S: AsRef<str>>(names: &[S]) -> Result<Self, Vec<TargetsError>> {
        match names.len() {
            0 => return Err(vec![TargetsError::Empty]),
            count if count > MAX_GPUS => return Err(vec![TargetsError::TooMany { count }]),
            _ => {}
        }
        let mut gpus: Vec<&'static Gpu> = Vec::new();
        let mut errors = Vec::new();
        for (index, name) in names.iter().enumerate() {
            match gpu(name.as_ref()) {
                Err(_) if name.as_ref().is_empty() => {
                    errors.push(TargetsError::EmptyName { index });
                }
                Ok(gpu) if gpus.contains(&gpu) => {
                    let name = gpu.name;
                    errors.push(TargetsError::Duplicate { index, name });
                }
                Ok(gpu) => gpus.push(gpu),
                Err(error) => errors.push(TargetsError::Unknown { index, error }),
            }
        }
        match errors.is_empty() {
            true => Ok(Self(gpus)),
            false => Err(errors),
        }
    }

    /// The GPUs in order; at least one.
    pub fn gpus(&self) -> &[&'static Gpu] {
        &self.0
    }
}

impl Default for Targets {
    /// [`DEFAULT_GPU`].
    fn default() -> Self {
        Self(GPUS.iter().filter(|gpu| gpu.name == DEFAULT_GPU).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(names: &[&str]) -> Vec<(Option<usize>, String)> {
        let errors = Targets::named(names).expect_err("an error");
        let message = |error: &TargetsError| (error.index(), error.to_string());
        errors.iter().map(message).collect()
    }

    #[test]
    fn names_become_gpus_in_their_order() {
        let targets = Targets::named(&["rtx2080ti", "h200"]).expect("known names");
        let names: Vec<_> = targets.gpus().iter().map(|gpu| gpu.name).collect();
        assert_eq!(names, ["rtx2080ti", "h200"]);
        assert_eq!(Targets::default().gpus()[0].name, DEFAULT_GPU);
        assert_eq!(Targets::default().gpus().len(), 1);
    }

    #[test]
    fn every_wrong_name_is_told() {
        let found = messages(&["h200", "h20", "a100", "h200", ""]);
        let indices: Vec<_> = found.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, [Some(1), Some(3), Some(4)]);
        assert!(found[0].1.contains("did you mean `h200`?"), "{found:?}");
        assert_eq!(found[1].1, "`h200` is listed twice; remove one of the two");
        assert!(found[2].1 == "empty GPU name; remove the extra comma");
    }

    #[test]
    fn empty_and_endless_lists_are_refused() {
        assert_eq!(
            messages(&[]),
            [(
                None,
                "the list of GPUs is empty; give at least one, such as h200".to_owned()
            )]
        );
        let many = vec!["h200"; MAX_GPUS + 1];
        assert_eq!(messages(&many).len(), 1);
    }
}
