//! Reproducible random numbers for test data.

/// SplitMix64: the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A separate stream for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    /// Uniform in -1..1, never zero, zero-mean.
    pub fn value(&mut self) -> f32 {
        let odd = (self.bits() >> 40) as i32 * 2 + 1 - (1 << 24);
        odd as f32 / (1 << 24) as f32
    }

    /// `len` values.
    pub fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.value()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_zero_mean_and_never_zero() {
        let values = Random::new(3).values(100_000);
        assert!(values.iter().all(|v| *v != 0.0 && v.abs() < 1.0));
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.01, "{mean}");
    }
}
