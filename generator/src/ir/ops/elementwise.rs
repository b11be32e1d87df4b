//! Functions of each element, for ops that no convolution could fuse.

use super::{ProblemKind, measured_activation};
use crate::ir::{Activation, Problem, Tensor, TensorShape, description, label};
use serde::Serialize;

/// An op on two tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum BinaryOp {
    /// The sum of two tensors of the same shape.
    Add,
    /// The difference of two tensors of the same shape: the first minus the second.
    Sub,
    /// The product of two tensors of the same shape, element by element.
    Mul,
    /// The product of a tensor and one factor for each image and channel: a `B x C x 1 x 1` tensor.
    Gate,
}

impl BinaryOp {
    /// All of them by their words in names.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("add", Self::Add),
        ("sub", Self::Sub),
        ("mul", Self::Mul),
        ("gate", Self::Gate),
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Gate => "gate",
        }
    }

    /// What it computes.
    pub fn title(self) -> &'static str {
        match self {
            Self::Add => "Sum of two tensors",
            Self::Sub => "Difference of two tensors",
            Self::Mul => "Product of two tensors",
            Self::Gate => "Product with a factor for each channel",
        }
    }

    /// Applies it to `y` of a shape and another tensor.
    #[cfg(feature = "check")]
    pub fn apply(self, shape: TensorShape, y: &mut [f64], other: &[f64]) {
        debug_assert_eq!(y.len() as u64, shape.len());
        match self {
            Self::Add => crate::ir::reference::add(y, other),
            Self::Sub => {
                for (value, other) in y.iter_mut().zip(other) {
                    *value -= other;
                }
            }
            Self::Mul | Self::Gate => {
                let elements_of_factor = y.len() / other.len();
                for (index, value) in y.iter_mut().enumerate() {
                    *value *= other[index / elements_of_factor];
                }
            }
        }
    }
}

/// What is computed for each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Elementwise {
    /// The activation of an op on x and the residual.
    Binary(BinaryOp, Activation),
    /// The activation of x.
    Activation(Activation),
    /// The activation function of `scale[c] * x + shift[c]`.
    ScaleShift(Activation),
    /// x where it is positive, otherwise `slope[c] * x`.
    PRelu,
    /// x, copied into its slice of a concatenated tensor.
    Copy,
    /// The channels of x in another order: channel `c` of the output is channel `c % groups * (C / groups) + c / groups`.
    Shuffle {
        /// Groups of consecutive channels, a divisor of their number.
        groups: u32,
    },
}

impl Elementwise {
    /// The activation function, which is applied last.
    pub fn activation(self) -> Activation {
        match self {
            Self::Binary(_, activation)
            | Self::Activation(activation)
            | Self::ScaleShift(activation) => activation,
            Self::PRelu | Self::Copy | Self::Shuffle { .. } => Activation::None,
        }
    }
}

/// A function of each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ElementwiseProblem {
    /// The function.
    pub function: Elementwise,
    /// Shape of input and output.
    pub x: TensorShape,
}

/// x with the channels of `groups` groups in turn: the transposition of groups and channels of a group.
#[cfg(feature = "check")]
pub fn shuffled(shape: TensorShape, groups: u32, x: &[f64]) -> Vec<f64> {
    let (pixels, channels) = (shape.pixels() as usize, shape.c as usize);
    let groups = groups as usize;
    let mut y = Vec::with_capacity(x.len());
    for image in x.chunks(channels * pixels) {
        for place in 0..channels / groups {
            for group in image.chunks(channels / groups * pixels) {
                y.extend(&group[place * pixels..][..pixels]);
            }
        }
    }
    y
}

/// Multiplies negative elements by the slopes of their channels.
#[cfg(feature = "check")]
pub fn prelu(shape: TensorShape, y: &mut [f64], slopes: &[f64]) {
    let planes = y.chunks_mut(shape.pixels() as usize);
    for (plane, slope) in planes.zip(slopes.iter().cycle()) {
        for value in plane.iter_mut().filter(|value| **value < 0.0) {
            *value *= slope;
        }
    }
}

impl ProblemKind for ElementwiseProblem {
    fn input(&self) -> Tensor {
        Tensor::nchw(self.x)
    }

    fn output(&self) -> Tensor {
        Tensor::nchw(self.x)
    }

    /// One element for each channel of a gate.
    fn residual_shape(&self) -> TensorShape {
        match self.function {
            Elementwise::Binary(BinaryOp::Gate, _) => TensorShape {
                h: 1,
                w: 1,
                ..self.x
            },
            _ => self.x,
        }
    }

    fn reads_residual(&self) -> bool {
        matches!(self.function, Elementwise::Binary(..))
    }

    fn scale_shift_channels(&self) -> u32 {
        match self.function {
            Elementwise::ScaleShift(_) => self.x.c,
            _ => 0,
        }
    }

    fn activations(&self) -> Vec<Activation> {
        vec![self.function.activation()]
    }

    fn weights(&self) -> Vec<[u32; 4]> {
        match self.function {
            Elementwise::PRelu => vec![[self.x.c, 1, 1, 1]],
            _ => Vec::new(),
        }
    }

    fn flops(&self) -> u64 {
        self.x.len()
    }

    fn label(&self) -> String {
        let op = match self.function {
            Elementwise::Binary(op, _) => op.as_str().to_owned(),
            Elementwise::ScaleShift(_) => "scaleshift".to_owned(),
            Elementwise::Activation(_) => String::new(),
            Elementwise::PRelu => "prelu".to_owned(),
            Elementwise::Copy => "copy".to_owned(),
            Elementwise::Shuffle { groups } => format!("shuffle{groups}"),
        };
        let activation = label::activation(self.function.activation());
        format!("{op}{activation}{}", label::sizes(self.x))
    }

    fn description(&self) -> String {
        let activation = self.function.activation();
        let what = match self.function {
            Elementwise::Binary(op, _) => op.title(),
            Elementwise::ScaleShift(_) => "scale * x + shift per channel",
            Elementwise::Activation(_) => return description::activation_title(activation),
            Elementwise::PRelu => "x, or slope * x where it is negative, with a slope per channel",
            Elementwise::Copy => "Copy",
            Elementwise::Shuffle { groups } => {
                return format!("The channels of {groups} groups in turn");
            }
        };
        format!("{what}{}", description::activation(activation))
    }

    fn measured(&self) -> Problem {
        Problem::Elementwise(Self {
            function: match self.function {
                Elementwise::Binary(op, activation) => {
                    Elementwise::Binary(op, measured_activation(activation))
                }
                Elementwise::Activation(activation) => {
                    Elementwise::Activation(measured_activation(activation))
                }
                Elementwise::ScaleShift(activation) => {
                    Elementwise::ScaleShift(measured_activation(activation))
                }
                same @ (Elementwise::PRelu | Elementwise::Copy | Elementwise::Shuffle { .. }) => {
                    same
                }
            },
            ..*self
        })
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        use crate::ir::reference::{activate_all, scale_shift};

        let mut y = inputs.x.to_vec();
        match self.function {
            Elementwise::Binary(op, _) => op.apply(self.x, &mut y, inputs.residual),
            Elementwise::ScaleShift(_) => {
                y = scale_shift(self.x, &y, inputs.scale, inputs.shift);
            }
            Elementwise::PRelu => prelu(self.x, &mut y, &inputs.weights[0]),
            Elementwise::Shuffle { groups } => y = shuffled(self.x, groups, &y),
            Elementwise::Activation(_) | Elementwise::Copy => {}
        }
        activate_all(self.function.activation(), &mut y);
        y
    }
}
