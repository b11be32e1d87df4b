//! What one unit computes: a typed problem with every size known. Equal problems share a unit.

use super::TensorShape;
use serde::{Deserialize, Serialize};
use tdc_runtime::{ConvShape, Padding};

/// What happens to the input of a convolution before it is padded: a per-channel `scale * x + shift`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Prologue {
    /// ReLU behind the affine map.
    pub relu: bool,
}

/// What happens to the sum of a convolution or linear layer, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Default)]
pub struct Epilogue {
    /// Adds one value an output channel.
    pub bias: bool,
    /// Adds a tensor of the output's shape.
    pub residual: bool,
    /// max(0, x).
    pub relu: bool,
}

/// How the partial sums of a convolution, split over blocks by input channels, become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Reduce {
    /// In a fixed order by a second launch: the same bits in every run.
    #[default]
    Ordered,
    /// By float atomics on a zeroed output, as TDC publishes it (Listing 2): the bits depend on which block comes first.
    Atomic,
}

impl Reduce {
    /// Every way with its word in configs.
    pub const NAMES: [(&'static str, Self); 2] =
        [("ordered", Self::Ordered), ("atomic", Self::Atomic)];
}

/// How the products of a convolution may be rounded. Tensors in memory are fp32 and sums are added in fp32, whatever it says.
///
/// It is a permission: whatever is more precise will do where it is faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Not beyond the rounding of fp32.
    #[default]
    Fp32,
    /// Operands of 11 bits, with the range of fp32.
    Tf32,
    /// Operands of 11 bits, inputs with the range of fp16: beyond 65504 they are infinite, below 6e-5 they lose bits.
    Fp16,
    /// Operands of 8 bits, with the range of fp32.
    Bf16,
}

impl Precision {
    /// Every precision with its word in configs.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("fp32", Self::Fp32),
        ("tf32", Self::Tf32),
        ("fp16", Self::Fp16),
        ("bf16", Self::Bf16),
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
        }
    }

    /// The relative error that a convolution may have however few its terms are, as an L2 norm on zero-mean inputs.
    ///
    /// Rounding an operand of b bits errs by at most 2^-b of it, so a product of two by twice that: 2^-10 in tf32, 2^-7 in
    /// bf16. The errors of a sum's products are independent and its terms have any sign, so both add up as their squares,
    /// and the norm errs by the mean error of a product, a third of the largest. The bounds are the largest, rounded up; fp16
    /// has the bits of tf32, and more is allowed for what falls out of its range.
    pub fn tolerance(self) -> f64 {
        match self {
            Self::Fp32 => 1e-6,
            Self::Tf32 => 1e-3,
            Self::Fp16 => 5e-3,
            Self::Bf16 => 8e-3,
        }
    }
}

/// The relative error that a convolution may have beyond what its precision allows, as an L2 norm on zero-mean inputs: kernels that
/// are less exact may then compute it, such as Winograd's F(4x4, 3x3). In billionths, so that equal ones are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Default)]
pub struct Tolerance(u32);

impl Tolerance {
    /// What may be asked for: less than the first no fp32 kernel holds for every input, more than the last is no result.
    pub const RANGE: [f64; 2] = [1e-6, 0.1];

    /// The nearest whole number of billionths; `None` outside of [`RANGE`](Self::RANGE).
    pub fn new(error: f64) -> Option<Self> {
        let [least, most] = Self::RANGE;
        (least..=most)
            .contains(&error)
            .then(|| Self((error * 1e9).round() as u32))
    }

    /// So many billionths; 0 when none was asked for.
    pub fn billionths(self) -> u32 {
        self.0
    }

    /// The error as a number, 0 when none was asked for.
    pub fn value(self) -> f64 {
        f64::from(self.0) / 1e9
    }
}

/// In which order the elements of an activation lie, the slowest axis first. N is the batch here, as everywhere in the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// One image behind the other, in each one channel behind the other.
    #[default]
    Nchw,
    /// The images' values of one channel of one pixel side by side (TVM tutorial): always dense, never inside another tensor.
    Hwcn,
}

impl Layout {
    /// Every layout with its word in configs.
    pub const NAMES: [(&'static str, Self); 2] = [("nchw", Self::Nchw), ("hwcn", Self::Hwcn)];

    /// Its name, as the field writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nchw => "NCHW",
            Self::Hwcn => "HWCN",
        }
    }

