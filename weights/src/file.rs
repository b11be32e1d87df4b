//! Packs values into the bytes of a section of a weight file.

use tdc_runtime::{PackError, WeightFile};

use crate::{FileError, SlotValues};

/// One section of a weight file, header and payload. It is a complete file, or one of several sections to be
/// concatenated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedSection {
    /// The bytes to write.
    pub bytes: Vec<u8>,
}

/// Packs the values of each slot, in the order of the file's slots.
///
/// # Errors
/// [`FileError`] if the number of slots or a length does not match the file.
pub fn pack(file: &WeightFile, values: &[SlotValues]) -> Result<PackedSection, FileError> {
    let slots = file.iter().count();
    if slots != values.len() {
        return Err(FileError::Count {
            expected: slots,
            found: values.len(),
        });
    }
    let header_bytes = WeightFile::HEADER_BYTES as usize;
    let mut bytes = vec![0; header_bytes + file.payload_bytes() as usize];
    let (header, payload) = bytes.split_at_mut(header_bytes);
    for ((slot, region), values) in file.iter().zip(values) {
        let refused = |problem| FileError::Slot {
            slot: slot.name.clone(),
            problem,
        };
        let mut block = vec![0.0; slot.layout.len()];
        slot.layout
            .pack(&values.weight, &values.scale, &values.shift, &mut block)
            .map_err(refused)?;
        let bias_len = slot.bias_len as usize;
        if values.bias.len() != bias_len {
            return Err(refused(PackError::Length {
                what: "bias",
                expected: bias_len,
                found: values.bias.len(),
            }));
        }
        write(&mut payload[region.packed as usize..], &block);
        write(&mut payload[region.bias as usize..], &values.bias);
    }
    header.copy_from_slice(&file.header(payload));
    Ok(PackedSection { bytes })
}

/// Writes `values` as little-endian fp32 to the start of `bytes`.
fn write(bytes: &mut [u8], values: &[f32]) {
    for (target, value) in bytes.chunks_exact_mut(4).zip(values) {
        target.copy_from_slice(&value.to_le_bytes());
    }
}
