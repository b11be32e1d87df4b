//! The kinds of ops with all sizes, and the shapes of their outputs.

use super::super::{Conv, Linear, OpId, OpKind};
use super::NetworkBuilder;
use crate::ir::{
    Activation, BinaryOp, ChannelNorm, LinearOptions, Lrn, MAX_ELEMENTS, OpOptions, PoolKind,
    SliceOptions, SpecLocation, TensorShape,
};

impl NetworkBuilder {
    /// The op's kind with all sizes, and its output shape; `None` if an error was reported.
    pub(super) fn infer(
        &mut self,
        index: usize,
        operands: &[OpId],
        options: OpOptions,
    ) -> Option<(OpKind, TensorShape)> {
        let x = self.ops[operands[0].0].y;
        let (kind, y) = match options {
            OpOptions::Conv(options) => {
                let shape = self.conv_shape(index, x, &options)?;
                let y = TensorShape::new(x.batch, shape.n, shape.out_h(), shape.out_w());
                (OpKind::Conv(Box::new(Conv { shape, options })), y)
            }
            OpOptions::ConvTranspose(options) => self.conv_transpose(index, x, options)?,
            OpOptions::MaxPool(options) => self.pool(index, x, PoolKind::Max, &options)?,
            OpOptions::AvgPool(options) => {
                let kind = PoolKind::Avg {
                    count_include_pad: options.count_include_pad,
                };
                self.pool(index, x, kind, &options)?
            }
            OpOptions::GlobalMaxPool => (
                OpKind::GlobalPool { max: true },
                TensorShape::new(x.batch, x.c, 1, 1),
            ),
            OpOptions::GlobalAvgPool => (
                OpKind::GlobalPool { max: false },
                TensorShape::new(x.batch, x.c, 1, 1),
            ),
            OpOptions::Pad(options) => self.pad(index, x, &options)?,
            OpOptions::Resize(options) => self.resize(index, x, &options)?,
            OpOptions::Lrn(lrn) => self.lrn(index, x, lrn)?,
            OpOptions::ChannelNorm(norm) => {
                self.check_norm(index, norm)?;
                (OpKind::ChannelNorm(norm), x)
            }
            OpOptions::Linear(options) => self.linear(index, x, options)?,
            OpOptions::Binary(op, activation) => {
                let op = self.binary(index, op, x, self.ops[operands[1].0].y)?;
                (OpKind::Binary(op, activation), x)
            }
            OpOptions::Activation(Activation::None) => {
                self.error(
                    SpecLocation::Key(index, "activation"),
                    "an op that changes nothing".to_owned(),
                    "remove it",
                );
                return None;
            }
            OpOptions::Activation(function) => (OpKind::Activation(function), x),
            OpOptions::PRelu => (OpKind::PRelu, x),
            OpOptions::ScaleShift(options) => (OpKind::ScaleShift(options), x),
            OpOptions::Concat => (OpKind::Concat, self.concat(index, operands)?),
            OpOptions::Slice(options) => self.slice(index, x, options)?,
            OpOptions::Shuffle(groups) => self.shuffle(index, x, groups)?,
            OpOptions::Flatten => {
                let features = u32::try_from(x.image_len()).unwrap_or(u32::MAX);
                (OpKind::Flatten, TensorShape::new(x.batch, features, 1, 1))
            }
        };
        if let Err((message, help)) = check_shape("the output", y) {
            self.error(SpecLocation::Op(index), message, help);
            return None;
        }
        Some((kind, y))
    }

    fn linear(
        &mut self,
        index: usize,
        x: TensorShape,
        options: LinearOptions,
    ) -> Option<(OpKind, TensorShape)> {
        if x.pixels() != 1 {
            self.error(
                SpecLocation::Op(index),
                format!("a linear layer needs features, its input is {x}"),
                "put a flatten or a global pool before it",
            );
            return None;
        }
        self.check_positive(index, "n", &[options.n])?;
        let y = TensorShape::new(x.batch, options.n, 1, 1);
        self.check_weight_size(index, u64::from(x.c) * u64::from(options.n))?;
        if let Some(rank) = options.rank {
            self.check_rank(index, [options.n, x.c], rank)?;
        }
        Some((OpKind::Linear(Linear { c: x.c, options }), y))
    }

    /// The op for two inputs; a product of an image and the factors of its channels is a gate.
    fn binary(
        &mut self,
        index: usize,
        op: BinaryOp,
        x: TensorShape,
        other: TensorShape,
    ) -> Option<BinaryOp> {
        let factor = TensorShape::new(x.batch, x.c, 1, 1);
        let is_gate = op == BinaryOp::Mul && other != x && other == factor;
        let op = if is_gate { BinaryOp::Gate } else { op };
        if other != x && !is_gate {
            let (what, help) = match op {
                BinaryOp::Add => ("an addition needs equal shapes", ""),
                BinaryOp::Sub => ("a difference needs equal shapes", ""),
                BinaryOp::Mul | BinaryOp::Gate => (
                    "a product needs equal shapes, or BxCx1x1 second",
                    ", or put the factors of the channels second",
                ),
            };
            self.error(
                SpecLocation::Key(index, "inputs"),
                format!("{what}, these are {x} and {other}"),
                format!("make the branches agree in channels and stride{help}"),
            );
            return None;
        }
        Some(op)
    }

