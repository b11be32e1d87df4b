//! Parser of problem labels.

use super::problem_label;
use crate::ir::{
    Activation, ActivationParameter, BinaryOp, ChannelNorm, ChannelNormProblem, ConvProblem,
    ConvTransposeProblem, ConvertProblem, Coordinates, CpProblem, DType, DenseStepProblem,
    Elementwise, ElementwiseProblem, Epilogue, Format, GlobalPoolProblem, Interpolation,
    InvertedResidualProblem, Layout, LinearProblem, Lrn, LrnProblem, MAX_ELEMENTS, NHWC_FORMATS,
    NextFactor, NormalizeProblem, PadMode, PadProblem, PoolKind, PoolProblem, Precision, Problem,
    ProjectedProblem, Prologue, Reduce, ResizeProblem, Rounding, Shortcut, SqueezeExciteProblem,
    TensorShape, Tolerance, TuckerProblem, activation_of_label, number_of_label,
};
use tdc_runtime::{ConvShape, Padding};

/// The problem of a label; `None` if the text is not a label that [`problem_label`] writes, or no config can have the problem.
pub fn problem_of_label(label: &str) -> Option<Problem> {
    let (kind, rest) = label.split_once('_')?;
    let mut words = Words {
        rest: rest.split('_').collect(),
        next: 0,
    };
    let problem = match kind {
        "conv" => words.conv()?,
        "convtranspose" => words.conv_transpose()?,
        "cp" => words.cp()?,
        "tucker" => words.tucker()?,
        "linear" => words.linear()?,
        "convert" => words.convert()?,
        "maxpool" => words.pool(PoolKind::Max)?,
        "avgpool" => words.pool(PoolKind::Avg {
            count_include_pad: true,
        })?,
        "avgpoolvalid" => words.pool(PoolKind::Avg {
            count_include_pad: false,
        })?,
        "bilinear" => words.resize(Interpolation::Bilinear)?,
        "nearest" => words.resize(Interpolation::Nearest(Rounding::PreferFloor))?,
        "nearestpreferceil" => words.resize(Interpolation::Nearest(Rounding::PreferCeil))?,
        "nearestfloor" => words.resize(Interpolation::Nearest(Rounding::Floor))?,
        "nearestceil" => words.resize(Interpolation::Nearest(Rounding::Ceil))?,
        "globalmaxpool" | "globalavgpool" => words.global_pool(kind == "globalmaxpool")?,
        "normalize" => words.normalize()?,
        "projected" => words.projected()?,
        "densestep" => words.dense_step()?,
        "invertedresidual" => words.inverted_residual()?,
        "squeezeexcite" => words.squeeze_excite()?,
        "softmax" => Problem::ChannelNorm(ChannelNormProblem {
            norm: ChannelNorm::Softmax,
            x: words.sizes()?,
        }),
        _ if kind.starts_with("lrn") => Problem::Lrn(LrnProblem {
            lrn: lrn(kind)?,
            x: words.sizes()?,
        }),
        _ if kind.starts_with("l2norm") => Problem::ChannelNorm(ChannelNormProblem {
            norm: l2_norm(kind)?,
            x: words.sizes()?,
        }),
        _ if kind.starts_with("pad") => words.pad(pad_mode(kind)?)?,
        _ => match kind.strip_prefix("layernorm") {
            Some(eps) => Problem::ChannelNorm(ChannelNormProblem {
                norm: layer_norm(eps)?,
                x: words.sizes()?,
            }),
            None => Problem::Elementwise(ElementwiseProblem {
                function: elementwise(kind)?,
                x: words.sizes()?,
            }),
        },
    };
    // Also rejects additional words, a different order and other spellings.
    (is_sane(&problem) && problem_label(&problem) == label).then_some(problem)
}

fn lrn(kind: &str) -> Option<Lrn> {
    let parts: Vec<&str> = kind.strip_prefix("lrn")?.split('x').collect();
    let [size, alpha, beta, k] = parts[..] else {
        return None;
    };
    let number = |text: &str, is_valid: fn(f32) -> bool| {
        let number = number_of_label(text).filter(|&number| number.is_finite() && is_valid(number));
        number.map(ActivationParameter::new)
    };
    Some(Lrn {
        size: size.parse().ok().filter(|&size| size > 0)?,
        alpha: number(alpha, |number| number >= 0.0)?,
        beta: number(beta, |number| number >= 0.0)?,
        k: number(k, |number| number > 0.0)?,
    })
}

