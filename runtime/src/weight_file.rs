//! The file of a network's packed weights.
//!
//! A file consists of one or more sections, stored consecutively. A section has the weights in the layouts of
//! one plan; plans for several GPUs with equal layouts use the same section. All sections of a file contain
//! the same weights.
//!
//! ```text
//! offset  0  magic    8 bytes  "TDCWGHT\0"
//! offset  8  version  u32      1
//! offset 12  zero     u32
//! offset 16  layouts  u64      checksum of the list of slots: name, layout, bias length, distance of the bias from the block
//! offset 24  bytes    u64      length of the payload
//! offset 32  payload  u64      checksum of the payload
//! offset 40  zeros up to 256
//! offset 256 payload: for each unit the packed blocks of its slots, then their biases, each starting at a multiple of 256 bytes
//! ```
//!
//! Offsets are from the section's first byte. The length of the payload is a multiple of 256, so every
//! section is aligned to 256 bytes. All numbers are little-endian, all values fp32. A section matches a
//! driver if the checksum of its layouts is that of one of the driver's variants, for any versions of the
//! generator. A reader visits the headers, rejects a file that does not end with a section, and uses the
//! section of its preferred variant; ties go to the first section.

use crate::WeightLayout;

/// FNV-1a with 64 bits over little-endian 64-bit words; a last partial word is padded with zeros.
///
/// Not cryptographic: it detects damaged and mismatched files. Generated drivers compute the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum(u64);

impl Checksum {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;

    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut sum = Self(Self::OFFSET);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            sum.0 = (sum.0 ^ u64::from_le_bytes(word)).wrapping_mul(Self::PRIME);
        }
        sum.0
    }
}

/// The entry of one weight tensor of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightSlot {
    /// Name.
    pub name: String,
    /// The layout of its block.
    pub layout: WeightLayout,
    /// Number of bias values after the block.
    pub bias_len: u32,
}

/// Offsets of a slot's values in the payload, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightRegion {
    /// Offset of the packed block.
    pub packed: u64,
    /// Offset of the bias.
    pub bias: u64,
}

/// The structure of one section of a weight file: slots in order, with their offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightFile {
    slots: Vec<WeightSlot>,
    regions: Vec<WeightRegion>,
    payload_bytes: u64,
}

impl WeightFile {
    /// First bytes of every section.
    pub const MAGIC: [u8; 8] = *b"TDCWGHT\0";
    /// Version of the format.
    pub const VERSION: u32 = 1;
    /// Bytes before the payload.
    pub const HEADER_BYTES: u64 = 256;
    /// Alignment of every block in the payload, bytes.
    pub const ALIGNMENT: u64 = 256;

    /// Stores the slots consecutively, each as a separate unit.
    pub fn new(slots: Vec<WeightSlot>) -> Self {
        Self::from_units(slots.into_iter().map(|slot| vec![slot]))
    }

    /// Stores the slots of units consecutively. The blocks of a unit are stored as in
    /// [`Variant::packed_layouts`](crate::Variant::packed_layouts), so its bias follows the last block,
    /// whichever slot has it.
    pub fn from_units(units: impl IntoIterator<Item = Vec<WeightSlot>>) -> Self {
        let (mut slots, mut regions) = (Vec::new(), Vec::new());
        let mut payload_bytes = 0;
        for unit in units {
            let mut place = |elements: usize| {
                let start = payload_bytes;
                payload_bytes = (start + 4 * elements as u64).next_multiple_of(Self::ALIGNMENT);
                start
            };
            let blocks: Vec<_> = unit.iter().map(|slot| place(slot.layout.len())).collect();
            regions.extend(unit.iter().zip(blocks).map(|(slot, packed)| WeightRegion {
                packed,
                bias: match slot.bias_len {
                    0 => end_of_block(slot, packed),
                    len => place(len as usize),
                },
            }));
            slots.extend(unit);
        }
        Self {
            slots,
            regions,
            payload_bytes,
        }
    }

