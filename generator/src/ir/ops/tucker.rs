//! Tucker layer: 1x1, a core convolution, 1x1, in one launch.

use super::{ConvProblem, Problem, ProblemKind, activations, measured_prologue, ordered_epilogue};
use crate::ir::{
    Activation, Epilogue, Precision, Prologue, Reduce, Tensor, TensorShape, description, label,
};
use serde::Serialize;
use tdc_runtime::{ConvShape, FactorRole};

/// A Tucker layer, or the core and last factor of one: 1x1, an R x S core, 1x1 (TDC paper, eqs. 2-4).
///
/// The input has C channels, or D1 if the first factor is not part of the problem. There is no bias between the factors, so the zero
/// padding of the core is equivalent to that of the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct TuckerProblem {
    /// The core: from D1 to D2 channels, with the layer's image, filter, stride, padding and dilation; one group.
    pub core: ConvShape,
    /// Input channels C of the first factor; `None` if it is not part of the problem.
    pub first: Option<u32>,
    /// Output channels N of the last factor.
    pub n: u32,
    /// Applied to the input; only with the first factor.
    pub prologue: Option<Prologue>,
    /// Applied to the sums of the last factor.
    pub epilogue: Epilogue,
    /// The first factor of the next layer, if it is fused. It reads the result of the epilogue.
    pub next: Option<NextFactor>,
    /// How products may be rounded, in every factor.
    pub precision: Precision,
}

/// The first factor of the Tucker layer that reads this layer's output: a 1x1 convolution to that layer's D1 channels, computed in the same
/// launch. Its output is stored after the layer's own output, in the same tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct NextFactor {
    /// Output channels (D1 of the next layer).
    pub n: u32,
    /// Whether the N channels that it reads are part of the output too, before its own.
    pub stores_layer_output: bool,
}

/// A Tucker layer in one launch, and what can be one launch after its first factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FusedTucker {
    /// The complete layer.
    pub whole: TuckerProblem,
    /// Core and last factor; `None` if the layer has no first factor.
    pub core_last: Option<TuckerProblem>,
}

impl FusedTucker {
    /// For the factors of a layer in order, as in [`ConvProblem::tucker_chain`]. A kernel has a last factor, and a first one where it
    /// applies the prologue: those that the layer does not have are identities there. `None` if the layer is only its core, or if partial
    /// sums are added by atomics, which needs separate launches.
    pub fn new(factors: &[(FactorRole, ConvProblem)]) -> Option<Self> {
        let with_role = |role: FactorRole| {
            let found = factors.iter().find(|(known, _)| *known == role);
            found.map(|(_, conv)| conv)
        };
        let core = with_role(FactorRole::Core)?;
        if factors.len() < 2 || core.reduce == Reduce::Atomic {
            return None;
        }
        let (_, start) = factors.first()?;
        let (_, end) = factors.last()?;
        let complete = TuckerProblem {
            core: core.shape,
            first: Some(start.shape.c),
            n: end.shape.n,
            prologue: start.prologue,
            epilogue: end.epilogue,
            next: None,
            precision: core.precision,
        };
        let core_last = TuckerProblem {
            first: None,
            prologue: None,
            ..complete
        };
        Some(match (with_role(FactorRole::First), start.prologue) {
            (Some(_), _) => Self {
                whole: complete,
                core_last: Some(core_last),
            },
            (None, Some(_)) => Self {
                whole: complete,
                core_last: None,
            },
            (None, None) => Self {
                whole: core_last,
                core_last: None,
            },
        })
    }
}

impl TuckerProblem {
    /// The roles of the layer's own factors in the launch.
    pub fn roles(&self) -> &'static [FactorRole] {
        match self.first {
            Some(_) => &FactorRole::TUCKER,
            None => &FactorRole::TUCKER[1..],
        }
    }

    /// The factors in order, as convolutions.
    pub fn factors(&self) -> Vec<ConvShape> {
        let core = &self.core;
        let pointwise = |c, n, h, w| ConvShape {
            batch: core.batch,
            ..ConvShape::new(c, n, h, w, 1, 1)
        };
        let first = self.first.map(|c| pointwise(c, core.c, core.h, core.w));
        let (out_h, out_w) = (core.out_h(), core.out_w());
        let last = pointwise(core.n, self.n, out_h, out_w);
        let next = self
            .next
            .map(|next| pointwise(self.n, next.n, out_h, out_w));
        first.into_iter().chain([*core, last]).chain(next).collect()
    }

    /// Shape of the result of the epilogue, which has N channels.
    pub fn epilogue_shape(&self) -> TensorShape {
        TensorShape::new(
            self.core.batch,
            self.n,
            self.core.out_h(),
            self.core.out_w(),
        )
    }
}