fn pad_mode(kind: &str) -> Option<PadMode> {
    match kind.strip_prefix("pad")? {
        "reflect" => Some(PadMode::Reflect),
        "edge" => Some(PadMode::Edge),
        value => {
            let value = number_of_label(value).filter(|value| value.is_finite())?;
            Some(PadMode::Constant(ActivationParameter::new(value)))
        }
    }
}

fn l2_norm(kind: &str) -> Option<ChannelNorm> {
    let eps = number_of_label(kind.strip_prefix("l2norm")?)
        .filter(|eps| (ChannelNorm::MIN_EPS..f32::INFINITY).contains(eps))?;
    let eps = ActivationParameter::new(eps);
    Some(ChannelNorm::L2 { eps })
}

fn layer_norm(eps: &str) -> Option<ChannelNorm> {
    let eps = number_of_label(eps).filter(|eps| (0.0..f32::INFINITY).contains(eps))?;
    let eps = ActivationParameter::new(eps);
    Some(ChannelNorm::LayerNorm { eps })
}

fn elementwise(kind: &str) -> Option<Elementwise> {
    match kind {
        "copy" => return Some(Elementwise::Copy),
        "prelu" => return Some(Elementwise::PRelu),
        _ => {}
    }
    if let Some(groups) = kind.strip_prefix("shuffle") {
        let groups = groups.parse().ok();
        return groups.map(|groups| Elementwise::Shuffle { groups });
    }
    let after = |op| kind.strip_prefix(op).and_then(activation_of_label);
    let binary = BinaryOp::NAMES
        .iter()
        .find_map(|&(word, op)| Some(Elementwise::Binary(op, after(word)?)));
    let scale_shift = || after("scaleshift").map(Elementwise::ScaleShift);
    let alone = || activation_of_label(kind).map(Elementwise::Activation);
    binary.or_else(scale_shift).or_else(alone)
}

/// Whether every tensor has at least one element, and no more than kernels can index, and groups divide channels.
fn is_sane(problem: &Problem) -> bool {
    let len = |sizes: &[u32; 4]| {
        let sizes = sizes.iter().map(|&size| u64::from(size));
        sizes.fold(1, u64::saturating_mul)
    };
    let fits = |len: u64| (1..=MAX_ELEMENTS).contains(&len);
    // A view is in a tensor that kernels can index.
    let kind = problem.kind();
    let has_space = [kind.input(), kind.output()].into_iter().all(|tensor| {
        let channels = tensor.format.pixel_stride.unwrap_or(tensor.shape.c);
        let whole = TensorShape {
            c: channels,
            ..tensor.shape
        };
        fits(whole.len())
    });
    let divides = match problem {
        Problem::Elementwise(ElementwiseProblem {
            function: Elementwise::Shuffle { groups },
            x,
        }) => *groups > 0 && x.c.is_multiple_of(*groups),
        _ => true,
    };
    divides
        && has_space
        && fits(problem.x().len())
        && fits(problem.y().len())
        && (!problem.reads_residual() || fits(problem.residual_shape().len()))
        && problem.weights().iter().map(len).all(fits)
}

/// The words of a label after the kind.
struct Words<'a> {
    rest: Vec<&'a str>,
    next: usize,
}

