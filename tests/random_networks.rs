//! Random networks through planning, rendering, NVRTC and the CPU emulation: chains, residuals,
//! concatenations, prologues, factorised layers, strides, odd sizes, batches, every scheme, tile policy and GPU.
//! Finds errors of fusion, views and the arena.
//!
//! `TDC_NETWORKS=300 cargo test --release --test random_networks -- --ignored deep::` runs more of them.

mod compiled_units;
mod device;
mod toolkit;

use compiled_units::compiled;
use device::{cpu, gpu_here};
use tdc_generator::compile::nvrtc::{Effort, Options};
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::emit::network_files;
use tdc_generator::gpu::{GPUS, Gpu, gpu};
use tdc_generator::ir::{
    Activation, ActivationParameter, BatchNorm, BinaryOp, ChannelNorm, ConvOptions,
    ConvTransposeOptions, Coordinates, DType, Format, InputEncoding, Interpolation, Layout,
    LinearOptions, Lrn, Network, NetworkBuilder, OpKind, OpOptions, PadMode, PadOptions,
    PaddingOption, PoolOptions, Precision, Problem, Reduce, ResizeOptions, ResizedSize, Rounding,
    ScaleShiftOptions, SliceOptions, TensorShape, TilePolicy, TuckerProblem,
};
use tdc_generator::plan::{LayerPlan, NetworkPlan, PlannedUnit, plan_network, recipes};
use tdc_generator::verify::{CheckpointParameters, Device, Random, check_network, random_input};
use tdc_runtime::{Padding, WeightFile};
use tdc_weights::{Checkpoint, pack, resolve};

/// Number of networks whose kernels are built together.
const NETWORKS_PER_BUILD: usize = 10;

struct RandomNetworkBuilder {
    random: Random,
    builder: NetworkBuilder,
    /// Names and shapes of all ops, the inputs first.
    values: Vec<(String, TensorShape)>,
    /// Which of them are read by some op.
    read: Vec<bool>,
    /// Precision of all convolutions.
    precision: Precision,
    /// Every how many ops one is an output of the network.
    output_period: Option<usize>,
}

impl RandomNetworkBuilder {
    fn pick(&mut self, choices: &[u32]) -> u32 {
        choices[self.random.below(choices.len() as u64) as usize]
    }

    fn flag(&mut self) -> bool {
        self.random.below(2) == 0
    }

    fn activation(&mut self) -> Activation {
        match self.random.below(3) {
            0 => Activation::None,
            1 => Activation::Relu,
            _ => self.any_activation(),
        }
    }

    /// Any activation function but none.
    fn any_activation(&mut self) -> Activation {
        let [_, named @ ..] = &Activation::NAMES;
        named[self.random.below(named.len() as u64) as usize].1
    }

    /// Usually the last value, sometimes any.
    fn any(&mut self) -> usize {
        if self.random.below(3) > 0 {
            self.values.len() - 1
        } else {
            self.random.below(self.values.len() as u64) as usize
        }
    }

    fn push(&mut self, inputs: &[usize], options: OpOptions, y: TensorShape) {
        let name = format!("op{}", self.values.len());
        let names: Vec<_> = inputs.iter().map(|&i| self.values[i].0.clone()).collect();
        self.builder.op(&name, Some(&names), options);
        let period = self.output_period;
        if period.is_some_and(|period| self.values.len().is_multiple_of(period)) {
            self.builder
                .name_output(&format!("out{}", self.values.len()));
        }
        for &input in inputs {
            self.read[input] = true;
        }
        self.values.push((name, y));
        self.read.push(false);
    }

    fn bn(&mut self) -> Option<BatchNorm> {
        self.flag().then(|| BatchNorm {
            name: format!("bn{}", self.values.len()),
            eps: 1e-5,
        })
    }

