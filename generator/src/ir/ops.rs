//! The problem that one unit computes: typed, with every size known. Equal problems share a unit.
//!
//! Each kind of op has a file with its attributes, sizes, FLOPs, canonical name, description, tuning key and float64 reference. A new kind
//! needs a file that implements [`ProblemKind`], a variant of [`Problem`], and a scheme that computes it.

mod channel_norm;
mod conv;
mod conv_transpose;
mod convert;
mod cp;
mod dense_step;
mod elementwise;
mod global_pool;
mod inverted_residual;
mod linear;
mod lrn;
mod normalize;
mod pad;
mod pool;
mod projected;
mod resize;
mod squeeze_excite;
mod tucker;

#[cfg(feature = "check")]
pub use channel_norm::channel_norm_reference;
pub use channel_norm::{ChannelNorm, ChannelNormProblem};
pub use conv::ConvProblem;
#[cfg(feature = "check")]
pub use conv::conv_reference;
pub use conv_transpose::ConvTransposeProblem;
#[cfg(feature = "check")]
pub use conv_transpose::conv_transpose_reference;
pub use convert::ConvertProblem;
pub use cp::CpProblem;
pub use dense_step::DenseStepProblem;
pub use elementwise::{BinaryOp, Elementwise, ElementwiseProblem};
#[cfg(feature = "check")]
pub use elementwise::{prelu, shuffled};
pub use global_pool::GlobalPoolProblem;
#[cfg(feature = "check")]
pub use global_pool::global_pool_reference;
pub use inverted_residual::InvertedResidualProblem;
pub use linear::LinearProblem;
#[cfg(feature = "check")]
pub use linear::linear_reference;
#[cfg(feature = "check")]
pub use lrn::lrn_reference;
pub use lrn::{Lrn, LrnProblem};
pub use normalize::NormalizeProblem;
#[cfg(feature = "check")]
pub use pad::pad_reference;
pub use pad::{PadMode, PadProblem};
#[cfg(feature = "check")]
pub use pool::pool_reference;
pub use pool::{PoolKind, PoolProblem};
pub use projected::{ProjectedProblem, Shortcut};
#[cfg(feature = "check")]
pub use resize::resize_reference;
pub use resize::{AxisPlaces, Coordinates, Interpolation, ResizeProblem, Rounding};
pub use squeeze_excite::SqueezeExciteProblem;
pub use tucker::{FusedTucker, NextFactor, TuckerProblem};

use super::{Activation, Epilogue, Format, Layout, Precision, Prologue, Tensor, TensorShape};
use serde::Serialize;

/// Properties of a problem that every kind of op provides.
pub trait ProblemKind {
    /// The input.
    fn input(&self) -> Tensor;

    /// The output.
    fn output(&self) -> Tensor;

    /// Shape of the sum that a bias is added to: the output's, unless another op follows in the same launch.
    fn epilogue_shape(&self) -> TensorShape {
        self.output().shape
    }

    /// Whether a residual is read. It has the shape [`residual_shape`](Self::residual_shape) and the output's format.
    fn reads_residual(&self) -> bool {
        false
    }

    /// Shape of a residual: that of the sum it is added to, unless it has one element for each channel, or is projected.
    fn residual_shape(&self) -> TensorShape {
        self.epilogue_shape()
    }

    /// The elements of a residual that are read or [appended](Self::appended_channels), which need not be all.
    fn residual_read(&self) -> TensorShape {
        self.residual_shape()
    }

    /// The last channels of the residual that the unit writes, after those that it reads: it appends them to a concatenation. 0 if it only
    /// reads the residual.
    fn appended_channels(&self) -> u32 {
        0
    }

    /// Whether a bias is added.
    fn reads_bias(&self) -> bool {
        false
    }

    /// Input channels of a prologue or `scale_shift`; 0 if there is none.
    fn scale_shift_channels(&self) -> u32 {
        0
    }

    /// The activation functions that are applied. [`Activation::None`] may be among them.
    fn activations(&self) -> Vec<Activation> {
        Vec::new()
    }

    /// Shape of each weight tensor in OIHW order: none, one, or the factors of a Tucker or CP layer.
    fn weights(&self) -> Vec<[u32; 4]> {
        Vec::new()
    }

    /// How products may be rounded.
    fn precision(&self) -> Precision {
        Precision::Fp32
    }

    /// Number of terms of the sums of one output element, added over all factors.
    fn terms(&self) -> f64 {
        let terms = |[_, c, r, s]: &[u32; 4]| f64::from(*c) * f64::from(*r) * f64::from(*s);
        self.weights().iter().map(terms).sum()
    }

    /// Error bound of the outputs, as an L2 norm on zero-mean inputs: `2.5e-8 sqrt(terms)`, the growth of a plain fp32 sum, and at least
    /// the bound of the precision. Each factor of a factorised layer may have that error independently.
    fn tolerance(&self) -> f64 {
        let factors = self.weights().len().max(1) as f64;
        (2.5e-8 * self.terms().sqrt()).max(factors.sqrt() * self.min_tolerance())
    }

