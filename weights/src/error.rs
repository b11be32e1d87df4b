//! What can be wrong with a checkpoint, a recipe or a list of values.

use std::fmt;
use std::io;

use safetensors::Dtype;
use tdc_runtime::PackError;

/// A checkpoint that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system refuses to read.
    #[error("cannot read the checkpoint {origin}: {problem}; check the path and its permissions")]
    Read {
        /// Path of the file.
        origin: String,
        /// What the system says.
        problem: io::Error,
    },
    /// The file has not the length that its header announces.
    #[error(
        "the checkpoint {origin} has {found} bytes where {expected} are announced; it is damaged or incomplete: \
         copy, download or save it again"
    )]
    Length {
        /// Path of the file.
        origin: String,
        /// Bytes announced; `u64::MAX` when the sum overflows.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// The content is not safetensors.
    #[error("the checkpoint {origin} is not a safetensors file: {problem}; {remedy}")]
    Format {
        /// Path of the file.
        origin: String,
        /// What is wrong with the content.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
}

/// One reason why the values of a slot cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A tensor that the checkpoint has not.
    #[error(
        "the checkpoint has no tensor `{tensor}`, which `{slot}` needs; {}",
        suggestion.as_ref().map_or_else(
            || "check the name in the config against the checkpoint's names".to_owned(),
            |name| format!("did you mean `{name}`?"),
        )
    )]
    Missing {
        /// The tensor asked for.
        tensor: String,
        /// The slot that asks for it.
        slot: String,
        /// The most similar name in the checkpoint, if any is similar.
        suggestion: Option<String>,
    },
    /// A tensor of another shape.
    #[error(
        "tensor `{tensor}` has shape {found:?}, `{slot}` needs {expected:?}; the config and the checkpoint describe different networks"
    )]
    Shape {
        /// The tensor.
        tensor: String,
        /// The slot that asks for it.
        slot: String,
        /// Shape asked for.
        expected: Vec<usize>,
        /// Shape found.
        found: Vec<usize>,
    },
    /// A tensor whose elements are not floating-point numbers of a supported kind.
    #[error(
        "tensor `{tensor}` has elements of type {found}, expected F16, BF16, F32 or F64; convert it before saving the checkpoint"
    )]
    Dtype {
        /// The tensor.
        tensor: String,
        /// Element type found.
        found: Dtype,
    },
    /// A NaN or an infinity.
    #[error(
        "tensor `{tensor}` holds {value} at {index:?}, expected finite numbers; the training diverged or the file is damaged"
    )]
    NonFinite {
        /// The tensor.
        tensor: String,
        /// Where, in each dimension.
        index: Vec<usize>,
        /// The value.
        value: f64,
    },
    /// A batch normalisation that would divide by zero or by the root of a negative number.
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
    /// A layer with one or two of its three trained factors.
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
    /// A value of f64 that fp32 cannot hold.
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
    /// A recipe that contradicts itself: a fault of the planner, not of the checkpoint.
    #[error("the recipe of `{slot}` is inconsistent: {problem}; this is a bug in the plan")]
    Recipe {
        /// The slot.
        slot: String,
        /// What contradicts what.
        problem: String,
    },
}

impl WeightError {
    /// The tensor, layer or slot it is about.
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

/// Everything that is wrong with a checkpoint for the given recipes; at least one error, one line each when shown.
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

/// Values that do not fit the slots they are packed for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// Not one set of values for each slot.
    #[error("the file has {expected} slots, but values for {found} are given")]
    Count {
        /// Slots of the file.
        expected: usize,
        /// Sets of values given.
        found: usize,
    },
    /// Values of the wrong length.
    #[error("the values of `{slot}` do not fit: {problem}")]
    Slot {
        /// The slot.
        slot: String,
        /// Which length is wrong.
        problem: PackError,
    },
}
