//! Constant tensors.

use super::message::{self, data_type};
use half::{bf16, f16};
use std::path::Path;

/// A constant: weights, or numbers that shapes are computed from.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub dims: Vec<usize>,
    pub data: Data,
}

/// Elements in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// Floating-point numbers of any width.
    Floats(Vec<f32>),
    /// Integers of any width, and truth values as 0 and 1.
    Ints(Vec<i64>),
}

/// Most axes of a tensor.
pub const MAX_RANK: usize = 8;

/// Most bytes of one tensor; a model with larger ones is not a convolutional network.
const MAX_BYTES: usize = 1 << 30;

impl Tensor {
    /// A list of integers.
    pub fn ints(values: Vec<i64>) -> Self {
        Self {
            dims: vec![values.len()],
            data: Data::Ints(values),
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::Floats(values) => values.len(),
            Data::Ints(values) => values.len(),
        }
    }

    /// The elements as integers; `None` if they are floating-point numbers.
    pub fn as_ints(&self) -> Option<&[i64]> {
        match &self.data {
            Data::Ints(values) => Some(values),
            Data::Floats(_) => None,
        }
    }

    /// The elements as floating-point numbers.
    pub fn to_floats(&self) -> Vec<f32> {
        match &self.data {
            Data::Floats(values) => values.clone(),
            Data::Ints(values) => values.iter().map(|&value| value as f32).collect(),
        }
    }

    /// Its only element, of any number of axes.
    pub fn scalar(&self) -> Option<f64> {
        self.element(0).filter(|_| self.len() == 1)
    }

    /// An element in row-major order.
    pub fn element(&self, index: usize) -> Option<f64> {
        match &self.data {
            Data::Floats(values) => values.get(index).map(|&value| value.into()),
            Data::Ints(values) => values.get(index).map(|&value| value as f64),
        }
    }

    /// The bytes of a tensor's data by its sizes and its element type.
    ///
    /// # Errors
    /// What is wrong with these, or that they are too many.
    pub fn declared_bytes(proto: &message::Tensor) -> Result<usize, String> {
        let (_, elements) = shape(&proto.dims)?;
        let size = elements.checked_mul(width(proto.data_type.unwrap_or_default())?);
        let size = size.filter(|&size| size <= MAX_BYTES);
        size.ok_or_else(|| "it is larger than 1 GiB".to_owned())
    }

    /// Reads a tensor, whose external data are in `folder`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(proto: &message::Tensor, folder: Option<&Path>) -> Result<Self, String> {
        let (dims, elements) = shape(&proto.dims)?;
        let kind = proto.data_type.unwrap_or_default();
        let size = Self::declared_bytes(proto)?;
        let external;
        let raw = match (proto.data_location, &proto.raw_data) {
            (Some(1), _) => {
                external = super::external::read(&proto.external_data, folder, size)?;
                Some(&external[..])
            }
            (_, Some(raw)) => Some(&raw[..]),
            (_, None) => None,
        };
        let data = match raw {
            Some(raw) if raw.len() != size => {
                return Err(format!(
                    "it has {} bytes, its shape needs {size}",
                    raw.len()
                ));
            }
            Some(raw) => from_raw(kind, raw),
            None => from_fields(kind, proto),
        };
        let tensor = Self { dims, data };
        match tensor.len() == elements {
            true => Ok(tensor),
            false => Err(format!(
                "it has {} elements, its shape needs {elements}",
                tensor.len()
            )),
        }
    }
}

/// The sizes of the axes and the number of elements.
fn shape(dims: &[i64]) -> Result<(Vec<usize>, usize), String> {
    let dims: Option<Vec<usize>> = dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let dims = dims.ok_or("an axis has a negative size")?;
    // Of an empty tensor too: other products of its axes must not overflow.
    let bound = dims
        .iter()
        .try_fold(1usize, |all, &dim| all.checked_mul(dim.max(1)));
    match bound {
        Some(_) if dims.len() <= MAX_RANK => {
            let elements = dims.iter().product();
            Ok((dims, elements))
        }
        Some(_) => Err("it has more than eight axes".to_owned()),
        None => Err("it has too many elements".to_owned()),
    }
}

