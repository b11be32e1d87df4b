//! A tile's numbers: shares of a cluster's blocks, and what lies where in a block's shared memory.

use super::MAX_CHUNK_KIB;
use super::factor::Factor;
use crate::ir::{ConvProblem, Reduce, Tolerance, TuckerProblem};
use crate::scheme::Tile;
use crate::scheme::block_sums::{BlockSums, MAX_CLUSTER, MAX_SHARED};
use crate::scheme::matrix_product::{M_TILE, MAX_WARPS, P_TILE, STEP_CHANNELS, parts, quad_plane};

/// Elements of four channels that a thread loads at once, at most, where chunks are loaded together.
const MAX_LOADS: u32 = 14;

/// A tile's numbers with what follows from them.
pub(super) struct Sizes {
    pub(super) tile_h: u32,
    pub(super) tile_w: u32,
    /// Blocks of a rectangle, those of them that finish the same pixels, and groups of 16 of the core's input channels of each.
    pub(super) members: u32,
    pub(super) group: u32,
    pub(super) share_groups: u32,
    /// Parts of the core's output channels, and blocks that have sums of each.
    pub(super) row_parts: u32,
    pub(super) senders: u32,
    pub(super) warps: u32,
    pub(super) first: Option<Factor>,
    pub(super) core: Factor,
    pub(super) last: Factor,
    /// The first factor of the layer behind, and how many of its output channels a block adds up.
    pub(super) next: Option<Factor>,
    pub(super) next_share: u32,
    pub(super) rows: u32,
    pub(super) row: u32,
    /// Times four channels that are staged at once, elements of four, threads for a position, and elements of each.
    pub(super) quads: u32,
    pub(super) plane: u32,
    pub(super) stagers: u32,
    pub(super) items: u32,
    /// Pixels that a block finishes, those of all, and elements of four of the core's output channels.
    pub(super) columns: u32,
    pub(super) all_columns: u32,
    pub(super) inner: u32,
    /// The core's output channels that a block adds up.
    pub(super) row_share: u32,
    /// Whether all chunks of weights have a place of their own; else buffers for one, and values of the largest.
    pub(super) resident: bool,
    pub(super) slots: u32,
    pub(super) slot: u32,
    /// Chunks of the first factor's sum that are loaded at once.
    pub(super) loads: u32,
    /// Whether warps round their sums of the first factor, send or round those of the core, and store those of the last straight from
    /// registers, because they have the whole of them.
    pub(super) rounds_first: bool,
    pub(super) sends_sums: bool,
    pub(super) rounds_core: bool,
    pub(super) stores_sums: bool,
    /// Places in shared memory, in floats: of what is staged, of shares of the first factor's sums, of the other factors', and of the
    /// core's output. They take the room of weights that have been used.
    pub(super) staged_at: u32,
    pub(super) early_at: u32,
    pub(super) late_at: u32,
    pub(super) gathered_at: u32,
    pub(super) middle_at: u32,
    pub(super) received_at: u32,
    pub(super) factors_at: u32,
    pub(super) largest_at: u32,
    pub(super) arrivals_at: u32,
    pub(super) chunks_at: u32,
    pub(super) shared_floats: u32,
    pub(super) sums: BlockSums,
    pub(super) registers: u32,
    pub(super) blocks: u64,
    pub(super) parts: u32,
}

/// The core alone: what the tiled schemes share is about convolutions.
pub(super) fn core_problem(problem: &TuckerProblem) -> ConvProblem {
    ConvProblem {
        shape: problem.core,
        prologue: None,
        epilogue: problem.epilogue,
        reduce: Reduce::Ordered,
        precision: problem.precision,
        tolerance: Tolerance::default(),
    }
}

