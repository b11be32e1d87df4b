//! Errors in a checkpoint, a recipe or a list of values.

use std::fmt;
use std::io;

use safetensors::Dtype;
use tdc_runtime::PackError;

/// Why a checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// An I/O error.
    #[error("cannot read the checkpoint {origin}: {problem}; check the path and its permissions")]
    Read {
        /// Path of the file.
        origin: String,
        /// The system's error.
        problem: io::Error,
    },
    /// The length of the file is not that of its header.
    #[error(
        "the checkpoint {origin} has {found} bytes, but its header requires {expected}; it is damaged or incomplete: \
         copy, download or save it again"
    )]
    Length {
        /// Path of the file.
        origin: String,
        /// Bytes according to the header; `u64::MAX` if the sum overflows.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// The content is not safetensors.
    #[error("the checkpoint {origin} is not a safetensors file: {problem}; {remedy}")]
    Format {
        /// Path of the file.
        origin: String,
        /// The problem.
        problem: String,
        /// The remedy.
        remedy: &'static str,
    },
}

/// Why the values of a slot cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A tensor is missing in the checkpoint.
    #[error(
        "the checkpoint has no tensor `{tensor}`, which `{slot}` needs; {}",
        suggestion.as_ref().map_or_else(
            || "check the name in the config against the checkpoint's names".to_owned(),
            |name| format!("did you mean `{name}`?"),
        )
    )]
    Missing {
        /// The required tensor.
        tensor: String,
        /// The slot that requires it.
        slot: String,
        /// The most similar name in the checkpoint, if any is similar.
        suggestion: Option<String>,
    },
    /// A tensor has the wrong shape.
    #[error(
        "tensor `{tensor}` has shape {found:?}, `{slot}` needs {expected:?}; the config and the checkpoint describe different networks"
    )]
    Shape {
        /// The tensor.
        tensor: String,
        /// The slot that requires it.
        slot: String,
        /// Required shape.
        expected: Vec<usize>,
        /// Shape found.
        found: Vec<usize>,
    },
    /// The element type of a tensor is not supported.
    #[error(
        "tensor `{tensor}` has elements of type {found}, expected F16, BF16, F32 or F64; convert it before saving the checkpoint"
    )]
    Dtype {
        /// The tensor.
        tensor: String,
        /// Element type found.
        found: Dtype,
    },
    /// A NaN or infinity.
    #[error(
        "tensor `{tensor}` holds {value} at {index:?}, expected finite numbers; the training diverged or the file is damaged"
    )]
    NonFinite {
        /// The tensor.
        tensor: String,
        /// Its index in each dimension.
        index: Vec<usize>,
        /// The value.
        value: f64,
    },
    /// A BatchNorm that would divide by zero or by the root of a negative number.
    #[error(
        "tensor `{tensor}` holds the variance {value} at [{channel}], which with eps = {eps} is not above zero; \
         correct eps in the config or the checkpoint's statistics"
    )]
    Variance {
        /// The tensor.
        tensor: String,
        /// The channel.
        channel: usize,
        /// The variance found.
        value: f64,
        /// The eps of the recipe.
        eps: f64,
    },
    /// Some but not all of the trained factors of a layer.
    #[error(
        "the checkpoint has the trained factor {} of `{layer}` but not {}; save all three, or none to factorise the dense weight",
        list(found),
        list(missing)
    )]
    PartialFactors {
        /// The layer.
        layer: String,
        /// Factor tensors found.
        found: Vec<String>,
        /// Factor tensors missing.
        missing: Vec<String>,
    },
    /// The eigenvalue iteration did not converge.
    #[error(
        "the factorisation of `{layer}` did not converge; leave the layer dense or store trained factors in the checkpoint"
    )]
    NoConvergence {
        /// The layer.
        layer: String,
    },
    /// A value that is not representable in fp32.
    #[error(
        "the {part} of `{slot}` holds {value:e} at {index} after folding, which is beyond fp32; \
         check the variances and scales folded into it"
    )]
    Overflow {
        /// The slot.
        slot: String,
        /// `weight`, `bias`, `scale` or `shift`.
        part: &'static str,
        /// Index in source order.
        index: usize,
        /// The value.
        value: f64,
    },
    /// A contradictory recipe: a defect of the planner, not of the checkpoint.
    #[error("the recipe of `{slot}` is inconsistent: {problem}; this is a bug in the plan")]
    Recipe {
        /// The slot.
        slot: String,
        /// The contradiction.
        problem: String,
    },
}

impl WeightError {
    /// The tensor, layer or slot that the error concerns.
    pub(crate) fn subject(&self) -> String {
        match self {
            Self::Checkpoint(error) => error.to_string(),
            Self::Missing { tensor, .. }
            | Self::Shape { tensor, .. }
            | Self::Dtype { tensor, .. }
            | Self::NonFinite { tensor, .. }
            | Self::Variance { tensor, .. } => tensor.clone(),
            Self::PartialFactors { layer, .. } | Self::NoConvergence { layer } => layer.clone(),
            Self::Overflow { slot, part, .. } => format!("{slot} {part}"),
            Self::Recipe { slot, problem } => format!("{slot} {problem}"),
        }
    }
}

fn list(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// All errors of a checkpoint for the given recipes; at least one, printed one per line.
#[derive(Debug)]
pub struct WeightErrors(pub(crate) Vec<WeightError>);

impl WeightErrors {
    /// The errors in the order of the recipes.
    pub fn iter(&self) -> std::slice::Iter<'_, WeightError> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a WeightErrors {
    type Item = &'a WeightError;
    type IntoIter = std::slice::Iter<'a, WeightError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for WeightErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (line, error) in self.0.iter().enumerate() {
            if line > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for WeightErrors {}

/// Values that do not match the slots that they are packed for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The number of sets of values is not that of the slots.
    #[error("the file has {expected} slots, but the values are for {found}")]
    Count {
        /// Slots of the file.
        expected: usize,
        /// Sets of values.
        found: usize,
    },
    /// A slice of values has the wrong length.
    #[error("the values of `{slot}` do not match its layout: {problem}")]
    Slot {
        /// The slot.
        slot: String,
        /// The length.
        problem: PackError,
    },
}
