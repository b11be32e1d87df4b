//! The definition of every op, in float64, in plain loops.
//!
//! Tensors are dense NCHW vectors. [`evaluate_problem`] computes a single problem; [`evaluate_network`]
//! computes a network op by op as written, before fusion, folding and factorisation.

use crate::ir::{
    Elementwise, Epilogue, GlobalPoolProblem, Network, OpId, OpKind, PoolKind, PoolProblem,
    Problem, Prologue, TensorShape,
};
use tdc_runtime::ConvShape;

/// Operands of one problem; those that it does not read are empty.
#[derive(Debug, Clone, Default)]
pub struct ReferenceInputs<'a> {
    /// Input.
    pub x: &'a [f64],
    /// The residual.
    pub residual: &'a [f64],
    /// Weight tensors, OIHW.
    pub weights: &'a [Vec<f64>],
    /// One value per output channel.
    pub bias: &'a [f64],
    /// Scale of the prologue.
    pub scale: &'a [f64],
    /// Shift of the prologue.
    pub shift: &'a [f64],
}

/// The exact result of a problem, prologue and epilogue included.
pub fn evaluate_problem(problem: &Problem, operands: &ReferenceInputs) -> Vec<f64> {
    let shape = problem.x();
    match problem {
        Problem::Conv(p) | Problem::HwcnConv(p) => {
            conv_chain(problem, &[p.shape], p.prologue, p.epilogue, operands)
        }
        Problem::Cp(p) => {
            let conv = &p.conv;
            conv_chain(
                problem,
                &p.factors(),
                conv.prologue,
                conv.epilogue,
                operands,
            )
        }
        Problem::Tucker(p) => {
            let factors = p.factors();
            let Some(next) = p.next else {
                return conv_chain(problem, &factors, p.prologue, p.epilogue, operands);
            };
            let [own @ .., shape] = &factors[..] else {
                unreachable!("the layer's own factors and the next layer's")
            };
            let made = conv_chain(problem, own, p.prologue, p.epilogue, operands);
            let read = conv(shape, &made, &operands.weights[own.len()]);
            match next.stores_layer_output {
                true => concat(p.epilogue_shape(), &made, &read),
                false => read,
            }
        }
        Problem::Linear(p) => {
            let mut y = linear(p.c as usize, p.n as usize, operands.x, &operands.weights[0]);
            if p.epilogue.bias {
                add_bias(problem.y(), &mut y, operands.bias);
            }
            if p.epilogue.relu {
                relu(&mut y);
            }
            y
        }
        Problem::Pool(p) => pool(p, operands.x),
        Problem::GlobalPool(p) => global_pool(p, operands.x),
        Problem::Convert(_) => operands.x.to_vec(),
        Problem::Elementwise(p) => {
            let mut y = operands.x.to_vec();
            let with_relu = match p.function {
                Elementwise::Add { relu } => {
                    add(&mut y, operands.residual);
                    relu
                }
                Elementwise::ScaleShift { relu } => {
                    y = scale_shift(shape, &y, operands.scale, operands.shift);
                    relu
                }
                Elementwise::Relu => true,
                Elementwise::Copy => false,
            };
            if with_relu {
                relu(&mut y);
            }
            y
        }
    }
}

/// Consecutive convolutions, with the prologue of the first and the epilogue of the last.
fn conv_chain(
    problem: &Problem,
    shapes: &[ConvShape],
    prologue: Option<Prologue>,
    epilogue: Epilogue,
    operands: &ReferenceInputs,
) -> Vec<f64> {
    let mut y = operands.x.to_vec();
    if let Some(prologue) = prologue {
        y = scale_shift(problem.x(), &y, operands.scale, operands.shift);
        if prologue.relu {
            relu(&mut y);
        }
    }
    for (shape, weight) in shapes.iter().zip(operands.weights) {
        y = conv(shape, &y, weight);
    }
    if epilogue.bias {
        add_bias(problem.epilogue_shape(), &mut y, operands.bias);
    }
    if epilogue.residual {
        add(&mut y, operands.residual);
    }
    if epilogue.relu {
        relu(&mut y);
    }
    y
}