impl Sizes {
    /// `None` where the numbers do not fit each other or the problem.
    pub(super) fn new(problem: &TuckerProblem, tile: &[u32]) -> Option<Self> {
        let &[
            tile_h,
            tile_w,
            members,
            group,
            row_parts,
            warps,
            sharers,
            chunk_groups,
            chunk_kib,
        ] = tile
        else {
            return None;
        };
        if [tile_h, tile_w, members, group, row_parts].contains(&0)
            || [warps, chunk_groups, chunk_kib].contains(&0)
            || tile_h.max(tile_w) > 256
            || members > MAX_CLUSTER
            || !members.is_multiple_of(group)
            || !members.is_multiple_of(row_parts)
            || warps > MAX_WARPS
            || chunk_groups > 32
            || chunk_kib > MAX_CHUNK_KIB
        {
            return None;
        }
        let core = &problem.core;
        let (d1_groups, d2_tiles) = (core.c.div_ceil(STEP_CHANNELS), core.n.div_ceil(M_TILE));
        let senders = members / row_parts;
        let share_groups = d1_groups.div_ceil(senders);
        if (senders - 1) * share_groups >= d1_groups || !d2_tiles.is_multiple_of(row_parts) {
            return None;
        }
        let part_tiles = d2_tiles / row_parts;
        let parts = parts(problem.precision);
        let threads = 32 * warps;
        let rows = (tile_h - 1) * core.stride[0] + (core.r - 1) * core.dilation[0] + 1;
        let row = (tile_w - 1) * core.stride[1] + (core.s - 1) * core.dilation[1] + 1;
        let positions = rows * row;
        if positions > threads {
            return None;
        }
        let pixel_tiles = (tile_h * tile_w).div_ceil(P_TILE);
        let columns = pixel_tiles.div_ceil(members / group) * P_TILE;
        let all_columns = columns * (members / group);
        if columns > threads {
            return None;
        }
        let (plane, inner) = (quad_plane(positions, parts), quad_plane(columns, parts));

        // Weights of a chunk as the config wishes, if a step is not more.
        let most = |rows_tiles: u32| (chunk_kib * 256 / (128 * parts * rows_tiles)).max(1);
        let first = match problem.first {
            Some(c) => {
                let groups = c.div_ceil(STEP_CHANNELS);
                if !groups.is_multiple_of(chunk_groups) {
                    return None;
                }
                let chunks = groups / chunk_groups;
                Some(Factor::new(
                    [share_groups, positions.div_ceil(P_TILE)],
                    chunks,
                    [chunk_groups, 1, 1],
                    [4 * plane, 1, 1],
                    [warps, sharers],
                    parts,
                )?)
            }
            None if chunk_groups > 1 => return None,
            None => None,
        };
        // A row of the filter, the filter, or the filters of several groups of channels.
        let (taps, share_steps) = (core.r * core.s, core.r * core.s * share_groups);
        let several = (1..=share_groups).filter(|&groups| share_groups.is_multiple_of(groups));
        let whole = several.map(|groups| [groups, core.r, core.s]);
        let counts = whole
            .filter(|[groups, ..]| groups * taps <= most(part_tiles))
            .max()
            .unwrap_or([1, 1, core.s]);
        let core_steps = counts.iter().product::<u32>();
        let b = [4 * plane, row * core.dilation[0], core.dilation[1]];
        let core = Factor::new(
            [part_tiles, pixel_tiles],
            share_steps / core_steps,
            counts,
            b,
            [warps, sharers],
            parts,
        )?;
        let n_tiles = problem.n.div_ceil(M_TILE).div_ceil(group);
        let mut parts_of_sum = (1..=d2_tiles)
            .rev()
            .filter(|&steps| d2_tiles.is_multiple_of(steps));
        let last_steps = parts_of_sum
            .find(|&steps| steps <= most(n_tiles))
            .unwrap_or(1);
        let last = Factor::new(
            [n_tiles, columns / P_TILE],
            d2_tiles / last_steps,
            [last_steps, 1, 1],
            [4 * inner, 1, 1],
            [warps, if problem.next.is_some() { 1 } else { sharers }],
            parts,
        )?;
        // From the registers that have the output, all of a block's channels at once.
        let mut next = match problem.next {
            Some(next) => Some(Factor::new(
                [next.n.div_ceil(M_TILE), columns / P_TILE],
                1,
                [n_tiles, 1, 1],
                [4 * inner, 1, 1],
                [warps, 1],
                parts,
            )?),
            None => None,
        };

        let quads = first.as_ref().map_or(share_groups, |_| chunk_groups) * STEP_CHANNELS / 4;
        let middle_quads = share_groups * STEP_CHANNELS / 4;
        let stagers = threads / positions;
        let items = quads.div_ceil(stagers);

        // Shared memory: the weights, last ones first, what is staged, and what stays beside them. Sums of the first factor may lie
        // where its weights and its input were, what comes behind the core also where those of the core were.
        let (mut first, mut core, mut last) = (first, core, last);
        let mut chunks = 0;
        for factor in first.iter_mut().chain([&mut core, &mut last]) {
            factor.chunks_before = chunks;
            chunks += factor.chunks;
        }
        let mut all_weights = 0;
        for factor in [&mut last, &mut core].into_iter().chain(&mut first) {
            factor.place = all_weights;
            all_weights += factor.weights();
        }
        let d2_rows = row_parts * core.rows;
        let row_share = d2_rows.div_ceil(group);
        let in_clusters = |floats: u32| if members > 1 { floats } else { 0 };
        let staged = first.as_ref().map_or(0, |_| 2 * quads * plane * parts);
        let in_registers = |factor: &Factor| sharers > 0 && factor.warps_k == 1;
        let rounds_first = first.as_ref().is_some_and(in_registers);
        let early = first.as_ref().map_or(0, Factor::partials);
        let early = if rounds_first { 0 } else { early };
        // All columns are sent.
        let sends_sums = members > 1 && core.warps_k == 1 && core.columns >= all_columns;
        let rounds_core = members == 1 && in_registers(&core);
        let stores_sums = next.is_some() || in_registers(&last);
        let core_partials = match sends_sums || rounds_core {
            true => 0,
            false => core.partials(),
        };
        let last_partials = if stores_sums { 0 } else { last.partials() };
        let made_rows = next.as_ref().map_or(0, |_| last.rows);
        let inner_floats =
            (2 * parts * (d2_rows.max(made_rows) / 4) * inner).max(in_clusters(d2_rows * columns));
        let late = core_partials.max(last_partials);
        // Other blocks may send the core's output while warps still compute or send theirs; those of another part of its channels,
        // from which a block awaits nothing before, even while it stages its input.
        let gathered = |[weights, early_at, late_at]: [u32; 3]| match members {
            1 => late_at,
            _ if group > 1 && row_parts > 1 => (weights + staged)
                .max(early_at + early)
                .max(late_at + core_partials),
            _ => early_at.max(late_at + core_partials),
        };
        let first_place = first.as_ref().map_or(all_weights, |first| first.place);
        let behind_own = |places: [u32; 3]| {
            let [weights, early_at, late_at] = places;
            (weights + staged)
                .max(early_at + early)
                .max(late_at + late)
                .max(gathered(places) + inner_floats)
        };
        // Where weights of the core were, if what comes behind it leaves enough room there. Not where threads have written: the
        // copy engine's writes are not in order with those.
        let next_weights = next.as_ref().map_or(0, Factor::weights);
        let next_at = |places: [u32; 3]| {
            let [weights, early_at, late_at] = places;
            let read_only = if early > 0 { early_at } else { weights };
            let at = match gathered(places) {
                gathered_at if gathered_at < read_only => gathered_at + inner_floats,
                _ => late_at,
            };
            match at.max(late_at + late) {
                at if at + next_weights <= read_only => at,
                _ => behind_own(places),
            }
        };
        let behind = |places: [u32; 3]| behind_own(places).max(next_at(places) + next_weights);
        let mut end = 0;
        let mut place = |floats: u32| {
            let at = end;
            end = (end + floats).next_multiple_of(4);
            at
        };
        let middle_at = place(2 * parts * middle_quads * plane);
        let next_rows = next.as_ref().map_or(0, |next| next.rows);
        let next_share = next_rows.div_ceil(group);
        let next_received = if group > 1 { group * next_share } else { 0 };
        let received = (members * row_share).max(next_received) * columns;
        let received_at = place(in_clusters(received));
        let first_factors = first.as_ref().map_or(0, |first| senders * first.rows);
        let factors_at = place(first_factors + d2_rows + 2 * group * last.rows + next_rows);
        let goes_on = u32::from(next.is_some());
        let largest_at = place((4 + goes_on) * warps);
        let arrivals_at = place(in_clusters(4 + 2 * goes_on));
        let chunks_at = place(2 * (chunks + goes_on));
        let left = (MAX_SHARED / 4).checked_sub(end)?;
        let factors = first.iter().chain([&core, &last]);
        let slot = factors.map(|factor| factor.chunk_weights).max()?;
        let slots = left.saturating_sub(behind([0; 3])) / slot;
        let own_places = [all_weights, first_place, core.place];
        let resident = behind(own_places) <= left;
        if !resident && (slots < 2 || row_parts > 1 || next.is_some()) {
            return None;
        }
        let places = if resident {
            own_places
        } else {
            [slots * slot; 3]
        };
        let [staged_at, early_at, late_at] = places;
        let gathered_at = gathered(places);
        if let Some(next) = &mut next {
            next.place = next_at(places);
        }
        let behind = behind(places);
        let sums = BlockSums {
            tile: [tile_h, tile_w, last.rows],
            threads,
            cluster: members,
            shares: last.warps_k,
            partial_row: last.partial_row,
        };
        let [tiles, _] = sums.tiles(&core_problem(problem));
        let tiles = u64::from(tiles) * u64::from(problem.core.batch);
        let blocks = tiles * u64::from(members);
        let factors = [first.as_ref(), Some(&core), Some(&last), next.as_ref()];
        let operands = factors
            .iter()
            .flatten()
            .map(|factor| 8 * factor.m * factor.p + 8 * factor.m + 5 * factor.p);
        let first_chunks = first.as_ref().map_or(1, |first| first.chunks);
        let loads = match first_chunks * items <= MAX_LOADS {
            true => first_chunks,
            false => 1,
        };
        let registers = operands.max()?.max(4 * loads * items) + 28;
        let fits = items <= 16 && registers * threads <= 65536 && registers <= 255;
        fits.then_some(Self {
            tile_h,
            tile_w,
            members,
            group,
            share_groups,
            row_parts,
            senders,
            warps,
            first,
            core,
            last,
            next,
            next_share,
            rows,
            row,
            quads,
            plane,
            stagers,
            items,
            columns,
            all_columns,
            inner,
            row_share,
            resident,
            slots,
            slot,
            loads,
            rounds_first,
            sends_sums,
            rounds_core,
            stores_sums,
            staged_at,
            early_at,
            late_at,
            gathered_at,
            middle_at: behind + middle_at,
            received_at: behind + received_at,
            factors_at: behind + factors_at,
            largest_at: behind + largest_at,
            arrivals_at: behind + arrivals_at,
            chunks_at: behind + chunks_at,
            shared_floats: behind + end,
            sums,
            registers,
            blocks,
            parts,
        })
    }