    /// Least error bound, regardless of the number of terms.
    fn min_tolerance(&self) -> f64 {
        let rounded = self.output().format.dtype.rounding_error();
        self.precision().tolerance().max(rounded)
    }

    /// Whether every run gives the same bits; false only if the config requests float atomics.
    fn is_deterministic(&self) -> bool {
        true
    }

    /// Number of floating-point operations. A multiply-add of a convolution or product counts as two; other ops count one for each element
    /// that they read.
    fn flops(&self) -> u64;

    /// The canonical name; equal names mean equal problems. The grammar is in `plan/name.rs`.
    fn label(&self) -> String;

    /// A description of the computation: a sentence without its full stop.
    fn description(&self) -> String;

    /// The problem whose measured times are used for this one.
    ///
    /// Convolutions and linear layers are measured with a bias and a ReLU. These cost one load and one maximum for each output element,
    /// after a sum of hundreds of products, and the same for every tile. Leaving them out of the key saves measurements. A residual moves
    /// another tensor and a prologue is in the innermost loop, so both stay in the key. Every other activation function is measured as
    /// ReLU.
    fn measured(&self) -> Problem;

    /// The exact result in float64, with prologue and epilogue, for dense NCHW tensors.
    #[cfg(feature = "check")]
    fn reference(&self, inputs: &super::ReferenceInputs) -> Vec<f64>;

    /// The exact values of the [appended channels](Self::appended_channels), dense NCHW.
    #[cfg(feature = "check")]
    fn appended_reference(&self, _inputs: &super::ReferenceInputs) -> Vec<f64> {
        Vec::new()
    }
}

/// The epilogue that is measured for all problems whose partial sums are added in a fixed order, see [`ProblemKind::measured`].
fn ordered_epilogue(epilogue: Epilogue) -> Epilogue {
    Epilogue {
        bias: true,
        activation: Activation::Relu,
        ..epilogue
    }
}

/// The activation functions of a prologue and an epilogue.
fn activations(prologue: Option<Prologue>, epilogue: Epilogue) -> Vec<Activation> {
    let prologue = prologue.map(|prologue| prologue.activation);
    prologue.into_iter().chain([epilogue.activation]).collect()
}

/// The activation function that is measured in place of another one.
fn measured_activation(activation: Activation) -> Activation {
    match activation {
        Activation::None => Activation::None,
        _ => Activation::Relu,
    }
}

/// The prologue that is measured in place of another one.
fn measured_prologue(prologue: Option<Prologue>) -> Option<Prologue> {
    prologue.map(|prologue| Prologue {
        activation: measured_activation(prologue.activation),
    })
}

/// The computation of one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Problem {
    /// Convolution.
    Conv(ConvProblem),
    /// Transposed convolution.
    ConvTranspose(ConvTransposeProblem),
    /// The factors of a Tucker layer in sequence.
    Tucker(TuckerProblem),
    /// The factors of a CP layer in sequence.
    Cp(CpProblem),
    /// Fully connected layer.
    Linear(LinearProblem),
    /// Local response normalisation.
    Lrn(LrnProblem),
    /// Normalisation of an input.
    Normalize(NormalizeProblem),
    /// Padding of images.
    Pad(PadProblem),
    /// Pooling over windows.
    Pool(PoolProblem),
    /// A 1x1 convolution and the projection shortcut that is added to it.
    Projected(ProjectedProblem),
    /// Resizing of images.
    Resize(ResizeProblem),
    /// Normalisation over the channels of each pixel.
    ChannelNorm(ChannelNormProblem),
    /// Pooling over the complete image.
    GlobalPool(GlobalPoolProblem),
    /// The end of a dense layer and the start of the next one.
    DenseStep(DenseStepProblem),
    /// The three convolutions of an inverted residual in sequence.
    InvertedResidual(InvertedResidualProblem),
    /// A product with factors that are computed from the averages of all channels.
    SqueezeExcite(SqueezeExciteProblem),
    /// A function of each element.
    Elementwise(ElementwiseProblem),
    /// Conversion between layouts.
    Convert(ConvertProblem),
}

impl Problem {
    /// The op.
    pub fn kind(&self) -> &dyn ProblemKind {
        match self {
            Self::Conv(kind) => kind,
            Self::ConvTranspose(kind) => kind,
            Self::Tucker(kind) => kind,
            Self::Cp(kind) => kind,
            Self::Linear(kind) => kind,
            Self::Lrn(kind) => kind,
            Self::Normalize(kind) => kind,
            Self::Pad(kind) => kind,
            Self::Pool(kind) => kind,
            Self::Projected(kind) => kind,
            Self::Resize(kind) => kind,
            Self::ChannelNorm(kind) => kind,
            Self::GlobalPool(kind) => kind,
            Self::DenseStep(kind) => kind,
            Self::InvertedResidual(kind) => kind,
            Self::SqueezeExcite(kind) => kind,
            Self::Elementwise(kind) => kind,
            Self::Convert(kind) => kind,
        }
    }

