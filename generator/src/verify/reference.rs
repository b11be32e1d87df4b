//! The float64 evaluation of a network, op by op as in the config, without fusion, folding or factorisation.
//!
//! Tensors are dense NCHW vectors. The references of single problems are in [`ir`](crate::ir).

use super::Random;
use crate::ir::reference::{activate_all, add_bias, scale_shift};
use crate::ir::{
    Activation, ChannelNormProblem, Format, GlobalPoolProblem, LrnProblem, Network, OpId, OpKind,
    TensorShape, channel_norm_reference, conv_reference, conv_transpose_reference,
    global_pool_reference, linear_reference, lrn_reference, pad_reference, pool_reference, prelu,
    resize_reference, shuffled,
};

/// Float64 parameters of a network's ops, unfolded.
pub trait NetworkParameters {
    /// Weights of a convolution or linear layer, OIHW; for a factorised layer the product of its factors; those of a transposed
    /// convolution, I x O / groups x R x S; the slopes of a PReLU.
    fn weight(&self, op: OpId) -> Vec<f64>;
    /// The layer's own bias; empty if it has none.
    fn bias(&self, op: OpId) -> Vec<f64>;
    /// Scale and shift of the op's BatchNorm or of a scale_shift; `None` if it has none.
    fn scale_shift(&self, op: OpId) -> Option<(Vec<f64>, Vec<f64>)>;
}

/// Outputs of all ops of a network, in order, for the given [inputs](Network::inputs), which are NCHW however the caller stores them.
pub fn evaluate_network(
    network: &Network,
    parameters: &dyn NetworkParameters,
    inputs: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    evaluate(network, parameters, inputs, |_, _| {})
}

/// The same where the sums of each convolution and linear layer have random errors of the relative L2 norm `relative`. What becomes of them
/// says how much the network amplifies rounding errors.
///
/// Each error is the sum of two random numbers of equal variance: one for each pixel, and one that all pixels of a channel of an image share.
/// Rounded weights cause errors of the second kind, which averages over pixels do not remove.
pub fn evaluate_network_with_errors(
    network: &Network,
    parameters: &dyn NetworkParameters,
    inputs: &[Vec<f64>],
    relative: f64,
    seed: u64,
) -> Vec<Vec<f64>> {
    let mut random = Random::new(seed);
    evaluate(network, parameters, inputs, |shape, sums| {
        let mean_square = sums.iter().map(|sum| sum * sum).sum::<f64>() / sums.len() as f64;
        // Numbers that are uniform from -1 to 1 have a variance of 1/3.
        let largest = relative * (3.0 * mean_square / 2.0).sqrt();
        for channel in sums.chunks_mut(shape.pixels() as usize) {
            let of_channel = f64::from(random.values(1)[0]);
            let of_pixels = random.values(channel.len());
            for (sum, of_pixel) in channel.iter_mut().zip(of_pixels) {
                *sum += largest * (of_channel + f64::from(of_pixel));
            }
        }
    })
}

/// Evaluates a network; `change` may change the sums of each convolution and linear layer, before their activation function.
fn evaluate(
    network: &Network,
    parameters: &dyn NetworkParameters,
    inputs: &[Vec<f64>],
    mut change: impl FnMut(TensorShape, &mut [f64]),
) -> Vec<Vec<f64>> {
    let mut values: Vec<Vec<f64>> = Vec::with_capacity(network.ops.len());
    for (index, op) in network.ops.iter().enumerate() {
        let id = OpId(index);
        let operand = |i: usize| &values[op.inputs[i].0];
        let mut y;
        let mut activation = Activation::None;
        match &op.kind {
            // The inputs are the first ops.
            OpKind::Input(encoding) => {
                let (scale, shift) = encoding.scale_shift(op.y.c);
                y = scale_shift(op.y, &inputs[index], &scale, &shift);
            }
            OpKind::Conv(layer) => {
                y = conv_reference(&layer.shape, operand(0), &parameters.weight(id));
                if layer.options.bias {
                    add_bias(op.y, &mut y, &parameters.bias(id));
                }
                if let Some((scale, shift)) = parameters.scale_shift(id) {
                    y = scale_shift(op.y, &y, &scale, &shift);
                }
                change(op.y, &mut y);
                activation = layer.options.activation;
            }
            OpKind::ConvTranspose(layer) => {
                y = conv_transpose_reference(&layer.problem, operand(0), &parameters.weight(id));
                if layer.options.bias {
                    add_bias(op.y, &mut y, &parameters.bias(id));
                }
                change(op.y, &mut y);
                activation = layer.options.activation;
            }
            OpKind::Linear(layer) => {
                let (c, n) = (layer.c as usize, layer.options.n as usize);
                y = linear_reference(c, n, operand(0), &parameters.weight(id));
                if layer.options.bias {
                    add_bias(op.y, &mut y, &parameters.bias(id));
                }
                change(op.y, &mut y);
                activation = layer.options.activation;
            }
            OpKind::Pool(problem) => y = pool_reference(problem, operand(0)),
            OpKind::Pad(problem) => y = pad_reference(problem, operand(0)),
            OpKind::Lrn(lrn) => {
                y = lrn_reference(&LrnProblem { lrn: *lrn, x: op.y }, operand(0));
            }
            OpKind::ChannelNorm(norm) => {
                let problem = ChannelNormProblem {
                    norm: *norm,
                    x: op.y,
                };
                y = channel_norm_reference(&problem, operand(0));
                if let Some((scale, shift)) = parameters.scale_shift(id) {
                    y = scale_shift(op.y, &y, &scale, &shift);
                }
            }
            OpKind::Resize(problem) => y = resize_reference(problem, operand(0)),
            OpKind::GlobalPool { max } => {
                let x = network.op(op.inputs[0]).y;
                let problem = GlobalPoolProblem {
                    max: *max,
                    x,
                    input: Format::default(),
                };
                y = global_pool_reference(&problem, operand(0));
            }
            OpKind::Binary(binary, after) => {
                y = operand(0).clone();
                binary.apply(op.y, &mut y, operand(1));
                activation = *after;
            }
            OpKind::Activation(function) => {
                y = operand(0).clone();
                activation = *function;
            }
            OpKind::ScaleShift(options) => {
                let (scale, shift) = parameters
                    .scale_shift(id)
                    .unwrap_or_else(|| panic!("`{}` has an affine map", op.name));
                y = scale_shift(op.y, operand(0), &scale, &shift);
                activation = options.activation;
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
            OpKind::Slice { start } => {
                y = sliced(network.op(op.inputs[0]).y, *start, op.y, operand(0));
            }
            OpKind::PRelu => {
                y = operand(0).clone();
                prelu(op.y, &mut y, &parameters.weight(id));
            }
            OpKind::Shuffle { groups } => y = shuffled(op.y, *groups, operand(0)),
            OpKind::Flatten => y = operand(0).clone(),
        }
        activate_all(activation, &mut y);
        values.push(y);
    }
    values
}

/// Channels from `start` on, as many as `y` has, of each image.
fn sliced(x_shape: TensorShape, start: u32, y_shape: TensorShape, x: &[f64]) -> Vec<f64> {
    let image_len = x_shape.image_len() as usize;
    let first = start as usize * x_shape.pixels() as usize;
    let images = x.chunks(image_len);
    images
        .flat_map(|image| &image[first..][..y_shape.image_len() as usize])
        .copied()
        .collect()
}
