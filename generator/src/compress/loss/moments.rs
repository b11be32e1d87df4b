//! Mean and variance of every channel of a network, from its parameters alone.
//!
//! A channel's values are taken as independent of each other, and as Gaussian before an activation function. BatchNorms say what their
//! outputs have in training: beta and gamma squared. Between BatchNorms moments are carried on by these rules:
//!
//! | op | mean and variance of the output |
//! |---|---|
//! | input | 0 and 1 |
//! | BatchNorm | beta, gamma^2 |
//! | convolution, linear layer | sums of w m + bias, and of w^2 v |
//! | transposed convolution | the same over the number of pixels in a step |
//! | ReLU | closed form; other activation functions by quadrature |
//! | add, sub | sums or differences of means, sums of variances |
//! | mul | m1 m2, v1 v2 + v1 m2^2 + v2 m1^2 |
//! | average pooling | m, v over the number of values |
//! | maximum pooling | m + a sqrt(v), b v, where a and b are the moments of the maximum of as many standard Gaussians |
//! | layer norm, softmax | shift and scale^2; 1 / C and 1 / C^2 |
//! | L2 norm | m / s, v / s^2, where s^2 is the sum of m^2 + v over the channels |
//! | resize, padding, local response normalisation, concatenation, slice, shuffle, flatten | those of its inputs |

use super::grid::Norm;
use super::tensors::Tensors;
use crate::ir::{
    Activation, ActivationParameter, BinaryOp, ChannelNorm, Conv, ConvTranspose, Linear, Network,
    OpId, OpKind, PoolKind, ScaleShiftOptions, activate,
};
use std::f64::consts::PI;

/// Means and variances of an op's output channels.
#[derive(Debug, Clone, PartialEq)]
struct Channels {
    mean: Vec<f64>,
    variance: Vec<f64>,
}

/// The moments of a network.
pub(super) struct Moments<'a> {
    network: &'a Network,
    /// Of the first ops.
    channels: Vec<Channels>,
    /// For each op, the squares of the scales that its readers apply to its channels; `None` if none applies any.
    scales: Vec<Option<Vec<f64>>>,
}

impl<'a> Moments<'a> {
    /// The moments of the ops up to `last`: those after it may have weights of hundreds of megabytes, which are not read.
    pub(super) fn new(network: &'a Network, tensors: &Tensors, last: OpId) -> Self {
        let mut channels: Vec<Channels> = Vec::with_capacity(last.0 + 1);
        for index in 0..=last.0 {
            let op = channels_of(network, OpId(index), tensors, &channels);
            channels.push(op);
        }
        Self {
            network,
            channels,
            scales: scales(network, tensors),
        }
    }

    /// The norm of an error of a layer's weight: the mean over the output channels of the squared error of the output, as scaled by
    /// the BatchNorm behind the layer. Of several BatchNorms, the mean square of their scales counts; without one, the output is scaled to
    /// a mean square of 1.
    pub(super) fn norm(&self, layer: OpId) -> Norm {
        let input = &self.channels[self.network.op(layer).inputs[0].0];
        let output = &self.channels[layer.0];
        let channels = output.mean.len() as f64;
        let squares = self.scales[layer.0].clone().unwrap_or_else(|| {
            let of_channel = output.mean.iter().zip(&output.variance);
            let squares: f64 = of_channel
                .map(|(mean, variance)| mean * mean + variance)
                .sum();
            let square = if squares > 0.0 {
                channels / squares
            } else {
                0.0
            };
            vec![square; output.mean.len()]
        });
        Norm {
            mean: input.mean.clone(),
            variance: input.variance.clone(),
            output: squares.iter().map(|square| square / channels).collect(),
        }
    }
}

