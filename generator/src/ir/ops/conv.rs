//! Convolution with fused prologue and epilogue.

use super::{
    Problem, ProblemKind, activations, measured_activation, measured_prologue, ordered_epilogue,
};
use crate::ir::{
    Activation, CpProblem, Epilogue, Format, Layout, Precision, Prologue, Reduce, Tensor,
    TensorShape, Tolerance, description, label,
};
use serde::Serialize;
use tdc_runtime::{ConvShape, FactorRole};

/// A convolution with fused prologue and epilogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ConvProblem {
    /// Shapes of input, filter and output.
    pub shape: ConvShape,
    /// Format of the input.
    pub input: Format,
    /// Format of the output and of a residual.
    pub output: Format,
    /// Applied to the input.
    pub prologue: Option<Prologue>,
    /// Applied to the sums.
    pub epilogue: Epilogue,
    /// How partial sums may be added.
    pub reduce: Reduce,
    /// How products may be rounded.
    pub precision: Precision,
    /// Relative error that is allowed if it is larger than the precision's bound.
    pub tolerance: Tolerance,
}

impl ConvProblem {
    /// Error bound of the outputs, as an L2 norm on zero-mean inputs: `2.5e-8 sqrt(terms of a sum)`, the growth of a plain fp32 sum, and at
    /// least [the bound that was requested](Self::min_tolerance).
    pub fn tolerance(&self) -> f64 {
        let shape = &self.shape;
        let terms = f64::from(shape.c / shape.groups) * f64::from(shape.r) * f64::from(shape.s);
        (2.5e-8 * terms.sqrt()).max(self.min_tolerance())
    }

    /// The same convolution with input and output in these formats.
    pub fn in_formats(self, input: Format, output: Format) -> Self {
        Self {
            input,
            output,
            ..self
        }
    }

    /// Whether the output, and a residual, are fp16 or bf16 NHWC.
    pub fn writes_16_bit_nhwc(&self) -> bool {
        self.output.is_16_bit_nhwc()
    }

    /// Whether the output, and a residual, are split NHWC.
    pub fn writes_split_nhwc(&self) -> bool {
        self.output == Format::SPLIT_NHWC
    }

    /// A convolution in fp32 NCHW with no fused ops.
    pub fn new(shape: ConvShape) -> Self {
        Self {
            shape,
            input: Format::default(),
            output: Format::default(),
            prologue: None,
            epilogue: Epilogue::default(),
            reduce: Reduce::default(),
            precision: Precision::default(),
            tolerance: Tolerance::default(),
        }
    }

    /// The same convolution with input, residual and output in a layout.
    pub fn in_layout(self, layout: Layout) -> Self {
        Self {
            input: Format::fp32(layout),
            output: Format::fp32(layout),
            ..self
        }
    }

    /// The convolution without its tolerance. Kernels for it are also precise enough for this one.
    pub fn without_tolerance(self) -> Self {
        Self {
            tolerance: Tolerance::default(),
            ..self
        }
    }

    /// Least error bound, regardless of the number of terms: the larger of the [precision's](Precision::tolerance) and the tolerance.
    pub fn min_tolerance(&self) -> f64 {
        let rounded = self.output.dtype.rounding_error();
        let requested = self.precision.tolerance().max(self.tolerance.value());
        requested.max(rounded)
    }

    /// The three convolutions of its Tucker form with ranks [D1, D2]: 1x1 to D1 channels, the R x S core to D2, 1x1 to N (TDC paper, eqs.
    /// 2-4). The first has the prologue, the last the epilogue, and the core the [`Reduce`] option.
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

    /// The convolutions of its Tucker form in a network, in order. With D1 = C the first factor would be square: it is multiplied into the
    /// core when weights are packed, so there is none. The same holds for the last factor with D2 = N. The prologue belongs to the first
    /// of them, the epilogue to the last.
    pub fn tucker_chain(&self, ranks: [u32; 2]) -> Vec<(FactorRole, Self)> {
        let has_first = ranks[0] != self.shape.c;
        let has_last = ranks[1] != self.shape.n;
        let [first, mut core, last] = self.tucker_factors(ranks);
        if !has_first {
            core.prologue = self.prologue;
        }
        if !has_last {
            core.epilogue = self.epilogue;
        }
        let first = has_first.then_some((FactorRole::First, first));
        let last = has_last.then_some((FactorRole::Last, last));
        let core = [(FactorRole::Core, core)];
        first.into_iter().chain(core).chain(last).collect()
    }

    /// The four convolutions of its CP form, [in order](CpProblem::factors_in_order). The first has the prologue, the last the epilogue,
    /// and the two between them the [`Reduce`] option.
    pub fn cp_factors(&self, rank: u32, horizontal_first: bool) -> [Self; 4] {
        let cp = CpProblem { conv: *self, rank };
        self.with_shapes(cp.factors_in_order(horizontal_first))
    }