    /// Where element (image, channel, pixel) of a dense tensor lies.
    pub fn index(self, shape: TensorShape, [image, channel, pixel]: [usize; 3]) -> usize {
        let (batch, c, pixels) = (
            shape.batch as usize,
            shape.c as usize,
            shape.pixels() as usize,
        );
        match self {
            Self::Nchw => (image * c + channel) * pixels + pixel,
            Self::Hwcn => (pixel * c + channel) * batch + image,
        }
    }
}

/// A convolution with what is fused to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ConvProblem {
    /// Sizes.
    pub shape: ConvShape,
    /// On the input.
    pub prologue: Option<Prologue>,
    /// On the output.
    pub epilogue: Epilogue,
    /// How partial sums may be added.
    pub reduce: Reduce,
    /// How products may be rounded.
    pub precision: Precision,
    /// How far the result may be off beyond that.
    pub tolerance: Tolerance,
}

impl ConvProblem {
    /// The relative error that the outputs may have, as an L2 norm on zero-mean inputs: `2.5e-8 sqrt(terms of a sum)`, the growth
    /// of a plain fp32 sum, and at least [what was asked for](Self::min_tolerance).
    pub fn tolerance(&self) -> f64 {
        let shape = &self.shape;
        let terms = f64::from(shape.c / shape.groups) * f64::from(shape.r) * f64::from(shape.s);
        (2.5e-8 * terms.sqrt()).max(self.min_tolerance())
    }

    /// The problem of computing it on activations that lie so: input, residual and output.
    pub fn in_layout(self, layout: Layout) -> Problem {
        match layout {
            Layout::Nchw => Problem::Conv(self),
            Layout::Hwcn => Problem::HwcnConv(self),
        }
    }

    /// What [precision](Precision::tolerance) and tolerance allow, however few the terms are.
    pub fn min_tolerance(&self) -> f64 {
        self.precision.tolerance().max(self.tolerance.value())
    }

    /// The three convolutions of its Tucker form with ranks [D1, D2]: 1x1 to D1 channels, the R x S core to D2, 1x1 to N (TDC paper,
    /// eqs. 2-4). The prologue is the first one's, the epilogue the last one's, the way of reducing the core's.
    pub fn tucker_factors(&self, [d1, d2]: [u32; 2]) -> [Self; 3] {
        let shape = &self.shape;
        let pointwise = |c, n, h, w| ConvShape {
            batch: shape.batch,
            ..ConvShape::new(c, n, h, w, 1, 1)
        };
        let core = ConvShape {
            c: d1,
            n: d2,
            ..*shape
        };
        self.with_shapes([
            pointwise(shape.c, d1, shape.h, shape.w),
            core,
            pointwise(d2, shape.n, shape.out_h(), shape.out_w()),
        ])
    }

    /// The four convolutions of its CP form, [in order](CpProblem::factors_in_order), with prologue, epilogue and way of reducing as of
    /// [`tucker_factors`](Self::tucker_factors).
    pub fn cp_factors(&self, rank: u32, horizontal_first: bool) -> [Self; 4] {
        let cp = CpProblem { conv: *self, rank };
        self.with_shapes(cp.factors_in_order(horizontal_first))
    }

    fn with_shapes<const FACTORS: usize>(&self, shapes: [ConvShape; FACTORS]) -> [Self; FACTORS] {
        std::array::from_fn(|index| {
            let (is_first, is_last) = (index == 0, index + 1 == FACTORS);
            Self {
                shape: shapes[index],
                prologue: self.prologue.filter(|_| is_first),
                epilogue: match is_last {
                    true => self.epilogue,
                    false => Epilogue::default(),
                },
                reduce: match is_first || is_last {
                    true => Reduce::default(),
                    false => self.reduce,
                },
                ..*self
            }
        })
    }
}

/// A Tucker layer, or what is left of one whose first factor was applied before: 1x1, an R x S core, 1x1 (TDC paper, eqs. 2-4).
///
/// The input has C channels, or D1 where the first factor is not part of it. Nothing is added between the factors, so padding is
/// of zeros in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct TuckerProblem {
    /// The core: from D1 to D2 channels, with the layer's image, filter, stride, padding and dilation; one group.
    pub core: ConvShape,
    /// Channels C that the first factor takes to D1; `None` when it is not part of the problem.
    pub first: Option<u32>,
    /// Output channels N of the last factor.
    pub n: u32,
    /// On the input; only with the first factor.
    pub prologue: Option<Prologue>,
    /// On the output of the last factor.
    pub epilogue: Epilogue,
    /// The first factor of the layer behind, on what the epilogue made.
    pub next: Option<NextFactor>,
    /// How products may be rounded, those of each factor.
    pub precision: Precision,
}