    pub(super) fn of(problem: &TuckerProblem, tile: &Tile) -> Self {
        Self::new(problem, &tile.0).expect("a tile out of the scheme's own space")
    }

    /// Chunks of weights that a block waits for, without those of the layer behind.
    pub(super) fn chunks(&self) -> u32 {
        self.factors().map(|factor| factor.chunks).sum()
    }

    /// Whether shares of the core's sums go through shared memory.
    pub(super) fn core_partials(&self) -> bool {
        !self.sends_sums && !self.rounds_core
    }

    pub(super) fn factors(&self) -> impl Iterator<Item = &Factor> {
        self.first.iter().chain([&self.core, &self.last])
    }

    /// Blocks that a multiprocessor of an H200 holds.
    pub(super) fn blocks_beside(&self) -> u32 {
        let threads = 32 * self.warps;
        (228 * 1024 / (4 * self.shared_floats + 1024))
            .min(2048 / threads)
            .min(65536 / (self.registers * threads))
            .max(1)
    }

    /// Chunks of weights that are on their way before the wait. Where a block begins while those of the launch ahead run, all of
    /// them; else the wait is over as it begins, and those of the core and of the last factor would keep the input waiting.
    pub(super) fn chunks_ahead(&self) -> u32 {
        match &self.first {
            Some(first) if self.resident && self.blocks_beside() == 1 => first.chunks,
            _ => self.chunks(),
        }
    }
}
