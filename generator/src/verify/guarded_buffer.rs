//! Memory on a device between guards, which show accesses out of bounds.

use super::{Device, DeviceError};

/// Number of guard elements before and after every tensor.
pub(super) const MARGIN: usize = 1024;
/// Value of the guards of inputs: a signalling NaN, which arithmetic turns into a quiet one.
pub(super) const INPUT_POISON: u32 = 0x7fa1_b2c3;
/// Value of outputs before a run and of their guards: a different NaN, so that reads and writes out of bounds
/// are both detected.
pub(super) const OUTPUT_POISON: u32 = 0x7fa4_d5e6;

/// The number of elements whose bits differ.
pub(super) fn count_differing(now: &[f32], then: &[f32]) -> usize {
    let pairs = now.iter().zip(then);
    pairs
        .filter(|(now, then)| now.to_bits() != then.to_bits())
        .count()
}

/// A tensor on the device between two guards; its images are `batch_stride` apart.
pub(super) struct GuardedBuffer {
    pub(super) address: u64,
    pub(super) floats: usize,
    /// The complete allocation as it was written.
    pub(super) image: Vec<f32>,
}

impl GuardedBuffer {
    pub(super) fn new(
        device: &mut dyn Device,
        floats: usize,
        poison: u32,
    ) -> Result<Self, DeviceError> {
        let image = vec![f32::from_bits(poison); floats + 2 * MARGIN];
        let base = device.alloc(image.len())?;
        device.write(base, &image)?;
        Ok(Self {
            address: base + 4 * MARGIN as u64,
            floats,
            image,
        })
    }

    pub(super) fn write(
        &mut self,
        device: &mut dyn Device,
        at: usize,
        values: &[f32],
    ) -> Result<(), DeviceError> {
        self.image[MARGIN + at..][..values.len()].copy_from_slice(values);
        device.write(self.address + 4 * at as u64, values)
    }

    /// The number of guard elements that were modified.
    pub(super) fn modified_elements(&self, device: &mut dyn Device) -> Result<usize, DeviceError> {
        let mut modified_elements = 0;
        for start in [0, MARGIN + self.floats] {
            let mut now = [0.0; MARGIN];
            device.read(
                self.address - 4 * MARGIN as u64 + 4 * start as u64,
                &mut now,
            )?;
            modified_elements += count_differing(&now, &self.image[start..]);
        }
        Ok(modified_elements)
    }

    /// The present content of the complete allocation.
    pub(super) fn read(&self, device: &mut dyn Device) -> Result<Vec<f32>, DeviceError> {
        let mut values = vec![0.0; self.floats + 2 * MARGIN];
        device.read(self.address - 4 * MARGIN as u64, &mut values)?;
        Ok(values)
    }
}
