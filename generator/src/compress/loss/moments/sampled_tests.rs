//! The rules against activations that were sampled: a network with random weights, whose BatchNorms normalise what they read, applied to
//! Gaussian noise.

use super::*;
use crate::config::{Config, Overrides, yaml};
use crate::verify::Random;
use crate::verify::reference::{NetworkParameters, evaluate_network};
use std::collections::HashMap;
use tdc_weights::Checkpoint;

/// Every rule behind a BatchNorm, and some behind each other.
const NETWORK: &str = "\
name: sampled
input: 6x5x24x24
ops:
  - {op: conv, name: a, n: 16, bn: a_bn, activation: relu}
  - {op: conv, name: b, n: 24, stride: 2, bn: b_bn}
  - {op: conv, name: c, inputs: [a], n: 24, kernel: 1, stride: 2, bn: c_bn}
  - {op: add, name: sum, inputs: [b, c], activation: silu}
  - {op: conv, name: d, n: 24, kernel: 1, bias: true, activation: relu}
  - {op: mul, name: product, inputs: [b, c]}
  - {op: max_pool, name: largest, inputs: [b], kernel: 3, stride: 1, pad: 1}
  - {op: avg_pool, name: mean, inputs: [b], kernel: 2, stride: 1, pad: [0, 0, 1, 1], count_include_pad: false}
  - {op: l2_norm, name: unit, inputs: [b]}
  - {op: concat, name: all, inputs: [sum, d, product, largest, mean, unit]}
  - {op: scale_shift, name: norm, bn: norm_bn, activation: relu}
  - {op: conv, name: e, n: 32, bn: e_bn, activation: gelu}
  - {op: conv_transpose, name: up, n: 12, groups: 4, kernel: [3, 4], stride: [2, 1], pad: 1, output_padding: [1, 0], bias: true, activation: relu, output: {name: large}}
  - {op: global_avg_pool, name: pool, inputs: [e]}
  - {op: flatten, name: features}
  - {op: linear, name: fc, n: 10}
";

/// Parameters of the network by op.
#[derive(Default)]
struct Sampled {
    weights: HashMap<OpId, Vec<f64>>,
    biases: HashMap<OpId, Vec<f64>>,
    scale_shifts: HashMap<OpId, (Vec<f64>, Vec<f64>)>,
}

impl NetworkParameters for Sampled {
    fn weight(&self, op: OpId) -> Vec<f64> {
        self.weights[&op].clone()
    }

    fn bias(&self, op: OpId) -> Vec<f64> {
        self.biases.get(&op).cloned().unwrap_or_default()
    }

    fn scale_shift(&self, op: OpId) -> Option<(Vec<f64>, Vec<f64>)> {
        self.scale_shifts.get(&op).cloned()
    }
}

/// A number of a Gaussian, nearly.
fn gaussian(random: &mut Random) -> f64 {
    (0..12).map(|_| f64::from(random.value())).sum::<f64>() / 2.0
}

fn gaussians(random: &mut Random, len: usize, scale: f64) -> Vec<f64> {
    (0..len).map(|_| scale * gaussian(random)).collect()
}

/// Mean and variance of each channel.
fn moments_of(values: &[f64], channels: usize, batch: usize) -> Channels {
    let pixels = values.len() / channels / batch;
    let of_channel = |channel: usize| {
        let images = values.chunks(pixels).skip(channel).step_by(channels);
        let values: Vec<f64> = images.flatten().copied().collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares = values.iter().map(|value| (value - mean).powi(2));
        (mean, squares.sum::<f64>() / values.len() as f64)
    };
    let (mean, variance) = (0..channels).map(of_channel).unzip();
    Channels { mean, variance }
}

/// A layer's weight with outputs of about the variance of its inputs, and its bias.
fn layer(random: &mut Random, shape: [u32; 4], biases: u32) -> (Vec<f64>, Vec<f64>) {
    let [n, inputs @ ..] = shape.map(|size| size as usize);
    let terms: usize = inputs.iter().product();
    let weight = gaussians(random, n * terms, (terms as f64).sqrt().recip());
    (weight, gaussians(random, biases as usize, 0.5))
}

