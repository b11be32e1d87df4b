//! Random checkpoints for tests and measurements.

use std::collections::BTreeMap;

use tdc_runtime::Checksum;

use crate::recipe::transposed_shape;
use crate::{Checkpoint, ScaleShiftSource, SlotRecipe, WeightSource};

/// The distribution of a tensor's values.
enum Distribution {
    Normal { deviation: f64 },
    Uniform { low: f64, high: f64 },
}

const SMALL: Distribution = Distribution::Normal { deviation: 0.1 };
const AROUND_ONE: Distribution = Distribution::Uniform {
    low: 0.5,
    high: 1.5,
};

impl Checkpoint {
    /// Random fp32 tensors for everything that the recipes name, except trained factors.
    ///
    /// Weights are He-normal (zero mean, variance 2 / (I R S)), biases, means, shifts and slopes normal with
    /// standard deviation 0.1, scales and variances uniform in 0.5..1.5. A tensor depends on `seed`, its name and its
    /// shape only, and is the same on every machine: only integer arithmetic and correctly rounded operations
    /// are used. Normal numbers are approximated by the sum of sixteen uniform ones. If a name has two
    /// shapes, the first one is used.
    pub fn random(recipes: &[SlotRecipe], seed: u64) -> Self {
        let mut tensors = BTreeMap::new();
        for recipe in recipes.iter().flat_map(SlotRecipe::with_layers) {
            let mut add = |name: &str, shape: &[u32], draw: Distribution| {
                tensors
                    .entry(name.to_owned())
                    .or_insert_with(|| (shape.to_vec(), draw));
            };
            match &recipe.weight {
                None => {}
                Some(WeightSource::Tensor(name)) => {
                    let shape = recipe.slot.layout.source;
                    add(name, &shape, he_normal(shape));
                }
                Some(WeightSource::Linear(name)) => {
                    let [o, i, r, s] = recipe.slot.layout.source;
                    add(name, &[o, i * r * s], he_normal([o, i, r, s]));
                }
                Some(WeightSource::Transposed { name, groups }) => {
                    let shape = recipe.slot.layout.source;
                    add(name, &transposed_shape(shape, *groups), he_normal(shape));
                }
                Some(WeightSource::Channels(name)) => {
                    add(name, &[recipe.slot.layout.source[0]], SMALL);
                }
                Some(WeightSource::Factor { layer, .. }) => {
                    add(&layer.weight, &layer.shape, he_normal(layer.shape));
                }
                // They are recipes of their own.
                Some(
                    WeightSource::Merged(_)
                    | WeightSource::Added(_)
                    | WeightSource::WeightOf(_)
                    | WeightSource::BiasOf(_),
                ) => {}
            }
            if let Some(name) = &recipe.bias {
                add(name, &[recipe.slot.layout.source[0]], SMALL);
            }
            for source in recipe.fold.iter().chain(&recipe.prologue) {
                match source {
                    ScaleShiftSource::BatchNorm { name, channels, .. } => {
                        add(&format!("{name}.weight"), &[*channels], AROUND_ONE);
                        add(&format!("{name}.bias"), &[*channels], SMALL);
                        add(&format!("{name}.running_mean"), &[*channels], SMALL);
                        add(&format!("{name}.running_var"), &[*channels], AROUND_ONE);
                    }
                    ScaleShiftSource::Tensors {
                        scale,
                        shift,
                        channels,
                    } => {
                        add(scale, &[*channels], AROUND_ONE);
                        add(shift, &[*channels], SMALL);
                    }
                    ScaleShiftSource::Constants { .. } => {}
                }
            }
        }
        let values = tensors.into_iter().map(|(name, (shape, draw))| {
            let shape: Vec<_> = shape.into_iter().map(|size| size as usize).collect();
            let mut numbers = SplitMix64::for_tensor(seed, &name);
            let values = (0..shape.iter().product())
                .map(|_| draw.next(&mut numbers) as f32)
                .collect();
            (name, shape, values)
        });
        Self::from_values(format!("of random numbers with seed {seed}"), values)
    }
}

fn he_normal([_, i, r, s]: [u32; 4]) -> Distribution {
    let inputs = f64::from(i) * f64::from(r) * f64::from(s);
    Distribution::Normal {
        deviation: (2.0 / inputs).sqrt(),
    }
}

impl Distribution {
    fn next(&self, numbers: &mut SplitMix64) -> f64 {
        match *self {
            Self::Uniform { low, high } => {
                // 53 random bits: every value is exact in f64.
                let unit = (numbers.next() >> 11) as f64 / (1u64 << 53) as f64;
                low + (high - low) * unit
            }
            Self::Normal { deviation } => deviation * normal(numbers),
        }
    }
}

/// Approximately standard normal: the sum of sixteen uniform 16-bit integers, centred and scaled to variance
/// 1.
fn normal(numbers: &mut SplitMix64) -> f64 {
    const TERMS: f64 = 16.0;
    const LEVELS: f64 = 65536.0;
    let sum: u64 = (0..4)
        .map(|_| {
            let word = numbers.next();
            (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48)
        })
        .sum();
    let centred = sum as f64 - TERMS * (LEVELS - 1.0) / 2.0;
    centred / (TERMS * (LEVELS * LEVELS - 1.0) / 12.0).sqrt()
}

/// The generator of Steele, Lea and Flood: a counter and a mixing function.
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) fn for_tensor(seed: u64, name: &str) -> Self {
        let mut mix = Self(seed);
        Self(mix.next() ^ Checksum::of(name.as_bytes()))
    }

    /// Uniform in -1..1.
    pub(crate) fn around_zero(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_mix_gives_the_published_numbers() {
        // The first outputs for the seed 1234567, from the test vector of the reference implementation.
        let mut numbers = SplitMix64(1_234_567);
        assert_eq!(numbers.next(), 6_457_827_717_110_365_317);
        assert_eq!(numbers.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut numbers = SplitMix64(7);
        let count = 100_000;
        let values: Vec<_> = (0..count).map(|_| normal(&mut numbers)).collect();
        let mean = values.iter().sum::<f64>() / f64::from(count);
        let square = values.iter().map(|v| v * v).sum::<f64>() / f64::from(count);
        assert!(mean.abs() < 0.01, "mean {mean}");
        assert!((square - 1.0).abs() < 0.02, "variance {square}");
        let beyond_two = values.iter().filter(|v| v.abs() > 2.0).count() as f64 / f64::from(count);
        assert!((beyond_two - 0.0455).abs() < 0.005, "tail {beyond_two}");
    }
}
