//! Pooling and resizing.

use super::{Helper, Module, is_symmetric, pair};
use crate::ir::{AxisPlaces, Interpolation, OpId, Pool, PoolKind, ResizeProblem, Rounding};

impl Module<'_> {
    pub(super) fn pooling(&mut self, x: &str, pool: &Pool) -> String {
        let [kernel, stride, dilation] = [pool.kernel, pool.stride, pool.dilation].map(pair);
        let padding = pair([pool.padding.top, pool.padding.left]);
        if let Some(ceil_mode) = native_ceil_mode(pool) {
            let mut text = match pool.kind {
                PoolKind::Max => format!(
                    "F.max_pool2d({x}, {kernel}, {stride}, padding={padding}, dilation={dilation}"
                ),
                PoolKind::Avg { count_include_pad } => {
                    let text = format!("F.avg_pool2d({x}, {kernel}, {stride}, padding={padding}");
                    match count_include_pad {
                        true => text,
                        false => text + ", count_include_pad=False",
                    }
                }
            };
            if ceil_mode {
                text += ", ceil_mode=True";
            }
            return text + ")";
        }
        // Padding that ends where the last window does; negative if windows do not reach the last pixels.
        let pad = pool.padding;
        let after = |axis: usize, size: u32, before: u32| {
            let reach = pool.dilation[axis] * (pool.kernel[axis] - 1) + 1;
            let needed = (pool.out[axis] - 1) * pool.stride[axis] + reach;
            i64::from(needed) - i64::from(size) - i64::from(before)
        };
        let (right, bottom) = (after(1, pool.x.w, pad.left), after(0, pool.x.h, pad.top));
        let pads = format!("({}, {right}, {}, {bottom})", pad.left, pad.top);
        match pool.kind {
            PoolKind::Max => format!(
                "F.max_pool2d(F.pad({x}, {pads}, value=float(\"-inf\")), {kernel}, {stride}, dilation={dilation})"
            ),
            PoolKind::Avg { count_include_pad } => {
                self.helpers.insert(Helper::Average);
                let counted = match count_include_pad {
                    true => format!("({}, {}, {}, {})", pad.left, pad.right, pad.top, pad.bottom),
                    false => "(0, 0, 0, 0)".to_owned(),
                };
                format!("average({x}, {kernel}, {stride}, {dilation}, {pads}, {counted})")
            }
        }
    }

    pub(super) fn resizing(&mut self, id: OpId, x: &str, resize: &ResizeProblem) -> String {
        use crate::ir::Coordinates::{AlignCorners, HalfPixel, PytorchHalfPixel};
        let size = pair(resize.out);
        let axes = [(0, resize.x.h), (1, resize.x.w)].map(|(axis, input)| Axis {
            places: resize.places(axis),
            input,
            output: resize.out[axis],
        });
        match resize.interpolation {
            Interpolation::Nearest(rounding) => {
                let indices = axes.map(|axis| axis.nearest(rounding));
                let is_native =
                    |(axis, indices): (&Axis, &Vec<u32>)| axis.is_pytorchs_nearest(indices);
                if axes.iter().zip(&indices).all(is_native) {
                    return format!("F.interpolate({x}, {size}, mode=\"nearest\")");
                }
                let [rows, columns] = ["rows", "columns"];
                let rows = self.constant(id, rows, &format!("{:?}", indices[0]));
                let columns = self.constant(id, columns, &format!("{:?}", indices[1]));
                format!("{x}.index_select(2, {rows}).index_select(3, {columns})")
            }
            Interpolation::Bilinear => {
                let align_corners = match resize.coordinates {
                    HalfPixel => Some("False"),
                    PytorchHalfPixel if !resize.out.contains(&1) => Some("False"),
                    AlignCorners => Some("True"),
                    _ => None,
                };
                if let Some(align_corners) = align_corners {
                    return format!(
                        "F.interpolate({x}, {size}, mode=\"bilinear\", align_corners={align_corners})"
                    );
                }
                self.helpers.insert(Helper::Bilinear);
                let names = [["top", "bottom", "down"], ["left", "right", "across"]];
                let [rows, columns] = [0, 1].map(|index| {
                    let [from, to, weights] = names[index];
                    let (firsts, seconds, values) = axes[index].neighbours();
                    let from = self.constant(id, from, &format!("{firsts:?}"));
                    let to = self.constant(id, to, &format!("{seconds:?}"));
                    let values = format!("{values:?}, dtype=torch.float64");
                    let weights = self.constant(id, weights, &values);
                    format!("({from}, {to}, {weights})")
                });
                format!("bilinear({x}, {rows}, {columns})")
            }
        }
    }
}