    fn conv(&mut self, input: usize) {
        let x = self.values[input].1;
        let kernel = [self.pick(&[1, 1, 2, 3, 3, 5]), self.pick(&[1, 1, 2, 3, 3])];
        let mut options = ConvOptions::new(self.pick(&[1, 2, 5, 8, 12, 19]));
        options.kernel = kernel;
        options.stride = [self.pick(&[1, 1, 1, 2]), self.pick(&[1, 1, 1, 2])];
        options.bias = self.flag();
        options.bn = self.bn();
        options.activation = self.activation();
        options.precision = self.precision;
        match self.random.below(5) {
            4 => {
                options.layout = Layout::Hwcn;
                if self.flag() {
                    options.ranks = Some([1 + x.c / 2, options.n.div_ceil(2)]);
                }
            }
            0 if x.c > 1 => {
                // Depthwise, with one or two output channels per input channel.
                options.groups = x.c;
                options.n = x.c * self.pick(&[1, 2]);
            }
            1 => options.ranks = Some([1 + x.c / 2, options.n.div_ceil(2)]),
            3 => {
                let [rest, most] = [kernel[0] * kernel[1], x.c.max(options.n)];
                let limit = (x.c * options.n * rest / most.max(kernel[0]).max(kernel[1])).min(3);
                options.cp_rank = Some(1 + self.random.below(u64::from(limit)) as u32);
            }
            2 => {
                let schemes = [None, Some("direct"), Some("tdc"), Some("tdc_rows")];
                let scheme = schemes[self.random.below(4) as usize];
                options.scheme = scheme.map(str::to_owned);
                if scheme != Some("direct") && self.flag() {
                    options.reduce = Reduce::Atomic;
                }
            }
            _ => {}
        }
        self.push_conv(input, options);
    }

    /// A Tucker layer with channels that the one-launch kernel supports.
    fn tucker(&mut self, input: usize) {
        let x = self.values[input].1;
        let mut options = ConvOptions::new(self.pick(&[8, 13, 16, 21]));
        options.kernel = [self.pick(&[1, 2, 3]), self.pick(&[1, 3, 3])];
        options.stride = [self.pick(&[1, 1, 1, 2]), self.pick(&[1, 1, 1, 2])];
        options.bias = self.flag();
        options.bn = self.bn();
        options.activation = self.activation();
        options.precision = self.precision;
        let [d1, d2] = [self.pick(&[8, 9, 16]), self.pick(&[8, 11])];
        options.ranks = Some([d1.min(x.c), d2.min(options.n)]);
        self.push_conv(input, options);
    }

    /// A 1x1 convolution as two of a lower rank, with padding that its bias and its activation function do not leave zero.
    fn low_rank(&mut self, input: usize) {
        let x = self.values[input].1;
        let mut options = ConvOptions::new(self.pick(&[1, 2, 5, 12, 19]));
        options.kernel = [1, 1];
        options.stride = [self.pick(&[1, 1, 2]), self.pick(&[1, 1, 3])];
        let padding = Padding {
            top: self.pick(&[0, 0, 1]),
            left: self.pick(&[0, 0, 2]),
            bottom: self.pick(&[0, 0, 1]),
            right: self.pick(&[0, 0, 1]),
        };
        options.pad = PaddingOption::Pixels(padding);
        options.bias = self.flag();
        options.bn = self.bn();
        options.activation = self.activation();
        options.precision = self.precision;
        if self.random.below(4) == 0 {
            options.layout = Layout::Hwcn;
        }
        let limit = x.c.min(options.n);
        options.rank = Some(1 + self.random.below(u64::from(limit)) as u32);
        let y = TensorShape::new(
            x.batch,
            options.n,
            (x.h + padding.top + padding.bottom - 1) / options.stride[0] + 1,
            (x.w + padding.left + padding.right - 1) / options.stride[1] + 1,
        );
        self.push(&[input], OpOptions::Conv(options), y);
    }

    /// A convolution padded such that only its stride reduces the image size.
    fn push_conv(&mut self, input: usize, mut options: ConvOptions) {
        let (x, kernel) = (self.values[input].1, options.kernel);
        let pad = |size: u32| size / 2;
        let padding = Padding {
            top: pad(kernel[0]),
            bottom: kernel[0] - 1 - pad(kernel[0]),
            left: pad(kernel[1]),
            right: kernel[1] - 1 - pad(kernel[1]),
        };
        options.pad = PaddingOption::Pixels(padding);
        let y = TensorShape::new(
            x.batch,
            options.n,
            (x.h - 1) / options.stride[0] + 1,
            (x.w - 1) / options.stride[1] + 1,
        );
        self.push(&[input], OpOptions::Conv(options), y);
    }

