//! Dense tensors as they are in memory, in 32-bit words.

use crate::ir::{DType, Format, TensorShape};
use tdc_runtime::{fp16_bits, fp16_value};

/// The words of dense NCHW values in a format; empty stays empty. Elements of 16 bits are two in a word, the first in the lower half.
pub(super) fn stored_words(shape: TensorShape, format: Format, values: &[f32]) -> Vec<f32> {
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
        DType::Fp16 => ordered.chunks(2).map(fp16_word).collect(),
    }
}

/// The dense NCHW values of a tensor in a format, from its words.
pub(super) fn values_of_words(shape: TensorShape, format: Format, words: Vec<f32>) -> Vec<f32> {
    let ordered = match format.dtype {
        DType::Fp32 => words,
        DType::Fp16 => words.iter().flat_map(|&word| fp16_values(word)).collect(),
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
    }
}

/// Words of `elements` elements of a format.
pub(super) fn word_count(format: Format, elements: u64) -> usize {
    (elements * format.dtype.bytes()).div_ceil(4) as usize
}

fn fp16_word(pair: &[f32]) -> f32 {
    let bits = |index: usize| {
        pair.get(index)
            .map_or(0, |&value| u32::from(fp16_bits(value)))
    };
    f32::from_bits(bits(0) | bits(1) << 16)
}

fn fp16_values(word: f32) -> [f32; 2] {
    let bits = word.to_bits();
    [bits as u16, (bits >> 16) as u16].map(fp16_value)
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
