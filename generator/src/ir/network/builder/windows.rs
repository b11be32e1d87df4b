//! Ops that read windows of images or change their size: convolutions, pooling, padding and resizing.

use super::super::{ConvTranspose, OpKind};
use super::NetworkBuilder;
use crate::ir::{
    ConvOptions, ConvTransposeOptions, ConvTransposeProblem, Epilogue, Format, MAX_ELEMENTS,
    PadMode, PadOptions, PadProblem, PaddingOption, PoolKind, PoolOptions, PoolProblem,
    ProblemKind, ResizeOptions, ResizeProblem, ResizedSize, SpecLocation, TensorShape,
};
use tdc_runtime::{ConvShape, Padding};

impl NetworkBuilder {
    pub(super) fn pad(
        &mut self,
        index: usize,
        x: TensorShape,
        options: &PadOptions,
    ) -> Option<(OpKind, TensorShape)> {
        let before = self.errors.len();
        let PadOptions { pad, mode } = *options;
        if let PadMode::Constant(value) = mode
            && !value.get().is_finite()
        {
            self.error(
                SpecLocation::Key(index, "value"),
                format!("`value` is {}", value.get()),
                "it must be a finite number",
            );
        }
        for (pixels, size, what) in [
            (pad.top.max(pad.bottom), x.h, "rows"),
            (pad.left.max(pad.right), x.w, "columns"),
        ] {
            if pixels > mode.limit(size) {
                self.error(
                    SpecLocation::Key(index, "pad"),
                    format!("{pixels} {what} of padding by the reflection of {size}"),
                    "a reflection has one pixel less than the image",
                );
            }
        }
        let problem = PadProblem {
            mode,
            x,
            padding: pad,
        };
        let y = problem.output().shape;
        (self.errors.len() == before).then_some((OpKind::Pad(problem), y))
    }

    pub(super) fn resize(
        &mut self,
        index: usize,
        x: TensorShape,
        options: &ResizeOptions,
    ) -> Option<(OpKind, TensorShape)> {
        let (key, out) = match options.size {
            ResizedSize::Pixels(out) => {
                self.check_positive(index, "size", &out)?;
                ("size", out)
            }
            ResizedSize::Scale([down, right]) => {
                self.check_positive(index, "scale", &[down, right])?;
                let sizes = [x.h.saturating_mul(down), x.w.saturating_mul(right)];
                ("scale", sizes)
            }
        };
        for (size, out) in [(x.h, out[0]), (x.w, out[1])] {
            if u64::from(size) * u64::from(out) > ResizeProblem::MAX_PRODUCT {
                self.error(
                    SpecLocation::Key(index, key),
                    format!("{size} pixels become {out}"),
                    "the product of both is at most 268435456",
                );
                return None;
            }
        }
        let problem = ResizeProblem {
            x,
            out,
            coordinates: options.coordinates,
            interpolation: options.interpolation,
        };
        let [h, w] = out;
        Some((OpKind::Resize(problem), TensorShape { h, w, ..x }))
    }