    /// Slots with their regions, in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&WeightSlot, WeightRegion)> {
        self.slots.iter().zip(self.regions.iter().copied())
    }

    /// Length of the payload in bytes.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// The checksum of the layouts that a section must have to match.
    pub fn layouts_checksum(&self) -> u64 {
        let mut text = String::new();
        for (slot, region) in self.iter() {
            text += &format!("{} {} b{}", slot.name, slot.layout, slot.bias_len);
            let bias_gap = region.bias - end_of_block(slot, region.packed);
            if bias_gap > 0 {
                text += &format!("+{bias_gap}");
            }
            text.push('\n');
        }
        Checksum::of(text.as_bytes())
    }

    /// The header of a section with the given payload.
    pub fn header(&self, payload: &[u8]) -> [u8; Self::HEADER_BYTES as usize] {
        let mut header = [0; Self::HEADER_BYTES as usize];
        header[0..8].copy_from_slice(&Self::MAGIC);
        header[8..12].copy_from_slice(&Self::VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&self.layouts_checksum().to_le_bytes());
        header[24..32].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        header[32..40].copy_from_slice(&Checksum::of(payload).to_le_bytes());
        header
    }
}

/// Offset of the next block or bias after the block of a slot at `packed`, in bytes.
fn end_of_block(slot: &WeightSlot, packed: u64) -> u64 {
    (packed + 4 * slot.layout.len() as u64).next_multiple_of(WeightFile::ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(name: &str, source: [u32; 4], bias_len: u32) -> WeightSlot {
        WeightSlot {
            name: name.to_owned(),
            layout: WeightLayout::oihw(source),
            bias_len,
        }
    }

    #[test]
    fn checksum_of_known_bytes() {
        // One word: (offset ^ word) * prime.
        let word = u64::from_le_bytes(*b"abcdefgh");
        let expected = (Checksum::OFFSET ^ word).wrapping_mul(Checksum::PRIME);
        assert_eq!(Checksum::of(b"abcdefgh"), expected);
        assert_eq!(Checksum::of(b""), Checksum::OFFSET);
        assert_ne!(Checksum::of(b"abcdefg"), Checksum::of(b"abcdefgh"));
    }

    #[test]
    fn regions_are_aligned_and_disjoint() {
        let file = WeightFile::new(vec![
            slot("a", [3, 5, 3, 3], 3),
            slot("b", [0; 4], 0),
            slot("c", [64, 1, 1, 1], 65),
        ]);
        let regions: Vec<_> = file.iter().map(|(_, region)| region).collect();
        assert_eq!(
            regions[0],
            WeightRegion {
                packed: 0,
                bias: 768
            }
        );
        assert_eq!(
            regions[1],
            WeightRegion {
                packed: 1024,
                bias: 1024
            }
        );
        assert_eq!(
            regions[2],
            WeightRegion {
                packed: 1024,
                bias: 1280
            }
        );
        assert_eq!(file.payload_bytes(), 1280 + 512);
    }

    #[test]
    fn the_bias_of_a_unit_follows_its_blocks() {
        let [a, b, c] = [
            slot("a", [3, 5, 3, 3], 0),
            slot("b", [64, 1, 1, 1], 64),
            slot("c", [7, 1, 1, 1], 0),
        ];
        let slots = || vec![a.clone(), b.clone(), c.clone()];
        let file = WeightFile::from_units([slots()]);
        let regions: Vec<_> = file.iter().map(|(_, region)| region).collect();
        assert_eq!(
            regions
                .iter()
                .map(|region| region.packed)
                .collect::<Vec<_>>(),
            [0, 768, 1024]
        );
        assert_eq!(regions[1].bias, 1280);
        assert_eq!(file.payload_bytes(), 1280 + 256);
        // The same slots with the bias at a different offset give a different file; if the offset is the same
        // anyway, the same file.
        let apart = WeightFile::new(slots());
        assert_eq!(apart.payload_bytes(), file.payload_bytes());
        assert_ne!(apart.layouts_checksum(), file.layouts_checksum());
        assert_eq!(
            WeightFile::from_units([vec![a.clone(), b.clone()], vec![c.clone()]]),
            apart
        );
    }

    #[test]
    fn a_changed_name_order_or_layout_changes_the_layouts_checksum() {
        let (a, b) = (slot("a", [1, 2, 1, 1], 1), slot("b", [2, 1, 1, 1], 1));
        let sum = |slots: &[&WeightSlot]| {
            WeightFile::new(slots.iter().map(|&s| s.clone()).collect()).layouts_checksum()
        };
        let first = sum(&[&a, &b]);
        assert_ne!(first, sum(&[&b, &a]));
        assert_ne!(first, sum(&[&a, &slot("b", [2, 1, 1, 1], 2)]));
        assert_ne!(first, sum(&[&a, &slot("b", [1, 2, 1, 1], 1)]));
        assert_eq!(first, sum(&[&a, &b]));
    }
}