    fn step(&mut self) {
        let input = self.any();
        let x = self.values[input].1;
        let same: Vec<usize> = (0..self.values.len())
            .filter(|&i| self.values[i].1 == x)
            .collect();
        let same_image: Vec<usize> = (0..self.values.len())
            .filter(|&i| (self.values[i].1.h, self.values[i].1.w) == (x.h, x.w))
            .collect();
        match self.random.below(14) {
            0 | 1 => {
                let other = same[self.random.below(same.len() as u64) as usize];
                let activation = self.activation();
                let op = match self.random.below(3) {
                    0 if x.c.is_multiple_of(2) => BinaryOp::Mul,
                    0 => BinaryOp::Sub,
                    _ => BinaryOp::Add,
                };
                self.push(&[input, other], OpOptions::Binary(op, activation), x);
            }
            2 if self.flag() => {
                // A gate: factors of the channels from their means.
                let pooled = TensorShape::new(x.batch, x.c, 1, 1);
                self.push(&[input], OpOptions::GlobalAvgPool, pooled);
                let factors = self.values.len() - 1;
                let sigmoid = OpOptions::Activation(Activation::Sigmoid);
                self.push(&[factors], sigmoid, pooled);
                let activation = self.activation();
                let gate = OpOptions::Binary(BinaryOp::Mul, activation);
                self.push(&[input, factors + 1], gate, x);
            }
            3 if self.flag() && x.h * x.w <= 100 => {
                let options = ConvTransposeOptions {
                    stride: [2, 1],
                    pad: Padding {
                        left: 1,
                        right: 1,
                        ..Padding::default()
                    },
                    output_padding: [1, 0],
                    groups: if x.c.is_multiple_of(2) { 2 } else { 1 },
                    bias: self.flag(),
                    activation: self.activation(),
                    ..ConvTransposeOptions::new(6, [2, 3])
                };
                let y = TensorShape {
                    c: 6,
                    h: 2 * x.h + 1,
                    ..x
                };
                self.push(&[input], OpOptions::ConvTranspose(options), y);
            }
            2 | 3 => {
                let mut inputs = vec![input];
                for _ in 0..1 + self.random.below(2) {
                    inputs.push(same_image[self.random.below(same_image.len() as u64) as usize]);
                }
                let c = inputs.iter().map(|&i| self.values[i].1.c).sum();
                if c <= 64 {
                    self.push(&inputs, OpOptions::Concat, TensorShape { c, ..x });
                }
            }
            4 if self.flag() => self.push(&[input], OpOptions::PRelu, x),
            4 => {
                let activation = self.any_activation();
                self.push(&[input], OpOptions::Activation(activation), x);
            }
            5 => {
                let options = ScaleShiftOptions {
                    bn: self.bn(),
                    activation: self.activation(),
                };
                self.push(&[input], OpOptions::ScaleShift(options), x);
            }
            6 if x.h > 2 && x.w > 2 => {
                let options = PoolOptions {
                    kernel: [3, 2],
                    stride: [2, 1],
                    pad: Padding {
                        top: 1,
                        bottom: 1,
                        left: 0,
                        right: 1,
                    },
                    dilation: [1, 1],
                    ceil_mode: false,
                    count_include_pad: self.flag(),
                };
                let y = TensorShape {
                    h: (x.h - 1) / 2 + 1,
                    ..x
                };
                let op = if self.flag() {
                    OpOptions::MaxPool(options)
                } else {
                    OpOptions::AvgPool(options)
                };
                self.push(&[input], op, y);
            }
            6 => {
                let out = [self.pick(&[1, 3, 8, 15]), self.pick(&[2, 5, 14])];
                let index = self.random.below(4) as usize;
                let (_, coordinates) = Coordinates::NAMES[index];
                let (_, rounding) = Rounding::NAMES[self.random.below(4) as usize];
                let interpolation = match self.flag() {
                    true => Interpolation::Nearest(rounding),
                    false => Interpolation::Bilinear,
                };
                let options = OpOptions::Resize(ResizeOptions {
                    size: ResizedSize::Pixels(out),
                    coordinates,
                    interpolation,
                });
                let [h, w] = out;
                self.push(&[input], options, TensorShape { h, w, ..x });
            }
            9 => {
                let [eps, half, two] = [1e-3, 0.5, 2.0].map(ActivationParameter::new);
                let norm = match self.random.below(4) {
                    0 => OpOptions::ChannelNorm(ChannelNorm::Softmax),
                    2 => OpOptions::ChannelNorm(ChannelNorm::L2 { eps }),
                    1 => OpOptions::ChannelNorm(ChannelNorm::LayerNorm { eps }),
                    _ => OpOptions::Lrn(Lrn {
                        size: 4,
                        alpha: half,
                        beta: half,
                        k: two,
                    }),
                };
                self.push(&[input], norm, x);
            }
            7 if self.flag() => {
                let (_, mode) = PadMode::NAMES[self.random.below(3) as usize];
                let right = self.random.below(u64::from(x.w)) as u32;
                let pad = Padding {
                    right,
                    ..Padding::default()
                };
                let y = TensorShape {
                    w: x.w + right,
                    ..x
                };
                self.push(&[input], OpOptions::Pad(PadOptions { pad, mode }), y);
            }
            7 => self.slice(input),
            8 => {
                let groups = (1..=x.c).filter(|groups| x.c.is_multiple_of(*groups));
                let groups = self.pick(&groups.collect::<Vec<_>>());
                self.push(&[input], OpOptions::Shuffle(groups), x);
            }
            10 => self.low_rank(input),
            _ => self.conv(input),
        }
    }