/// Bytes of an element.
fn width(kind: i32) -> Result<usize, String> {
    match kind {
        data_type::FLOAT | data_type::INT32 => Ok(4),
        data_type::INT64 | data_type::DOUBLE => Ok(8),
        data_type::BOOL => Ok(1),
        data_type::FLOAT16 | data_type::BFLOAT16 => Ok(2),
        other => Err(format!(
            "its element type {other} is not supported: only fp32, fp16, bf16, fp64, int32, int64 and bool are"
        )),
    }
}

/// Elements from little-endian bytes, whose number is a multiple of the [`width`].
fn from_raw(kind: i32, raw: &[u8]) -> Data {
    fn each<const N: usize, T>(raw: &[u8], convert: impl Fn([u8; N]) -> T) -> Vec<T> {
        let (chunks, _) = raw.as_chunks::<N>();
        chunks.iter().map(|&bytes| convert(bytes)).collect()
    }
    match kind {
        data_type::FLOAT => Data::Floats(each(raw, f32::from_le_bytes)),
        data_type::DOUBLE => Data::Floats(each(raw, |bytes| f64::from_le_bytes(bytes) as f32)),
        data_type::FLOAT16 => Data::Floats(each(raw, |bytes| f16::from_le_bytes(bytes).to_f32())),
        data_type::BFLOAT16 => Data::Floats(each(raw, |bytes| bf16::from_le_bytes(bytes).to_f32())),
        data_type::INT32 => Data::Ints(each(raw, |bytes| i32::from_le_bytes(bytes).into())),
        data_type::INT64 => Data::Ints(each(raw, i64::from_le_bytes)),
        _ => Data::Ints(each(raw, |[byte]| i64::from(byte != 0))),
    }
}

/// Elements from the field for their type. Numbers of 16 bits are in `int32_data`.
fn from_fields(kind: i32, proto: &message::Tensor) -> Data {
    let halves = |convert: fn(u16) -> f32| {
        let bits = proto.int32_data.iter().map(|&bits| bits as u16);
        Data::Floats(bits.map(convert).collect())
    };
    match kind {
        data_type::FLOAT => Data::Floats(proto.float_data.clone()),
        data_type::DOUBLE => Data::Floats(
            proto
                .double_data
                .iter()
                .map(|&value| value as f32)
                .collect(),
        ),
        data_type::FLOAT16 => halves(|bits| f16::from_bits(bits).to_f32()),
        data_type::BFLOAT16 => halves(|bits| bf16::from_bits(bits).to_f32()),
        data_type::INT64 => Data::Ints(proto.int64_data.clone()),
        data_type::BOOL => {
            let truth = proto.int32_data.iter().map(|&value| i64::from(value != 0));
            Data::Ints(truth.collect())
        }
        _ => Data::Ints(proto.int32_data.iter().map(|&value| value.into()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_do_not_fit_are_errors() {
        let tensor = |dims: &[i64], raw: &'static [u8]| message::Tensor {
            dims: dims.to_vec(),
            data_type: Some(data_type::FLOAT16),
            raw_data: Some(raw.into()),
            ..message::Tensor::default()
        };
        let read = |dims: &[i64], raw| Tensor::read(&tensor(dims, raw), None);
        assert_eq!(
            read(&[1, 2], &[0x00, 0x3c, 0x00, 0xc0]).unwrap().data,
            Data::Floats(vec![1.0, -2.0])
        );
        for dims in [&[3][..], &[-1], &[i64::MAX, 4], &[1 << 40], &[0]] {
            assert!(read(dims, &[0, 1, 2, 3]).is_err(), "{dims:?}");
        }
        let half = message::Tensor {
            dims: vec![2],
            data_type: Some(data_type::BFLOAT16),
            int32_data: vec![0x3f80, 0xc000],
            ..message::Tensor::default()
        };
        assert_eq!(
            Tensor::read(&half, None).unwrap().data,
            Data::Floats(vec![1.0, -2.0])
        );
    }
}