fn channels_of(network: &Network, id: OpId, tensors: &Tensors, known: &[Channels]) -> Channels {
    let op = network.op(id);
    let input = |index: usize| &known[op.inputs[index].0];
    match &op.kind {
        OpKind::Input(_) => constant(op.y.c, 0.0, 1.0),
        OpKind::Conv(conv) => conv_channels(&op.name, conv, tensors, input(0)),
        OpKind::ConvTranspose(layer) => conv_transpose_channels(&op.name, layer, tensors, input(0)),
        OpKind::Linear(linear) => linear_channels(&op.name, linear, tensors, input(0)),
        OpKind::ScaleShift(options) => scale_shift(&op.name, options, tensors, input(0)),
        OpKind::Activation(activation) => input(0).clone().activated(*activation),
        OpKind::Binary(binary, activation) => {
            input(0).combined(*binary, input(1)).activated(*activation)
        }
        OpKind::Pool(pool) => {
            let values = f64::from(pool.kernel[0] * pool.kernel[1]);
            input(0).pooled(pool.kind == PoolKind::Max, values)
        }
        OpKind::GlobalPool { max } => {
            let values = network.op(op.inputs[0]).y.pixels() as f64;
            input(0).pooled(*max, values)
        }
        OpKind::ChannelNorm(norm) => match norm {
            ChannelNorm::LayerNorm { .. } => {
                let scale = tensors.weight(&op.name);
                Channels {
                    mean: tensors.bias(&op.name),
                    variance: scale.iter().map(|scale| scale * scale).collect(),
                }
            }
            ChannelNorm::L2 { .. } => {
                let Channels { mean, variance } = input(0);
                let of_channel = mean.iter().zip(variance);
                let square: f64 = of_channel.map(|(m, v)| m * m + v).sum();
                let scale = if square > 0.0 { square.recip() } else { 0.0 };
                Channels {
                    mean: mean.iter().map(|m| m * scale.sqrt()).collect(),
                    variance: variance.iter().map(|v| v * scale).collect(),
                }
            }
            ChannelNorm::Softmax => {
                let mean = 1.0 / f64::from(op.y.c);
                constant(op.y.c, mean, mean * mean)
            }
        },
        OpKind::Resize(_) | OpKind::Pad(_) | OpKind::Lrn(_) => input(0).clone(),
        OpKind::PRelu => {
            let slopes = tensors.weight(&op.name);
            let of_channel = |channel: usize| {
                let slope = ActivationParameter::new(slopes[channel] as f32);
                let input = input(0);
                let (mean, variance) = (input.mean[channel], input.variance[channel]);
                activated(Activation::LeakyRelu { slope }, mean, variance)
            };
            let (mean, variance) = (0..op.y.c as usize).map(of_channel).unzip();
            Channels { mean, variance }
        }
        OpKind::Concat => Channels {
            mean: op
                .inputs
                .iter()
                .flat_map(|i| known[i.0].mean.clone())
                .collect(),
            variance: op
                .inputs
                .iter()
                .flat_map(|i| known[i.0].variance.clone())
                .collect(),
        },
        OpKind::Slice { start } => {
            let range = *start as usize..(start + op.y.c) as usize;
            input(0).picked(range)
        }
        OpKind::Shuffle { groups } => {
            let (channels, groups) = (op.y.c as usize, *groups as usize);
            let of_group = channels / groups;
            input(0).picked((0..channels).map(|c| c % groups * of_group + c / groups))
        }
        OpKind::Flatten => {
            let pixels = network.op(op.inputs[0]).y.pixels() as usize;
            input(0).picked((0..op.y.c as usize).map(|feature| feature / pixels))
        }
    }
}

fn constant(channels: u32, mean: f64, variance: f64) -> Channels {
    Channels {
        mean: vec![mean; channels as usize],
        variance: vec![variance; channels as usize],
    }
}

fn conv_channels(name: &str, conv: &Conv, tensors: &Tensors, input: &Channels) -> Channels {
    let options = &conv.options;
    let output = match &options.bn {
        Some(bn) => {
            let bn = tensors.batch_norm(bn);
            Channels {
                mean: bn.beta,
                variance: bn.gamma.iter().map(|gamma| gamma * gamma).collect(),
            }
        }
        None => {
            let [n, c, r, s] = conv.shape.weight().map(|size| size as usize);
            let bias = options.bias.then(|| tensors.bias(name));
            let groups = conv.shape.groups as usize;
            input.weighted(&tensors.weight(name), bias, [n, c, r * s], groups)
        }
    };
    output.activated(options.activation)
}