/// The `ceil_mode` with which PyTorch's function computes the same; `None` if it cannot.
fn native_ceil_mode(pool: &Pool) -> Option<bool> {
    let is_average = pool.kind != PoolKind::Max;
    let pads = [pool.padding.top, pool.padding.left];
    let is_supported = is_symmetric(pool.padding)
        && [0, 1]
            .iter()
            .all(|&axis| 2 * pads[axis] <= pool.kernel[axis])
        && !(is_average && pool.dilation != [1, 1]);
    let sizes = [pool.x.h, pool.x.w];
    let out = |axis: usize, ceil_mode: bool| {
        let (size, pad, stride) = (sizes[axis], pads[axis], pool.stride[axis]);
        let reach = pool.dilation[axis] * (pool.kernel[axis] - 1) + 1;
        let steps = (size + 2 * pad).checked_sub(reach)?;
        if !ceil_mode {
            return Some(steps / stride + 1);
        }
        let count = steps.div_ceil(stride) + 1;
        // PyTorch drops a window that starts behind the image and its padding in front.
        let starts_behind = (count - 1) * stride >= size + pad;
        Some(if starts_behind { count - 1 } else { count })
    };
    [false, true].into_iter().find(|&ceil_mode| {
        is_supported && [0, 1].map(|axis| out(axis, ceil_mode)) == pool.out.map(Some)
    })
}

/// One axis of an image that is resized.
#[derive(Clone, Copy)]
struct Axis {
    places: AxisPlaces,
    input: u32,
    output: u32,
}

impl Axis {
    /// Numerator of the place of each output pixel.
    fn numerators(&self) -> impl Iterator<Item = i64> + use<> {
        let AxisPlaces { scale, shift, .. } = self.places;
        (0..i64::from(self.output)).map(move |pixel| scale * pixel + shift)
    }

    fn inside(&self, index: i64) -> u32 {
        index.clamp(0, i64::from(self.input) - 1) as u32
    }

    /// The pixel of the input for each of the output.
    fn nearest(self, rounding: Rounding) -> Vec<u32> {
        let divisor = self.places.divisor;
        let nearest = |place: i64| match rounding {
            Rounding::PreferFloor => -(divisor - 2 * place).div_euclid(2 * divisor),
            Rounding::PreferCeil => (2 * place + divisor).div_euclid(2 * divisor),
            Rounding::Floor => place.div_euclid(divisor),
            Rounding::Ceil => -(-place).div_euclid(divisor),
        };
        let places = self.numerators();
        places.map(|place| self.inside(nearest(place))).collect()
    }

    /// Whether PyTorch's mode `nearest` reads the same pixels. It computes places in fp32, so only whole factors count.
    fn is_pytorchs_nearest(&self, indices: &[u32]) -> bool {
        let (input, output) = (u64::from(self.input), u64::from(self.output));
        let is_whole = input.is_multiple_of(output) || output.is_multiple_of(input);
        let pixels = (0..output).zip(indices);
        is_whole
            && pixels
                .into_iter()
                .all(|(pixel, &index)| pixel * input / output == u64::from(index))
    }

    /// For each output pixel the two pixels around its place, and the weight of the second.
    fn neighbours(&self) -> (Vec<u32>, Vec<u32>, Vec<f64>) {
        let divisor = self.places.divisor;
        let mut found = (Vec::new(), Vec::new(), Vec::new());
        for place in self.numerators() {
            let first = place.div_euclid(divisor);
            found.0.push(self.inside(first));
            found.1.push(self.inside(first + 1));
            let rest = place.rem_euclid(divisor);
            found.2.push(rest as f64 / divisor as f64);
        }
        found
    }
}
