//! Resizing of images.

use super::super::attributes::Attributes;
use super::super::inputs::input;
use super::super::tensor::Tensor;
use super::padding::distinct_axes;
use super::{Converter, Problem, Value, ValueId, first, invalid, op_type, unsupported};
use crate::ir::{Coordinates, Interpolation, OpOptions, ResizeOptions, ResizedSize, Rounding};

impl Converter<'_> {
    /// `Resize`, and `Upsample` of operator sets 7 to 9. Up to operator set 10 the coordinates are asymmetric and pixels rounded down.
    pub(super) fn resize(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        constants: &[Option<&Tensor>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let mut parameters = inputs.iter().zip(constants).skip(1);
        if parameters.any(|(id, constant)| id.is_some() && constant.is_none()) {
            return Err(unsupported(
                "its size is computed; only constants are supported",
            ));
        }
        let dims = self.dims(first(inputs)?);
        let &[batch, channels, h, w] = &dims[..] else {
            return Err(unsupported(format!(
                "its input has {} axes, not four",
                dims.len()
            )));
        };
        attributes.expect_int("antialias", 0);
        attributes.expect_int("exclude_outside", 0);
        // Of cubic interpolation, and of cropping.
        attributes.ignore("cubic_coeff_a");
        attributes.ignore("extrapolation_value");
        expect_string(attributes, "keep_aspect_ratio_policy", "stretch")?;
        // `Resize` had the scales as its second input before it had regions as that.
        let is_upsample = op_type(&self.graph.nodes[node]) == "Upsample";
        let is_old = is_upsample || inputs.len() == 2;
        let scales_at = if is_old { 1 } else { 2 };
        let non_empty = |index: usize| input(constants, index).filter(|tensor| tensor.len() > 0);
        let scales = match attributes.floats("scales") {
            Some(scales) => Some(scales.to_vec()),
            None => non_empty(scales_at).map(Tensor::to_floats),
        };
        let sizes = if is_old { None } else { non_empty(3) };
        let sizes = sizes.map(|sizes| sizes.as_ints().unwrap_or_default().to_vec());
        let (scales, sizes) = match attributes.ints("axes") {
            None => (scales, sizes),
            Some(axes) => {
                let old_sizes = [batch, channels, h, w].map(|size| size as i64);
                let scales = scales.map(|scales| of_all_axes(axes, &scales, [1.0; 4]));
                let sizes = sizes.map(|sizes| of_all_axes(axes, &sizes, old_sizes));
                (scales.transpose()?, sizes.transpose()?)
            }
        };
        let out = match (scales, sizes) {
            (_, Some(sizes)) => out_of_sizes(&sizes, [batch, channels]),
            (Some(scales), None) => out_of_scales(&scales, [h, w]),
            (None, None) => Err(invalid("it has neither scales nor sizes")),
        }?;
        let (coordinates, interpolation) = if is_old {
            let interpolation = interpolation(attributes, Rounding::Floor)?;
            (Coordinates::Asymmetric, interpolation)
        } else {
            let rounding = choice(attributes, "nearest_mode", &ROUNDINGS)?;
            let interpolation = interpolation(attributes, rounding.unwrap_or_default())?;
            let name = "coordinate_transformation_mode";
            let coordinates = choice(attributes, name, &Coordinates::NAMES)?;
            (coordinates.unwrap_or_default(), interpolation)
        };
        let op = self.op_of(inputs, 0)?;
        if out.map(|size| size as usize) == [h, w] {
            return Ok(Value::Op { op, dims });
        }
        let options = OpOptions::Resize(ResizeOptions {
            size: ResizedSize::Pixels(out),
            coordinates,
            interpolation,
        });
        self.add(node, vec![op], options, |_| Vec::new())
    }
}

/// The numbers of all axes, from those of some axes.
fn of_all_axes<T: Copy>(axes: &[i64], some: &[T], mut all: [T; 4]) -> Result<Vec<T>, Problem> {
    let places = distinct_axes(axes, all.len()).filter(|places| places.len() == some.len());
    let places =
        places.ok_or_else(|| invalid(format!("`axes` = {axes:?} for {} numbers", some.len())))?;
    for (place, &number) in places.into_iter().zip(some) {
        all[place] = number;
    }
    Ok(all.to_vec())
}

/// The roundings by their names in ONNX.
const ROUNDINGS: [(&str, Rounding); 4] = [
    ("round_prefer_floor", Rounding::PreferFloor),
    ("round_prefer_ceil", Rounding::PreferCeil),
    ("floor", Rounding::Floor),
    ("ceil", Rounding::Ceil),
];

/// A text attribute that is one of some names; `None` if it is missing.
fn choice<T: Copy>(
    attributes: &Attributes<'_>,
    name: &str,
    choices: &[(&str, T)],
) -> Result<Option<T>, Problem> {
    let Some(found) = attributes.string(name) else {
        return Ok(None);
    };
    let known = choices.iter().find(|(known, _)| *known == found);
    known.map(|(_, value)| Some(*value)).ok_or_else(|| {
        unsupported(format!(
            "`{name}` = {} is not supported",
            found.escape_debug()
        ))
    })
}

fn expect_string(attributes: &Attributes<'_>, name: &str, expected: &str) -> Result<(), Problem> {
    choice(attributes, name, &[(expected, ())]).map(|_| ())
}

fn interpolation(
    attributes: &Attributes<'_>,
    rounding: Rounding,
) -> Result<Interpolation, Problem> {
    let modes = [
        ("nearest", Interpolation::Nearest(rounding)),
        ("linear", Interpolation::Bilinear),
        // Of `Upsample`.
        ("bilinear", Interpolation::Bilinear),
    ];
    let mode = choice(attributes, "mode", &modes)?;
    Ok(mode.unwrap_or(Interpolation::Nearest(rounding)))
}

/// Height and width from the sizes of all axes.
fn out_of_sizes(sizes: &[i64], [batch, channels]: [usize; 2]) -> Result<[u32; 2], Problem> {
    let number = |size: i64| u32::try_from(size).ok().filter(|&size| size > 0);
    let found = match *sizes {
        [b, c, h, w] if usize::try_from(b) == Ok(batch) && usize::try_from(c) == Ok(channels) => {
            number(h).zip(number(w))
        }
        _ => None,
    };
    let (h, w) = found.ok_or_else(|| {
        unsupported(format!(
            "a resizing to {sizes:?} is not supported: rows and columns are"
        ))
    })?;
    Ok([h, w])
}

/// Height and width from the factors of all axes. Places of pixels follow from the sizes, so a factor must be their ratio.
fn out_of_scales(scales: &[f32], [h, w]: [usize; 2]) -> Result<[u32; 2], Problem> {
    let not_supported = || {
        let message = format!(
            "a resizing of {h}x{w} by {scales:?} is not supported: rows and columns are, if the output is that many times as large"
        );
        unsupported(message)
    };
    let &[1.0, 1.0, down, right] = scales else {
        return Err(not_supported());
    };
    let out = |size: usize, scale: f32| {
        let exact = size as f64 * f64::from(scale);
        // A factor such as 1/3 is rounded in the file.
        let rounded = exact.round();
        let is_ratio = (exact - rounded).abs() <= 1e-6 * exact;
        (is_ratio && (1.0..=f64::from(u32::MAX)).contains(&rounded)).then_some(rounded as u32)
    };
    match (out(h, down), out(w, right)) {
        (Some(h), Some(w)) => Ok([h, w]),
        _ => Err(not_supported()),
    }
}
