//! Reads safetensors, one tensor at a time.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::slice;
use std::sync::{Mutex, PoisonError};

use half::{bf16, f16};
use safetensors::tensor::{Metadata, TensorInfo, TensorView};
use safetensors::{Dtype, SafeTensorError};

use crate::{CheckpointError, WeightError};

/// Named tensors, from a safetensors file, from its bytes or generated at random.
///
/// Only the header of a file is kept in memory; a tensor is read on request.
#[derive(Debug)]
pub struct Checkpoint {
    origin: String,
    tensors: BTreeMap<String, TensorInfo>,
    payload: Payload,
}

/// The source of the tensors' bytes; offsets of [`TensorInfo`] are relative to its start.
#[derive(Debug)]
enum Payload {
    File { file: Mutex<File>, start: u64 },
    Bytes { bytes: Vec<u8>, start: usize },
}

/// A tensor of finite floating-point numbers.
pub(crate) struct FloatTensor<'a> {
    kind: Float,
    bytes: Cow<'a, [u8]>,
}

#[derive(Clone, Copy)]
enum Float {
    F16,
    Bf16,
    F32,
    F64,
}

const LENGTH_BYTES: u64 = 8;
/// The limit of the format's own reader.
const MAX_HEADER_BYTES: u64 = 100_000_000;