    pub(super) fn conv_transpose(
        &mut self,
        index: usize,
        x: TensorShape,
        options: ConvTransposeOptions,
    ) -> Option<(OpKind, TensorShape)> {
        let before = self.errors.len();
        self.check_window_sizes(index, options.kernel, options.stride, options.dilation);
        self.check_positive(index, "n", &[options.n]);
        self.check_positive(index, "groups", &[options.groups]);
        if self.errors.len() > before {
            return None;
        }
        let (n, groups) = (options.n, options.groups);
        self.check_groups(index, [x.c, n], groups)?;
        let [r, s] = options.kernel;
        let problem = ConvTransposeProblem {
            shape: ConvShape {
                batch: x.batch,
                stride: options.stride,
                padding: options.pad,
                dilation: options.dilation,
                groups,
                ..ConvShape::new(x.c, n, x.h, x.w, r, s)
            },
            output_padding: options.output_padding,
            epilogue: Epilogue::default(),
        };
        let pad = options.pad;
        let full = problem.full_size();
        for (axis, pads, what) in [
            (0, [pad.top, pad.bottom], "rows"),
            (1, [pad.left, pad.right], "columns"),
        ] {
            let cut = pads.iter().map(|&pixels| u64::from(pixels)).sum::<u64>();
            let added = options.output_padding[axis];
            let limit = options.stride[axis].max(options.dilation[axis]);
            if added >= limit {
                self.error(
                    SpecLocation::Key(index, "output_padding"),
                    format!("{added} {what} of output padding"),
                    format!("it is less than the larger one of stride and dilation, {limit}"),
                );
            } else if full[axis] > MAX_ELEMENTS {
                self.error(
                    SpecLocation::Op(index),
                    format!(
                        "the output has {} {what} before `pad` is cut off",
                        full[axis]
                    ),
                    format!("at most {MAX_ELEMENTS} are supported"),
                );
            } else if cut >= full[axis] {
                self.error(
                    SpecLocation::Key(index, "pad"),
                    format!("{cut} {what} are cut off {}", full[axis]),
                    "use less padding",
                );
            }
        }
        let taps = u64::from(r) * u64::from(s);
        let weights = (u64::from(n) * u64::from(x.c / groups)).saturating_mul(taps);
        self.check_weight_size(index, weights);
        if self.errors.len() > before {
            return None;
        }
        let y = problem.output().shape;
        let layer = ConvTranspose { problem, options };
        Some((OpKind::ConvTranspose(Box::new(layer)), y))
    }

    pub(super) fn conv_shape(
        &mut self,
        index: usize,
        x: TensorShape,
        options: &ConvOptions,
    ) -> Option<ConvShape> {
        let before = self.errors.len();
        self.check_window_sizes(index, options.kernel, options.stride, options.dilation);
        self.check_positive(index, "n", &[options.n]);
        self.check_positive(index, "groups", &[options.groups]);
        if self.errors.len() > before {
            return None;
        }
        let groups = options.groups;
        self.check_groups(index, [x.c, options.n], groups);
        self.check_decomposition(index, x, options);
        let padding = match options.pad {
            PaddingOption::Pixels(padding) => padding,
            PaddingOption::Same => {
                let half = |axis: usize| {
                    let reach =
                        u64::from(options.dilation[axis]) * u64::from(options.kernel[axis] - 1);
                    u32::try_from(reach / 2).unwrap_or(u32::MAX)
                };
                Padding {
                    top: half(0),
                    left: half(1),
                    bottom: half(0),
                    right: half(1),
                }
            }
        };
        self.check_window(index, x, options.kernel, options.dilation, padding, [0; 2])?;
        let shape = ConvShape {
            batch: x.batch,
            c: x.c,
            n: options.n,
            h: x.h,
            w: x.w,
            r: options.kernel[0],
            s: options.kernel[1],
            stride: options.stride,
            padding,
            dilation: options.dilation,
            groups,
        };
        let taps = u64::from(shape.r) * u64::from(shape.s);
        self.check_weight_size(
            index,
            (u64::from(shape.n) * u64::from(shape.c / groups)).saturating_mul(taps),
        )?;
        (self.errors.len() == before).then_some(shape)
    }

    pub(super) fn pool(
        &mut self,
        index: usize,
        x: TensorShape,
        kind: PoolKind,
        options: &PoolOptions,
    ) -> Option<(OpKind, TensorShape)> {
        let before = self.errors.len();
        self.check_window_sizes(index, options.kernel, options.stride, options.dilation);
        if self.errors.len() > before {
            return None;
        }
        let pad = options.pad;
        for (axis, size, pixels) in [
            (0, x.h, pad.top.max(pad.bottom)),
            (1, x.w, pad.left.max(pad.right)),
        ] {
            let (window, dilation) = (options.kernel[axis], options.dilation[axis]);
            let reach = u64::from(dilation) * u64::from(window - 1) + 1;
            // Windows begin within the image or before it. Of the latter the first element that is not before the image is one of its first
            // `dilation` pixels.
            if u64::from(pixels) >= reach || pixels > 0 && dilation > size {
                self.error(
                    SpecLocation::Key(index, "pad"),
                    format!("{pixels} pixels of padding for a window that spans {reach}, in steps of {dilation}, on {size}"),
                    "use less padding or dilation, or a window could hold nothing else",
                );
            }
        }
        // Rounded up, the only window may reach further than the image.
        let overhang = match options.ceil_mode {
            true => options.stride.map(|stride| stride - 1),
            false => [0; 2],
        };
        self.check_window(index, x, options.kernel, options.dilation, pad, overhang)?;
        let rows = pooled_size(
            x.h,
            [pad.top, pad.bottom],
            options.kernel[0],
            options.stride[0],
            options.dilation[0],
            options.ceil_mode,
        );
        let columns = pooled_size(
            x.w,
            [pad.left, pad.right],
            options.kernel[1],
            options.stride[1],
            options.dilation[1],
            options.ceil_mode,
        );
        let pool = PoolProblem {
            kind,
            x,
            kernel: options.kernel,
            stride: options.stride,
            padding: pad,
            dilation: options.dilation,
            out: [rows, columns],
            input: Format::default(),
            output: Format::default(),
        };
        let y = TensorShape::new(x.batch, x.c, rows, columns);
        (self.errors.len() == before).then_some((OpKind::Pool(pool), y))
    }