    fn concat(&mut self, index: usize, operands: &[OpId]) -> Option<TensorShape> {
        let x = self.ops[operands[0].0].y;
        let mut c = 0u64;
        for operand in operands {
            let other = self.ops[operand.0].y;
            if (other.batch, other.h, other.w) != (x.batch, x.h, x.w) {
                self.error(
                    SpecLocation::Key(index, "inputs"),
                    format!("a concatenation needs equal images, these are {x} and {other}"),
                    "make the branches agree in height and width",
                );
                return None;
            }
            c += u64::from(other.c);
        }
        let c = u32::try_from(c).unwrap_or(u32::MAX);
        Some(TensorShape { c, ..x })
    }

    fn slice(
        &mut self,
        index: usize,
        x: TensorShape,
        options: SliceOptions,
    ) -> Option<(OpKind, TensorShape)> {
        let SliceOptions { start, n } = options;
        self.check_positive(index, "n", &[n])?;
        let end = u64::from(start) + u64::from(n);
        if end > u64::from(x.c) {
            self.error(
                SpecLocation::Key(index, "n"),
                format!("channels {start} to {} of {} channels", end - 1, x.c),
                "`start` + `n` is at most the number of channels",
            );
            return None;
        }
        Some((OpKind::Slice { start }, TensorShape { c: n, ..x }))
    }

    fn shuffle(
        &mut self,
        index: usize,
        x: TensorShape,
        groups: u32,
    ) -> Option<(OpKind, TensorShape)> {
        self.check_positive(index, "groups", &[groups])?;
        if !x.c.is_multiple_of(groups) {
            self.error(
                SpecLocation::Key(index, "groups"),
                format!("{} channels do not divide into {groups} groups", x.c),
                "use a divisor of the number of channels",
            );
            return None;
        }
        Some((OpKind::Shuffle { groups }, x))
    }

    fn lrn(&mut self, index: usize, x: TensorShape, lrn: Lrn) -> Option<(OpKind, TensorShape)> {
        let before = self.errors.len();
        self.check_positive(index, "size", &[lrn.size]);
        let range = |from: f32| move |number: f32| (from..f32::INFINITY).contains(&number);
        let (not_negative, positive) = ("a number from 0", "a positive number");
        for (key, number, is_valid, expected) in [
            (
                "alpha",
                lrn.alpha,
                range(0.0)(lrn.alpha.get()),
                not_negative,
            ),
            ("beta", lrn.beta, range(0.0)(lrn.beta.get()), not_negative),
            ("k", lrn.k, range(f32::MIN_POSITIVE)(lrn.k.get()), positive),
        ] {
            if !is_valid {
                self.error(
                    SpecLocation::Key(index, key),
                    format!("`{key}` is {}", number.get()),
                    format!("it must be {expected}, so that the power exists"),
                );
            }
        }
        (self.errors.len() == before).then_some((OpKind::Lrn(lrn), x))
    }

    fn check_norm(&mut self, index: usize, norm: ChannelNorm) -> Option<()> {
        if let ChannelNorm::L2 { eps } = norm
            && !(ChannelNorm::MIN_EPS..f32::INFINITY).contains(&eps.get())
        {
            self.error(
                SpecLocation::Key(index, "eps"),
                format!("`eps` is {}", eps.get()),
                format!(
                    "it must be a number from {:e}, so that it can be divided by",
                    ChannelNorm::MIN_EPS
                ),
            );
            return None;
        }
        Some(())
    }

    pub(super) fn check_positive(
        &mut self,
        index: usize,
        key: &'static str,
        values: &[u32],
    ) -> Option<()> {
        if let Some(item) = values.iter().position(|&value| value == 0) {
            self.error(
                SpecLocation::Item(index, key, item),
                format!("`{key}` is 0"),
                "it must be at least 1",
            );
            return None;
        }
        Some(())
    }

    pub(super) fn check_weight_size(&mut self, index: usize, elements: u64) -> Option<()> {
        if elements > MAX_ELEMENTS {
            self.error(
                SpecLocation::Op(index),
                format!("the weights have {elements} elements"),
                format!("at most {MAX_ELEMENTS} are supported"),
            );
            return None;
        }
        Some(())
    }
}

pub(super) fn check_shape(what: &str, shape: TensorShape) -> Result<(), (String, String)> {
    if shape.is_empty() {
        Err((
            format!("{what} {shape} is empty"),
            "every size must be at least 1".to_owned(),
        ))
    } else if shape.len() > MAX_ELEMENTS {
        Err((
            format!("{what} {shape} has more than {MAX_ELEMENTS} elements"),
            "use a smaller image or batch".to_owned(),
        ))
    } else {
        Ok(())
    }
}