/// The means of all output pixels: of the taps, one in each rectangle of `stride` reaches a pixel.
fn conv_transpose_channels(
    name: &str,
    layer: &ConvTranspose,
    tensors: &Tensors,
    input: &Channels,
) -> Channels {
    let (shape, options) = (&layer.problem.shape, &layer.options);
    let [n, c, r, s] = shape.weight().map(|size| size as usize);
    let (groups, taps) = (shape.groups as usize, r * s);
    let n_per_group = n / groups;
    // The checkpoint has [C, N / groups, R, S].
    let stored = tensors.weight(name);
    let filter = |output: usize, of_group: usize| {
        let input = output / n_per_group * c + of_group;
        let at = (input * n_per_group + output % n_per_group) * taps;
        &stored[at..at + taps]
    };
    let filters = (0..n).flat_map(|output| (0..c).flat_map(move |input| filter(output, input)));
    let weight: Vec<f64> = filters.copied().collect();
    let mut output = input.weighted(&weight, None, [n, c, taps], groups);
    let reached = f64::from(shape.stride[0] * shape.stride[1]).recip();
    for value in output.mean.iter_mut().chain(&mut output.variance) {
        *value *= reached;
    }
    if options.bias {
        let bias = tensors.bias(name);
        for (mean, bias) in output.mean.iter_mut().zip(bias) {
            *mean += bias;
        }
    }
    output.activated(options.activation)
}

fn linear_channels(name: &str, linear: &Linear, tensors: &Tensors, input: &Channels) -> Channels {
    let sizes = [linear.options.n as usize, linear.c as usize, 1];
    let bias = linear.options.bias.then(|| tensors.bias(name));
    let output = input.weighted(&tensors.weight(name), bias, sizes, 1);
    output.activated(linear.options.activation)
}

fn scale_shift(
    name: &str,
    options: &ScaleShiftOptions,
    tensors: &Tensors,
    input: &Channels,
) -> Channels {
    let output = match &options.bn {
        Some(bn) => {
            let bn = tensors.batch_norm(bn);
            Channels {
                mean: bn.beta,
                variance: bn.gamma.iter().map(|gamma| gamma * gamma).collect(),
            }
        }
        None => {
            let [scale, shift] = tensors.scale_shift(name);
            let scaled = scale.iter().zip(&shift).zip(&input.mean);
            Channels {
                mean: scaled.map(|((a, b), m)| a * m + b).collect(),
                variance: scale
                    .iter()
                    .zip(&input.variance)
                    .map(|(a, v)| a * a * v)
                    .collect(),
            }
        }
    };
    output.activated(options.activation)
}

impl Channels {
    fn picked(&self, channels: impl Iterator<Item = usize> + Clone) -> Self {
        Self {
            mean: channels.clone().map(|c| self.mean[c]).collect(),
            variance: channels.map(|c| self.variance[c]).collect(),
        }
    }

    /// Of sums of products with a weight [N, C of a group, taps].
    fn weighted(
        &self,
        weight: &[f64],
        bias: Option<Vec<f64>>,
        [n, c, taps]: [usize; 3],
        groups: usize,
    ) -> Self {
        let of_output = |output: usize| {
            let first = output / (n / groups) * c;
            let row = &weight[output * c * taps..(output + 1) * c * taps];
            let mut mean = bias.as_ref().map_or(0.0, |bias| bias[output]);
            let mut variance = 0.0;
            for (index, filter) in row.chunks(taps).enumerate() {
                mean += filter.iter().sum::<f64>() * self.mean[first + index];
                let square: f64 = filter.iter().map(|w| w * w).sum();
                variance += square * self.variance[first + index];
            }
            (mean, variance)
        };
        let (mean, variance) = (0..n).map(of_output).unzip();
        Self { mean, variance }
    }