/// The first factor of the Tucker layer that reads the output of another, computed where that output is made: 1x1, to the D1
/// channels of its layer. What it makes lies behind the other output, in the same tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct NextFactor {
    /// Its output channels.
    pub n: u32,
    /// Whether the N channels that it reads are part of the output too, ahead of its own.
    pub stores_layer_output: bool,
}

impl TuckerProblem {
    /// The whole layer of which these are the factors, and its core and last factor. `None` where sums are added by atomics, which
    /// needs launches of its own.
    pub fn from_factors([first, core, last]: &[ConvProblem; 3]) -> Option<[Self; 2]> {
        if core.reduce == Reduce::Atomic {
            return None;
        }
        let whole = Self {
            core: core.shape,
            first: Some(first.shape.c),
            n: last.shape.n,
            prologue: first.prologue,
            epilogue: last.epilogue,
            next: None,
            precision: core.precision,
        };
        let core_last = Self {
            first: None,
            prologue: None,
            ..whole
        };
        Some([whole, core_last])
    }

    /// The factors in order, as the convolutions that they are.
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

    /// What the epilogue makes: N channels.
    pub fn epilogue_shape(&self) -> TensorShape {
        TensorShape::new(
            self.core.batch,
            self.n,
            self.core.out_h(),
            self.core.out_w(),
        )
    }
}

/// A CP layer: a convolution whose weight is the sum of `rank` outer products of four vectors (CP paper, eq. 6), carried out with
/// those: 1x1 to `rank` channels, an R x 1 and a 1 x S filter of each, 1x1 to N (eq. 7).
///
/// Nothing is added between the factors, so padding is of zeros in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct CpProblem {
    /// The convolution that the factors stand for, of one group; its sums are ordered.
    pub conv: ConvProblem,
    /// Channels of what lies between the factors.
    pub rank: u32,
}

impl CpProblem {
    /// The factors as the convolutions that they are: first, vertical, horizontal, last.
    pub fn factors(&self) -> [ConvShape; 4] {
        self.factors_in_order(false)
    }

    /// The same with the horizontal filter before the vertical one, or behind it: what the second reads is what the first leaves.
    pub fn factors_in_order(&self, horizontal_first: bool) -> [ConvShape; 4] {
        let (shape, rank) = (&self.conv.shape, self.rank);
        let (out_h, out_w) = (shape.out_h(), shape.out_w());
        let pointwise = |c, n, h, w| ConvShape {
            batch: shape.batch,
            ..ConvShape::new(c, n, h, w, 1, 1)
        };
        let filter = ConvShape {
            c: rank,
            n: rank,
            groups: rank,
            ..*shape
        };
        let vertical = ConvShape {
            w: if horizontal_first { out_w } else { shape.w },
            s: 1,
            stride: [shape.stride[0], 1],
            padding: Padding {
                left: 0,
                right: 0,
                ..shape.padding
            },
            dilation: [shape.dilation[0], 1],
            ..filter
        };
        let horizontal = ConvShape {
            h: if horizontal_first { shape.h } else { out_h },
            r: 1,
            stride: [1, shape.stride[1]],
            padding: Padding {
                top: 0,
                bottom: 0,
                ..shape.padding
            },
            dilation: [1, shape.dilation[1]],
            ..filter
        };
        let first = pointwise(shape.c, rank, shape.h, shape.w);
        let last = pointwise(rank, shape.n, out_h, out_w);
        match horizontal_first {
            true => [first, horizontal, vertical, last],
            false => [first, vertical, horizontal, last],
        }
    }
}

/// `y = W x + bias` for every row of a batch: x is `batch x c`, y `batch x n`, W `n x c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct LinearProblem {
    /// Rows.
    pub batch: u32,
    /// Input features.
    pub c: u32,
    /// Output features.
    pub n: u32,
    /// On the output; a linear layer takes no residual.
    pub epilogue: Epilogue,
}

/// What a window is reduced to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum PoolKind {
    /// The largest element; padding never wins.
    Max,
    /// The mean.
    Avg {
        /// Padded zeros count as elements.
        count_include_pad: bool,
    },
}

/// Pooling over windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct PoolProblem {
    /// Maximum or average.
    pub kind: PoolKind,
    /// Input sizes.
    pub x: TensorShape,
    /// Window height and width.
    pub kernel: [u32; 2],
    /// Step between windows.
    pub stride: [u32; 2],
    /// Padding.
    pub padding: Padding,
    /// Step between the window's elements.
    pub dilation: [u32; 2],
    /// Output height and width (they depend on the rounding asked for).
    pub out: [u32; 2],
}