impl ProblemKind for TuckerProblem {
    fn input(&self) -> Tensor {
        let core = &self.core;
        let c = self.first.unwrap_or(core.c);
        Tensor::nchw(TensorShape::new(core.batch, c, core.h, core.w))
    }

    fn output(&self) -> Tensor {
        let c = self.next.map_or(self.n, |next| {
            if next.stores_layer_output {
                self.n + next.n
            } else {
                next.n
            }
        });
        Tensor::nchw(TensorShape {
            c,
            ..TuckerProblem::epilogue_shape(self)
        })
    }

    fn epilogue_shape(&self) -> TensorShape {
        TuckerProblem::epilogue_shape(self)
    }

    fn reads_residual(&self) -> bool {
        self.epilogue.residual
    }

    fn reads_bias(&self) -> bool {
        self.epilogue.bias
    }

    fn scale_shift_channels(&self) -> u32 {
        self.prologue.map_or(0, |_| self.input().shape.c)
    }

    fn activations(&self) -> Vec<Activation> {
        activations(self.prologue, self.epilogue)
    }

    fn weights(&self) -> Vec<[u32; 4]> {
        self.factors().iter().map(ConvShape::weight).collect()
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn flops(&self) -> u64 {
        self.factors().iter().map(ConvShape::flops).sum()
    }

    fn label(&self) -> String {
        let s = &self.core;
        let mut name = format!("tucker{}", label::batch(s.batch));
        if let Some(c) = self.first {
            name += &format!("_c{c}");
        }
        name += &format!("_d{}x{}_n{}", s.c, s.n, self.n);
        name += &label::filter(s);
        name += &label::prologue(self.prologue);
        name += &label::epilogue(self.epilogue);
        if let Some(next) = self.next {
            name += if next.stores_layer_output {
                "_next"
            } else {
                "_nextonly"
            };
            name += &next.n.to_string();
        }
        name + &label::precision(self.precision)
    }

    fn description(&self) -> String {
        let core = &self.core;
        let mut text = match self.first {
            Some(_) => "Tucker layer: 1x1".to_owned(),
            None => "Tucker layer after its first 1x1".to_owned(),
        };
        text += &description::prologue(self.prologue);
        text += &format!(
            " to {} channels, core {}",
            core.c,
            description::filter(core)
        );
        text += &format!(" to {} channels, 1x1", core.n);
        if self.next.is_some() {
            text += &format!(" to {}", self.n);
        }
        text += &description::epilogue(self.epilogue);
        if let Some(next) = self.next {
            text += &format!("; then 1x1 to {} channels of the next layer", next.n);
            text += if next.stores_layer_output {
                ", after them"
            } else {
                " alone"
            };
        }
        text + &description::precision(self.precision)
    }

    fn measured(&self) -> Problem {
        Problem::Tucker(Self {
            prologue: measured_prologue(self.prologue),
            epilogue: ordered_epilogue(self.epilogue),
            ..*self
        })
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        use super::conv::{conv_reference, factors_reference};

        let factors = self.factors();
        let Some(next) = self.next else {
            return factors_reference(self, &factors, self.prologue, self.epilogue, inputs);
        };
        let [layer @ .., next_first] = &factors[..] else {
            unreachable!("the layer's own factors and the next layer's first one")
        };
        let output = factors_reference(self, layer, self.prologue, self.epilogue, inputs);
        let next_output = conv_reference(next_first, &output, &inputs.weights[layer.len()]);
        match next.stores_layer_output {
            true => concat(TuckerProblem::epilogue_shape(self), &output, &next_output),
            false => next_output,
        }
    }
}

/// For each image the channels of `first`, whose shape is given, followed by those of `second`.
#[cfg(feature = "check")]
fn concat(shape: TensorShape, first: &[f64], second: &[f64]) -> Vec<f64> {
    let images = shape.batch as usize;
    let [first, second] = [first, second].map(|values| values.chunks(values.len() / images));
    let pairs = first.zip(second);
    pairs
        .flat_map(|(first, second)| [first, second].concat())
        .collect()
}