    fn check_window_sizes(
        &mut self,
        index: usize,
        kernel: [u32; 2],
        stride: [u32; 2],
        dilation: [u32; 2],
    ) {
        self.check_positive(index, "kernel", &kernel);
        self.check_positive(index, "stride", &stride);
        self.check_positive(index, "dilation", &dilation);
    }

    /// Checks that groups divide the input and the output channels.
    fn check_groups(&mut self, index: usize, channels: [u32; 2], groups: u32) -> Option<()> {
        let [c, n] = channels;
        if !c.is_multiple_of(groups) || !n.is_multiple_of(groups) {
            self.error(
                SpecLocation::Key(index, "groups"),
                format!("{groups} groups do not divide {c} input and {n} output channels"),
                "groups must divide both",
            );
            return None;
        }
        Some(())
    }

    /// Checks that a window with its dilation fits into the padded input, beyond which it may reach by `overhang`, and that the padded
    /// sizes are in range.
    fn check_window(
        &mut self,
        index: usize,
        x: TensorShape,
        kernel: [u32; 2],
        dilation: [u32; 2],
        pad: Padding,
        overhang: [u32; 2],
    ) -> Option<()> {
        let axes = [
            (0, x.h, [pad.top, pad.bottom], "height"),
            (1, x.w, [pad.left, pad.right], "width"),
        ];
        for (axis, size, pads, what) in axes {
            let (window, dilation) = (kernel[axis], dilation[axis]);
            let padded = u64::from(size) + pads.iter().map(|&p| u64::from(p)).sum::<u64>();
            let reach = u64::from(dilation) * u64::from(window - 1) + 1;
            if padded > MAX_ELEMENTS {
                self.error(
                    SpecLocation::Key(index, "pad"),
                    format!("the padded {what} is {padded}"),
                    format!("it must be below {MAX_ELEMENTS}"),
                );
                return None;
            }
            if reach > (padded + u64::from(overhang[axis])).min(MAX_ELEMENTS) {
                self.error(
                    SpecLocation::Key(index, "kernel"),
                    format!("the window spans {reach} pixels, the padded {what} is {padded}"),
                    "use a smaller kernel or more padding",
                );
                return None;
            }
        }
        Some(())
    }
}

/// Number of windows, rounded down (`floor`) or up (`ceil`). As in PyTorch, a last window that would start in the padding is dropped.
fn pooled_size(
    size: u32,
    pad: [u32; 2],
    window: u32,
    stride: u32,
    dilation: u32,
    ceil: bool,
) -> u32 {
    let padded = u64::from(size) + u64::from(pad[0]) + u64::from(pad[1]);
    let reach = u64::from(dilation) * u64::from(window - 1) + 1;
    let room = padded.saturating_sub(reach);
    let stride = u64::from(stride);
    let mut count = if ceil {
        room.div_ceil(stride) + 1
    } else {
        room / stride + 1
    };
    if ceil && (count - 1) * stride >= u64::from(size) + u64::from(pad[0]) {
        count -= 1;
    }
    u32::try_from(count).unwrap_or(u32::MAX)
}