/// Pooling over the whole image, to `batch x c x 1 x 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct GlobalPoolProblem {
    /// Maximum instead of average.
    pub max: bool,
    /// Input sizes.
    pub x: TensorShape,
}

/// What is computed for each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Elementwise {
    /// x + residual, then ReLU if asked for.
    Add {
        /// ReLU behind the sum.
        relu: bool,
    },
    /// max(0, x).
    Relu,
    /// `scale[c] * x + shift[c]`, then ReLU if asked for.
    ScaleShift {
        /// ReLU behind the affine map.
        relu: bool,
    },
    /// x, into a part of a concatenated tensor.
    Copy,
}

/// A map of each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ElementwiseProblem {
    /// What is computed.
    pub function: Elementwise,
    /// Sizes of input and output.
    pub x: TensorShape,
}

/// The same values in another layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ConvertProblem {
    /// Sizes.
    pub x: TensorShape,
    /// The layout of the output; the input has the other one.
    pub to: Layout,
}

/// What one unit computes. Activations are NCHW where nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Problem {
    /// Convolution.
    Conv(ConvProblem),
    /// Convolution whose activations are HWCN: a kind of its own, so that no scheme for the other layout can take it.
    HwcnConv(ConvProblem),
    /// The factors of a Tucker layer, one behind the other.
    Tucker(TuckerProblem),
    /// The factors of a CP layer, one behind the other.
    Cp(CpProblem),
    /// Fully connected layer.
    Linear(LinearProblem),
    /// Pooling over windows.
    Pool(PoolProblem),
    /// Pooling over the whole image.
    GlobalPool(GlobalPoolProblem),
    /// A map of each element.
    Elementwise(ElementwiseProblem),
    /// From one layout to the other.
    Convert(ConvertProblem),
}

impl Problem {
    /// The convolution, whatever its layout.
    pub fn conv(&self) -> Option<&ConvProblem> {
        match self {
            Problem::Conv(p) | Problem::HwcnConv(p) => Some(p),
            _ => None,
        }
    }

    /// How the input lies.
    pub fn x_layout(&self) -> Layout {
        match self {
            Problem::HwcnConv(_) => Layout::Hwcn,
            Problem::Convert(p) if p.to == Layout::Nchw => Layout::Hwcn,
            _ => Layout::Nchw,
        }
    }

    /// How the output and a residual lie.
    pub fn y_layout(&self) -> Layout {
        match self {
            Problem::HwcnConv(_) => Layout::Hwcn,
            Problem::Convert(p) => p.to,
            _ => Layout::Nchw,
        }
    }

    /// Shape of the input.
    pub fn x(&self) -> TensorShape {
        match self {
            Problem::Conv(p) | Problem::HwcnConv(p) | Problem::Cp(CpProblem { conv: p, .. }) => {
                TensorShape::new(p.shape.batch, p.shape.c, p.shape.h, p.shape.w)
            }
            Problem::Tucker(p) => {
                let (core, c) = (&p.core, p.first.unwrap_or(p.core.c));
                TensorShape::new(core.batch, c, core.h, core.w)
            }
            Problem::Linear(p) => TensorShape::new(p.batch, p.c, 1, 1),
            Problem::Pool(p) => p.x,
            Problem::GlobalPool(p) => p.x,
            Problem::Elementwise(p) => p.x,
            Problem::Convert(p) => p.x,
        }
    }

    /// Shape of the output.
    pub fn y(&self) -> TensorShape {
        match self {
            Problem::Conv(p) | Problem::HwcnConv(p) | Problem::Cp(CpProblem { conv: p, .. }) => {
                let shape = &p.shape;
                TensorShape::new(shape.batch, shape.n, shape.out_h(), shape.out_w())
            }
            Problem::Tucker(p) => TensorShape {
                c: p.next.map_or(p.n, |next| {
                    if next.stores_layer_output {
                        p.n + next.n
                    } else {
                        next.n
                    }
                }),
                ..p.epilogue_shape()
            },
            Problem::Linear(p) => TensorShape::new(p.batch, p.n, 1, 1),
            Problem::Pool(p) => TensorShape::new(p.x.batch, p.x.c, p.out[0], p.out[1]),
            Problem::GlobalPool(p) => TensorShape::new(p.x.batch, p.x.c, 1, 1),
            Problem::Elementwise(p) => p.x,
            Problem::Convert(p) => p.x,
        }
    }

