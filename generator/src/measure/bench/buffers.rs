//! Input, weights and output of one convolution on the device, in one copy or in many.

use crate::verify::{Device, DeviceError, GpuDevice, Repeats};

/// Alignment of every tensor, in bytes.
const ALIGNMENT: usize = 256;

/// Copies of the same operands, each with a separate output.
#[derive(Debug, Clone, Copy)]
pub struct Buffers {
    base: u64,
    stride: u64,
    weight: u64,
    y: u64,
    count: usize,
}

/// Addresses of one copy.
#[derive(Debug, Clone, Copy)]
pub struct OperandAddresses {
    /// The input.
    pub x: u64,
    /// The weights.
    pub weight: u64,
    /// The output.
    pub y: u64,
}

impl Buffers {
    /// The number of copies that exceed twice a cache of `bytes` bytes; `None` when the tensors are so small
    /// that there would be too many.
    pub fn copies_exceeding_cache(bytes: usize, cache_bytes: u64) -> Option<usize> {
        /// A graph of this many launches is built and replayed within milliseconds.
        const MAX_COPIES: usize = 4096;
        let count = (2 * cache_bytes) as usize / bytes.max(1) + 1;
        (count <= MAX_COPIES).then_some(count)
    }

    /// Allocates `count` copies on the device; the outputs are uninitialised.
    ///
    /// # Errors
    /// Device errors.
    pub fn new(
        device: &mut GpuDevice,
        x: &[u8],
        weight: &[u8],
        y_bytes: usize,
        count: usize,
    ) -> Result<Self, DeviceError> {
        let weight_at = x.len().next_multiple_of(ALIGNMENT);
        let y_at = weight_at + weight.len().next_multiple_of(ALIGNMENT);
        let stride = y_at + y_bytes.next_multiple_of(ALIGNMENT);
        let base = device.alloc((stride * count).div_ceil(4))?;
        device.write_bytes(base, x)?;
        device.write_bytes(base + weight_at as u64, weight)?;
        for copy in 1..count {
            device.copy(base, base + (copy * stride) as u64, y_at)?;
        }
        Ok(Self {
            base,
            stride: stride as u64,
            weight: weight_at as u64,
            y: y_at as u64,
            count,
        })
    }

    /// How runs on these copies are timed: a replay uses every copy equally often, so that none of them is
    /// still in the cache in the next one.
    pub fn repeats(&self) -> Repeats {
        let full = Repeats::FULL;
        Repeats {
            runs: full.runs.next_multiple_of(self.count),
            ..full
        }
    }

    /// The copy that run `run` uses, in rotation.
    pub fn for_run(&self, run: usize) -> OperandAddresses {
        let x = self.base + (run % self.count) as u64 * self.stride;
        OperandAddresses {
            x,
            weight: x + self.weight,
            y: x + self.y,
        }
    }
}

/// The bytes of the values, as they are stored on the device.
pub fn bytes_of(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_exceed_twice_the_cache_or_are_not_made() {
        let count = Buffers::copies_exceeding_cache(1000, 60_000).unwrap();
        assert!(count * 1000 > 120_000, "{count}");
        assert_eq!(Buffers::copies_exceeding_cache(1 << 30, 60_000), Some(1));
        assert_eq!(Buffers::copies_exceeding_cache(100, 60 << 20), None);
        assert_eq!(Buffers::copies_exceeding_cache(0, 60 << 20), None);
    }

    #[test]
    fn runs_take_turns() {
        let buffers = Buffers {
            base: 1 << 20,
            stride: 1024,
            weight: 256,
            y: 512,
            count: 3,
        };
        let first = buffers.for_run(0);
        assert_eq!(
            [first.x, first.weight, first.y],
            [1 << 20, (1 << 20) + 256, (1 << 20) + 512]
        );
        assert_eq!(buffers.for_run(4).x, (1 << 20) + 1024);
        assert_eq!(buffers.for_run(6).x, first.x);
        assert_eq!(buffers.repeats().runs, 51);
        assert_eq!(
            Buffers {
                count: 1,
                ..buffers
            }
            .repeats(),
            Repeats::FULL
        );
    }
}