    fn slice(&mut self, input: usize) {
        let x = self.values[input].1;
        let n = 1 + self.random.below(u64::from(x.c)) as u32;
        let start = self.random.below(u64::from(x.c - n + 1)) as u32;
        let options = OpOptions::Slice(SliceOptions { start, n });
        self.push(&[input], options, TensorShape { c: n, ..x });
    }

    /// Combines the values that no op reads, and ends the network in one of several ways.
    fn finish(mut self) -> Network {
        let mut loose: Vec<usize> = (0..self.values.len()).filter(|&i| !self.read[i]).collect();
        if loose.len() > 1 {
            let pooled: Vec<usize> = loose
                .drain(..)
                .map(|i| {
                    let x = self.values[i].1;
                    let op = if self.flag() {
                        OpOptions::GlobalAvgPool
                    } else {
                        OpOptions::GlobalMaxPool
                    };
                    self.push(&[i], op, TensorShape::new(x.batch, x.c, 1, 1));
                    self.values.len() - 1
                })
                .collect();
            let shape = self.values[pooled[0]].1;
            let c = pooled.iter().map(|&i| self.values[i].1.c).sum();
            self.push(&pooled, OpOptions::Concat, TensorShape { c, ..shape });
        }
        if self.random.below(4) == 0 {
            self.slice(self.values.len() - 1);
        }
        let last = self.values.len() - 1;
        let x = self.values[last].1;
        if self.flag() {
            let c = x.image_len() as u32;
            let flat = TensorShape::new(x.batch, c, 1, 1);
            self.push(&[last], OpOptions::Flatten, flat);
            if self.flag() {
                let options = LinearOptions {
                    n: 7,
                    bias: self.flag(),
                    activation: self.activation(),
                    rank: self.flag().then(|| self.pick(&[1, 5, 7]).min(c)),
                    factors: None,
                    precision: self.precision,
                };
                let y = TensorShape::new(x.batch, 7, 1, 1);
                self.push(&[last + 1], OpOptions::Linear(options), y);
            }
        }
        self.builder
            .finish()
            .unwrap_or_else(|errors| panic!("{errors:?}"))
    }
}

/// A network that consists of its inputs: one, or in some networks a second one of other channels.
fn random_builder(name: &str, index: usize, channels: &[u32]) -> RandomNetworkBuilder {
    let mut random = Random::new(1000 + index as u64);
    let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
    let input = TensorShape::new(
        pick(&[1, 1, 2, 3]),
        pick(channels),
        pick(&[5, 9, 14]),
        pick(&[4, 7, 13]),
    );
    let mut inputs = vec![("input".to_owned(), input)];
    if index % 4 == 2 {
        let c = 1 + input.c / 2;
        inputs.push(("other".to_owned(), TensorShape { c, ..input }));
    }
    RandomNetworkBuilder {
        random,
        builder: NetworkBuilder::with_inputs(&format!("{name}{index}"), &inputs),
        read: vec![false; inputs.len()],
        values: inputs,
        // Mostly fp32, which has the smallest error bound.
        precision: match index % 10 {
            3 => Precision::Tf32,
            6 => Precision::Fp16,
            9 => Precision::Bf16,
            _ => Precision::Fp32,
        },
        output_period: (index % 3 == 1).then_some(1 + index % 4),
    }
}

fn random_network(index: usize) -> Network {
    let mut random_builder = random_builder("net", index, &[1, 3, 7]);
    let steps = random_builder.pick(&[1, 3, 6, 10, 14]);
    for _ in 0..steps {
        random_builder.step();
    }
    if random_builder.read.iter().all(|&read| !read) {
        random_builder.conv(0);
    }
    let paper = random_builder.random.below(3) == 0;
    let mut network = random_builder.finish();
    if paper {
        network.tiles = TilePolicy::Paper;
    }
    encode_inputs(&mut network, index);
    format_outputs(&mut network, index);
    network
}