impl Checkpoint {
    /// Opens a safetensors file and reads its header.
    ///
    /// # Errors
    /// [`CheckpointError`] if the file cannot be read, is not safetensors or is truncated.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let origin = path.as_ref().display().to_string();
        let refused = |problem| CheckpointError::Read {
            origin: origin.clone(),
            problem,
        };
        let file = File::open(&path).map_err(refused)?;
        let status = file.metadata().map_err(refused)?;
        if status.is_dir() {
            return Err(refused(io::ErrorKind::IsADirectory.into()));
        }
        let (tensors, start) = read_header(&file, status.len(), &origin)?;
        let payload = Payload::File {
            file: Mutex::new(file),
            start,
        };
        Ok(Self {
            origin,
            tensors,
            payload,
        })
    }

    /// Parses the content of a safetensors file.
    ///
    /// # Errors
    /// [`CheckpointError`] if the bytes are not safetensors or are truncated.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, CheckpointError> {
        let origin = "in memory".to_owned();
        let (tensors, start) = read_header(bytes.as_slice(), bytes.len() as u64, &origin)?;
        let payload = Payload::Bytes {
            // The header was found inside the bytes, so the offset of its end fits in a usize.
            start: start as usize,
            bytes,
        };
        Ok(Self {
            origin,
            tensors,
            payload,
        })
    }

    /// fp32 tensors with the given names, shapes and values in row-major order.
    pub fn from_values(
        origin: String,
        values: impl IntoIterator<Item = (String, Vec<usize>, Vec<f32>)>,
    ) -> Self {
        let mut tensors = BTreeMap::new();
        let mut bytes = Vec::new();
        for (name, shape, values) in values {
            let start = bytes.len();
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            let info = TensorInfo {
                dtype: Dtype::F32,
                shape,
                data_offsets: (start, bytes.len()),
            };
            tensors.insert(name, info);
        }
        Self {
            origin,
            tensors,
            payload: Payload::Bytes { bytes, start: 0 },
        }
    }

    /// The content of a safetensors file with the same tensors, for PyTorch or [`Checkpoint::from_bytes`].
    ///
    /// # Errors
    /// [`CheckpointError`] if the file of this checkpoint can no longer be read, or if the header would be
    /// larger than the format allows.
    pub fn to_safetensors(&self) -> Result<Vec<u8>, CheckpointError> {
        let mut contents = Vec::with_capacity(self.tensors.len());
        for (name, info) in &self.tensors {
            contents.push((name, info, self.read_bytes(info)?));
        }
        let views = contents
            .iter()
            .map(|(name, info, bytes)| {
                Ok((
                    name,
                    TensorView::new(info.dtype, info.shape.clone(), bytes)?,
                ))
            })
            .collect::<Result<Vec<_>, SafeTensorError>>();
        views
            .and_then(|views| safetensors::serialize(views, None))
            .map_err(|error| CheckpointError::Format {
                origin: self.origin.clone(),
                problem: error.to_string(),
                remedy: "split it into smaller checkpoints",
            })
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Shape of a tensor, if the checkpoint has it.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|info| info.shape.as_slice())
    }

    /// The values of a tensor in row-major order; `None` if there is no such tensor.
    ///
    /// # Errors
    /// [`WeightError`] if the tensor cannot be read, has another element type, or has a value that is not
    /// finite.
    pub fn tensor(&self, name: &str) -> Option<Result<Vec<f64>, WeightError>> {
        let tensor = self.float(name)?;
        Some(tensor.map(|tensor| tensor.values().collect()))
    }

    /// Reads a tensor and checks that all its values are finite.
    ///
    /// # Errors
    /// `None` if there is no such tensor; [`WeightError`] if it cannot be read or has unsupported values.
    pub(crate) fn float(&self, name: &str) -> Option<Result<FloatTensor<'_>, WeightError>> {
        let info = self.tensors.get(name)?;
        Some(self.checked_float(name, info))
    }

    fn checked_float<'a>(
        &'a self,
        name: &str,
        info: &'a TensorInfo,
    ) -> Result<FloatTensor<'a>, WeightError> {
        let kind = match info.dtype {
            Dtype::F16 => Float::F16,
            Dtype::BF16 => Float::Bf16,
            Dtype::F32 => Float::F32,
            Dtype::F64 => Float::F64,
            found => {
                return Err(WeightError::Dtype {
                    tensor: name.to_owned(),
                    found,
                });
            }
        };
        let tensor = FloatTensor {
            kind,
            bytes: self.read_bytes(info)?,
        };
        let odd = tensor.values().enumerate().find(|(_, v)| !v.is_finite());
        match odd {
            None => Ok(tensor),
            Some((index, value)) => Err(WeightError::NonFinite {
                tensor: name.to_owned(),
                index: coordinates(index, &info.shape),
                value,
            }),
        }
    }

    fn read_bytes(&self, info: &TensorInfo) -> Result<Cow<'_, [u8]>, CheckpointError> {
        // The header was checked: offsets are inside the payload, in order.
        let (from, to) = info.data_offsets;
        match &self.payload {
            Payload::Bytes { bytes, start } => Ok(bytes[start + from..start + to].into()),
            Payload::File { file, start } => {
                let mut bytes = vec![0; to - from];
                // Every read seeks first, so a file position left by a panicking thread does no harm.
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                file.seek(SeekFrom::Start(start + from as u64))
                    .and_then(|_| file.read_exact(&mut bytes))
                    .map_err(|problem| CheckpointError::Read {
                        origin: self.origin.clone(),
                        problem,
                    })?;
                Ok(bytes.into())
            }
        }
    }
}

impl FloatTensor<'_> {
    /// The values in row-major order.
    pub(crate) fn values(&self) -> Values<'_> {
        let bytes = &self.bytes[..];
        match self.kind {
            Float::F16 => Values::F16(elements(bytes)),
            Float::Bf16 => Values::Bf16(elements(bytes)),
            Float::F32 => Values::F32(elements(bytes)),
            Float::F64 => Values::F64(elements(bytes)),
        }
    }
}

