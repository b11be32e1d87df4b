//! Evaluation of nodes whose inputs are all constants: the arithmetic by which exporters compute shapes.

use super::attributes::Attributes;
use super::inputs::input;
use super::message::data_type;
use super::tensor::{Data, MAX_RANK, Tensor};

/// Most elements of a computed tensor. Test models fill whole weights with one number.
const MAX_COMPUTED: usize = 1 << 27;

/// The value of a node; `None` if the op is not evaluated.
///
/// # Errors
/// Inputs that ONNX does not allow, or a case that is not supported.
pub fn fold(
    op: &str,
    inputs: &[Option<&Tensor>],
    attributes: &Attributes<'_>,
) -> Option<Result<Tensor, String>> {
    let first = || input(inputs, 0).ok_or_else(|| "its first input is missing".to_owned());
    let result = match op {
        "Constant" => constant(attributes),
        "ConstantOfShape" => first().and_then(|shape| filled(shape, attributes.tensor("value"))),
        "Shape" => first().and_then(|tensor| shape(&tensor.dims, attributes)),
        "Cast" => {
            // Of types of eight bits.
            attributes.ignore("saturate");
            first().and_then(|tensor| cast(tensor, attributes.int("to")))
        }
        "Gather" => gather(inputs, attributes.int("axis").unwrap_or(0)),
        "Concat" => concat(inputs, attributes.int("axis")),
        "Slice" => slice(inputs, attributes),
        "Unsqueeze" | "Squeeze" | "Reshape" | "Flatten" => reshaped(op, inputs, attributes),
        "Transpose" => first().and_then(|tensor| transposed(tensor, attributes.ints("perm"))),
        "Add" | "Sub" | "Mul" | "Div" => arithmetic(op, inputs),
        "Floor" | "Ceil" | "Sqrt" | "Neg" => first().and_then(|tensor| unary(op, tensor)),
        "Clip" => first().and_then(|tensor| clip(tensor, inputs, attributes)),
        _ => return None,
    };
    Some(result)
}

fn constant(attributes: &Attributes<'_>) -> Result<Tensor, String> {
    let scalar = |data| Tensor {
        dims: Vec::new(),
        data,
    };
    if let Some(tensor) = attributes.tensor("value") {
        return Ok(tensor);
    }
    let int = attributes
        .int("value_int")
        .map(|value| scalar(Data::Ints(vec![value])));
    let float = attributes
        .float("value_float")
        .map(|value| scalar(Data::Floats(vec![value])));
    let ints = attributes
        .ints("value_ints")
        .map(|values| Tensor::ints(values.to_vec()));
    let floats = attributes.floats("value_floats").map(|values| Tensor {
        dims: vec![values.len()],
        data: Data::Floats(values.to_vec()),
    });
    let found = int.or(float).or(ints).or(floats);
    found.ok_or_else(|| "its value is not supported: only numbers and dense tensors are".to_owned())
}

/// `Shape` of a tensor with these sizes.
pub fn shape(dims: &[usize], attributes: &Attributes<'_>) -> Result<Tensor, String> {
    let rank = dims.len() as i64;
    let place = |index: i64| (if index < 0 { index + rank } else { index }).clamp(0, rank) as usize;
    let start = place(attributes.int("start").unwrap_or(0));
    let end = place(attributes.int("end").unwrap_or(rank)).max(start);
    Ok(Tensor::ints(
        dims[start..end].iter().map(|&dim| dim as i64).collect(),
    ))
}

/// Shapes of a few bytes could have millions of axes.
fn check_rank(rank: usize) -> Result<(), String> {
    match rank <= MAX_RANK {
        true => Ok(()),
        false => Err(format!("a tensor of {rank} axes is not supported")),
    }
}

