//! Offsets of data in shared memory that have memory of their own.

/// Floats of an mbarrier.
pub(super) const BARRIER_FLOATS: u32 = 2;

/// Places data one after another, each at a multiple of 16 bytes. Sizes and offsets are in floats.
#[derive(Default)]
pub(super) struct SharedOffsets {
    end: u32,
}

impl SharedOffsets {
    /// The offset of data of this size, after all that have been placed.
    pub(super) fn place(&mut self, floats: u32) -> u32 {
        let at = self.end;
        self.end = (at + floats).next_multiple_of(4);
        at
    }

    /// All floats that have been placed, rounded up.
    pub(super) fn floats(&self) -> u32 {
        self.end
    }
}