    /// Shape of what bias and residual are added to: the output, but for what follows them in the same launch.
    pub fn epilogue_shape(&self) -> TensorShape {
        match self {
            Problem::Tucker(p) => p.epilogue_shape(),
            _ => self.y(),
        }
    }

    /// Whether a second operand is read, [of the shape that it is added to](Self::epilogue_shape).
    pub fn reads_residual(&self) -> bool {
        match self {
            Problem::Conv(p) | Problem::HwcnConv(p) | Problem::Cp(CpProblem { conv: p, .. }) => {
                p.epilogue.residual
            }
            Problem::Tucker(p) => p.epilogue.residual,
            Problem::Elementwise(p) => matches!(p.function, Elementwise::Add { .. }),
            Problem::Linear(_)
            | Problem::Pool(_)
            | Problem::GlobalPool(_)
            | Problem::Convert(_) => false,
        }
    }

    /// Whether a bias is added.
    pub fn reads_bias(&self) -> bool {
        match self {
            Problem::Conv(p) | Problem::HwcnConv(p) | Problem::Cp(CpProblem { conv: p, .. }) => {
                p.epilogue.bias
            }
            Problem::Tucker(p) => p.epilogue.bias,
            Problem::Linear(p) => p.epilogue.bias,
            _ => false,
        }
    }

    /// Channels of an affine map of the input; 0 when there is none.
    pub fn scale_shift_channels(&self) -> u32 {
        match self {
            Problem::Conv(p) | Problem::HwcnConv(p) | Problem::Cp(CpProblem { conv: p, .. })
                if p.prologue.is_some() =>
            {
                p.shape.c
            }
            Problem::Tucker(p) if p.prologue.is_some() => self.x().c,
            Problem::Elementwise(p) if matches!(p.function, Elementwise::ScaleShift { .. }) => {
                p.x.c
            }
            _ => 0,
        }
    }

    /// Sizes of each tensor of weights in OIHW order: one, the factors of a Tucker or CP layer, or none.
    pub fn weights(&self) -> Vec<[u32; 4]> {
        match self {
            Problem::Conv(p) | Problem::HwcnConv(p) => vec![p.shape.weight()],
            Problem::Tucker(p) => p.factors().iter().map(ConvShape::weight).collect(),
            Problem::Cp(p) => p.factors().iter().map(ConvShape::weight).collect(),
            Problem::Linear(p) => vec![[p.n, p.c, 1, 1]],
            _ => Vec::new(),
        }
    }

    /// How products may be rounded.
    pub fn precision(&self) -> Precision {
        match self {
            Problem::Conv(p) | Problem::HwcnConv(p) | Problem::Cp(CpProblem { conv: p, .. }) => {
                p.precision
            }
            Problem::Tucker(p) => p.precision,
            _ => Precision::Fp32,
        }
    }

    /// Whether every run must give the same bits: unless float atomics were asked for.
    pub fn is_deterministic(&self) -> bool {
        self.conv().is_none_or(|p| p.reduce != Reduce::Atomic)
    }

    /// Floating-point operations: of the convolution or product, a multiply-add counted as two, else one an input element.
    pub fn flops(&self) -> u64 {
        match self {
            Problem::Conv(p) | Problem::HwcnConv(p) => p.shape.flops(),
            Problem::Tucker(p) => p.factors().iter().map(ConvShape::flops).sum(),
            Problem::Cp(p) => p.factors().iter().map(ConvShape::flops).sum(),
            Problem::Linear(p) => 2 * u64::from(p.batch) * u64::from(p.c) * u64::from(p.n),
            Problem::Pool(p) => self.y().len() * u64::from(p.kernel[0]) * u64::from(p.kernel[1]),
            Problem::GlobalPool(_) | Problem::Elementwise(_) | Problem::Convert(_) => {
                self.x().len()
            }
        }
    }

    /// Bytes when every tensor is moved once.
    pub fn bytes(&self) -> u64 {
        let elements =
            |sizes: &[u32; 4]| sizes.iter().map(|&size| u64::from(size)).product::<u64>();
        let weight: u64 = self.weights().iter().map(elements).sum();
        let residual = if self.reads_residual() {
            self.epilogue_shape().len()
        } else {
            0
        };
        let bias = if self.reads_bias() {
            self.epilogue_shape().c
        } else {
            0
        };
        4 * (self.x().len()
            + self.y().len()
            + weight
            + residual
            + u64::from(bias)
            + 2 * u64::from(self.scale_shift_channels()))
    }
}