/// Tensors of a checkpoint, and the values of all ops. Each BatchNorm has the mean and variance of what it reads.
fn sampled(network: &Network, random: &mut Random) -> (Checkpoint, Vec<Vec<f64>>) {
    let input = &network.ops[0].y;
    let x = [gaussians(random, input.len() as usize, 1.0)];
    let mut parameters = Sampled::default();
    let mut tensors = Vec::new();
    let mut tensor = |name: String, shape: Vec<usize>, values: &[f64]| {
        tensors.push((name, shape, values.iter().map(|&v| v as f32).collect()));
    };
    for (index, op) in network.ops.iter().enumerate() {
        let id = OpId(index);
        let (shape, bias, bn) = match &op.kind {
            OpKind::Conv(conv) => {
                let shape = &conv.shape;
                let shape = [shape.n, shape.c, shape.r, shape.s];
                (Some(shape), conv.options.bias, conv.options.bn.as_ref())
            }
            OpKind::ConvTranspose(layer) => {
                let shape = &layer.problem.shape;
                let shape = [shape.c, shape.n / shape.groups, shape.r, shape.s];
                (Some(shape), layer.options.bias, None)
            }
            OpKind::Linear(linear) => {
                let shape = [linear.options.n, linear.c, 1, 1];
                (Some(shape), linear.options.bias, None)
            }
            OpKind::ScaleShift(options) => (None, false, options.bn.as_ref()),
            _ => continue,
        };
        if let Some(shape) = shape {
            let (weight, bias) = layer(random, shape, if bias { op.y.c } else { 0 });
            let sizes = shape.map(|size| size as usize);
            tensor(format!("{}.weight", op.name), sizes.to_vec(), &weight);
            if !bias.is_empty() {
                tensor(format!("{}.bias", op.name), vec![bias.len()], &bias);
            }
            parameters.weights.insert(id, weight);
            parameters.biases.insert(id, bias);
        }
        let Some(bn) = bn else { continue };
        let channels = op.y.c as usize;
        // What the BatchNorm reads: the op's output without it, and without the activation behind it.
        let mut before = network.clone();
        before.ops.truncate(index + 1);
        match &mut before.ops[index].kind {
            OpKind::Conv(conv) => conv.options.activation = Activation::None,
            OpKind::ScaleShift(options) => options.activation = Activation::None,
            _ => {}
        }
        let unscaled = (vec![1.0; channels], vec![0.0; channels]);
        parameters.scale_shifts.insert(id, unscaled);
        let values = evaluate_network(&before, &parameters, &x);
        let read = moments_of(&values[index], channels, input.batch as usize);
        let gamma: Vec<f64> = gaussians(random, channels, 0.3);
        let gamma: Vec<f64> = gamma.iter().map(|g| 1.0 + g).collect();
        let beta = gaussians(random, channels, 0.5);
        let deviations = read.variance.iter().map(|v| (v + bn.eps).sqrt());
        let scale: Vec<f64> = gamma.iter().zip(deviations).map(|(g, d)| g / d).collect();
        let shift = |c: usize| beta[c] - read.mean[c] * scale[c];
        let shift = (0..channels).map(shift).collect();
        parameters.scale_shifts.insert(id, (scale, shift));
        for (part, values) in [
            ("weight", &gamma),
            ("bias", &beta),
            ("running_mean", &read.mean),
            ("running_var", &read.variance),
        ] {
            tensor(format!("{}.{part}", bn.name), vec![channels], values);
        }
    }
    let values = evaluate_network(network, &parameters, &x);
    (
        Checkpoint::from_values("sampled".to_owned(), tensors),
        values,
    )
}

/// Root mean square of the errors of the means in standard deviations, and of the logarithms of the ratios of the deviations.
fn errors(found: &Channels, sampled: &Channels) -> [f64; 2] {
    let count = found.mean.len() as f64;
    let means = found.mean.iter().zip(&sampled.mean);
    let mean = means
        .zip(&sampled.variance)
        .map(|((found, mean), variance)| (found - mean).powi(2) / variance);
    let variances = found.variance.iter().zip(&sampled.variance);
    let deviation = variances.map(|(found, sampled)| (0.5 * (found / sampled).ln()).powi(2));
    [mean.sum::<f64>(), deviation.sum()].map(|sum| (sum / count).sqrt())
}

/// Within 0.15 standard deviations and 20 % of the standard deviation: a rule that is missing or wrong is several times as far off.
#[test]
fn the_rules_agree_with_sampled_activations() {
    let config = yaml::parse(NETWORK, "sampled.yaml", &Overrides::default()).unwrap();
    let Config::Network(network) = config else {
        panic!("a network");
    };
    let (checkpoint, values) = sampled(&network, &mut Random::new(7));
    let tensors = Tensors::new(&network, &checkpoint).unwrap();
    let last = OpId(network.ops.len() - 1);
    let moments = Moments::new(&network, &tensors, last);
    for (index, op) in network.ops.iter().enumerate() {
        let batch = op.y.batch as usize;
        let sampled = moments_of(&values[index], op.y.c as usize, batch);
        let [mean, deviation] = errors(&moments.channels[index], &sampled);
        // Channels depend on each other where a BatchNorm reads several parts of a network, and pixels on their neighbours, which a global
        // average adds.
        let most = match op.name.as_str() {
            "norm" | "pool" | "features" | "fc" => [0.25, 0.5],
            _ => [0.15, 0.2],
        };
        assert!(
            mean < most[0] && deviation < most[1],
            "{}: means {mean:.3}, deviations {deviation:.3}",
            op.name
        );
    }
}