    fn combined(&self, binary: BinaryOp, other: &Self) -> Self {
        let pairs = |of: &dyn Fn(usize) -> f64| (0..self.mean.len()).map(of).collect();
        let (m1, v1) = (&self.mean, &self.variance);
        let (m2, v2) = (&other.mean, &other.variance);
        match binary {
            BinaryOp::Add => Self {
                mean: pairs(&|i| m1[i] + m2[i]),
                variance: pairs(&|i| v1[i] + v2[i]),
            },
            BinaryOp::Sub => Self {
                mean: pairs(&|i| m1[i] - m2[i]),
                variance: pairs(&|i| v1[i] + v2[i]),
            },
            BinaryOp::Mul | BinaryOp::Gate => Self {
                mean: pairs(&|i| m1[i] * m2[i]),
                variance: pairs(&|i| v1[i] * (v2[i] + m2[i] * m2[i]) + v2[i] * m1[i] * m1[i]),
            },
        }
    }

    fn pooled(&self, is_max: bool, values: f64) -> Self {
        if !is_max {
            return Self {
                mean: self.mean.clone(),
                variance: self.variance.iter().map(|v| v / values).collect(),
            };
        }
        let (shift, factor) = maximum_moments(values);
        let of_channel = self.mean.iter().zip(&self.variance);
        let (mean, variance) = of_channel
            .map(|(m, v)| (m + shift * v.sqrt(), factor * v))
            .unzip();
        Self { mean, variance }
    }

    fn activated(self, activation: Activation) -> Self {
        let of_channel = |(mean, variance): (f64, f64)| activated(activation, mean, variance);
        let channels = self.mean.into_iter().zip(self.variance);
        let (mean, variance) = channels.map(of_channel).unzip();
        Self { mean, variance }
    }
}

/// Points of a quadrature over the standard Gaussian: the midpoint rule from -8 to 8, exact to rounding for smooth functions.
const POINTS: u32 = 1024;

/// The points with their weights.
fn gaussian_points() -> impl Iterator<Item = (f64, f64)> {
    let width = 16.0 / f64::from(POINTS);
    (0..POINTS).map(move |index| {
        let x = -8.0 + (f64::from(index) + 0.5) * width;
        (x, width * density(x))
    })
}

fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

/// The cumulative distribution of the standard Gaussian.
fn cumulative(x: f64) -> f64 {
    // gelu(x) = x * cumulative(x), and the distribution is 1/2 at 0.
    match x == 0.0 {
        true => 0.5,
        false => activate(Activation::Gelu, x) / x,
    }
}

/// Mean and variance of a function of a Gaussian.
fn activated(activation: Activation, mean: f64, variance: f64) -> (f64, f64) {
    let deviation = variance.sqrt();
    if deviation == 0.0 {
        return (activate(activation, mean), 0.0);
    }
    match activation {
        Activation::None => (mean, variance),
        Activation::Relu => {
            let ratio = mean / deviation;
            let (below, at) = (cumulative(ratio), density(ratio));
            let first = mean * below + deviation * at;
            let second = (mean * mean + variance) * below + mean * deviation * at;
            (first, (second - first * first).max(0.0))
        }
        _ => {
            let value = |x: f64| activate(activation, mean + deviation * x);
            let first: f64 = gaussian_points().map(|(x, w)| w * value(x)).sum();
            let second: f64 = gaussian_points()
                .map(|(x, w)| w * (value(x) - first).powi(2))
                .sum();
            (first, second)
        }
    }
}

/// Mean and variance of the maximum of some standard Gaussians.
fn maximum_moments(values: f64) -> (f64, f64) {
    let weight = |x: f64, w: f64| w * values * cumulative(x).powf(values - 1.0);
    let first: f64 = gaussian_points().map(|(x, w)| weight(x, w) * x).sum();
    let second: f64 = gaussian_points()
        .map(|(x, w)| weight(x, w) * (x - first).powi(2))
        .sum();
    (first, second)
}