/// For each image, the channels of `first`, whose shape is given, followed by those of `second`.
fn concat(shape: TensorShape, first: &[f64], second: &[f64]) -> Vec<f64> {
    let images = shape.batch as usize;
    let [first, second] = [first, second].map(|values| values.chunks(values.len() / images));
    let pairs = first.zip(second);
    pairs
        .flat_map(|(first, second)| [first, second].concat())
        .collect()
}

/// Direct convolution: `y[b,n,i,j] = sum over c,r,s of w[n,c,r,s] x[b,c,i*stride+r*dilation-pad,...]`, where
/// x is zero outside the image.
pub fn conv(shape: &ConvShape, x: &[f64], weight: &[f64]) -> Vec<f64> {
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
                        for (j, value) in out[i * out_w..][..out_w].iter_mut().enumerate() {
                            let column = j as i64 * i64::from(shape.stride[1]) + column_shift;
                            if column >= 0 && column < w as i64 {
                                *value += tap * input[column as usize];
                            }
                        }
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

fn linear(c: usize, n: usize, x: &[f64], weight: &[f64]) -> Vec<f64> {
    x.chunks(c)
        .flat_map(|row| {
            (0..n).map(move |n| {
                let weights = &weight[n * c..][..c];
                weights.iter().zip(row).map(|(w, x)| w * x).sum::<f64>()
            })
        })
        .collect()
}

fn pool(p: &PoolProblem, x: &[f64]) -> Vec<f64> {
    let (h, w) = (i64::from(p.x.h), i64::from(p.x.w));
    let mut y = Vec::new();
    for plane in x.chunks((h * w) as usize) {
        for i in 0..i64::from(p.out[0]) {
            for j in 0..i64::from(p.out[1]) {
                let row0 = i * i64::from(p.stride[0]) - i64::from(p.padding.top);
                let column0 = j * i64::from(p.stride[1]) - i64::from(p.padding.left);
                let mut elements = Vec::new();
                let mut counted = 0;
                for r in 0..i64::from(p.kernel[0]) {
                    for s in 0..i64::from(p.kernel[1]) {
                        let row = row0 + r * i64::from(p.dilation[0]);
                        let column = column0 + s * i64::from(p.dilation[1]);
                        if row < h + i64::from(p.padding.bottom)
                            && column < w + i64::from(p.padding.right)
                        {
                            counted += 1;
                        }
                        if (0..h).contains(&row) && (0..w).contains(&column) {
                            elements.push(plane[(row * w + column) as usize]);
                        }
                    }
                }
                y.push(match p.kind {
                    PoolKind::Max => elements.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    PoolKind::Avg {
                        count_include_pad: true,
                    } => elements.iter().sum::<f64>() / f64::from(counted),
                    PoolKind::Avg {
                        count_include_pad: false,
                    } => elements.iter().sum::<f64>() / elements.len() as f64,
                });
            }
        }
    }
    y
}

fn global_pool(p: &GlobalPoolProblem, x: &[f64]) -> Vec<f64> {
    let pixels = p.x.pixels() as usize;
    x.chunks(pixels)
        .map(|plane| {
            if p.max {
                plane.iter().copied().fold(f64::NEG_INFINITY, f64::max)
            } else {
                plane.iter().sum::<f64>() / pixels as f64
            }
        })
        .collect()
}

fn scale_shift(shape: TensorShape, x: &[f64], scale: &[f64], shift: &[f64]) -> Vec<f64> {
    let pixels = shape.pixels() as usize;
    x.chunks(pixels)
        .enumerate()
        .flat_map(|(plane, values)| {
            let channel = plane % shape.c as usize;
            values
                .iter()
                .map(move |value| scale[channel] * value + shift[channel])
        })
        .collect()
}

fn add_bias(shape: TensorShape, y: &mut [f64], bias: &[f64]) {
    let pixels = shape.pixels() as usize;
    for (plane, values) in y.chunks_mut(pixels).enumerate() {
        for value in values {
            *value += bias[plane % shape.c as usize];
        }
    }
}

fn add(y: &mut [f64], other: &[f64]) {
    for (value, other) in y.iter_mut().zip(other) {
        *value += other;
    }
}

fn relu(y: &mut [f64]) {
    for value in y {
        *value = value.max(0.0);
    }
}

/// Float64 parameters of a network's ops, unfolded.
pub trait NetworkParameters {
    /// Weights of a convolution or linear layer, OIHW; the product of the factors for a Tucker or CP layer.
    fn weight(&self, op: OpId) -> Vec<f64>;
    /// The layer's bias; empty if it has none.
    fn bias(&self, op: OpId) -> Vec<f64>;
    /// Scale and shift of the op's BatchNorm or `scale_shift`; `None` if it has none.
    fn scale_shift(&self, op: OpId) -> Option<(Vec<f64>, Vec<f64>)>;
}

/// The outputs of all ops of a network, in order.
pub fn evaluate_network(
    network: &Network,
    parameters: &dyn NetworkParameters,
    input: &[f64],
) -> Vec<Vec<f64>> {
    let mut values: Vec<Vec<f64>> = Vec::with_capacity(network.ops.len());
    for (index, op) in network.ops.iter().enumerate() {
        let id = OpId(index);
        let operand = |i: usize| &values[op.inputs[i].0];
        let mut y;
        let mut with_relu = false;
        match &op.kind {
            OpKind::Input => y = input.to_vec(),
            OpKind::Conv(layer) => {
                y = conv(&layer.shape, operand(0), &parameters.weight(id));
                if layer.options.bias {
                    add_bias(op.y, &mut y, &parameters.bias(id));
                }
                if let Some((scale, shift)) = parameters.scale_shift(id) {
                    y = scale_shift(op.y, &y, &scale, &shift);
                }
                with_relu = layer.options.relu;
            }
            OpKind::Linear(layer) => {
                let (c, n) = (layer.c as usize, layer.options.n as usize);
                y = linear(c, n, operand(0), &parameters.weight(id));
                if layer.options.bias {
                    add_bias(op.y, &mut y, &parameters.bias(id));
                }
                with_relu = layer.options.relu;
            }
            OpKind::Pool(problem) => y = pool(problem, operand(0)),
            OpKind::GlobalPool { max } => {
                let x = network.op(op.inputs[0]).y;
                y = global_pool(&GlobalPoolProblem { max: *max, x }, operand(0));
            }
            OpKind::Add { relu } => {
                y = operand(0).clone();
                add(&mut y, operand(1));
                with_relu = *relu;
            }
            OpKind::Relu => {
                y = operand(0).clone();
                with_relu = true;
            }
            OpKind::ScaleShift(options) => {
                let (scale, shift) = parameters
                    .scale_shift(id)
                    .unwrap_or_else(|| panic!("`{}` has an affine map", op.name));
                y = scale_shift(op.y, operand(0), &scale, &shift);
                with_relu = options.relu;
            }
            OpKind::Concat => {
                y = Vec::with_capacity(op.y.len() as usize);
                for image in 0..op.y.batch as usize {
                    for input in &op.inputs {
                        let len = network.op(*input).y.image_len() as usize;
                        y.extend_from_slice(&values[input.0][image * len..][..len]);
                    }
                }
            }
            OpKind::Flatten => y = operand(0).clone(),
        }
        if with_relu {
            relu(&mut y);
        }
        values.push(y);
    }
    values
}

#[cfg(test)]
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
        assert_eq!(conv(&shape, &x, &weight), [150.0, 430.0]);
    }

    #[test]
    fn groups_are_independent() {
        let mut shape = ConvShape::new(2, 4, 1, 1, 1, 1);
        shape.groups = 2;
        assert_eq!(
            conv(&shape, &[3.0, 5.0], &[1.0, 2.0, 10.0, 20.0]),
            [3.0, 6.0, 50.0, 100.0]
        );
    }

    #[test]
    fn averages_count_padding_but_not_ceil_mode_overhang() {
        // PyTorch: AvgPool2d(2, stride=2, padding=1, ceil_mode=True) on 1x2 rows of ones.
        let problem = |count_include_pad| PoolProblem {
            kind: PoolKind::Avg { count_include_pad },
            x: TensorShape::new(1, 1, 2, 2),
            kernel: [2, 2],
            stride: [2, 2],
            padding: Padding::all(1),
            dilation: [1, 1],
            out: [2, 2],
        };
        let x = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(pool(&problem(true), &x), [0.25, 0.5, 0.75, 1.0]);
        assert_eq!(pool(&problem(false), &x), [1.0, 2.0, 3.0, 4.0]);
    }
}