fn filled(shape: &Tensor, value: Option<Tensor>) -> Result<Tensor, String> {
    let sizes = shape
        .as_ints()
        .ok_or("its shape is not a list of integers")?;
    let dims: Option<Vec<usize>> = sizes
        .iter()
        .map(|&size| usize::try_from(size).ok())
        .collect();
    let dims = dims.ok_or("an axis has a negative size")?;
    check_rank(dims.len())?;
    let elements = dims
        .iter()
        .try_fold(1usize, |all, &dim| all.checked_mul(dim));
    let elements = elements.filter(|&elements| elements <= MAX_COMPUTED);
    let elements = elements.ok_or("it is too large")?;
    let data = match value.map(|value| value.data) {
        Some(Data::Ints(values)) => {
            Data::Ints(vec![values.first().copied().unwrap_or(0); elements])
        }
        Some(Data::Floats(values)) => {
            Data::Floats(vec![values.first().copied().unwrap_or(0.0); elements])
        }
        None => Data::Floats(vec![0.0; elements]),
    };
    Ok(Tensor { dims, data })
}

fn cast(tensor: &Tensor, to: Option<i64>) -> Result<Tensor, String> {
    let to = to.and_then(|to| i32::try_from(to).ok()).unwrap_or_default();
    let data = match to {
        data_type::FLOAT | data_type::DOUBLE | data_type::FLOAT16 | data_type::BFLOAT16 => {
            Data::Floats(tensor.to_floats())
        }
        data_type::BOOL => Data::Ints(match &tensor.data {
            Data::Ints(values) => values.iter().map(|&value| i64::from(value != 0)).collect(),
            Data::Floats(values) => values
                .iter()
                .map(|&value| i64::from(value != 0.0))
                .collect(),
        }),
        // As in C: integers lose their upper bits, and fractions are cut off; floats out of range saturate.
        data_type::INT32 => Data::Ints(match &tensor.data {
            Data::Ints(values) => values
                .iter()
                .map(|&value| i64::from(value as i32))
                .collect(),
            Data::Floats(values) => values
                .iter()
                .map(|&value| i64::from(value as i32))
                .collect(),
        }),
        data_type::INT64 => Data::Ints(match &tensor.data {
            Data::Ints(values) => values.clone(),
            Data::Floats(values) => values.iter().map(|&value| value as i64).collect(),
        }),
        other => return Err(format!("a cast to element type {other} is not supported")),
    };
    let dims = tensor.dims.clone();
    Ok(Tensor { dims, data })
}

/// Elements of a list.
fn gather(inputs: &[Option<&Tensor>], axis: i64) -> Result<Tensor, String> {
    let [Some(list), Some(indices)] = inputs else {
        return Err("it needs a list and indices".to_owned());
    };
    let (Some(values), Some(places)) = (list.as_ints(), indices.as_ints()) else {
        return Err("only integers are gathered".to_owned());
    };
    if list.dims.len() != 1 || !matches!(axis, 0 | -1) {
        return Err("only elements of lists are gathered".to_owned());
    }
    let count = values.len() as i64;
    let at = |&place: &i64| {
        let place = if place < 0 {
            place.checked_add(count)?
        } else {
            place
        };
        values.get(usize::try_from(place).ok()?).copied()
    };
    let found: Option<Vec<i64>> = places.iter().map(at).collect();
    let data = Data::Ints(found.ok_or("an index is outside the list")?);
    Ok(Tensor {
        dims: indices.dims.clone(),
        data,
    })
}

/// Lists one behind the other.
fn concat(inputs: &[Option<&Tensor>], axis: Option<i64>) -> Result<Tensor, String> {
    let lists: Option<Vec<&Tensor>> = inputs.iter().copied().collect();
    let lists = lists.ok_or("an input is missing")?;
    let are_lists = lists.iter().all(|list| list.dims.len() == 1);
    if !are_lists || !matches!(axis, Some(0 | -1)) {
        return Err("only lists are concatenated".to_owned());
    }
    let length = lists.iter().map(|list| list.len()).sum::<usize>();
    if length > MAX_COMPUTED {
        return Err("it is too large".to_owned());
    }
    let ints: Option<Vec<&[i64]>> = lists.iter().map(|list| list.as_ints()).collect();
    let data = match ints {
        Some(ints) => Data::Ints(ints.concat()),
        None => Data::Floats(lists.iter().flat_map(|list| list.to_floats()).collect()),
    };
    Ok(Tensor {
        dims: vec![length],
        data,
    })
}