/// For each op, the mean square of the scales that BatchNorms apply to its channels: its own, or else those of the ops that read it, also
/// through concatenations.
fn scales(network: &Network, tensors: &Tensors) -> Vec<Option<Vec<f64>>> {
    let mut found: Vec<Vec<Vec<f64>>> = vec![Vec::new(); network.ops.len()];
    let squares = |scale: &[f64]| scale.iter().map(|s| s * s).collect::<Vec<_>>();
    let mean_of = |all: &[Vec<f64>]| {
        let first = all.first()?;
        let channel = |c: usize| all.iter().map(|s| s[c]).sum::<f64>() / all.len() as f64;
        Some((0..first.len()).map(channel).collect::<Vec<_>>())
    };
    for (index, op) in network.ops.iter().enumerate().rev() {
        match &op.kind {
            OpKind::ScaleShift(options) => {
                let scale = match &options.bn {
                    Some(bn) => tensors.batch_norm(bn).scale,
                    None => tensors.scale_shift(&op.name)[0].clone(),
                };
                found[op.inputs[0].0].push(squares(&scale));
            }
            OpKind::Concat => {
                let Some(all) = mean_of(&found[index]) else {
                    continue;
                };
                let mut start = 0;
                for input in &op.inputs {
                    let end = start + network.op(*input).y.c as usize;
                    found[input.0].push(all[start..end].to_vec());
                    start = end;
                }
            }
            _ => {}
        }
    }
    let own = |index: usize| match &network.ops[index].kind {
        OpKind::Conv(conv) => {
            let bn = conv.options.bn.as_ref()?;
            Some(squares(&tensors.batch_norm(bn).scale))
        }
        _ => None,
    };
    (0..network.ops.len())
        .map(|index| own(index).or_else(|| mean_of(&found[index])))
        .collect()
}

