//! Networks of tensors with labelled modes.

use std::fmt;
use std::num::NonZeroU32;

/// Maximum number of tensors: the search considers every partition in two of every subset.
pub const MAX_TENSORS: usize = 16;

/// Maximum number of distinct labels.
pub const MAX_MODES: usize = 64;

/// Description of a tensor: its name and its modes in order. A length may be omitted if another tensor
/// specifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name, for messages and the printed order.
    pub name: String,
    /// Labels and lengths.
    pub modes: Vec<(String, Option<NonZeroU32>)>,
}

/// Treatment of the ends of a convolved mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Zero padding such that there is one output for each `stride`-th element of the signal: `ceil(signal /
    /// stride)` outputs.
    Same,
    /// Outputs only at positions where the filter is inside the signal.
    Valid,
}

/// The convolution of a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convolution {
    /// Treatment of the ends.
    pub padding: Padding,
    /// Elements of the signal between outputs.
    pub stride: NonZeroU32,
    /// Elements of the signal between elements of the filter.
    pub dilation: NonZeroU32,
}

impl Convolution {
    /// The output length for a signal and a filter, the longer and the shorter length; `None` if the dilated
    /// filter must be inside the signal but is longer.
    fn output(self, signal: u64, filter: u64) -> Option<u64> {
        let stride = u64::from(self.stride.get());
        match self.padding {
            Padding::Same => Some(signal.div_ceil(stride)),
            Padding::Valid => {
                let extent = (filter - 1) * u64::from(self.dilation.get()) + 1;
                Some(signal.checked_sub(extent)? / stride + 1)
            }
        }
    }
}

/// How a mode is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeKind {
    /// It is in the result: free in one tensor, or a partial outer product of several.
    Kept,
    /// It is summed over as soon as all tensors that have it are combined: a contraction of two tensors, or a
    /// hyperedge of more.
    Summed,
    /// It is a signal in one tensor and a filter in another, which give an output.
    Convolved {
        /// The shorter length.
        filter: u64,
        /// Length in the result.
        output: u64,
    },
}

/// A mode of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mode {
    /// The label; the same in every tensor that has the mode.
    pub label: String,
    /// How it is evaluated.
    pub kind: ModeKind,
}

/// A tensor of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name.
    pub name: String,
    /// For each mode in order, its index in [`TensorNetwork::modes`] and its length in this tensor.
    pub modes: Vec<(usize, u64)>,
}

/// A tensor network with checked labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorNetwork {
    tensors: Vec<Tensor>,
    modes: Vec<Mode>,
    result: Vec<usize>,
}

/// The part of a network that an error concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorNetworkLocation {
    /// The network.
    Whole,
    /// A tensor.
    Tensor(usize),
    /// A mode of a tensor: index of the tensor, index among its modes.
    Mode(usize, usize),
    /// A label of the result.
    Result(usize),
    /// A convolution.
    Convolution(usize),
}

/// An error in a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorNetworkError {
    /// Its location.
    pub place: TensorNetworkLocation,
    /// The error and its remedy.
    pub message: String,
}

impl fmt::Display for TensorNetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TensorNetworkError {}

/// An occurrence of a label: tensor, index among its modes, and length if given.
#[derive(Clone, Copy)]
struct ModeUse {
    tensor: usize,
    mode: usize,
    length: Option<NonZeroU32>,
}

