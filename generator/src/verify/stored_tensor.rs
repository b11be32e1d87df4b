//! Dense tensors as they are in memory, in 32-bit words.

use crate::ir::{DType, Format, Tensor, TensorShape};
use tdc_runtime::{bf16_bits, bf16_value, fp16_bits, fp16_value};

/// Words of the header of a split tensor.
const SPLIT_HEADER_WORDS: usize = Format::SPLIT_HEADER_BYTES as usize / 4;

/// The words of dense NCHW values in a format; empty stays empty. Elements of 16 bits are two in a word, the first in the lower half.
pub(super) fn stored_words(Tensor { shape, format }: Tensor, values: &[f32]) -> Vec<f32> {
    if values.is_empty() {
        return Vec::new();
    }
    let pixels = shape.pixels() as usize;
    let mut ordered = values.to_vec();
    for ((first, step), plane) in planes(shape, format).zip(values.chunks(pixels)) {
        for (pixel, value) in plane.iter().enumerate() {
            ordered[first + pixel * step] = *value;
        }
    }
    match format.dtype {
        DType::Fp32 => ordered,
        DType::Fp16 => pair_words(&ordered, fp16_bits),
        DType::Bf16 => pair_words(&ordered, bf16_bits),
        DType::Split => split_words(&ordered),
        DType::Uint8 => ordered.chunks(4).map(byte_word).collect(),
    }
}

/// The dense NCHW values of a tensor in a format, from its words. Those of a split tensor are NaN where the header does not bound them.
pub(super) fn values_of_words(Tensor { shape, format }: Tensor, words: Vec<f32>) -> Vec<f32> {
    let ordered = match format.dtype {
        DType::Fp32 => words,
        DType::Fp16 => pair_values(&words, fp16_value),
        DType::Bf16 => pair_values(&words, bf16_value),
        DType::Split => split_values(&words),
        DType::Uint8 => words.iter().flat_map(|&word| byte_values(word)).collect(),
    };
    let pixels = shape.pixels() as usize;
    let mut values = Vec::with_capacity(ordered.len());
    for (first, step) in planes(shape, format) {
        values.extend((0..pixels).map(|pixel| ordered[first + pixel * step]));
    }
    values
}

/// The values as they are after they were stored in a format.
pub(super) fn rounded_to(format: Format, values: Vec<f32>) -> Vec<f32> {
    match format.dtype {
        DType::Fp32 => values,
        DType::Fp16 => values
            .into_iter()
            .map(|value| fp16_value(fp16_bits(value)))
            .collect(),
        DType::Bf16 => values
            .into_iter()
            .map(|value| bf16_value(bf16_bits(value)))
            .collect(),
        DType::Split => {
            let scale = split_scale(&values);
            let rounded = values.into_iter().map(|value| {
                let [hi, lo] = hi_lo(value, scale);
                (fp16_value(hi) + fp16_value(lo)) * scale
            });
            rounded.collect()
        }
        // The range of the random numbers of checks, from -1 to 1, becomes that of bytes.
        DType::Uint8 => {
            let bytes = values.into_iter();
            bytes
                .map(|value| (127.5 * value + 127.5).round().clamp(0.0, 255.0))
                .collect()
        }
    }
}

/// Words of a tensor.
pub(super) fn word_count(tensor: Tensor) -> usize {
    tensor.bytes().div_ceil(4) as usize
}

fn largest_magnitude(values: &[f32]) -> f32 {
    let magnitudes = values.iter().map(|value| value.abs());
    magnitudes.fold(0.0, f32::max)
}

/// A scale that a kernel could have chosen: it does not know its outputs exactly, so some bits of hi are not used.
fn split_scale(values: &[f32]) -> f32 {
    const UNUSED_BITS: i32 = 6;
    let largest = largest_magnitude(values).max(f32::MIN_POSITIVE);
    2_f32.powi(largest.log2().floor() as i32 - 14 + UNUSED_BITS)
}

/// Hi and lo of a value.
fn hi_lo(value: f32, scale: f32) -> [u16; 2] {
    let scaled = value / scale;
    let hi = fp16_bits(scaled);
    [hi, fp16_bits(scaled - fp16_value(hi))]
}

/// A split tensor: its header with several maxima, hi, and lo.
fn split_words(ordered: &[f32]) -> Vec<f32> {
    let scale = split_scale(ordered);
    let largest = largest_magnitude(ordered);
    let maxima = [0.5 * largest, largest, 0.0];
    let mut words = vec![f32::NAN; SPLIT_HEADER_WORDS];
    words[0] = scale;
    words[1] = f32::from_bits(maxima.len() as u32);
    words[4..][..maxima.len()].copy_from_slice(&maxima);
    for term in 0..2 {
        let numbers = ordered.chunks_exact(2).map(|pair| {
            let bits = |at: usize| u32::from(hi_lo(pair[at], scale)[term]);
            f32::from_bits(bits(0) | bits(1) << 16)
        });
        words.extend(numbers);
    }
    words
}

/// The values of a split tensor in its order.
fn split_values(words: &[f32]) -> Vec<f32> {
    let (header, numbers) = words.split_at(SPLIT_HEADER_WORDS);
    let scale = header[0];
    let maxima = (header[1].to_bits() as usize).min(Format::SPLIT_MAXIMA as usize);
    let bound = largest_magnitude(&header[4..][..maxima]);
    let (hi, lo) = numbers.split_at(numbers.len() / 2);
    let [hi, lo] = [hi, lo].map(|words| pair_values(words, fp16_value));
    // Rounding may add a last bit to the largest value.
    let limit = bound * (1.0 + 1e-6);
    hi.iter()
        .zip(lo)
        .map(|(hi, lo)| (hi + lo) * scale)
        .map(|value| {
            if value.abs() <= limit {
                value
            } else {
                f32::NAN
            }
        })
        .collect()
}

/// Words of two 16-bit numbers; the second one of the last word may be missing.
fn pair_words(values: &[f32], to_bits: fn(f32) -> u16) -> Vec<f32> {
    let word = |pair: &[f32]| {
        let bits = |at: usize| pair.get(at).map_or(0, |&value| u32::from(to_bits(value)));
        f32::from_bits(bits(0) | bits(1) << 16)
    };
    values.chunks(2).map(word).collect()
}

/// Up to four whole numbers from 0 to 255.
fn byte_word(values: &[f32]) -> f32 {
    let byte = |index: usize| values.get(index).map_or(0, |&value| value as u8);
    f32::from_bits(u32::from_le_bytes([0, 1, 2, 3].map(byte)))
}

fn byte_values(word: f32) -> [f32; 4] {
    word.to_bits().to_le_bytes().map(f32::from)
}

/// The values of words of two 16-bit numbers.
fn pair_values(words: &[f32], value: fn(u16) -> f32) -> Vec<f32> {
    let pair = |word: &f32| {
        let bits = word.to_bits();
        [bits as u16, (bits >> 16) as u16].map(value)
    };
    words.iter().flat_map(pair).collect()
}

/// Each plane of an NCHW tensor in another format: the index of its first pixel and the distance of the pixels.
fn planes(shape: TensorShape, format: Format) -> impl Iterator<Item = (usize, usize)> {
    let step = format.layout.index(shape, [0, 0, 1]);
    let (batch, channels) = (shape.batch as usize, shape.c as usize);
    (0..batch).flat_map(move |image| {
        let first = move |channel| format.layout.index(shape, [image, channel, 0]);
        (0..channels).map(move |channel| (first(channel), step))
    })
}