/// Stores some inputs in uint8 or NHWC, with or without mean and deviation.
fn encode_inputs(network: &mut Network, index: usize) {
    let count = network.inputs().len();
    for (at, op) in network.ops[..count].iter_mut().enumerate() {
        let kind = index + 3 * at;
        let of_channels = |first: f32| (0..op.y.c).map(|c| first + 0.0625 * c as f32).collect();
        let encoding = InputEncoding {
            dtype: [DType::Fp32, DType::Fp32, DType::Uint8][kind % 3],
            layout: [Layout::Nchw, Layout::Nchw, Layout::Nhwc, Layout::Nhwc][kind % 4],
            mean: (kind % 5 > 2).then(|| of_channels(-0.5)),
            std: (kind % 7 > 4).then(|| of_channels(0.5)),
        };
        op.kind = OpKind::Input(encoding);
    }
}

/// Stores some outputs in 16 bits or NHWC.
fn format_outputs(network: &mut Network, index: usize) {
    for (at, output) in network.outputs.iter_mut().enumerate() {
        let kind = index + 2 * at;
        output.format = Format::new(
            [DType::Fp32, DType::Fp16, DType::Fp32, DType::Bf16][kind % 4],
            [Layout::Nchw, Layout::Nhwc, Layout::Nhwc][kind % 3],
        );
    }
}

/// Consecutive Tucker layers, with additions, shortcuts and other readers of intermediate values.
fn random_chain(index: usize) -> Network {
    let mut random_builder = random_builder("chain", index, &[8, 11, 19]);
    for _ in 0..random_builder.pick(&[3, 4, 5]) {
        let input = random_builder.values.len() - 1;
        random_builder.tucker(input);
        let last = input + 1;
        let y = random_builder.values[last].1;
        let same = (0..last).rev().find(|&i| random_builder.values[i].1 == y);
        match (random_builder.random.below(4), same) {
            (0 | 1, Some(other)) => {
                let activation = random_builder.activation();
                random_builder.push(
                    &[last, other],
                    OpOptions::Binary(BinaryOp::Add, activation),
                    y,
                );
            }
            (0, None) => {
                let mut shortcut = ConvOptions::new(y.c);
                let x = random_builder.values[input].1;
                shortcut.kernel = [1, 1];
                shortcut.stride = [x.h.div_ceil(y.h), x.w.div_ceil(y.w)];
                random_builder.push_conv(input, shortcut);
                random_builder.push(
                    &[last, last + 1],
                    OpOptions::Binary(BinaryOp::Add, Activation::Relu),
                    y,
                );
            }
            (2, _) => {
                // Read by two layers: the next one, and one whose output is unused otherwise.
                random_builder.tucker(last);
                let activation = random_builder.any_activation();
                random_builder.push(&[last], OpOptions::Activation(activation), y);
            }
            _ => {}
        }
    }
    random_builder.finish()
}

/// A module of branches that are concatenated in any order: many convolutions of one input with the same geometry, some with another
/// one after them, some read by others too, some outputs of the network.
fn random_module(index: usize) -> Network {
    let mut builder = random_builder("module", index, &[8, 17, 40]);
    if builder.flag() {
        let (input, bn) = (builder.values.len() - 1, builder.bn());
        let x = builder.values[input].1;
        let activation = builder.activation();
        let options = ScaleShiftOptions { bn, activation };
        builder.push(&[input], OpOptions::ScaleShift(options), x);
    }
    for _ in 0..builder.pick(&[1, 2]) {
        let input = builder.values.len() - 1;
        let kernel = [builder.pick(&[1, 1, 1, 3]), builder.pick(&[1, 1, 1, 2])];
        let activation = builder.activation();
        let mut branches = Vec::new();
        for _ in 0..builder.pick(&[2, 3, 4, 5]) {
            let mut options = ConvOptions::new(builder.pick(&[3, 8, 16, 21, 64]));
            (options.kernel, options.activation) = (kernel, activation);
            (options.bias, options.bn) = (builder.flag(), builder.bn());
            options.precision = builder.precision;
            builder.push_conv(input, options);
            let sibling = builder.values.len() - 1;
            match builder.random.below(4) {
                0 | 1 => branches.push(sibling),
                2 => {
                    let mut options = ConvOptions::new(builder.pick(&[2, 9, 16]));
                    options.precision = builder.precision;
                    builder.push_conv(sibling, options);
                    branches.push(sibling + 1);
                }
                _ => {
                    let y = builder.values[sibling].1;
                    let tanh = OpOptions::Activation(Activation::Tanh);
                    builder.push(&[sibling], tanh, y);
                    branches.extend([sibling + 1, sibling]);
                }
            }
        }
        let at = builder.random.below(branches.len() as u64) as usize;
        branches.rotate_left(at);
        let x = builder.values[branches[0]].1;
        let c = branches.iter().map(|&i| builder.values[i].1.c).sum();
        builder.push(&branches, OpOptions::Concat, TensorShape { c, ..x });
    }
    builder.finish()
}

