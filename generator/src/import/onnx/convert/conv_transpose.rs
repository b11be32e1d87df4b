//! Transposed convolutions.

use super::super::attributes::Attributes;
use super::convolution::{Window, sizes};
use super::filter::Filter;
use super::padding::padding;
use super::{Converter, Problem, Value, ValueId, first, invalid, unsupported};
use crate::ir::{ConvTransposeOptions, OpOptions, TensorShape};

impl Converter<'_> {
    pub(super) fn conv_transpose(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let filter = Filter::read(self, inputs, attributes, "a transposed convolution")?;
        let [c, n_per_group, r, s] = filter.sizes;
        let groups = filter.groups;
        let op = self.op_of(inputs, 0)?;
        let x = self.shapes[op];
        let n = n_per_group.checked_mul(groups);
        let n = n.ok_or_else(|| invalid("its weight is too large"))?;
        if c != x.c {
            return Err(invalid(format!(
                "its weight is for {c} channels, its input has {}",
                x.c
            )));
        }
        let rank = self.dims(first(inputs)?).len();
        let window = Window::given([r, s], rank, attributes)?;
        let output_padding = match attributes.ints("output_padding") {
            None => [0, 0],
            Some(given) => {
                let given_sizes = match rank {
                    3 => sizes::<1>(given).map(|[columns]| [0, columns]),
                    _ => sizes::<2>(given),
                };
                given_sizes.ok_or_else(|| invalid(format!("`output_padding` = {given:?}")))?
            }
        };
        let pads = pads(&window, output_padding, x, attributes)?;
        let options = OpOptions::ConvTranspose(ConvTransposeOptions {
            stride: window.stride,
            pad: padding(pads),
            output_padding,
            dilation: window.dilation,
            groups,
            bias: filter.has_bias(n)?,
            ..ConvTransposeOptions::new(n, window.kernel)
        });
        self.add(node, vec![op], options, |name| filter.tensors(name))
    }
}

/// What is cut off the output: top, left, bottom, right. It may be given by the size of the output.
fn pads(
    window: &Window,
    output_padding: [u32; 2],
    x: TensorShape,
    attributes: &Attributes<'_>,
) -> Result<[u32; 4], Problem> {
    let auto_pad = attributes.string("auto_pad");
    let is_upper = auto_pad.as_deref() == Some("SAME_UPPER");
    let size = match attributes.ints("output_shape") {
        Some(given) => Some(sizes::<2>(given).ok_or_else(|| {
            unsupported(format!(
                "`output_shape` = {given:?} is not supported, only two sizes"
            ))
        })?),
        None => None,
    };
    let size = match (auto_pad.as_deref(), size) {
        (_, Some(size)) => size,
        (None | Some("NOTSET"), None) => return Ok(window.pads),
        (Some("VALID"), None) => return Ok([0; 4]),
        (Some("SAME_UPPER" | "SAME_LOWER"), None) => [
            x.h.saturating_mul(window.stride[0]),
            x.w.saturating_mul(window.stride[1]),
        ],
        (Some(other), None) => {
            return Err(unsupported(format!(
                "`auto_pad` = {} is not supported",
                other.escape_debug()
            )));
        }
    };
    let mut pads = [0; 4];
    for (axis, pixels) in [x.h, x.w].into_iter().enumerate() {
        let steps = u64::from(pixels - 1) * u64::from(window.stride[axis]);
        let reach =
            u64::from(window.dilation[axis]) * u64::from(window.kernel[axis].saturating_sub(1)) + 1;
        let full = steps + reach + u64::from(output_padding[axis]);
        let cut = full.checked_sub(u64::from(size[axis]));
        let cut = cut.and_then(|cut| u32::try_from(cut).ok()).ok_or_else(|| {
            unsupported(format!(
                "an output of {} pixels along an axis is not supported: the input reaches {full}",
                size[axis]
            ))
        })?;
        let first = if is_upper { cut / 2 } else { cut.div_ceil(2) };
        (pads[axis], pads[axis + 2]) = (first, cut - first);
    }
    Ok(pads)
}
