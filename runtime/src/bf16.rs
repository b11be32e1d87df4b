//! bf16 numbers: the upper 16 bits of floats. The emitted packers round weights to them in C++.

/// Writes values as bf16, two per 32-bit word.
pub(crate) fn round(values: &[f32], words: &mut [f32]) {
    for (pair, word) in values.chunks_exact(2).zip(words) {
        *word = f32::from_bits(u32::from(bits(pair[1])) << 16 | u32::from(bits(pair[0])));
    }
}

/// The nearest bf16 number, ties to even; all NaNs give the same NaN.
pub fn bits(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The value of a bf16 number.
pub fn value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_the_nearest_and_ties_to_even() {
        for number in 0..0x7f80u16 {
            for sign in [0, 0x8000] {
                let exact = value(sign | number).to_bits();
                assert_eq!(bits(f32::from_bits(exact)), sign | number);
                assert_eq!(bits(f32::from_bits(exact + 0x7fff)), sign | number);
                assert_eq!(
                    bits(f32::from_bits(exact + 0x8000)),
                    sign | (number + (number & 1))
                );
                assert_eq!(bits(f32::from_bits(exact + 0x8001)), sign | (number + 1));
            }
        }
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        assert_eq!(
            (bits(f32::INFINITY), bits(f32::NEG_INFINITY), bits(f32::MAX)),
            (0x7f80, 0xff80, 0x7f80)
        );
        for nan in [0x7fff_ffff, 0xffff_ffff, 0x7f80_0001] {
            assert!(value(bits(f32::from_bits(nan))).is_nan());
        }
    }
}