/// Inverted residuals and squeeze-and-excites, some whose inner values are read by others too, or are outputs of the network. Their inner
/// layers may have a bias, a BatchNorm, both or neither.
fn random_mobile_network(index: usize) -> Network {
    let mut builder = random_builder("mobile", index, &[8, 11, 24]);
    for _ in 0..builder.pick(&[2, 3]) {
        let input = builder.values.len() - 1;
        let x = builder.values[input].1;
        let expanded = x.c * builder.pick(&[2, 3, 4]);
        let layer = |builder: &mut RandomNetworkBuilder, n: u32, kernel: u32| {
            let mut options = ConvOptions::new(n);
            options.kernel = [kernel; 2];
            (options.bias, options.bn) = (builder.flag(), builder.bn());
            options.activation = builder.activation();
            options.precision = builder.precision;
            options
        };
        let expand = layer(&mut builder, expanded, 1);
        builder.push_conv(input, expand);
        let kernel = builder.pick(&[3, 3, 5]);
        let mut depthwise = layer(&mut builder, expanded, kernel);
        depthwise.groups = expanded;
        depthwise.stride = [builder.pick(&[1, 1, 2]); 2];
        builder.push_conv(input + 1, depthwise);
        let mut last = input + 2;
        let filtered = builder.values[last].1;
        if builder.random.below(3) == 0 {
            let pooled = TensorShape::new(filtered.batch, filtered.c, 1, 1);
            builder.push(&[last], OpOptions::GlobalAvgPool, pooled);
            let squeezed = 1 + filtered.c / 4;
            let squeeze = layer(&mut builder, squeezed, 1);
            builder.push_conv(last + 1, squeeze);
            let mut excite = layer(&mut builder, filtered.c, 1);
            excite.activation = Activation::Sigmoid;
            builder.push_conv(last + 2, excite);
            let gate = OpOptions::Binary(BinaryOp::Mul, Activation::None);
            builder.push(&[last, last + 3], gate, filtered);
            last += 4;
        }
        let keeps_channels = builder.flag();
        let n = match keeps_channels {
            true => x.c,
            false => builder.pick(&[8, 17, 32]),
        };
        let project = layer(&mut builder, n, 1);
        builder.push_conv(last, project);
        if builder.values[last + 1].1 == x {
            let activation = builder.activation();
            let add = OpOptions::Binary(BinaryOp::Add, activation);
            builder.push(&[last + 1, input], add, x);
        }
        if builder.random.below(6) == 0 {
            // Another reader of the expanded values.
            let y = builder.values[input + 1].1;
            builder.push(&[input + 1], OpOptions::Activation(Activation::Tanh), y);
        }
    }
    builder.finish()
}

/// A dense block (DenseNet): layers of a 1x1 convolution after a prologue, and a convolution that is appended to all before.
fn random_dense_network(index: usize) -> Network {
    let mut builder = random_builder("dense", index, &[8, 12, 20]);
    let mut all = builder.values.len() - 1;
    for layer in 0..builder.pick(&[2, 3]) {
        let x = builder.values[all].1;
        let activation = builder.activation();
        let bn = builder.bn();
        let prologue = OpOptions::ScaleShift(ScaleShiftOptions { bn, activation });
        let last = builder.values.len() - 1;
        builder.push(&[all], prologue, x);
        let conv = |builder: &mut RandomNetworkBuilder, n: u32, kernel: u32| {
            let mut options = ConvOptions::new(n);
            options.kernel = [kernel; 2];
            (options.bias, options.bn) = (builder.flag(), builder.bn());
            options.activation = builder.activation();
            options.precision = builder.precision;
            options
        };
        let channels = builder.pick(&[16, 24, 37]);
        let first = conv(&mut builder, channels, 1);
        builder.push_conv(last + 1, first);
        let (grown, kernel) = (builder.pick(&[4, 8, 16, 13]), builder.pick(&[3, 3, 5]));
        let growth = conv(&mut builder, grown, kernel);
        builder.push_conv(last + 2, growth);
        let y = builder.values[last + 3].1;
        let both = TensorShape { c: x.c + y.c, ..x };
        builder.push(&[all, last + 3], OpOptions::Concat, both);
        all = last + 4;
        if layer == 0 && builder.random.below(4) == 0 {
            // Another reader of the new channels.
            builder.push(&[last + 3], OpOptions::Activation(Activation::Tanh), y);
        }
    }
    let n = builder.pick(&[8, 17]);
    let options = ConvOptions {
        kernel: [1, 1],
        precision: builder.precision,
        ..ConvOptions::new(n)
    };
    builder.push_conv(all, options);
    builder.finish()
}

