//! Conversion of packed weights to fp16: rounding, and the hi/lo split. The emitted packers do the same in
//! C++.

/// For each of `channels` rows of `weight` the dequantisation scale: the power of two that maps a row's
/// largest magnitude back from [2^14, 2^15). It is 1 for rows with non-finite values, and the smallest one for
/// rows of zeros and the remaining elements of `dequant_scale`: kernels take a bound of the weights from it.
pub(crate) fn dequant_scale(weight: &[f32], channels: usize, dequant_scale: &mut [f32]) {
    dequant_scale.fill(f32::MIN_POSITIVE);
    let row = weight.len() / channels.max(1);
    for (dequant_scale, weights) in dequant_scale
        .iter_mut()
        .zip(weight.chunks_exact(row.max(1)))
    {
        let largest = weights
            .iter()
            .fold(0.0f32, |largest, weight| largest.max(weight.abs()));
        *dequant_scale = if largest < f32::INFINITY {
            // The exponent of a subnormal or zero is raised to that of the smallest normal number, so that
            // results are normal numbers.
            let exponent = (largest.to_bits() >> 23).max(15);
            f32::from_bits((exponent - 14) << 23)
        } else {
            1.0
        };
    }
}

/// Writes each `run` of values as fp16, two per 32-bit word; with two `terms` it is followed by the `lo`
/// terms, the rounded remainders.
pub(crate) fn split(values: &[f32], run: usize, terms: usize, words: &mut [f32]) {
    for (values, words) in values
        .chunks_exact(run)
        .zip(words.chunks_exact_mut(run * terms / 2))
    {
        for (at, pair) in values.chunks_exact(2).enumerate() {
            let upper = [bits(pair[0]), bits(pair[1])];
            words[at] = word(upper);
            if terms == 2 {
                words[run / 2 + at] = word([
                    bits(pair[0] - value(upper[0])),
                    bits(pair[1] - value(upper[1])),
                ]);
            }
        }
    }
}

fn word([first, second]: [u16; 2]) -> f32 {
    f32::from_bits(u32::from(second) << 16 | u32::from(first))
}

/// The nearest fp16 number, ties to even; too large values become infinite. All NaNs give the same NaN,
/// because the sign of a computed NaN depends on the compiler.
pub fn bits(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7e00;
    }
    let sign = (value.to_bits() >> 16 & 0x8000) as u16;
    let magnitude = value.abs();
    let rounded = if magnitude >= 65520.0 {
        0x7c00
    } else if magnitude < f32::from_bits(0x3880_0000) {
        // Below 2^-14 the distance of fp16 numbers is 2^-24: adding 0.5 leaves a multiple of it in the lower
        // bits.
        ((magnitude + 0.5).to_bits() - 0.5f32.to_bits()) as u16
    } else {
        // Rounds to 10 bits of mantissa, then changes the exponent's bias from 127 to 15.
        let odd = magnitude.to_bits() >> 13 & 1;
        (((magnitude.to_bits() + 0xfff + odd) >> 13) - (112 << 10)) as u16
    };
    sign | rounded
}

/// The value of an fp16 number.
pub fn value(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let (exponent, mantissa) = (u32::from(bits >> 10 & 0x1f), u32::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => (mantissa as f32 * f32::from_bits(0x3380_0000)).to_bits(),
        0x1f => 0x7f80_0000 | mantissa << 13,
        _ => (exponent + 112) << 23 | mantissa << 13,
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back() {
        for number in 0..=u16::MAX {
            if value(number).is_nan() {
                assert!(value(bits(value(number))).is_nan());
            } else {
                assert_eq!(bits(value(number)), number);
            }
        }
    }

    #[test]
    fn rounds_to_the_nearest_and_ties_to_even() {
        for number in 0..0x7bffu16 {
            let (low, high) = (value(number), value(number + 1));
            let middle = low + (high - low) / 2.0;
            assert_eq!(bits(middle), number + (number & 1), "{middle:e}");
            assert_eq!(bits(f32::from_bits(middle.to_bits() - 1)), number);
            assert_eq!(bits(f32::from_bits(middle.to_bits() + 1)), number + 1);
        }
        assert_eq!(
            (bits(65519.0), bits(65520.0), bits(-1e9)),
            (0x7bff, 0x7c00, 0xfc00)
        );
    }

    #[test]
    fn rows_that_are_not_finite_or_tiny_have_a_scale() {
        let mut factors = [0.0; 5];
        let weight = [f32::MAX, f32::MIN_POSITIVE / 8.0, f32::INFINITY, 0.0];
        dequant_scale(&weight, 4, &mut factors);
        assert_eq!(factors[2..], [1.0, f32::MIN_POSITIVE, f32::MIN_POSITIVE]);
        assert!(factors.iter().all(|factor| factor.is_normal()));
        let largest = f32::MAX / factors[0];
        assert!((16384.0..32768.0).contains(&largest));
    }
}