    /// The same problem with another number of images.
    pub fn with_batch(&self, images: u32) -> Self {
        let mut problem = *self;
        *match &mut problem {
            Self::Conv(conv) => &mut conv.shape.batch,
            Self::ConvTranspose(conv) => &mut conv.shape.batch,
            Self::Tucker(tucker) => &mut tucker.core.batch,
            Self::Cp(cp) => &mut cp.conv.shape.batch,
            Self::Linear(linear) => &mut linear.batch,
            Self::Lrn(lrn) => &mut lrn.x.batch,
            Self::Normalize(normalize) => &mut normalize.x.batch,
            Self::Pad(pad) => &mut pad.x.batch,
            Self::Pool(pool) => &mut pool.x.batch,
            Self::Projected(projected) => &mut projected.x.batch,
            Self::Resize(resize) => &mut resize.x.batch,
            Self::ChannelNorm(norm) => &mut norm.x.batch,
            Self::GlobalPool(pool) => &mut pool.x.batch,
            Self::DenseStep(step) => &mut step.growth.batch,
            Self::InvertedResidual(block) => &mut block.depthwise.batch,
            Self::SqueezeExcite(excite) => &mut excite.x.batch,
            Self::Elementwise(elementwise) => &mut elementwise.x.batch,
            Self::Convert(convert) => &mut convert.x.batch,
        } = images;
        problem
    }

    /// The convolution in any format; `None` for another op.
    pub fn conv(&self) -> Option<&ConvProblem> {
        match self {
            Self::Conv(conv) => Some(conv),
            _ => None,
        }
    }

    /// The convolution if its activation tensors are fp32 NCHW, which most schemes need.
    pub fn nchw_conv(&self) -> Option<&ConvProblem> {
        let is_nchw = |conv: &&ConvProblem| [conv.input, conv.output] == [Format::default(); 2];
        self.conv().filter(is_nchw)
    }

    /// Layout of the input.
    pub fn x_layout(&self) -> Layout {
        self.kind().input().format.layout
    }

    /// Layout of the output and of a residual.
    pub fn y_layout(&self) -> Layout {
        self.kind().output().format.layout
    }

    /// Shape of the input.
    pub fn x(&self) -> TensorShape {
        self.kind().input().shape
    }

    /// Shape of the output.
    pub fn y(&self) -> TensorShape {
        self.kind().output().shape
    }

    /// As [`ProblemKind::epilogue_shape`].
    pub fn epilogue_shape(&self) -> TensorShape {
        self.kind().epilogue_shape()
    }

    /// As [`ProblemKind::reads_residual`].
    pub fn reads_residual(&self) -> bool {
        self.kind().reads_residual()
    }

    /// As [`ProblemKind::residual_shape`].
    pub fn residual_shape(&self) -> TensorShape {
        self.kind().residual_shape()
    }

    /// As [`ProblemKind::reads_bias`].
    pub fn reads_bias(&self) -> bool {
        self.kind().reads_bias()
    }

    /// As [`ProblemKind::scale_shift_channels`].
    pub fn scale_shift_channels(&self) -> u32 {
        self.kind().scale_shift_channels()
    }

    /// As [`ProblemKind::activations`], without [`Activation::None`].
    pub fn activations(&self) -> Vec<Activation> {
        let mut activations = self.kind().activations();
        activations.retain(|&activation| activation != Activation::None);
        activations
    }

    /// As [`ProblemKind::weights`].
    pub fn weights(&self) -> Vec<[u32; 4]> {
        self.kind().weights()
    }

    /// Number of elements of all weight tensors.
    pub fn weight_len(&self) -> u64 {
        let len = |sizes: &[u32; 4]| sizes.iter().map(|&size| u64::from(size)).product::<u64>();
        self.weights().iter().map(len).sum()
    }

    /// As [`ProblemKind::precision`].
    pub fn precision(&self) -> Precision {
        self.kind().precision()
    }

    /// As [`ProblemKind::is_deterministic`].
    pub fn is_deterministic(&self) -> bool {
        self.kind().is_deterministic()
    }

    /// As [`ProblemKind::flops`].
    pub fn flops(&self) -> u64 {
        self.kind().flops()
    }

    /// As [`ProblemKind::measured`].
    pub fn measured(&self) -> Problem {
        self.kind().measured()
    }

    /// Bytes of memory traffic if every tensor is moved once. Weights, bias, scales and shifts are counted in fp32.
    pub fn bytes(&self) -> u64 {
        let kind = self.kind();
        let (input, output) = (kind.input(), kind.output());
        let residual = Tensor {
            shape: kind.residual_read(),
            format: output.format,
        };
        let residual = if kind.reads_residual() {
            residual.bytes()
        } else {
            0
        };
        let bias = if kind.reads_bias() {
            kind.epilogue_shape().c
        } else {
            0
        };
        let parameters =
            self.weight_len() + u64::from(bias) + 2 * u64::from(kind.scale_shift_channels());
        input.bytes() + output.bytes() + residual + 4 * parameters
    }
}