/// Numbers of units of a scheme.
fn units_of(plans: &[NetworkPlan], scheme: &str) -> usize {
    let units = plans.iter().flat_map(|plan| &plan.units);
    units.filter(|unit| unit.scheme == scheme).count()
}

/// The GPU that a network is planned for.
fn target(index: usize) -> &'static Gpu {
    let targets: Vec<_> = GPUS.iter().filter(|gpu| !gpu.planning_only()).collect();
    targets[index % targets.len()]
}

/// The CPU emulation, after NVRTC has compiled every kernel without warnings.
fn cpu_after_compiling(units: &[PlannedUnit]) -> Box<dyn Device> {
    let options = Options {
        effort: Effort::Fast,
        ..Options::default()
    };
    let compiler = toolkit::toolkit()
        .compiler(options)
        .unwrap_or_else(|error| panic!("{error}"));
    let all: Vec<_> = units.iter().collect();
    compiled(&compiler, &all, |unit| {
        gpu(&unit.variant().gpu).unwrap().arch
    });
    cpu(units)
}

fn check(device: &mut dyn Device, network: &Network, plan: &NetworkPlan) -> Result<(), String> {
    let recipes = recipes(network, plan);
    let checkpoint = Checkpoint::random(&recipes, 5);
    let resolved = resolve(&recipes, &checkpoint).map_err(|error| error.to_string())?;
    let file = pack(&plan.weights, &resolved.values).map_err(|error| error.to_string())?;
    let payload: Vec<f32> = file.bytes[WeightFile::HEADER_BYTES as usize..]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let parameters = CheckpointParameters::new(network, plan, &checkpoint, &resolved)
        .map_err(|error| error.to_string())?;
    let mut random = Random::new(9);
    let inputs = plan.inputs.iter();
    let inputs: Vec<_> = inputs
        .map(|input| random_input(input, &mut random))
        .collect();
    let check = check_network(device, network, plan, &parameters, &payload, &inputs)
        .map_err(|error| error.to_string())?;
    match check.failure {
        None if check.exceeds_tolerance => Err("a value exceeds the tolerance".to_owned()),
        None => Ok(()),
        Some((layer, failure)) => Err(format!("layer {layer}: {failure}")),
    }
}

/// Plans and runs the first networks of a series.
fn assert_right(
    count: usize,
    network: fn(usize) -> Network,
    open: fn(&[PlannedUnit]) -> Box<dyn Device>,
) -> Vec<NetworkPlan> {
    let indices: Vec<usize> = (0..count).collect();
    let mut failures = Vec::new();
    let mut plans = Vec::new();
    for indices in indices.chunks(NETWORKS_PER_BUILD) {
        let networks: Vec<_> = indices
            .iter()
            .map(|&index| {
                let network = network(index);
                let plan = plan_network(&network, target(index))
                    .unwrap_or_else(|errors| panic!("{network:#?}: {errors:?}"));
                network_files(std::slice::from_ref(&plan))
                    .unwrap_or_else(|error| panic!("{network:#?}: {error}"));
                (network, plan)
            })
            .collect();
        let units: Vec<_> = networks
            .iter()
            .flat_map(|(_, plan)| plan.units.iter().cloned())
            .collect();
        let mut device = open(&units);
        for (network, plan) in &networks {
            if let Err(failure) = check(device.as_mut(), network, plan) {
                failures.push(format!("{}: {failure}\n{network:#?}", network.name));
            }
        }
        plans.extend(networks.into_iter().map(|(_, plan)| plan));
    }
    assert!(
        failures.is_empty(),
        "{} of {count} networks failed; the first:\n{}",
        failures.len(),
        failures[0]
    );
    plans
}

/// How many networks of a series the deep tier checks: `TDC_NETWORKS`, or a default.
fn count(default: usize) -> usize {
    std::env::var("TDC_NETWORKS").map_or(default, |count| {
        count.parse().expect("TDC_NETWORKS is a number")
    })
}

/// Numbers of layers that are fused with the next layer's first factor: those that do not store their own
/// output, and those that do.
fn fused_with_next(plans: &[NetworkPlan]) -> [usize; 2] {
    let layers = plans
        .iter()
        .flat_map(|plan| plan.layers.iter().map(|layer| &plan.units[layer.unit]));
    let mut fused_with_next = [0, 0];
    for unit in layers {
        if let Problem::Tucker(TuckerProblem {
            next: Some(next), ..
        }) = unit.problem
        {
            fused_with_next[usize::from(next.stores_layer_output)] += 1;
        }
    }
    fused_with_next
}