/// The values of a tensor, as little-endian bytes.
pub(crate) enum Values<'a> {
    F16(slice::Iter<'a, [u8; 2]>),
    Bf16(slice::Iter<'a, [u8; 2]>),
    F32(slice::Iter<'a, [u8; 4]>),
    F64(slice::Iter<'a, [u8; 8]>),
}

/// The elements of `N` bytes; the length of a tensor is a multiple of theirs.
fn elements<const N: usize>(bytes: &[u8]) -> slice::Iter<'_, [u8; N]> {
    bytes.as_chunks().0.iter()
}

impl Iterator for Values<'_> {
    type Item = f64;

    #[inline]
    fn next(&mut self) -> Option<f64> {
        Some(match self {
            Self::F16(values) => f16::from_le_bytes(*values.next()?).to_f64(),
            Self::Bf16(values) => bf16::from_le_bytes(*values.next()?).to_f64(),
            Self::F32(values) => f64::from(f32::from_le_bytes(*values.next()?)),
            Self::F64(values) => f64::from_le_bytes(*values.next()?),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::F16(values) | Self::Bf16(values) => values.size_hint(),
            Self::F32(values) => values.size_hint(),
            Self::F64(values) => values.size_hint(),
        }
    }
}

/// Reads the header of a source of `len` bytes: the tensors, and the offset of the payload.
///
/// The reader of the crate `safetensors` needs the complete file in memory and adds offsets without overflow
/// checks.
fn read_header(
    mut source: impl Read,
    len: u64,
    origin: &str,
) -> Result<(BTreeMap<String, TensorInfo>, u64), CheckpointError> {
    let refused = |problem| CheckpointError::Read {
        origin: origin.to_owned(),
        problem,
    };
    let expect = |expected: Option<u64>, enough: fn(u64, u64) -> bool| {
        let expected = expected.unwrap_or(u64::MAX);
        if enough(len, expected) {
            Ok(expected)
        } else {
            Err(CheckpointError::Length {
                origin: origin.to_owned(),
                expected,
                found: len,
            })
        }
    };
    let not_safetensors = |problem: String, remedy| CheckpointError::Format {
        origin: origin.to_owned(),
        problem,
        remedy,
    };
    let mut length = [0; LENGTH_BYTES as usize];
    expect(Some(LENGTH_BYTES), |len, expected| len >= expected)?;
    source.read_exact(&mut length).map_err(refused)?;
    if let Some((problem, remedy)) = other_format(length) {
        return Err(not_safetensors(problem.to_owned(), remedy));
    }
    let header_bytes = u64::from_le_bytes(length);
    if header_bytes > MAX_HEADER_BYTES {
        return Err(not_safetensors(
            format!("its header has {header_bytes} bytes, more than {MAX_HEADER_BYTES}"),
            SAVE_AS_SAFETENSORS,
        ));
    }
    let start = expect(Some(LENGTH_BYTES + header_bytes), |len, expected| {
        len >= expected
    })?;
    let mut header = vec![0; header_bytes as usize];
    source.read_exact(&mut header).map_err(refused)?;
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| {
        not_safetensors(
            format!("its header is invalid: {error}"),
            SAVE_AS_SAFETENSORS,
        )
    })?;
    let end = start.checked_add(metadata.data_len() as u64);
    expect(end, |len, expected| len == expected)?;
    let tensors = metadata
        .tensors()
        .into_iter()
        .map(|(name, info)| (name, info.clone()))
        .collect();
    Ok((tensors, start))
}

const SAVE_AS_SAFETENSORS: &str =
    "save it with safetensors.torch.save_file(model.state_dict(), path)";

/// Formats that are mistaken for safetensors, by their first bytes.
fn other_format(first: [u8; 8]) -> Option<(&'static str, &'static str)> {
    if first.starts_with(b"PK\x03\x04") || first.starts_with(&[0x80, 0x02]) && first[7] != 0 {
        Some((
            "it looks like one written by torch.save",
            "load it in Python and save it with safetensors.torch.save_file(state_dict, path)",
        ))
    } else if first == tdc_runtime::WeightFile::MAGIC {
        Some((
            "it is a packed weight file already",
            "give the checkpoint from which it was packed",
        ))
    } else {
        None
    }
}

/// The position of the element with the given row-major index.
fn coordinates(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut position: Vec<_> = shape
        .iter()
        .rev()
        .map(|&size| {
            let at = index % size;
            index /= size;
            at
        })
        .collect();
    position.reverse();
    position
}