    /// The two 1x1 convolutions that replace one whose weight has this rank. The first has the prologue, the stride and the padding, so that
    /// the last computes as many pixels as it does; the last has the epilogue. There is no bias between them, so a padded pixel is zero
    /// for both.
    pub fn low_rank_factors(&self, rank: u32) -> [Self; 2] {
        let shape = &self.shape;
        let first = ConvShape { n: rank, ..*shape };
        let last = ConvShape {
            batch: shape.batch,
            ..ConvShape::new(rank, shape.n, shape.out_h(), shape.out_w(), 1, 1)
        };
        self.with_shapes([first, last])
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

impl ProblemKind for ConvProblem {
    fn input(&self) -> Tensor {
        let shape = &self.shape;
        Tensor {
            shape: TensorShape::new(shape.batch, shape.c, shape.h, shape.w),
            format: self.input,
        }
    }

    fn output(&self) -> Tensor {
        let shape = &self.shape;
        Tensor {
            shape: TensorShape::new(shape.batch, shape.n, shape.out_h(), shape.out_w()),
            format: self.output,
        }
    }

    fn reads_residual(&self) -> bool {
        self.epilogue.residual
    }

    fn reads_bias(&self) -> bool {
        self.epilogue.bias
    }

    fn scale_shift_channels(&self) -> u32 {
        self.prologue.map_or(0, |_| self.shape.c)
    }

    fn activations(&self) -> Vec<Activation> {
        activations(self.prologue, self.epilogue)
    }

    fn weights(&self) -> Vec<[u32; 4]> {
        vec![self.shape.weight()]
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn tolerance(&self) -> f64 {
        ConvProblem::tolerance(self)
    }

    fn min_tolerance(&self) -> f64 {
        ConvProblem::min_tolerance(self)
    }

    fn is_deterministic(&self) -> bool {
        self.reduce != Reduce::Atomic
    }

    fn flops(&self) -> u64 {
        self.shape.flops()
    }

    fn label(&self) -> String {
        let s = &self.shape;
        let mut name = format!("conv{}_c{}_n{}", label::batch(s.batch), s.c, s.n);
        name += &label::filter(s);
        name += &label::prologue(self.prologue);
        name += &label::epilogue(self.epilogue);
        if self.reduce == Reduce::Atomic {
            name += "_atomic";
        }
        name += &label::precision(self.precision);
        if self.tolerance != Tolerance::default() {
            name += &format!("_tol{}", self.tolerance.billionths());
        }
        name + &label::formats(self.input, self.output)
    }

    fn description(&self) -> String {
        let mut text = format!("Convolution {}", description::filter(&self.shape));
        text += &description::prologue(self.prologue);
        text += &description::epilogue(self.epilogue);
        text += &description::precision(self.precision);
        if self.tolerance != Tolerance::default() {
            text += &format!(", relative error up to {:e}", self.tolerance.value());
        }
        text + &description::formats(self.input, self.output)
    }

    /// With float atomics the epilogue is a separate launch, so it stays in the key.
    fn measured(&self) -> Problem {
        Problem::Conv(Self {
            prologue: measured_prologue(self.prologue),
            epilogue: match self.reduce {
                Reduce::Ordered => ordered_epilogue(self.epilogue),
                Reduce::Atomic => Epilogue {
                    activation: measured_activation(self.epilogue.activation),
                    ..self.epilogue
                },
            },
            ..*self
        })
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        factors_reference(self, &[self.shape], self.prologue, self.epilogue, inputs)
    }
}

/// Convolutions in sequence, with the prologue before the first and the epilogue after the last.
#[cfg(feature = "check")]
pub(super) fn factors_reference(
    op: &dyn ProblemKind,
    shapes: &[ConvShape],
    prologue: Option<Prologue>,
    epilogue: Epilogue,
    inputs: &crate::ir::ReferenceInputs,
) -> Vec<f64> {
    use crate::ir::reference::{activate_all, add, add_bias, scale_shift};

    let mut y = inputs.x.to_vec();
    if let Some(prologue) = prologue {
        y = scale_shift(op.input().shape, &y, inputs.scale, inputs.shift);
        activate_all(prologue.activation, &mut y);
    }
    for (shape, weight) in shapes.iter().zip(inputs.weights) {
        y = conv_reference(shape, &y, weight);
    }
    if epilogue.bias {
        add_bias(op.epilogue_shape(), &mut y, inputs.bias);
    }
    if epilogue.residual {
        add(&mut y, inputs.residual);
    }
    activate_all(epilogue.activation, &mut y);
    y
}

/// Direct convolution: `y[b,n,i,j] = sum over c,r,s of w[n,c,r,s] x[b,c,i*stride+r*dilation-pad,...]`, zero outside of the image.
#[cfg(feature = "check")]
pub fn conv_reference(shape: &ConvShape, x: &[f64], weight: &[f64]) -> Vec<f64> {
    let (h, w) = (shape.h as usize, shape.w as usize);
    let (out_h, out_w) = (shape.out_h() as usize, shape.out_w() as usize);
    let (n, c) = (shape.n as usize, shape.c as usize);
    let (r, s) = (shape.r as usize, shape.s as usize);
    let c_per_group = c / shape.groups as usize;
    let n_per_group = n / shape.groups as usize;
    let pixels = out_h * out_w;
    let mut y = vec![0.0; shape.batch as usize * n * pixels];
    let channel = |plane: usize, out: &mut [f64]| {
        let (image, n) = (plane / n, plane % n);
        let group = n / n_per_group;
        for ci in 0..c_per_group {
            let input = &x[(image * c + group * c_per_group + ci) * h * w..][..h * w];
            for ri in 0..r {
                for si in 0..s {
                    let tap = weight[((n * c_per_group + ci) * r + ri) * s + si];
                    let row_shift =
                        ri as i64 * i64::from(shape.dilation[0]) - i64::from(shape.padding.top);
                    let column_shift =
                        si as i64 * i64::from(shape.dilation[1]) - i64::from(shape.padding.left);
                    for i in 0..out_h {
                        let row = i as i64 * i64::from(shape.stride[0]) + row_shift;
                        if row < 0 || row >= h as i64 {
                            continue;
                        }
                        let input = &input[row as usize * w..][..w];
                        let out = &mut out[i * out_w..][..out_w];
                        add_products(out, tap, input, shape.stride[1] as usize, column_shift);
                    }
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let planes = shape.batch as usize * n;
    let planes_per_thread = planes.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (part, out) in y.chunks_mut(planes_per_thread * pixels).enumerate() {
            let channel = &channel;
            scope.spawn(move || {
                for (index, out) in out.chunks_mut(pixels).enumerate() {
                    channel(part * planes_per_thread + index, out);
                }
            });
        }
    });
    y
}

/// `out[j] += tap * input[stride * j + shift]` for the positions inside of the input row.
#[cfg(feature = "check")]
fn add_products(out: &mut [f64], tap: f64, input: &[f64], stride: usize, shift: i64) {
    // The first position is computed once: the loops have no condition, so the compiler vectorises the one of stride 1.
    let first = (shift.min(0).unsigned_abs() as usize).div_ceil(stride);
    let start = ((first * stride) as i64 + shift) as usize;
    let (Some(out), Some(input)) = (out.get_mut(first..), input.get(start..)) else {
        return;
    };
    if stride == 1 {
        let pairs = out.iter_mut().zip(input);
        pairs.for_each(|(sum, value)| *sum += tap * value);
    } else {
        let pairs = out.iter_mut().zip(input.iter().step_by(stride));
        pairs.for_each(|(sum, value)| *sum += tap * value);
    }
}

#[cfg(all(test, feature = "check"))]
mod tests {
    use super::*;
    use tdc_runtime::Padding;

    /// Computed by hand: a 2x3 image, a 2x2 filter, stride (1, 2), one row of padding above, dilation (1, 2).
    #[test]
    fn convolution_worked_by_hand() {
        let mut shape = ConvShape::new(1, 1, 2, 3, 2, 2);
        shape.stride = [1, 2];
        shape.dilation = [1, 2];
        shape.padding = Padding {
            top: 1,
            ..Padding::default()
        };
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let weight = [10.0, 20.0, 30.0, 40.0];
        // Row -1 is zero: 30*1 + 40*3; then 10*1 + 20*3 + 30*4 + 40*6.
        assert_eq!(conv_reference(&shape, &x, &weight), [150.0, 430.0]);
    }

    /// Rows that a tap reads partly, not at all, and beyond both ends.
    #[test]
    fn products_along_a_row_are_those_of_the_definition() {
        let input: Vec<f64> = (1..6).map(f64::from).collect();
        for (stride, shift) in (1..4).flat_map(|stride| (-9..9).map(move |shift| (stride, shift))) {
            let mut out = [0.5; 7];
            add_products(&mut out, 3.0, &input, stride, shift);
            for (j, sum) in out.iter().enumerate() {
                let position = (stride * j) as i64 + shift;
                let inside = usize::try_from(position).ok();
                let value = inside.and_then(|position| input.get(position));
                let expected = 0.5 + 3.0 * value.unwrap_or(&0.0);
                assert_eq!(*sum, expected, "{stride} {shift} {j}");
            }
        }
    }

    #[test]
    fn groups_are_independent() {
        let mut shape = ConvShape::new(2, 4, 1, 1, 1, 1);
        shape.groups = 2;
        assert_eq!(
            conv_reference(&shape, &[3.0, 5.0], &[1.0, 2.0, 10.0, 20.0]),
            [3.0, 6.0, 50.0, 100.0]
        );
    }
}