#[test]
fn random_networks_match_the_reference() {
    assert_right(4, random_network, cpu_after_compiling);
}

/// Outputs in the middle of a network: values that fusion and views must leave to the caller.
#[test]
fn all_outputs_match_the_reference() {
    let networks = assert_right(5, |index| random_network(3 * index + 1), cpu);
    let chains = assert_right(2, |index| random_chain(3 * index + 1), cpu);
    let outputs = |plan: &NetworkPlan| plan.outputs.len();
    assert!(networks.iter().any(|plan| outputs(plan) > 3));
    assert!(chains.iter().all(|plan| outputs(plan) > 1));
}

/// Modules with merged convolutions, one of which writes to a concatenation.
fn merged_into_a_concatenation(plans: &[NetworkPlan]) -> usize {
    let has_slice = |layer: &&LayerPlan| {
        let mut outputs = layer.outputs();
        layer.parameters.merged.len() > 1 && outputs.any(|(_, y)| y.offset > 0)
    };
    let plans = plans.iter();
    plans
        .filter(|plan| plan.layers.iter().any(|layer| has_slice(&layer)))
        .count()
}

#[test]
fn random_modules_match_the_reference() {
    let plans = assert_right(6, random_module, cpu_after_compiling);
    assert!(merged_into_a_concatenation(&plans) > 1);
}

#[test]
fn random_mobile_networks_match_the_reference() {
    let plans = assert_right(4, random_mobile_network, cpu_after_compiling);
    assert!(units_of(&plans, "inverted_residual") > 1);
}

#[test]
fn random_dense_networks_match_the_reference() {
    let plans = assert_right(4, random_dense_network, cpu_after_compiling);
    assert!(units_of(&plans, "dense_step") > 1);
}

#[test]
fn random_networks_survive_as_configs() {
    for index in 0..300 {
        for network in [
            random_network(index),
            random_chain(index),
            random_module(index),
            random_mobile_network(index),
            random_dense_network(index),
        ] {
            let text = yaml::network_text(&network);
            let read = yaml::parse(&text, "written", &Overrides::default());
            assert_eq!(read.as_ref(), Ok(&Config::Network(network)), "{text}");
        }
    }
}

#[test]
fn random_tucker_chains_match_the_reference() {
    assert_right(2, random_chain, cpu_after_compiling);
}

mod deep {
    use super::*;

    #[test]
    #[ignore = "deep tier"]
    fn random_networks_match_the_reference() {
        assert_right(count(20), random_network, cpu_after_compiling);
    }

    #[test]
    #[ignore = "deep tier"]
    fn random_modules_match_the_reference() {
        let count = count(20);
        let plans = assert_right(count, random_module, cpu_after_compiling);
        assert!(merged_into_a_concatenation(&plans) > count / 4);
    }

    #[test]
    #[ignore = "deep tier"]
    fn random_mobile_networks_match_the_reference() {
        let count = count(20);
        let plans = assert_right(count, random_mobile_network, cpu_after_compiling);
        assert!(units_of(&plans, "inverted_residual") > count / 2);
        assert!(units_of(&plans, "squeeze_excite") > count / 5);
    }

    #[test]
    #[ignore = "deep tier"]
    fn random_dense_networks_match_the_reference() {
        let count = count(20);
        let plans = assert_right(count, random_dense_network, cpu_after_compiling);
        let steps = units_of(&plans, "dense_step");
        assert!(steps > count / 4, "{steps}");
    }

    #[test]
    #[ignore = "deep tier"]
    fn random_tucker_chains_match_the_reference() {
        let count = count(10);
        let fused_with_next =
            fused_with_next(&assert_right(count, random_chain, cpu_after_compiling));
        // Most layers are so small that launches of their own take less time.
        assert!(
            fused_with_next
                .iter()
                .all(|&fused_with_next| fused_with_next >= count / 10),
            "{fused_with_next:?}"
        );
    }
}

#[test]
#[ignore = "needs a GPU"]
fn random_networks_match_the_reference_on_a_gpu() {
    assert_right(50, random_network, gpu_here);
    assert_right(50, random_chain, gpu_here);
    assert_right(50, random_module, gpu_here);
    assert_right(50, random_mobile_network, gpu_here);
    assert_right(50, random_dense_network, gpu_here);
}