impl TensorNetwork {
    /// A network of these tensors. Labels in `result` are kept, in that order; those of `convolutions` are
    /// convolved; all others are summed over.
    ///
    /// # Errors
    /// The first error: too many or too few tensors or labels, a duplicate name or label, lengths that are
    /// missing or inconsistent, a label of the result or of a convolution that no tensor has, a label that
    /// only one tensor has and the result does not, a convolved mode that is not in exactly two tensors or
    /// not in the result, a filter that is too long.
    pub fn new(
        operands: &[TensorSpec],
        result: &[String],
        convolutions: &[(String, Convolution)],
    ) -> Result<Self, TensorNetworkError> {
        check_operands(operands)?;
        let labels = distinct_labels(operands)?;
        check_known(&labels, result, TensorNetworkLocation::Result, "the result")?;
        let convolved: Vec<_> = convolutions
            .iter()
            .map(|(label, _)| label.clone())
            .collect();
        check_known(
            &labels,
            &convolved,
            TensorNetworkLocation::Convolution,
            "the convolutions",
        )?;
        let mut modes = Vec::with_capacity(labels.len());
        let mut tensors: Vec<_> = operands.iter().map(Tensor::without_lengths).collect();
        for (index, label) in labels.iter().enumerate() {
            let uses = uses(operands, label);
            let kept = result.contains(label);
            let convolution = convolved.iter().position(|known| known == label);
            let (kind, lengths) = match convolution {
                Some(at) => convolved_mode(operands, label, &uses, kept, at, convolutions[at].1)?,
                None => plain_mode(operands, label, &uses, kept)?,
            };
            for (found, length) in uses.iter().zip(lengths) {
                tensors[found.tensor].modes[found.mode] = (index, length);
            }
            let label = label.clone();
            modes.push(Mode { label, kind });
        }
        let place = |label: &String| labels.iter().position(|known| known == label);
        Ok(Self {
            tensors,
            modes,
            result: result.iter().filter_map(place).collect(),
        })
    }

    /// The tensors, in the given order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The modes, in order of first occurrence.
    pub fn modes(&self) -> &[Mode] {
        &self.modes
    }

    /// The indices of the modes of the result, in its order.
    pub fn result(&self) -> &[usize] {
        &self.result
    }
}

impl Tensor {
    /// A tensor whose modes get their indices and lengths later.
    fn without_lengths(operand: &TensorSpec) -> Self {
        Self {
            name: operand.name.clone(),
            modes: vec![(0, 0); operand.modes.len()],
        }
    }
}

fn error<T>(
    place: TensorNetworkLocation,
    message: impl Into<String>,
) -> Result<T, TensorNetworkError> {
    let message = message.into();
    Err(TensorNetworkError { place, message })
}

fn check_operands(operands: &[TensorSpec]) -> Result<(), TensorNetworkError> {
    if operands.len() < 2 || operands.len() > MAX_TENSORS {
        return error(
            TensorNetworkLocation::Whole,
            format!(
                "a network of {} tensors; give 2 to {MAX_TENSORS}",
                operands.len()
            ),
        );
    }
    for (index, operand) in operands.iter().enumerate() {
        if operands[..index]
            .iter()
            .any(|other| other.name == operand.name)
        {
            return error(
                TensorNetworkLocation::Tensor(index),
                format!(
                    "two tensors are named `{}`; give each its own name",
                    operand.name
                ),
            );
        }
        for (place, (label, _)) in operand.modes.iter().enumerate() {
            if operand.modes[..place]
                .iter()
                .any(|(other, _)| other == label)
            {
                return error(
                    TensorNetworkLocation::Mode(index, place),
                    format!(
                        "`{}` has two modes `{label}`; diagonals of one tensor are not supported, give each mode its own label",
                        operand.name
                    ),
                );
            }
        }
    }
    Ok(())
}

fn distinct_labels(operands: &[TensorSpec]) -> Result<Vec<String>, TensorNetworkError> {
    let mut labels: Vec<String> = Vec::new();
    for (label, _) in operands.iter().flat_map(|operand| &operand.modes) {
        if !labels.contains(label) {
            labels.push(label.clone());
        }
    }
    match labels.len() > MAX_MODES {
        true => error(
            TensorNetworkLocation::Whole,
            format!(
                "{} different labels; give at most {MAX_MODES}",
                labels.len()
            ),
        ),
        false => Ok(labels),
    }
}