/// A part of a tensor.
fn slice(inputs: &[Option<&Tensor>], attributes: &Attributes<'_>) -> Result<Tensor, String> {
    let tensor = input(inputs, 0).ok_or("its first input is missing")?;
    let values = tensor.as_ints().ok_or("only integers are sliced")?;
    let axes = slice_of(&tensor.dims, inputs, attributes)?;
    let dims: Vec<usize> = axes.iter().map(|axis| axis.count).collect();
    let count = dims.iter().product::<usize>();
    let element = |index: usize| {
        let (mut rest, mut place, mut stride) = (index, 0, 1);
        for axis in (0..dims.len()).rev() {
            place += axes[axis].place(rest % dims[axis]) * stride;
            rest /= dims[axis];
            stride *= tensor.dims[axis];
        }
        values[place]
    };
    let data = Data::Ints((0..count).map(element).collect());
    Ok(Tensor { dims, data })
}

/// The places of a slice along an axis: `count` of them from `first` on, `step` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AxisSlice {
    pub first: usize,
    pub step: i64,
    pub count: usize,
}

impl AxisSlice {
    /// All places of an axis.
    pub fn whole(size: usize) -> Self {
        Self {
            first: 0,
            step: 1,
            count: size,
        }
    }

    /// A slice of an axis of this size, with the rules of ONNX for places beyond its ends.
    fn new(size: usize, [start, end, step]: [i64; 3]) -> Result<Self, String> {
        let size = size as i64;
        // Of the first place, and before or behind the last one.
        let bounds = if step > 0 { [0, size] } else { [-1, size - 1] };
        let clamped = |index: i64| {
            let index = if index < 0 {
                index.saturating_add(size)
            } else {
                index
            };
            index.clamp(bounds[0], bounds[1])
        };
        let (start, end) = (clamped(start), clamped(end));
        let distance = match step {
            0 => return Err("a step is 0".to_owned()),
            1.. => end - start,
            _ => start - end,
        };
        let stride = step.unsigned_abs();
        let count = u64::try_from(distance).unwrap_or(0).div_ceil(stride);
        Ok(Self {
            first: usize::try_from(start).unwrap_or(0),
            // With a single place the distance to the next one does not matter.
            step: if count > 1 { step } else { 1 },
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    /// The place with this index, below `count`.
    fn place(&self, index: usize) -> usize {
        (self.first as i64 + self.step * index as i64) as usize
    }
}

/// The slice along each axis of a tensor with these sizes. Up to operator set 9 starts, ends and axes are attributes, then inputs.
pub fn slice_of(
    dims: &[usize],
    inputs: &[Option<&Tensor>],
    attributes: &Attributes<'_>,
) -> Result<Vec<AxisSlice>, String> {
    let list = |index: usize, name: &str| match input(inputs, index) {
        None => Ok(attributes.ints(name)),
        Some(tensor) => match tensor.as_ints() {
            None => Err(format!("its {name} are not integers")),
            list => Ok(list),
        },
    };
    let starts = list(1, "starts")?.ok_or("it has no starts")?;
    let ends = list(2, "ends")?.ok_or("it has no ends")?;
    let all_axes: Vec<i64> = (0..starts.len() as i64).collect();
    let axes = list(3, "axes")?.unwrap_or(&all_axes);
    let ones = vec![1; starts.len()];
    let steps = list(4, "steps")?.unwrap_or(&ones);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err("its starts, ends, axes and steps have different lengths".to_owned());
    }
    let mut slices: Vec<AxisSlice> = dims.iter().copied().map(AxisSlice::whole).collect();
    let rank = slices.len() as i64;
    for (index, &axis) in axes.iter().enumerate() {
        let axis = if axis < 0 {
            axis.saturating_add(rank)
        } else {
            axis
        };
        let axis = usize::try_from(axis).ok().filter(|&axis| axis < dims.len());
        let axis = axis.ok_or("it slices an axis that there is not")?;
        slices[axis] = AxisSlice::new(dims[axis], [starts[index], ends[index], steps[index]])?;
    }
    Ok(slices)
}

/// The same elements with other axes.
fn reshaped(
    op: &str,
    inputs: &[Option<&Tensor>],
    attributes: &Attributes<'_>,
) -> Result<Tensor, String> {
    let tensor = input(inputs, 0).ok_or("its first input is missing")?;
    let parameter = match input(inputs, 1) {
        Some(parameter) => Some(
            parameter
                .as_ints()
                .ok_or("its shape is not a list of integers")?,
        ),
        None => None,
    };
    Ok(Tensor {
        dims: reshaped_dims(op, &tensor.dims, parameter, attributes)?,
        data: tensor.data.clone(),
    })
}

/// The sizes that `Reshape`, `Flatten`, `Squeeze` or `Unsqueeze` gives to a tensor. `parameter` is its second input, which was an
/// attribute in older operator sets.
pub fn reshaped_dims(
    op: &str,
    dims: &[usize],
    parameter: Option<&[i64]>,
    attributes: &Attributes<'_>,
) -> Result<Vec<usize>, String> {
    let list = |name: &str| parameter.or(attributes.ints(name));
    match op {
        "Flatten" => flattened(dims, attributes.int("axis").unwrap_or(1)),
        "Reshape" => {
            let sizes = list("shape").ok_or("it has no shape")?;
            new_shape(dims, sizes, attributes.int("allowzero") == Some(1))
        }
        _ => with_axes(dims, list("axes"), op == "Unsqueeze"),
    }
}

/// The sizes that `Reshape` gives to a tensor.
fn new_shape(dims: &[usize], sizes: &[i64], allow_zero: bool) -> Result<Vec<usize>, String> {
    check_rank(sizes.len())?;
    let elements: usize = dims.iter().product();
    let mut found = Vec::new();
    let mut inferred = None;
    for (index, &size) in sizes.iter().enumerate() {
        found.push(match size {
            0 if !allow_zero => *dims
                .get(index)
                .ok_or("it copies the size of an axis that there is not")?,
            -1 if inferred.is_none() => {
                inferred = Some(index);
                1
            }
            _ => usize::try_from(size).map_err(|_| format!("the size {size} is not valid"))?,
        });
    }
    let known = found
        .iter()
        .try_fold(1usize, |all, &size| all.checked_mul(size));
    let known = known.ok_or("it has too many elements")?;
    if let Some(index) = inferred {
        if known == 0 || !elements.is_multiple_of(known) {
            return Err(format!("{elements} elements do not divide into {sizes:?}"));
        }
        found[index] = elements / known;
    } else if known != elements {
        return Err(format!("{elements} elements do not fit {sizes:?}"));
    }
    Ok(found)
}

/// The sizes that `Flatten` gives to a tensor.
fn flattened(dims: &[usize], axis: i64) -> Result<Vec<usize>, String> {
    let rank = dims.len() as i64;
    let place = if axis < 0 { axis + rank } else { axis };
    let place = usize::try_from(place)
        .ok()
        .filter(|&place| place <= dims.len());
    let place = place.ok_or_else(|| format!("there is no axis {axis}"))?;
    Ok(vec![
        dims[..place].iter().product(),
        dims[place..].iter().product(),
    ])
}

/// The sizes with axes of size 1 inserted or removed; all of them if `axes` is `None`.
fn with_axes(dims: &[usize], axes: Option<&[i64]>, inserts: bool) -> Result<Vec<usize>, String> {
    let Some(axes) = axes else {
        return match inserts {
            true => Err("it has no axes".to_owned()),
            false => Ok(dims.iter().copied().filter(|&dim| dim != 1).collect()),
        };
    };
    let rank = if inserts {
        dims.len() + axes.len()
    } else {
        dims.len()
    };
    check_rank(rank.max(axes.len()))?;
    let place = |&axis: &i64| {
        let place = if axis < 0 { axis + rank as i64 } else { axis };
        usize::try_from(place).ok().filter(|&place| place < rank)
    };
    let places: Option<Vec<usize>> = axes.iter().map(place).collect();
    let places =
        places.ok_or_else(|| format!("the axes {axes:?} are not axes of a tensor with {rank}"))?;
    if inserts {
        let mut rest = dims.iter().copied();
        return Ok((0..rank)
            .map(|index| {
                if places.contains(&index) {
                    1
                } else {
                    rest.next().unwrap_or(1)
                }
            })
            .collect());
    }
    if places.iter().any(|&place| dims[place] != 1) {
        return Err(format!("the axes {axes:?} of {dims:?} are not of size 1"));
    }
    let kept = dims
        .iter()
        .enumerate()
        .filter(|(index, _)| !places.contains(index));
    Ok(kept.map(|(_, &dim)| dim).collect())
}

/// The tensor with permuted axes; by default in reverse order.
pub fn transposed(tensor: &Tensor, order: Option<&[i64]>) -> Result<Tensor, String> {
    let rank = tensor.dims.len();
    let order: Vec<usize> = match order {
        Some(order) => order
            .iter()
            .map(|&axis| usize::try_from(axis).unwrap_or(rank))
            .collect(),
        None => (0..rank).rev().collect(),
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() {
        return Err(format!("{order:?} is not an order of {rank} axes"));
    }
    let mut strides = vec![1; rank];
    for axis in (1..rank).rev() {
        strides[axis - 1] = strides[axis] * tensor.dims[axis];
    }
    let dims: Vec<usize> = order.iter().map(|&axis| tensor.dims[axis]).collect();
    let places = (0..tensor.len()).map(|index| {
        let (mut rest, mut place) = (index, 0);
        for axis in (0..rank).rev() {
            place += rest % dims[axis] * strides[order[axis]];
            rest /= dims[axis];
        }
        place
    });
    let data = match &tensor.data {
        Data::Floats(values) => Data::Floats(places.map(|place| values[place]).collect()),
        Data::Ints(values) => Data::Ints(places.map(|place| values[place]).collect()),
    };
    Ok(Tensor { dims, data })
}

/// Element by element: equal shapes, or one of them a single number.
fn arithmetic(op: &str, inputs: &[Option<&Tensor>]) -> Result<Tensor, String> {
    let [Some(a), Some(b)] = inputs else {
        return Err("it needs two inputs".to_owned());
    };
    let shaped = match (a.len(), b.len()) {
        (_, 1) if a.dims.len() >= b.dims.len() => a,
        (1, _) if b.dims.len() >= a.dims.len() => b,
        _ if a.dims == b.dims => a,
        _ => {
            return Err(format!(
                "arithmetic of constants of {:?} and {:?} is not supported",
                a.dims, b.dims
            ));
        }
    };
    let (dims, count) = (shaped.dims.clone(), shaped.len());
    let data = match (&a.data, &b.data) {
        (Data::Ints(a), Data::Ints(b)) => {
            let value = |index: usize| {
                let (a, b) = (a[index % a.len()], b[index % b.len()]);
                match op {
                    "Add" => a.checked_add(b),
                    "Sub" => a.checked_sub(b),
                    "Mul" => a.checked_mul(b),
                    _ => a.checked_div(b),
                }
            };
            let values: Option<Vec<i64>> = (0..count).map(value).collect();
            Data::Ints(values.ok_or("an integer overflows")?)
        }
        _ => {
            let (a, b) = (a.to_floats(), b.to_floats());
            let value = |index: usize| {
                let (a, b) = (a[index % a.len()], b[index % b.len()]);
                match op {
                    "Add" => a + b,
                    "Sub" => a - b,
                    "Mul" => a * b,
                    _ => a / b,
                }
            };
            Data::Floats((0..count).map(value).collect())
        }
    };
    Ok(Tensor { dims, data })
}

fn unary(op: &str, tensor: &Tensor) -> Result<Tensor, String> {
    let data = match &tensor.data {
        Data::Floats(values) => Data::Floats(
            values
                .iter()
                .map(|value| match op {
                    "Floor" => value.floor(),
                    "Ceil" => value.ceil(),
                    "Sqrt" => value.sqrt(),
                    _ => -value,
                })
                .collect(),
        ),
        Data::Ints(values) if op == "Neg" => {
            Data::Ints(values.iter().map(|value| value.wrapping_neg()).collect())
        }
        Data::Ints(_) => return Err(format!("{op} of integers is not defined")),
    };
    let dims = tensor.dims.clone();
    Ok(Tensor { dims, data })
}

/// `Clip`, whose bounds are inputs, or attributes before opset 11. Either may be left out.
fn clip(
    tensor: &Tensor,
    inputs: &[Option<&Tensor>],
    attributes: &Attributes<'_>,
) -> Result<Tensor, String> {
    let bounds = [input(inputs, 1), input(inputs, 2)];
    if bounds.iter().flatten().any(|bound| bound.len() != 1) {
        return Err("a bound is not one number".to_owned());
    }
    // Unlike `clamp`, this allows a minimum above the maximum.
    let data = match &tensor.data {
        Data::Floats(values) => {
            let [least, most] = [(0, "min"), (1, "max")].map(|(place, name)| {
                let of_input = bounds[place].map(|bound| bound.to_floats()[0]);
                of_input.or(attributes.float(name))
            });
            let [least, most] = [least.unwrap_or(f32::MIN), most.unwrap_or(f32::MAX)];
            Data::Floats(values.iter().map(|v| v.max(least).min(most)).collect())
        }
        Data::Ints(values) => {
            let [least, most] =
                bounds.map(|bound| bound.map(|bound| bound.as_ints().map(|ints| ints[0])));
            let (Some(least), Some(most)) = (
                least.unwrap_or(Some(i64::MIN)),
                most.unwrap_or(Some(i64::MAX)),
            ) else {
                return Err("a bound of integers is not an integer".to_owned());
            };
            Data::Ints(values.iter().map(|&v| v.max(least).min(most)).collect())
        }
    };
    let dims = tensor.dims.clone();
    Ok(Tensor { dims, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_those_of_onnx() {
        assert_eq!(new_shape(&[2, 3, 4], &[0, -1], false), Ok(vec![2, 12]));
        assert_eq!(new_shape(&[2, 3, 4], &[4, -1, 2], false), Ok(vec![4, 3, 2]));
        assert!(new_shape(&[2, 3], &[4, -1], false).is_err());
        assert!(new_shape(&[2, 3], &[-1, -1], false).is_err());
        assert!(new_shape(&[2, 3], &[i64::MAX, i64::MAX], false).is_err());
        assert_eq!(flattened(&[2, 3, 4, 5], 2), Ok(vec![6, 20]));
        assert_eq!(flattened(&[2, 3, 4, 5], -3), Ok(vec![2, 60]));
        assert!(flattened(&[2, 3], 3).is_err());
        assert_eq!(with_axes(&[3], Some(&[0, -1]), true), Ok(vec![1, 3, 1]));
        assert_eq!(with_axes(&[1, 3, 1], Some(&[-1]), false), Ok(vec![1, 3]));
        assert!(with_axes(&[1, 3], Some(&[1]), false).is_err());
        assert!(with_axes(&[1, 3], Some(&[i64::MAX]), false).is_err());
    }

    #[test]
    fn slices_are_those_of_onnx() {
        let places_of = |size: usize, range: [i64; 3]| {
            let slice = AxisSlice::new(size, range)?;
            Ok::<_, String>((0..slice.count).map(|index| slice.place(index)).collect())
        };
        let places = |start, end, step| places_of(5, [start, end, step]);
        assert_eq!(places(1, -1, 2), Ok(vec![1usize, 3]));
        assert_eq!(places(-2, i64::MAX, 1), Ok(vec![3, 4]));
        assert_eq!(places(-1, i64::MIN, -1), Ok(vec![4, 3, 2, 1, 0]));
        assert_eq!(places(i64::MAX, 1, -2), Ok(vec![4, 2]));
        assert_eq!(places(3, 3, 1), Ok(Vec::new()));
        assert_eq!(places(0, 2, i64::MAX), Ok(vec![0]));
        assert_eq!(places(4, 0, i64::MIN), Ok(vec![4]));
        assert!(places(0, 1, 0).is_err());
        assert_eq!(places_of(0, [0, -1, -1]), Ok(Vec::new()));
    }

    #[test]
    fn lists_are_concatenated() {
        let floats = Tensor {
            dims: vec![2],
            data: Data::Floats(vec![0.5, -1.0]),
        };
        let ints = Tensor::ints(vec![3]);
        let of = |lists: &[Option<&Tensor>], axis| concat(lists, axis).map(|list| list.data);
        assert_eq!(
            of(&[Some(&ints), Some(&ints)], Some(-1)),
            Ok(Data::Ints(vec![3, 3]))
        );
        assert_eq!(
            of(&[Some(&floats), Some(&floats)], Some(0)),
            Ok(Data::Floats(vec![0.5, -1.0, 0.5, -1.0]))
        );
        assert!(of(&[Some(&ints), None], Some(0)).is_err());
        assert!(of(&[Some(&ints)], Some(1)).is_err());
        let table = Tensor {
            dims: vec![1, 2],
            ..floats
        };
        assert!(of(&[Some(&table)], Some(0)).is_err());
    }

    #[test]
    fn integers_are_clipped_exactly() {
        let node = super::super::message::Node::default();
        let bound = |value: i64| Tensor {
            dims: Vec::new(),
            data: Data::Ints(vec![value]),
        };
        let sizes = Tensor::ints(vec![-7, 0, (1 << 24) + 1, i64::MAX]);
        let of = |least: Option<&Tensor>, most: Option<&Tensor>| {
            let inputs = [Some(&sizes), least, most];
            let clipped = clip(&sizes, &inputs, &Attributes::of(&node));
            clipped.map(|tensor| tensor.data)
        };
        let ints = |values: [i64; 4]| Ok(Data::Ints(values.to_vec()));
        // Numbers that fp32 does not have.
        let (least, most) = (bound(-3), bound((1 << 24) + 3));
        let large = (1 << 24) + 1;
        assert_eq!(of(None, None), ints([-7, 0, large, i64::MAX]));
        assert_eq!(of(Some(&least), None), ints([-3, 0, large, i64::MAX]));
        assert_eq!(of(None, Some(&most)), ints([-7, 0, large, large + 2]));
        // A minimum above the maximum.
        assert_eq!(of(Some(&most), Some(&least)), ints([-3; 4]));
        let half = Tensor {
            dims: Vec::new(),
            data: Data::Floats(vec![0.5]),
        };
        assert!(of(Some(&half), None).is_err());
        assert!(of(None, Some(&sizes)).is_err());
    }

    #[test]
    fn axes_are_permuted() {
        let tensor = Tensor {
            dims: vec![2, 3],
            data: Data::Ints(vec![1, 2, 3, 4, 5, 6]),
        };
        let found = transposed(&tensor, None).unwrap();
        assert_eq!(
            (found.dims, found.data),
            (vec![3, 2], Data::Ints(vec![1, 4, 2, 5, 3, 6]))
        );
        assert!(transposed(&tensor, Some(&[0, 0])).is_err());
        assert!(transposed(&tensor, Some(&[-1, 0])).is_err());
    }
}
