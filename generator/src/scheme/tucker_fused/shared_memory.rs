//! The shared memory of a block. The weights are first: every chunk has its own memory, or the chunks pass through a ring of buffers. Then
//! follow the staged input, and data whose memory is not reused. Partial sums of the first factor reuse the memory of its weights and
//! input. Later data reuse the memory of the core's weights as well.

use super::TuckerFusedTile;
use super::cluster_split::ClusterSplit;
use super::factors::Factors;
use super::input_tile::InputTile;
use super::sums::Sums;
use crate::scheme::shared_offsets::{BARRIER_FLOATS, SharedOffsets};

/// Buffers for the largest magnitudes of the warps: two for chunks of the input in turn, and one each for the output of the first factor,
/// of the core, and of the layer.
pub(super) const FIRST_MAX_BUFFER: u32 = 2;
pub(super) const CORE_MAX_BUFFER: u32 = 3;
pub(super) const OUTPUT_MAX_BUFFER: u32 = 4;

/// Offsets in shared memory, in floats.
pub(super) struct SharedMemory {
    pub(super) weights: WeightBuffers,
    /// Data that reuse memory: staged input, partial sums of the first factor and of the others, output of the core.
    pub(super) input_at: u32,
    pub(super) first_partials_at: u32,
    pub(super) partials_at: u32,
    pub(super) core_output_at: u32,
    /// Data whose memory is not reused.
    pub(super) lasting: LastingData,
    /// All floats.
    pub(super) floats: u32,
}

/// The memory of the weights.
pub(super) struct WeightBuffers {
    /// Whether every chunk has its own memory.
    pub(super) resident: bool,
    /// Otherwise the number of buffers of the ring, and the floats of each (the largest chunk).
    pub(super) stages: u32,
    pub(super) stage_floats: u32,
}

/// Offsets of data whose memory is not reused.
pub(super) struct LastingData {
    pub(super) core_input_at: u32,
    pub(super) received_at: u32,
    pub(super) scales_at: u32,
    pub(super) warp_max_at: u32,
    pub(super) exchange_barriers_at: u32,
    pub(super) copy_barriers_at: u32,
}

/// What the layout depends on.
pub(super) struct Contents<'a> {
    pub(super) tile: &'a TuckerFusedTile,
    pub(super) split: &'a ClusterSplit,
    pub(super) input: &'a InputTile,
    pub(super) sums: &'a Sums,
    pub(super) d2_plane: u32,
    /// 2 with a hi/lo split, else 1.
    pub(super) split_terms: u32,
}

impl SharedMemory {
    /// The layout in at most `max_floats`; it places the weights of the next factor. `None` if the data do not fit.
    pub(super) fn new(
        factors: &mut Factors,
        contents: &Contents<'_>,
        max_floats: u32,
    ) -> Option<Self> {
        let (lasting, lasting_floats) = contents.lasting(factors);
        let left = max_floats.checked_sub(lasting_floats)?;
        let reused = contents.reused(factors);
        let stage_floats = factors
            .of_layer()
            .map(|factor| factor.chunk_weights)
            .max()?;
        let stages = left.saturating_sub(reused.end(Places::after_ring(0))) / stage_floats;
        let own_memory = Places::after_resident(factors);
        let resident = reused.end(own_memory) <= left;
        let needs_all = contents.tile.d2_splits > 1 || factors.next.is_some();
        if !resident && (stages < 2 || needs_all) {
            return None;
        }
        let places = match resident {
            true => own_memory,
            false => Places::after_ring(stages * stage_floats),
        };
        if let Some(next) = &mut factors.next {
            next.shared_at = reused.next_weights_at(places);
        }
        let end = reused.end(places);
        Some(Self {
            weights: WeightBuffers {
                resident,
                stages,
                stage_floats,
            },
            input_at: places.input,
            first_partials_at: places.first_partials,
            partials_at: places.partials,
            core_output_at: reused.core_output_at(places),
            lasting: lasting.from(end),
            floats: end + lasting_floats,
        })
    }
}

impl LastingData {
    /// The offsets if the data start at `start`.
    fn from(self, start: u32) -> Self {
        Self {
            core_input_at: start + self.core_input_at,
            received_at: start + self.received_at,
            scales_at: start + self.scales_at,
            warp_max_at: start + self.warp_max_at,
            exchange_barriers_at: start + self.exchange_barriers_at,
            copy_barriers_at: start + self.copy_barriers_at,
        }
    }
}