/// Checks that each label of `requested` is a label of some tensor, without duplicates.
fn check_known(
    labels: &[String],
    requested: &[String],
    place: fn(usize) -> TensorNetworkLocation,
    list: &str,
) -> Result<(), TensorNetworkError> {
    for (index, label) in requested.iter().enumerate() {
        if !labels.contains(label) {
            return error(
                place(index),
                format!(
                    "no tensor has a mode `{label}`; the labels are {}",
                    labels.join(", ")
                ),
            );
        }
        if requested[..index].contains(label) {
            return error(
                place(index),
                format!("`{label}` appears twice in {list}; remove one of the two"),
            );
        }
    }
    Ok(())
}

fn uses(operands: &[TensorSpec], label: &str) -> Vec<ModeUse> {
    let mut found = Vec::new();
    for (tensor, operand) in operands.iter().enumerate() {
        for (mode, (other, length)) in operand.modes.iter().enumerate() {
            if other == label {
                found.push(ModeUse {
                    tensor,
                    mode,
                    length: *length,
                });
            }
        }
    }
    found
}

/// The kind of a mode that has the same length in all tensors, and the length of each occurrence.
fn plain_mode(
    operands: &[TensorSpec],
    label: &str,
    uses: &[ModeUse],
    kept: bool,
) -> Result<(ModeKind, Vec<u64>), TensorNetworkError> {
    let place = |found: &ModeUse| TensorNetworkLocation::Mode(found.tensor, found.mode);
    let name = |found: &ModeUse| &operands[found.tensor].name;
    let given = uses.iter().find_map(|found| Some((found, found.length?)));
    let Some((first, length)) = given else {
        return error(
            place(&uses[0]),
            format!("`{label}` has no length; add one, such as `{label}:8`"),
        );
    };
    for found in uses {
        match found.length {
            Some(other) if other != length => {
                return error(
                    place(found),
                    format!(
                        "`{label}` has length {other} in `{}` and {length} in `{}`; make them equal, or use `convolve {label}: same`",
                        name(found),
                        name(first)
                    ),
                );
            }
            _ => {}
        }
    }
    let kind = match kept {
        true => ModeKind::Kept,
        false if uses.len() == 1 => {
            return error(
                place(&uses[0]),
                format!(
                    "`{label}` is only in `{}` and not in the result; add it to the result, or to the tensor that it is contracted \
                     with",
                    name(&uses[0])
                ),
            );
        }
        false => ModeKind::Summed,
    };
    Ok((kind, vec![u64::from(length.get()); uses.len()]))
}

/// The kind of a convolved mode, and the length of each occurrence.
fn convolved_mode(
    operands: &[TensorSpec],
    label: &str,
    uses: &[ModeUse],
    kept: bool,
    index: usize,
    convolution: Convolution,
) -> Result<(ModeKind, Vec<u64>), TensorNetworkError> {
    let place = TensorNetworkLocation::Convolution(index);
    if uses.len() != 2 {
        let names: Vec<_> = uses
            .iter()
            .map(|found| operands[found.tensor].name.as_str())
            .collect();
        return error(
            place,
            format!(
                "`{label}` is convolved and in {} tensors ({}); it must be in two, a signal and a filter: with more, the values at \
                 the ends would depend on the order",
                uses.len(),
                names.join(", ")
            ),
        );
    }
    if !kept {
        return error(
            place,
            format!("`{label}` is convolved but not in the result; add it there"),
        );
    }
    let mut lengths = Vec::with_capacity(2);
    for found in uses {
        let Some(length) = found.length else {
            return error(
                TensorNetworkLocation::Mode(found.tensor, found.mode),
                format!(
                    "`{label}` is convolved but has no length here; add one, such as `{label}:3`"
                ),
            );
        };
        lengths.push(u64::from(length.get()));
    }
    let (signal, filter) = (lengths[0].max(lengths[1]), lengths[0].min(lengths[1]));
    let Some(output) = convolution.output(signal, filter) else {
        return error(
            place,
            format!(
                "a filter of {filter} elements with dilation {} is longer than the {signal} elements of `{label}`; shorten it, or use `same` \
                 padding",
                convolution.dilation
            ),
        );
    };
    Ok((ModeKind::Convolved { filter, output }, lengths))
}