impl Words<'_> {
    /// Largest number in a label, so that sums of a few numbers do not overflow.
    const LARGEST: u32 = 1 << 28;

    /// Whether the next word is this one; if so, it is consumed.
    fn word(&mut self, word: &str) -> bool {
        let found = self.rest.get(self.next) == Some(&word);
        self.next += usize::from(found);
        found
    }

    /// The numbers of the next word, if it consists of `prefix` and numbers separated by `x`; it is then consumed.
    fn numbers(&mut self, prefix: &str) -> Option<Vec<u32>> {
        let numbers = self.rest.get(self.next)?.strip_prefix(prefix)?.split('x');
        let number = |text: &str| text.parse().ok().filter(|&number| number <= Self::LARGEST);
        let numbers = numbers.map(number).collect::<Option<_>>()?;
        self.next += 1;
        Some(numbers)
    }

    fn number(&mut self, prefix: &str) -> Option<u32> {
        match self.numbers(prefix)?[..] {
            [number] => Some(number),
            _ => None,
        }
    }

    fn both(&mut self, prefix: &str) -> Option<[u32; 2]> {
        self.numbers(prefix)?.try_into().ok()
    }

    /// A pair of positive numbers; 1 if it is absent.
    fn pair(&mut self, prefix: &str) -> Option<[u32; 2]> {
        let pair = match self.numbers(prefix).as_deref() {
            None => [1, 1],
            Some(&[both]) => [both, both],
            Some(&[v, h]) => [v, h],
            Some(_) => return None,
        };
        pair.iter().all(|&number| number > 0).then_some(pair)
    }

    fn padding(&mut self) -> Option<Padding> {
        match self.numbers("p").as_deref() {
            None => Some(Padding::all(0)),
            Some(&[all]) => Some(Padding::all(all)),
            Some(&[top, left, bottom, right]) => Some(Padding {
                top,
                left,
                bottom,
                right,
            }),
            Some(_) => None,
        }
    }

    fn batch(&mut self) -> u32 {
        self.number("b").unwrap_or(1)
    }

    fn sizes(&mut self) -> Option<TensorShape> {
        let (batch, c) = (self.batch(), self.number("c")?);
        Some(TensorShape::new(
            batch,
            c,
            self.number("h")?,
            self.number("w")?,
        ))
    }

    /// Image, filter and options of a convolution.
    fn filter(&mut self, batch: u32, c: u32, n: u32) -> Option<ConvShape> {
        let (h, w, [r, s]) = (self.number("h")?, self.number("w")?, self.both("k")?);
        let shape = ConvShape {
            batch,
            stride: self.pair("s")?,
            padding: self.padding()?,
            dilation: self.pair("d")?,
            groups: self.number("g").unwrap_or(1),
            ..ConvShape::new(c, n, h, w, r, s)
        };
        let groups = shape.groups;
        let whole = groups > 0 && c.is_multiple_of(groups) && n.is_multiple_of(groups);
        (whole && r > 0 && s > 0).then_some(shape)
    }

    fn prologue(&mut self) -> Option<Prologue> {
        let word = self.rest.get(self.next)?.strip_prefix("prologue")?;
        let activation = activation_of_label(word)?;
        self.next += 1;
        Some(Prologue { activation })
    }

    /// An activation, if the next word is one.
    fn activation(&mut self) -> Activation {
        let word = self.rest.get(self.next);
        let activation = word.and_then(|word| activation_of_label(word));
        self.next += usize::from(activation.is_some());
        activation.unwrap_or_default()
    }

    fn epilogue(&mut self) -> Epilogue {
        Epilogue {
            bias: self.word("bias"),
            residual: self.word("residual"),
            activation: self.activation(),
        }
    }

    fn precision(&mut self) -> Precision {
        let mut words = Precision::NAMES.iter();
        let found = words.find(|(word, _)| self.word(word));
        found.map_or(Precision::Fp32, |(_, precision)| *precision)
    }

    fn tolerance(&mut self) -> Option<Tolerance> {
        match self.number("tol") {
            None => Some(Tolerance::default()),
            Some(billionths) => Tolerance::new(f64::from(billionths) / 1e9),
        }
    }

    /// The words after the sizes of a convolution.
    fn fused(&mut self, shape: ConvShape) -> Option<ConvProblem> {
        Some(ConvProblem {
            prologue: self.prologue(),
            epilogue: self.epilogue(),
            reduce: match self.word("atomic") {
                true => Reduce::Atomic,
                false => Reduce::Ordered,
            },
            precision: self.precision(),
            tolerance: self.tolerance()?,
            ..ConvProblem::new(shape)
        })
    }

    fn conv(&mut self) -> Option<Problem> {
        let (batch, c, n) = (self.batch(), self.number("c")?, self.number("n")?);
        let shape = self.filter(batch, c, n)?;
        let conv = self.fused(shape)?;
        if self.word("hwcn") {
            return Some(Problem::Conv(conv.in_layout(Layout::Hwcn)));
        }
        let [input, output] = self.formats(c, n)?;
        let is_dense = output.pixel_stride.is_none();
        (is_dense || !conv.epilogue.residual).then(|| Problem::Conv(conv.in_formats(input, output)))
    }

    /// The format of an input in uint8.
    fn uint8(&mut self) -> Option<Format> {
        let layouts = [
            ("fromuint8nchw", Layout::Nchw),
            ("fromuint8nhwc", Layout::Nhwc),
        ];
        let found = layouts.into_iter().find(|(word, _)| self.word(word));
        found.map(|(_, layout)| Format::new(DType::Uint8, layout))
    }

    /// The formats of an input of `c` and an output of `n` channels.
    fn formats(&mut self, c: u32, n: u32) -> Option<[Format; 2]> {
        if let Some(input) = self.uint8() {
            let [_, output] = self.formats(c, n)?;
            return Some([input, output]);
        }
        let fp32 = Format::default();
        let formats = match self.nhwc("") {
            Some(both) => [both; 2],
            None => ["from", "to"].map(|side| self.nhwc(side).unwrap_or(fp32)),
        };
        let [input, output] = formats;
        let is_one_format = [input, output].contains(&fp32) || input.dense() == output.dense();
        let fits =
            |format: Format, channels| format.fits_channels(channels) && format.fits_view(channels);
        (fits(input, c) && fits(output, n) && is_one_format).then_some(formats)
    }

    /// An NHWC format after `side`: `tonhwc16`, or of a view `tonhwc16of256`.
    fn nhwc(&mut self, side: &str) -> Option<Format> {
        NHWC_FORMATS.into_iter().find_map(|(name, format)| {
            let word = format!("{side}{name}");
            match self.word(&word) {
                true => Some(format),
                false => Some(format.view_of(self.number(&format!("{word}of"))?)),
            }
        })
    }

    fn conv_transpose(&mut self) -> Option<Problem> {
        let (batch, c, n) = (self.batch(), self.number("c")?, self.number("n")?);
        let problem = ConvTransposeProblem {
            shape: self.filter(batch, c, n)?,
            output_padding: match self.numbers("op").as_deref() {
                None => [0, 0],
                Some(&[both]) => [both, both],
                Some(&[v, h]) => [v, h],
                Some(_) => return None,
            },
            epilogue: self.epilogue(),
        };
        let mut sizes = problem.full_size().into_iter();
        let fits = sizes.all(|size| size <= MAX_ELEMENTS) && !problem.epilogue.residual;
        fits.then_some(Problem::ConvTranspose(problem))
    }

    fn normalize(&mut self) -> Option<Problem> {
        let x = self.sizes()?;
        let fp32 = [
            ("fromfp32nchw", Layout::Nchw),
            ("fromfp32nhwc", Layout::Nhwc),
        ];
        let from = match self.uint8() {
            Some(format) => format,
            None => {
                let found = fp32.into_iter().find(|(word, _)| self.word(word));
                Format::fp32(found?.1)
            }
        };
        Some(Problem::Normalize(NormalizeProblem { x, from }))
    }

    fn projected(&mut self) -> Option<Problem> {
        let (x, n) = (self.sizes()?, self.number("n")?);
        let shortcut = match self.word("shortcut") {
            true => Shortcut {
                image: [self.number("c")?, self.number("h")?, self.number("w")?],
                stride: self.pair("s")?,
            },
            false => return None,
        };
        let (epilogue, precision) = (self.epilogue(), self.precision());
        let [format, output] = self.formats(x.c, n)?;
        let problem = ProjectedProblem {
            x,
            n,
            shortcut,
            epilogue,
            precision,
            format,
        };
        let is_valid = problem.is_valid() && output == format && !epilogue.residual;
        is_valid.then_some(Problem::Projected(problem))
    }

    fn dense_step(&mut self) -> Option<Problem> {
        let (batch, c) = (self.batch(), self.number("c")?);
        let (grow, before) = (self.number("grow")?, self.number("before")?);
        let n = self.number("n")?;
        let problem = DenseStepProblem {
            growth: self.filter(batch, c, grow)?,
            grown: self.epilogue(),
            before,
            n,
            prologue: match self.word("concat") {
                true => self.prologue(),
                false => return None,
            },
            epilogue: self.epilogue(),
            precision: self.precision(),
        };
        let has_residual = problem.grown.residual || problem.epilogue.residual;
        let is_possible = before > 0 && problem.growth.groups == 1 && !has_residual;
        is_possible.then_some(Problem::DenseStep(problem))
    }

    fn inverted_residual(&mut self) -> Option<Problem> {
        let (batch, c) = (self.batch(), self.number("c")?);
        let (expanded, n) = (self.number("e")?, self.number("n")?);
        let filter = self.filter(batch, expanded, expanded)?;
        let problem = InvertedResidualProblem {
            depthwise: ConvShape {
                groups: expanded,
                ..filter
            },
            c,
            n,
            expand: self.epilogue(),
            filter: match self.word("depthwise") {
                true => self.epilogue(),
                false => return None,
            },
            project: match self.word("project") {
                true => self.epilogue(),
                false => return None,
            },
            precision: self.precision(),
        };
        let has_residual = problem.expand.residual || problem.filter.residual;
        let is_possible = expanded > 0 && filter.groups == 1 && !has_residual;
        is_possible.then_some(Problem::InvertedResidual(problem))
    }

    fn squeeze_excite(&mut self) -> Option<Problem> {
        let problem = SqueezeExciteProblem {
            x: self.sizes()?,
            squeezed: self.number("n")?,
            squeeze: self.epilogue(),
            excite: match self.word("gate") {
                true => self.epilogue(),
                false => return None,
            },
            after: match self.word("after") {
                true => self.activation(),
                false => Activation::None,
            },
        };
        let has_residual = problem.squeeze.residual || problem.excite.residual;
        (!has_residual).then_some(Problem::SqueezeExcite(problem))
    }

    fn cp(&mut self) -> Option<Problem> {
        let (batch, c, rank) = (self.batch(), self.number("c")?, self.number("r")?);
        let n = self.number("n")?;
        let shape = self.filter(batch, c, n)?;
        let conv = self.fused(shape)?;
        let is_one = rank > 0 && shape.groups == 1 && conv.reduce == Reduce::Ordered;
        is_one.then_some(Problem::Cp(CpProblem { conv, rank }))
    }

    fn tucker(&mut self) -> Option<Problem> {
        let (batch, first, [d1, d2]) = (self.batch(), self.number("c"), self.both("d")?);
        let n = self.number("n")?;
        let core = self.filter(batch, d1, d2)?;
        let problem = TuckerProblem {
            core,
            first,
            n,
            prologue: self.prologue(),
            epilogue: self.epilogue(),
            next: self.next_factor(),
            precision: self.precision(),
        };
        let has_place = problem.prologue.is_none() || first.is_some();
        (core.groups == 1 && has_place).then_some(Problem::Tucker(problem))
    }

    fn next_factor(&mut self) -> Option<NextFactor> {
        if let Some(n) = self.number("next") {
            return Some(NextFactor {
                n,
                stores_layer_output: true,
            });
        }
        let n = self.number("nextonly")?;
        Some(NextFactor {
            n,
            stores_layer_output: false,
        })
    }

    fn linear(&mut self) -> Option<Problem> {
        let (batch, c, n) = (self.batch(), self.number("c")?, self.number("n")?);
        let epilogue = self.epilogue();
        let problem = LinearProblem {
            batch,
            c,
            n,
            epilogue,
        };
        (!epilogue.residual).then_some(Problem::Linear(problem))
    }

    fn pool(&mut self, kind: PoolKind) -> Option<Problem> {
        let (x, kernel) = (self.sizes()?, self.both("k")?);
        let (stride, padding, dilation) = (self.pair("s")?, self.padding()?, self.pair("d")?);
        let out = self.both("o")?;
        let [input, output] = self.formats(x.c, x.c)?;
        let keeps_layout = output != Format::default() || input == output;
        (keeps_layout && kernel.iter().all(|&size| size > 0)).then_some(Problem::Pool(
            PoolProblem {
                kind,
                x,
                kernel,
                stride,
                padding,
                dilation,
                out,
                input,
                output,
            },
        ))
    }

    fn global_pool(&mut self, max: bool) -> Option<Problem> {
        let x = self.sizes()?;
        let [input, output] = self.formats(x.c, x.c)?;
        let problem = GlobalPoolProblem { max, x, input };
        let is_possible = output == Format::default() && input.pixel_stride.is_none();
        is_possible.then_some(Problem::GlobalPool(problem))
    }

    fn pad(&mut self, mode: PadMode) -> Option<Problem> {
        let (x, padding) = (self.sizes()?, self.padding()?);
        let fits = |size: u32, pixels: u32| size > 0 && pixels <= mode.limit(size);
        let Padding {
            top,
            left,
            bottom,
            right,
        } = padding;
        let problem = PadProblem { mode, x, padding };
        (fits(x.h, top.max(bottom)) && fits(x.w, left.max(right))).then_some(Problem::Pad(problem))
    }

    fn resize(&mut self, interpolation: Interpolation) -> Option<Problem> {
        let (x, out) = (self.sizes()?, self.both("o")?);
        let words = [
            ("pytorch", Coordinates::PytorchHalfPixel),
            ("align", Coordinates::AlignCorners),
            ("asymmetric", Coordinates::Asymmetric),
        ];
        let coordinates = words.into_iter().find(|(word, _)| self.word(word));
        let fits = |size: u32, out: u32| {
            (1..=ResizeProblem::MAX_PRODUCT).contains(&(u64::from(size) * u64::from(out)))
        };
        (fits(x.h, out[0]) && fits(x.w, out[1])).then_some(Problem::Resize(ResizeProblem {
            x,
            out,
            coordinates: coordinates.map_or(Coordinates::HalfPixel, |(_, found)| found),
            interpolation,
        }))
    }

    fn convert(&mut self) -> Option<Problem> {
        let x = self.sizes()?;
        let [nchw, nhwc, hwcn] = Layout::ALL.map(Format::fp32);
        let from = self.nhwc("from");
        let words = [
            ("hwcn", hwcn),
            ("tonhwc", nhwc),
            ("tonchw16", Format::FP16_NCHW),
            ("tonchwbf16", Format::BF16_NCHW),
        ];
        let found = words.into_iter().find(|(word, _)| self.word(word));
        let to = found.map(|(_, format)| format).or_else(|| self.nhwc("to"));
        let from_hwcn = from.is_none() && to.is_none() && self.word("nchw");
        let problem = ConvertProblem {
            x,
            from: match from {
                Some(format) => format,
                None if from_hwcn => hwcn,
                None => nchw,
            },
            to: to.unwrap_or(nchw),
        };
        problem.is_possible().then_some(Problem::Convert(problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_as_they_are_written() {
        for label in [
            "conv_c64_n32_h56_w56_k3x3_p1_bias_relu",
            "conv_b2_c8_n12_h5_w7_k1x1_prologue_bias_relu",
            "conv_c6_n6_h5_w5_k3x1_s1x2_p0x1x2x3_d2_g6_prologuerelu_bias_residual_relu_fp16_tol5000",
            "conv_c6_n6_h5_w5_k3x3_atomic",
            "conv_b8_c6_n6_h5_w5_k3x3_tf32_hwcn",
            "cp_c20_r7_n24_h19_w21_k5x3_s1x2_p2x1x0x3_d2x1_bias_relu",
            "tucker_c32_d16x17_n24_h20_w20_k3x3_p1_bias_bf16",
            "tucker_d16x17_n24_h20_w20_k3x3_p1_bias_residual_relu_next11",
            "tucker_b4_c32_d16x17_n24_h20_w20_k3x3_p1_prologuerelu_nextonly11_fp16",
            "linear_b3_c512_n1000_bias",
            "maxpool_c64_h112_w112_k3x3_s2_p1_o56x56",
            "avgpoolvalid_c64_h112_w112_k3x2_s2x1_o56x56",
            "globalavgpool_c512_h7_w7",
            "nearest_c512_h7_w7_o14x14",
            "nearestceil_c512_h7_w7_o14x21_asymmetric",
            "bilinear_b2_c512_h7_w9_o14x3_align",
            "shuffle2_c116_h28_w28",
            "prelu_b2_c64_h56_w56",
            "l2norm1em12_c96_h7_w7",
            "convtranspose_c8_n6_h7_w9_k3x3",
            "convtranspose_b2_c8_n6_h7_w9_k3x4_s2x3_p1x0x2x3_d2_g2_op0x1_bias_relu",
            "padm0p5_b2_c3_h7_w9_p1x0x2x3",
            "padreflect_c3_h7_w9_p6",
            "padedge_c3_h1_w1_p6",
            "softmax_b2_c1000_h1_w1",
            "layernorm1em6_c96_h56_w56",
            "lrn5x1em4x0p75x1_b2_c96_h55_w55",
            "densestep_c128_grow32_before624_n128_h14_w14_k3x3_p1_concat_prologuerelu_bias_relu",
            "densestep_b2_c5_grow7_before3_n9_h14_w13_k3x5_s2x1_p1x2x0x1_d2_bias_relu_concat_silu_tf32",
            "invertedresidual_c64_e384_n64_h14_w14_k3x3_p1_bias_clip0x6_depthwise_bias_clip0x6_project_bias_residual",
            "invertedresidual_b2_c5_e7_n9_h14_w13_k3x5_s2x1_p1x2x0x1_d2_depthwise_relu_project_silu_tf32",
            "squeezeexcite_c96_h7_w7_n24_bias_relu_gate_bias_hardsigmoid",
            "squeezeexcite_b2_c5_h1_w3_n1_gate_after_silu",
            "addrelu_c64_h56_w56",
            "addclipm0p5xinf_c64_h56_w56",
            "leakyrelu1em30_c64_h56_w56",
            "hardswish_b2_c64_h56_w56",
            "mul_b2_c64_h56_w56",
            "subrelu_c64_h55_w53",
            "gatehardswish_b2_c64_h56_w56",
            "scaleshifthardsigmoid_c64_h56_w56",
            "conv_c6_n6_h5_w5_k3x3_prologuesigmoid_bias_clip0x6_atomic",
            "cp_c20_r7_n24_h19_w21_k5x3_leakyrelum0p1_fp16",
            "tucker_d16x17_n24_h20_w20_k3x3_p1_silu_next11",
            "linear_b3_c512_n1000_gelu",
            "linear_b3_c512_n1000_gelutanh",
            "convert_b2_c3_h4_w5_hwcn",
            "convert_b2_c3_h4_w5_nchw",
            "convert_b2_c8_h4_w5_tonhwc16",
            "convert_c24_h4_w5_fromnhwc16",
            "convert_b2_c8_h4_w5_tonhwc16of24",
            "convert_c24_h4_w5_fromnhwcbf16of32",
            "conv_b8_c16_n8_h5_w5_k3x3_relu_fp16_fromnhwc16_tonhwc16of40",
            "conv_b8_c16_n8_h5_w5_k3x3_bias_residual_fp16_fromnhwc16of24_tonhwc16",
            "conv_b8_c16_n16_h5_w5_k3x3_fp16_nhwc16of24",
            "maxpool_c8_h4_w5_k2x2_s2_o2x2_fromnhwc16_tonhwc16of16",
            "conv_b8_c16_n8_h5_w5_k3x3_relu_fp16_nhwc16",
            "conv_b8_c16_n8_h5_w5_k3x3_bias_residual_fp16_fromnhwc16",
            "conv_c17_n8_h5_w5_k3x3_fp16_tonhwc16",
            "maxpool_c8_h4_w5_k2x2_s2_o2x2_tonhwc16",
            "globalavgpool_b3_c16_h4_w5_fromnhwc16",
            "convert_b2_c8_h4_w5_tonhwcsplit",
            "convert_b2_c3_h4_w5_tonhwc",
            "convert_b2_c3_h4_w5_tonhwc16",
            "convert_c3_h4_w5_tonchw16",
            "convert_c16_h4_w5_fromnhwcsplit_tonhwc",
            "convert_b2_c16_h4_w5_fromnhwc16_tonhwc",
            "conv_b8_c16_n8_h5_w5_k3x3_relu_nhwcsplit",
            "conv_b8_c16_n9_h5_w5_k3x3_bias_tf32_fromnhwcsplit",
            "maxpool_c8_h4_w5_k2x2_s2_o2x2_nhwcsplit",
            "normalize_b2_c3_h5_w7_fromuint8nhwc",
            "normalize_c3_h5_w7_fromfp32nhwc",
            "conv_b8_c3_n16_h9_w9_k3x3_s2_p1_prologue_bias_relu_fromuint8nhwc",
            "conv_b8_c3_n16_h9_w9_k3x3_prologue_fp16_fromuint8nchw_tonhwc16",
            "projected_b32_c64_h5_w7_n256_shortcut_c48_h10_w14_s2_bias_relu_fp16_nhwc16",
            "projected_c64_h5_w7_n256_shortcut_c48_h5_w13_s1x2_nhwcsplit",
            "projected_b2_c64_h5_w7_n256_shortcut_c48_h5_w7_bf16_nhwcbf16",
            "conv_b8_c16_n8_h5_w5_k3x3_relu_bf16_nhwcbf16",
            "conv_b8_c16_n9_h5_w5_k3x3_bf16_fromnhwcbf16",
            "conv_b8_c3_n16_h9_w9_k3x3_prologue_bf16_fromuint8nhwc_tonhwcbf16",
            "convert_b2_c3_h4_w5_tonhwcbf16",
            "convert_c3_h4_w5_tonchwbf16",
            "convert_b2_c16_h4_w5_fromnhwcbf16_tonhwc",
            "globalavgpool_b3_c16_h4_w5_fromnhwcbf16",
        ] {
            let problem = problem_of_label(label).unwrap_or_else(|| panic!("{label}"));
            assert_eq!(problem_label(&problem), label);
        }
    }

    #[test]
    fn what_no_problem_is_called_is_none() {
        for label in [
            "",
            "conv",
            "conv_x",
            "conv_c64_n32_h56_w56",
            "conv_c64_n32_h56_w56_k3x3_p1_relu_bias",
            "conv_b1_c64_n32_h56_w56_k3x3",
            "conv_c064_n32_h56_w56_k3x3",
            "conv_c64_n32_h56_w56_k3x3_",
            "conv_c64_n32_h56_w56_k3x3_p1_p1",
            "conv_c64_n32_h2_w56_k3x3",
            "conv_c0_n32_h56_w56_k3x3",
            "conv_c64_n32_h56_w56_k0x3",
            "conv_c64_n32_h56_w56_k3x3_s0",
            "conv_c64_n32_h56_w56_k3x3_g0",
            "conv_c64_n32_h56_w56_k3x3_g3",
            "conv_c64_n32_h56_w56_k3x3_p4294967295",
            "conv_c268435456_n268435456_h268435456_w268435456_k268435456x1",
            "conv_c64_n32_h56_w56_k3x3_tol4294967295",
            "tucker_d16x17_n24_h20_w20_k3x3_affine",
            "cp_c20_r0_n24_h19_w21_k5x3",
            "linear_c512_n1000_add",
            "fft_c1_h1_w1",
            "none_c1_h1_w1",
            "clip_c1_h1_w1",
            "clip6x0_c1_h1_w1",
            "clip0x6p0_c1_h1_w1",
            "clipnanx6_c1_h1_w1",
            "relu6_c1_h1_w1",
            "prelurelu_c1_h1_w1",
            "padinf_c1_h1_w1_p1",
            "l2norm0_c1_h1_w1",
            "convtranspose_c8_n6_h7_w9_k3x3_residual",
            "convtranspose_c8_n6_h7_w9_k3x3_op0",
            "convtranspose_c8_n6_h7_w9_k3x3_p9",
            "convtranspose_c1_n1_h268435456_w1_k3x3_s268435456_p9",
            "padreflect_c1_h9_w1_p1",
            "padmirror_c1_h9_w9_p1",
            "lrn0x1x1x1_c1_h1_w1",
            "densestep_c64_grow32_before64_n64_h14_w14_k3x3_p1",
            "densestep_c64_grow32_before0_n64_h14_w14_k3x3_p1_concat",
            "densestep_c64_grow32_before64_n64_h14_w14_k3x3_p1_g2_concat",
            "densestep_c64_grow32_before64_n64_h14_w14_k3x3_p1_residual_concat",
            "densestep_c64_grow32_before268435456_n64_h14_w14_k3x3_p1_concat",
            "invertedresidual_c64_e384_n64_h14_w14_k3x3_p1_depthwise",
            "invertedresidual_c64_e384_n64_h14_w14_k3x3_p1_project",
            "invertedresidual_c64_e384_n64_h14_w14_k3x3_p1_residual_depthwise_project",
            "invertedresidual_c64_e384_n64_h14_w14_k3x3_p1_g384_depthwise_project",
            "invertedresidual_c64_e0_n64_h14_w14_k3x3_p1_depthwise_project",
            "squeezeexcite_c96_h7_w7_n24_bias_relu",
            "squeezeexcite_c96_h7_w7_n24_gate_residual",
            "squeezeexcite_c96_h7_w7_n0_gate",
            "squeezeexcite_c96_h7_w7_n24_gate_after",
            "normalize_c3_h5_w7",
            "normalize_c3_h5_w7_fromnhwc16",
            "convert_c3_h5_w7",
            "convert_c3_h5_w7_tonhwcsplit",
            "convert_c3_h5_w7_fromnhwc16_tonhwc",
            "convert_c8_h5_w7_fromnhwc16_tonhwc16",
            "convert_c8_h5_w7_tonhwc16of12",
            "convert_b2_c8_h400_w500_tonhwc16of268435456",
            "convert_c8_h5_w7_tonhwcsplitof16",
            "convert_c8_h5_w7_fromnhwc16of16_tonhwc",
            "conv_c16_n16_h5_w5_k3x3_fp16_fromnhwc16_tonhwc16of8",
            "conv_c16_n16_h5_w5_k3x3_fp16_fromnhwc16_tonhwcbf16",
            "conv_c16_n16_h5_w5_k3x3_residual_fp16_fromnhwc16_tonhwc16of24",
            "maxpool_c8_h4_w5_k2x2_s2_o2x2_fromnhwc16",
            "globalavgpool_c16_h4_w5_fromnhwc16of24",
            "convert_c8_h5_w7_fromnhwcsplit_tonhwc16",
            "conv_c3_n16_h9_w9_k3x3_fromuint8nhwc_fromuint8nhwc",
            "projected_c64_h5_w7_n256",
            "projected_c64_h5_w7_n256_shortcut_c48_h5_w7_residual",
            "projected_c64_h5_w7_n256_shortcut_c48_h12_w14_s2",
            "projected_c64_h5_w7_n256_shortcut_c48_h10_w14_s0",
            "projected_c64_h5_w7_n256_shortcut_c0_h5_w7",
            "projected_c64_h268435456_w268435456_n256_shortcut_c48_h268435456_w268435456",
            "projected_c64_h5_w7_n256_shortcut_c48_h5_w7_fp16_fromnhwc16",
            "lrn5x1x1x0_c1_h1_w1",
            "lrn5x1x1_c1_h1_w1",
            "conv_c64_n32_h56_w56_k3x3_none",
        ] {
            assert_eq!(problem_of_label(label), None, "{label}");
        }
    }
}