#[cfg(all(test, feature = "check"))]
mod sampled_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{
        BatchNorm, ConvOptions, LinearOptions, NetworkBuilder, OpOptions, ScaleShiftOptions,
        TensorShape,
    };
    use tdc_weights::Checkpoint;

    #[track_caller]
    fn assert_near(found: f64, expected: f64, what: &str) {
        let error = (found - expected).abs();
        assert!(
            error < 1e-5 * (1.0 + expected.abs()),
            "{what}: {found}, not {expected}"
        );
    }

    /// The quadrature knows no closed form: a leaky ReLU of slope 0 is ReLU.
    #[test]
    fn relu_in_closed_form_is_what_quadrature_finds() {
        let leaky = Activation::LeakyRelu {
            slope: ActivationParameter::new(0.0),
        };
        for (mean, variance) in [
            (0.0, 1.0),
            (1.3, 0.2),
            (-0.7, 2.5),
            (-3.0, 1.0),
            (5.0, 0.01),
        ] {
            let exact = activated(Activation::Relu, mean, variance);
            let found = activated(leaky, mean, variance);
            assert_near(exact.0, found.0, "mean");
            assert_near(exact.1, found.1, "variance");
        }
        assert_eq!(activated(Activation::Relu, -2.0, 0.0), (0.0, 0.0));
        let half = 1.0 / (2.0 * PI).sqrt();
        assert_near(
            activated(Activation::Relu, 0.0, 1.0).0,
            half,
            "half a Gaussian",
        );
    }

    /// Values from tables of the order statistics of Gaussians.
    #[test]
    fn maxima_have_the_moments_of_tables() {
        for (values, mean, variance) in [
            (1.0, 0.0, 1.0),
            (2.0, 0.564_19, 0.681_69),
            (4.0, 1.029_38, 0.491_72),
            (9.0, 1.485_01, 0.357_35),
        ] {
            let found = maximum_moments(values);
            assert!((found.0 - mean).abs() < 1e-5, "{values}: {found:?}");
            assert!((found.1 - variance).abs() < 1e-5, "{values}: {found:?}");
        }
    }

    fn tensor(name: &str, shape: &[usize], values: Vec<f64>) -> (String, Vec<usize>, Vec<f32>) {
        let values = values.into_iter().map(|v| v as f32).collect();
        (name.to_owned(), shape.to_vec(), values)
    }

    /// Moments are those of the rules, through every kind of connection, and scales are those of the BatchNorms behind.
    #[test]
    fn moments_follow_the_network() {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 2, 4, 4));
        let conv = |n, bn: Option<&str>| {
            OpOptions::Conv(ConvOptions {
                kernel: [1, 1],
                bias: bn.is_none(),
                bn: bn.map(|name| BatchNorm {
                    name: name.to_owned(),
                    eps: 0.0,
                }),
                ..ConvOptions::new(n)
            })
        };
        let names = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        builder.op("a", None, conv(2, Some("bn")));
        builder.op("b", Some(&names(&["input"])), conv(2, None));
        let add = OpOptions::Binary(BinaryOp::Add, Activation::None);
        builder.op("sum", Some(&names(&["a", "b"])), add);
        builder.op("all", Some(&names(&["sum", "b"])), OpOptions::Concat);
        let bn = BatchNorm {
            name: "last".to_owned(),
            eps: 0.0,
        };
        let options = ScaleShiftOptions {
            bn: Some(bn),
            activation: Activation::None,
        };
        builder.op("norm", None, OpOptions::ScaleShift(options));
        builder.op("mean", None, OpOptions::GlobalAvgPool);
        builder.op("features", None, OpOptions::Flatten);
        let linear = LinearOptions {
            bias: false,
            ..LinearOptions::new(1)
        };
        builder.op("fc", None, OpOptions::Linear(linear));
        let network = builder.finish().unwrap();
        let tensors = [
            tensor("a.weight", &[2, 2, 1, 1], vec![1.0, 2.0, 3.0, 4.0]),
            tensor("bn.weight", &[2], vec![2.0, 3.0]),
            tensor("bn.bias", &[2], vec![0.5, -0.5]),
            tensor("bn.running_mean", &[2], vec![9.0, 9.0]),
            tensor("bn.running_var", &[2], vec![4.0, 16.0]),
            tensor("b.weight", &[2, 2, 1, 1], vec![1.0, 1.0, 0.0, 2.0]),
            tensor("b.bias", &[2], vec![1.0, 3.0]),
            tensor("last.weight", &[4], vec![1.0, 2.0, 3.0, 4.0]),
            tensor("last.bias", &[4], vec![0.0; 4]),
            tensor("last.running_mean", &[4], vec![0.0; 4]),
            tensor("last.running_var", &[4], vec![1.0, 4.0, 9.0, 4.0]),
            tensor("fc.weight", &[1, 4], vec![1.0; 4]),
        ];
        let checkpoint = Checkpoint::from_values("test".to_owned(), tensors);
        let tensors = Tensors::new(&network, &checkpoint).unwrap();
        let last = OpId(network.ops.len() - 1);
        let moments = Moments::new(&network, &tensors, last);
        let of = |name: &str| {
            let index = network.ops.iter().position(|op| op.name == name).unwrap();
            (OpId(index), &moments.channels[index])
        };
        let values = |name: &str| {
            let channels = of(name).1;
            (channels.mean.clone(), channels.variance.clone())
        };
        assert_eq!(values("a"), (vec![0.5, -0.5], vec![4.0, 9.0]));
        assert_eq!(values("b"), (vec![1.0, 3.0], vec![2.0, 4.0]));
        assert_eq!(values("sum"), (vec![1.5, 2.5], vec![6.0, 13.0]));
        assert_eq!(values("all").1, [6.0, 13.0, 2.0, 4.0]);
        // The average of 16 independent values of variance gamma^2.
        assert_eq!(values("mean").1, [1.0, 4.0, 9.0, 16.0].map(|v| v / 16.0));
        assert_eq!(values("fc").1, [30.0 / 16.0]);
        // `a` has its own BatchNorm: (2 / 2)^2 and (3 / 4)^2, over two channels; `b` is scaled by the last one.
        assert_eq!(moments.norm(of("a").0).output, [0.5, 0.5625 / 2.0]);
        assert_eq!(moments.norm(of("b").0).output, [0.5, 4.0 / 2.0]);
        // Nothing scales the output of `fc`: its mean square becomes 1.
        assert_near(moments.norm(of("fc").0).output[0], 16.0 / 30.0, "fc");
    }
}