impl Contents<'_> {
    fn if_clustered(&self, floats: u32) -> u32 {
        match self.tile.cluster {
            1 => 0,
            _ => floats,
        }
    }

    /// The data whose memory is not reused, and their floats.
    fn lasting(&self, factors: &Factors) -> (LastingData, u32) {
        let Self {
            tile, split, input, ..
        } = self;
        let mut offsets = SharedOffsets::default();
        let mut place = |floats: u32| offsets.place(floats);
        let has_next = u32::from(factors.next.is_some());
        let next_received = match tile.blocks_n {
            1 => 0,
            blocks_n => blocks_n * split.next_rows_per_block,
        };
        let received_rows = (tile.cluster * split.d2_rows_per_block).max(next_received);
        let first_rows = factors.first.as_ref().map_or(0, |first| first.rows);
        let next_rows = factors.next.as_ref().map_or(0, |next| next.rows);
        // The scales and biases of the layer's output are for all blocks of a group.
        let scales = split.d1_splits * first_rows
            + split.d2_rows
            + 2 * tile.blocks_n * factors.last.rows
            + next_rows;
        let data = LastingData {
            core_input_at: place(2 * self.split_terms * split.first_quads() * input.plane),
            received_at: place(self.if_clustered(received_rows * split.block_pixels)),
            scales_at: place(scales),
            warp_max_at: place((OUTPUT_MAX_BUFFER + has_next) * tile.warps),
            exchange_barriers_at: place(self.if_clustered(BARRIER_FLOATS * (2 + has_next))),
            copy_barriers_at: place(BARRIER_FLOATS * (factors.chunks() + has_next)),
        };
        (data, offsets.floats())
    }

    fn reused(&self, factors: &Factors) -> ReusedMemory {
        let Self { tile, split, .. } = *self;
        let output_rows = factors.next.as_ref().map_or(0, |_| factors.last.rows);
        let operand_rows = split.d2_rows.max(output_rows);
        let operands = 2 * self.split_terms * (operand_rows / 4) * self.d2_plane;
        let first = factors.first.as_ref();
        ReusedMemory {
            clustered: tile.cluster > 1,
            other_blocks_send_early: tile.blocks_n > 1 && tile.d2_splits > 1,
            input: first.map_or(0, |_| {
                2 * self.input.quads * self.input.plane * self.split_terms
            }),
            first_partials: self.sums.first_partials(factors),
            core_partials: self.sums.core_partials(factors),
            last_partials: self.sums.last_partials(factors),
            core_output: operands.max(self.if_clustered(split.d2_rows * split.block_pixels)),
            next_weights: factors.next.as_ref().map_or(0, |next| next.weights()),
        }
    }
}

/// Where data start that reuse memory.
#[derive(Clone, Copy)]
struct Places {
    /// After all weights.
    input: u32,
    first_partials: u32,
    partials: u32,
}

impl Places {
    /// Partial sums start where the weights are no longer needed.
    fn after_resident(factors: &Factors) -> Self {
        let input = factors.of_layer().map(|factor| factor.weights()).sum();
        Self {
            input,
            first_partials: factors
                .first
                .as_ref()
                .map_or(input, |first| first.shared_at),
            partials: factors.core.shared_at,
        }
    }

    /// Weights are copied to the ring until the end.
    fn after_ring(floats: u32) -> Self {
        Self {
            input: floats,
            first_partials: floats,
            partials: floats,
        }
    }
}

/// Floats of the data that reuse memory.
struct ReusedMemory {
    clustered: bool,
    other_blocks_send_early: bool,
    input: u32,
    first_partials: u32,
    core_partials: u32,
    last_partials: u32,
    core_output: u32,
    next_weights: u32,
}

impl ReusedMemory {
    /// Other blocks may send the core's output while warps of this block still compute or send theirs. Blocks of another D2 split may send
    /// even while this block stages its input, because it does not wait for any data of theirs before.
    fn core_output_at(&self, places: Places) -> u32 {
        let after_core = places.partials + self.core_partials;
        if !self.clustered {
            places.partials
        } else if self.other_blocks_send_early {
            (places.input + self.input)
                .max(places.first_partials + self.first_partials)
                .max(after_core)
        } else {
            places.first_partials.max(after_core)
        }
    }

    fn end_without_next(&self, places: Places) -> u32 {
        (places.input + self.input)
            .max(places.first_partials + self.first_partials)
            .max(places.partials + self.core_partials.max(self.last_partials))
            .max(self.core_output_at(places) + self.core_output)
    }

    /// In the memory of the core's weights, if the data after the core leave enough of it. Not in memory that threads have written: the
    /// writes of a bulk copy are not ordered with those.
    fn next_weights_at(&self, places: Places) -> u32 {
        let read_only = match self.first_partials {
            0 => places.input,
            _ => places.first_partials,
        };
        let core_output_at = self.core_output_at(places);
        let at = match core_output_at < read_only {
            true => core_output_at + self.core_output,
            false => places.partials,
        };
        let at = at.max(places.partials + self.core_partials.max(self.last_partials));
        match at + self.next_weights <= read_only {
            true => at,
            false => self.end_without_next(places),
        }
    }

    fn end(&self, places: Places) -> u32 {
        let next_end = self.next_weights_at(places) + self.next_weights;
        self.end_without_next(places).max(next_end)
    }
}
