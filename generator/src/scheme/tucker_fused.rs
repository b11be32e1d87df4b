//! `tucker_fused`: the factors of a Tucker layer, 1x1, R x S core and 1x1, in one launch; or the last two behind the first one's.
//!
//! The products are those of [`implicit_gemm`](super::implicit_gemm): on the tensor cores, values split in two scaled fp16 numbers,
//! sums of [`CHAIN`](super::matrix_product::CHAIN) steps added in fp32. What lies between the factors stays on the chip. A cluster of blocks computes a rectangle
//! of the output, all channels of it:
//!
//! 1. Each block has a share of the D1 channels. It computes them from all input channels at every position that the core reads,
//!    so what neighbouring rectangles both read is computed twice, and keeps them in its shared memory.
//! 2. It multiplies them with its part of the core: a share of the sum of all D2 channels of the rectangle.
//! 3. The blocks exchange their shares. With `v` = 1 each finishes all D2 channels of some pixels; else `v` blocks add up a part of
//!    the channels each, for the same pixels, and tell each other.
//! 4. Each multiplies with its part of the last factor and stores.
//! 5. Where the problem goes on with the first factor of the layer behind, each rounds what it has stored and multiplies it with its
//!    rows of that factor. Blocks that have the same pixels exchange those sums too, a part of the channels each.
//!
//! Sums that one warp has the whole of are rounded, sent or stored straight from its registers; `k` is how many warps may share one,
//! and with 0 all but those that go to other blocks pass through shared memory, which leaves less to each warp. Those of the last
//! factor are always whole where the launch goes on, and the chunks have places of their own there.
//!
//! So no two blocks of a cluster read the same weights of the first factor or the core, and with `v` blocks to a group of pixels
//! each reads one in `v` of the last factor's. With `u` above 1 a share of the D1 channels belongs to `u` blocks, which all compute it, and
//! each multiplies it with a part of the core's output channels: fewer sums to exchange, and more blocks than D1 has shares.
//!
//! Chunks of weights are on their way in the order of their use from before the launch ahead has ended, each to a place of its own, or
//! through a ring of buffers where shared memory cannot hold them all. What comes later takes the room of weights and inputs that have
//! been used.

use super::block_sums::{
    BlockSums, MAX_CLUSTER, MAX_SHARED, most_promising, promise, tiles_well, vector,
};
use super::implicit_gemm::rectangles;
use super::matrix_product::{
    M_TILE, MAX_WARPS, P_TILE, STEP_CHANNELS, divisors, parts, quad_plane,
};
use super::step_order::{ChunkSteps, StepOrder, split_steps};
use super::{
    Blueprint, DevicePart, KernelBlueprint, LaunchWork, Scheme, Tile, UnitWork, context,
    stride_args,
};
use crate::gpu::KernelWork;
use crate::spec::{
    ConvProblem, MAX_ELEMENTS, NextFactor, Precision, Problem, Reduce, Tolerance, TuckerProblem,
};
use serde::Serialize;
use tdc_runtime::{Arg, Axis, Filter, LayoutDim, Transform, WeightFile, WeightLayout};

/// See the [module](self).
pub struct TuckerFused;

/// Tiles of sums that a warp holds at most.
const MAX_SUMS: u32 = 16;

/// Elements of four channels that a thread loads at once, at most, where chunks are loaded together.
const MAX_LOADS: u32 = 14;

/// Warps at most that share a sum, and KiB of a chunk at most, that are tried together.
const SHARERS_AND_CHUNKS: [[u32; 2]; 8] = [
    [0, 128],
    [0, MAX_CHUNK_KIB],
    [1, 128],
    [1, MAX_CHUNK_KIB],
    [2, MAX_CHUNK_KIB],
    [16, 64],
    [16, 128],
    [16, MAX_CHUNK_KIB],
];

/// What asks for the least room: whole sums in registers, or small chunks.
const LEAST: [[u32; 2]; 2] = [[1, 128], [16, 64]];

/// KiB of a chunk at most: no more fits beside what else a block keeps in shared memory.
const MAX_CHUNK_KIB: u32 = 224;

/// Tiles of sums at most for each product to have a sum of its own.
const MAX_CROSSED: u32 = 2;

/// What a factor multiplies in a block: a matrix of `rows` output channels by so many pixels, over steps of 16 terms.
#[derive(Debug, Clone, Serialize)]
struct Factor {
    /// Output channels.
    rows: u32,
    /// Tiles of a warp: of 16 output channels, of 8 pixels.
    m: u32,
    p: u32,
    warps_k: u32,
    /// Which part of the channels, pixels and steps a warp has.
    warp_m: String,
    warp_p: String,
    warp_k: String,
    /// Whether some warps have none.
    idle: bool,
    /// Chunks of its weights, and steps of one.
    chunks: u32,
    chunk_steps: u32,
    #[serde(skip)]
    steps: ChunkSteps,
    /// Packed values of a chunk, and of 16 output channels of it.
    chunk_weights: u32,
    tile_weights: u32,
    /// Pixels that warps hold sums of, and floats of shared memory between the sums of two output channels.
    columns: u32,
    partial_row: u32,
    /// Each product has a sum of its own: with few sums those of a step would wait for each other.
    crosses: bool,
    /// Where its chunks lie in shared memory, if all have a place of their own, and how many come before.
    place: u32,
    chunks_before: u32,
    /// Products of the tensor cores, and clocks of a warp, roughly.
    #[serde(skip)]
    products: u32,
    #[serde(skip)]
    clocks: f64,
}

/// A factor as the template knows it.
#[derive(Serialize)]
struct FactorContext {
    #[serde(flatten)]
    factor: Factor,
    #[serde(flatten)]
    order: StepOrder,
    /// Where its block and what undoes its scales begin in the packed parameters.
    at: usize,
    unscale_at: usize,
}

impl Factor {
    /// The arrangement of warps that takes the fewest clocks, roughly; `None` where no warp can hold its sums. `steps` are those of a
    /// chunk: groups of channels, rows of the filter, its columns; `b` is how far they are apart in what is staged. At most
    /// `sharers` of the warps have shares of the same sums, or any if that is 0.
    fn new(
        [m_tiles, p_tiles]: [u32; 2],
        chunks: u32,
        counts: [u32; 3],
        b: [u32; 3],
        [warps, sharers]: [u32; 2],
        parts: u32,
    ) -> Option<Self> {
        let chunk_steps = counts.iter().product::<u32>();
        let mut best: Option<(f64, [u32; 5])> = None;
        for warps_m in (1..=warps.min(m_tiles)).filter(|&part| m_tiles.is_multiple_of(part)) {
            let m = m_tiles / warps_m;
            let fits = |p: &u32| 12 * m * p + 8 * m + 5 * p + 60 <= (65536 / (32 * warps)).min(255);
            for p in (1..=p_tiles.min(MAX_SUMS / m)).filter(fits) {
                let warps_p = p_tiles.div_ceil(p);
                let most =
                    (warps / (warps_m * warps_p)).min(if sharers == 0 { warps } else { sharers });
                for warps_k in (1..=most).filter(|&part| split_steps(counts, part).is_some()) {
                    let clocks = clocks(
                        [m, p],
                        [warps_m, warps_p, warps_k],
                        chunks * chunk_steps,
                        [warps, sharers],
                        parts,
                    );
                    if best.is_none_or(|(least, _)| clocks < least) {
                        best = Some((clocks, [m, p, warps_m, warps_p, warps_k]));
                    }
                }
            }
        }
        let (clocks, [m, p, warps_m, warps_p, warps_k]) = best?;
        let columns = warps_p * p * P_TILE;
        let tile_weights = chunk_steps * 128 * parts;
        // A warp's index without the parts before, and one part of it.
        let over = |part: u32| match part {
            1 => "warp".to_owned(),
            _ => format!("warp / {part}"),
        };
        let part = |before: u32, part: u32| match part {
            1 => "0".to_owned(),
            _ => format!("{} % {part}", over(before)),
        };
        let used = warps_m * warps_p * warps_k;
        Some(Self {
            rows: M_TILE * m_tiles,
            m,
            p,
            warps_k,
            warp_m: part(1, warps_m),
            warp_p: part(warps_m, warps_p),
            warp_k: match used {
                1 if warps == 1 => "0".to_owned(),
                _ => over(warps_m * warps_p),
            },
            idle: used < warps,
            chunks,
            chunk_steps,
            steps: ChunkSteps {
                counts,
                a: [counts[1] * counts[2], counts[2], 1].map(|steps| steps * 128 * parts),
                b,
                warps: warps_k,
                parts,
            },
            chunk_weights: m_tiles * tile_weights,
            tile_weights,
            columns,
            // Eight rows of channels, two pixels of each lane: in different banks.
            partial_row: (columns + 23) / 32 * 32 + 8,
            crosses: crosses(m * p, parts),
            place: 0,
            chunks_before: 0,
            products: m_tiles * columns / P_TILE * chunks * chunk_steps * (2 * parts - 1),
            clocks,
        })
    }

    /// Packed values of all its chunks.
    fn weights(&self) -> u32 {
        self.chunks * self.chunk_weights
    }

    /// Floats that the warps' shares of its sums take.
    fn partials(&self) -> u32 {
        self.warps_k * self.rows * self.partial_row
    }
}

/// Whether each product of so many tiles of sums has a sum of its own.
fn crosses(tiles: u32, parts: u32) -> bool {
    parts == 2 && tiles <= MAX_CROSSED
}

/// Clocks of a block for a factor: a step's products share a quarter of a multiprocessor with those of other warps or wait for each
/// other, then shares of sums are added.
fn clocks(
    [m, p]: [u32; 2],
    [warps_m, warps_p, warps_k]: [u32; 3],
    steps: u32,
    [warps, sharers]: [u32; 2],
    parts: u32,
) -> f64 {
    let products = f64::from(2 * parts - 1);
    let warps_used = warps_m * warps_p * warps_k;
    let beside = f64::from(warps_used.div_ceil(4));
    // Of 128 bytes of shared memory, one a clock for all warps.
    let wavefronts = f64::from(4 * parts * m + 2 * parts * p);
    let loads = f64::from(parts * m + p);
    let tiles = f64::from(m * p);
    let issue = beside * (6.7 * products * tiles + 3.0 * loads + 20.0);
    let shared = f64::from(warps_used) * wavefronts;
    let chained = if crosses(m * p, parts) { 1.0 } else { products };
    let alone = (6.7 * products * tiles).max(39.0 * chained) + 60.0;
    let outputs = f64::from(m * warps_m * M_TILE * p * warps_p * P_TILE);
    let sums = match warps_k {
        // From the registers of those that have them.
        1 if sharers > 0 => 6.0 * outputs / f64::from(32 * warps_used),
        _ => 6.0 * f64::from(warps_k + 1) * outputs / f64::from(32 * warps),
    };
    f64::from(steps / warps_k) * issue.max(shared).max(alone) + sums
}

/// A tile's numbers with what follows from them.
struct Sizes {
    tile_h: u32,
    tile_w: u32,
    /// Blocks of a rectangle, those of them that finish the same pixels, and groups of 16 of the core's input channels of each.
    members: u32,
    group: u32,
    share_groups: u32,
    /// Parts of the core's output channels, and blocks that have sums of each.
    row_parts: u32,
    senders: u32,
    warps: u32,
    first: Option<Factor>,
    core: Factor,
    last: Factor,
    /// The first factor of the layer behind, and how many of its output channels a block adds up.
    next: Option<Factor>,
    next_share: u32,
    rows: u32,
    row: u32,
    /// Times four channels that are staged at once, elements of four, threads for a position, and elements of each.
    quads: u32,
    plane: u32,
    stagers: u32,
    items: u32,
    /// Pixels that a block finishes, those of all, and elements of four of the core's output channels.
    columns: u32,
    all_columns: u32,
    inner: u32,
    /// The core's output channels that a block adds up.
    row_share: u32,
    /// Whether all chunks of weights have a place of their own; else buffers for one, and values of the largest.
    resident: bool,
    slots: u32,
    slot: u32,
    /// Chunks of the first factor's sum that are loaded at once.
    loads: u32,
    /// Whether warps round their sums of the first factor, send or round those of the core, and store those of the last straight from
    /// registers, because they have the whole of them.
    rounds_first: bool,
    sends_sums: bool,
    rounds_core: bool,
    stores_sums: bool,
    /// Places in shared memory, in floats: of what is staged, of shares of the first factor's sums, of the other factors', and of the
    /// core's output. They take the room of weights that have been used.
    staged_at: u32,
    early_at: u32,
    late_at: u32,
    gathered_at: u32,
    middle_at: u32,
    received_at: u32,
    factors_at: u32,
    largest_at: u32,
    arrivals_at: u32,
    chunks_at: u32,
    shared_floats: u32,
    sums: BlockSums,
    registers: u32,
    blocks: u64,
    parts: u32,
}

/// The core alone: what the tiled schemes share is about convolutions.
fn core_problem(problem: &TuckerProblem) -> ConvProblem {
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
    fn new(problem: &TuckerProblem, tile: &[u32]) -> Option<Self> {
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

    fn of(problem: &TuckerProblem, tile: &Tile) -> Self {
        Self::new(problem, &tile.0).expect("a tile out of the scheme's own space")
    }

    fn factors(&self) -> impl Iterator<Item = &Factor> {
        self.first.iter().chain([&self.core, &self.last])
    }

    /// Blocks that a multiprocessor of an H200 holds.
    fn blocks_beside(&self) -> u32 {
        let threads = 32 * self.warps;
        (228 * 1024 / (4 * self.shared_floats + 1024))
            .min(2048 / threads)
            .min(65536 / (self.registers * threads))
            .max(1)
    }

    /// Chunks of weights that are on their way before the wait. Where a block begins while those of the launch ahead run, all of
    /// them; else the wait is over as it begins, and those of the core and of the last factor would keep the input waiting.
    fn chunks_ahead(&self) -> u32 {
        match &self.first {
            Some(first) if self.resident && self.blocks_beside() == 1 => first.chunks,
            _ => self.factors().map(|factor| factor.chunks).sum(),
        }
    }

    /// For the estimate.
    fn work(&self, problem: &TuckerProblem) -> KernelWork {
        let blocks = self.blocks as f64;
        let threads = 32 * self.warps;
        let with_next = || self.factors().chain(&self.next);
        let products: u32 = with_next().map(|factor| factor.products).sum();
        let weights: u32 = with_next().map(Factor::weights).sum();
        // Those of the layer behind come while the last factor's are used.
        let chunks: u32 = self.factors().map(|factor| factor.chunks).sum();
        let staged = self.first.as_ref().map_or(1, |first| first.chunks);
        // Rows of the input come in whole sectors of 32 bytes.
        let values = staged * self.quads * 4 * self.rows * (self.row.div_ceil(8) + 1) * 8;
        let products_clocks = 1.66 * f64::from(products);
        // A cluster takes pairs of multiprocessors of one group: what does not fit there waits for another round. (On an H200 16
        // clusters of 6 blocks ran at once; 20 took twice the time, and so did 16 of 8 and 40 of 3.)
        // Two blocks of a launch on one multiprocessor take twice the time.
        let of_group =
            |multiprocessors: u32| u64::from(multiprocessors / self.members.next_multiple_of(2));
        let clusters = (7 * of_group(16) + of_group(14)).max(1);
        let rounds = match self.members {
            1 => 1,
            members => (self.blocks / u64::from(members)).div_ceil(clusters),
        };
        let clocks: f64 = with_next().map(|factor| factor.clocks).sum();
        let exchanges = match (self.members, self.group, &self.next) {
            (1, _, _) => 0.0,
            (_, 1, _) => 1.0,
            (_, _, None) => 2.0,
            (_, _, Some(_)) => 3.0,
        };
        // What the products wait for, barriers, and sums on their way through shared memory.
        let exchanged = f64::from(self.row_share * self.columns * self.senders);
        let waits = (clocks - products_clocks).max(0.0)
            + 350.0 * f64::from(chunks)
            + 100.0 * f64::from(self.warps)
            + 250.0 * (with_next().count() as f64 + exchanges)
            + 12.0 * exchanged / f64::from(threads);
        // Weights come while the launch ahead still runs and while the input is staged.
        let bytes = 4.0 * (0.5 * f64::from(weights) + f64::from(values));
        let rounds = rounds as f64;
        KernelWork {
            blocks: self.blocks,
            threads,
            registers: self.registers,
            shared_bytes: 4 * self.shared_floats,
            // Warp instructions as multiply-adds: staging.
            flops: 64.0 * blocks * f64::from(self.warps * staged * self.items) * 48.0,
            fma_share: 1.0,
            mma: blocks * f64::from(products),
            l2_bytes: blocks * bytes,
            dram_bytes: Problem::Tucker(*problem).bytes() as f64,
            trips: 4.2 + 0.06 * f64::from(chunks),
            clocks: waits + (rounds - 1.0) * (waits + products_clocks + bytes / 40.0),
            cluster: self.members,
            overlaps: true,
            ..KernelWork::default()
        }
    }
}

impl Scheme for TuckerFused {
    fn name(&self) -> &'static str {
        "tucker_fused"
    }

    fn joins_factors(&self) -> bool {
        true
    }

    fn tile_names(&self) -> &'static [&'static str] {
        &["h", "w", "z", "v", "u", "t", "k", "c", "b"]
    }

    fn tiles(&self, problem: &Problem) -> Vec<Tile> {
        let Problem::Tucker(problem) = problem else {
            return Vec::new();
        };
        if !solves(problem) {
            return Vec::new();
        }
        let core = &problem.core;
        let groups = problem.first.map_or(1, |c| c.div_ceil(STEP_CHANNELS));
        let tile = |base: [u32; 7], [sharers, chunk_kib]: [u32; 2]| {
            let [h, w, members, group, row_parts, warps, chunk_groups] = base;
            let tile = [
                h,
                w,
                members,
                group,
                row_parts,
                warps,
                sharers,
                chunk_groups,
                chunk_kib,
            ];
            Some((Sizes::new(problem, &tile)?, tile))
        };
        // Each with the first of the least that fits; then those that promise most with all sharers and chunks.
        let mut bases = Vec::new();
        for (tile_h, tile_w) in rectangles(core.out_h(), core.out_w(), 256) {
            for [members, group, row_parts] in clusters() {
                for warps in [4, 6, 8, 12, 16] {
                    // Of the chunks that threads can load, the two largest.
                    let most = divisors(groups, &[1, 2, 3, 4, 6, 8, 12, 16, 32]);
                    let largest_first = most.collect::<Vec<_>>().into_iter().rev();
                    let fitting = largest_first.filter_map(|chunk_groups| {
                        let base = [
                            tile_h,
                            tile_w,
                            members,
                            group,
                            row_parts,
                            warps,
                            chunk_groups,
                        ];
                        let (sizes, _) = LEAST.iter().find_map(|&numbers| tile(base, numbers))?;
                        Some((promise(&sizes.work(problem)), base))
                    });
                    bases.extend(fitting.take(2));
                }
            }
        }
        let mut found = Vec::new();
        for base in most_promising(bases) {
            let base = base.0.try_into().expect("seven numbers");
            let mut known = Vec::new();
            for (sizes, tile) in SHARERS_AND_CHUNKS
                .iter()
                .filter_map(|&numbers| tile(base, numbers))
            {
                // With larger chunks than there are, or more shares, it would be the same kernel.
                let shares: Vec<_> = sizes.factors().map(|factor| factor.warps_k).collect();
                let chunks = (sizes.core.chunks, sizes.last.chunks);
                let whole = [
                    sizes.rounds_first,
                    sizes.sends_sums,
                    sizes.rounds_core,
                    sizes.stores_sums,
                ];
                let kernel = (whole, chunks, shares);
                if !known.contains(&kernel) {
                    known.push(kernel);
                    found.push((promise(&sizes.work(problem)), tile));
                }
            }
        }
        most_promising(found)
    }

    fn takes(&self, problem: &Problem, tile: &Tile) -> bool {
        let Problem::Tucker(problem) = problem else {
            return false;
        };
        solves(problem) && Sizes::new(problem, &tile.0).is_some()
    }

    fn work(&self, problem: &Problem, tile: &Tile) -> UnitWork {
        let problem = of(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: "kernel",
                work: Sizes::of(problem, tile).work(problem),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile) -> Blueprint {
        let problem = of(problem);
        let sizes = Sizes::of(problem, tile);
        let layouts = layouts(problem, &sizes);
        let kernel = kernel(problem, sizes, &layouts);
        let mut layouts = layouts.into_iter();
        Blueprint {
            kernels: vec![kernel],
            zeroed: None,
            workspace_bytes: 0,
            weights: layouts.next().unwrap_or(WeightLayout::NONE),
            more_weights: layouts.collect(),
        }
    }
}

/// What a cluster can be: its blocks, those that finish the same pixels, and parts of the core's output channels.
fn clusters() -> Vec<[u32; 3]> {
    const PARTS: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8];
    let mut found = Vec::new();
    for members in 1..=MAX_CLUSTER {
        for group in divisors(members, PARTS) {
            let parts = divisors(members, PARTS);
            found.extend(parts.map(|row_parts| [members, group, row_parts]));
        }
    }
    found
}

/// The Tucker layer in a problem that the scheme was given.
fn of(problem: &Problem) -> &TuckerProblem {
    match problem {
        Problem::Tucker(problem) => problem,
        _ => unreachable!("tucker_fused has tiles for Tucker layers only"),
    }
}

/// Whether the scheme can compute a problem, and as precisely as it must be; see [`implicit_gemm`](super::implicit_gemm). bf16,
/// whose numbers are not scaled, is left to single convolutions.
fn solves(problem: &TuckerProblem) -> bool {
    let core = &problem.core;
    // Padded to whole tiles, the weights must still be counted by an int.
    let padded = |channels: u32| u64::from(channels) + 512;
    let c = problem.first.unwrap_or(core.c);
    let weights = padded(c) * padded(core.c)
        + padded(core.c) * padded(core.n) * u64::from(core.r) * u64::from(core.s)
        + padded(core.n) * padded(problem.n)
        + problem
            .next
            .map_or(0, |next| padded(problem.n) * padded(next.n));
    tiles_well(&core_problem(problem))
        && problem.precision != Precision::Bf16
        && c.min(core.c).min(core.n).min(problem.n) >= 8
        && c.max(core.n).max(problem.n) <= 1 << 13
        && problem
            .next
            .is_none_or(|next| (8..=1 << 13).contains(&next.n))
        && Problem::Tucker(*problem).y().len() >= 256
        && weights <= MAX_ELEMENTS
}

/// Layouts of the factors, of matrices of 16x16 as the tensor cores' lanes hold them, in the order in which a block reads them.
fn layouts(problem: &TuckerProblem, sizes: &Sizes) -> Vec<WeightLayout> {
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    // A lane: a row, and four channels; its registers: the second two of them, the row eight rows on. Where the terms were sums in
    // registers, the four channels are those that a lane has of them.
    let layout = |source, outer: Vec<LayoutDim>, prologue_channels, rounded| WeightLayout {
        source,
        filter: Filter::Taps,
        dims: [
            outer,
            vec![
                dim(Axis::O, 8, 1),
                dim(Axis::I, 4, if rounded { 2 } else { 4 }),
                dim(Axis::I, 2, if rounded { 8 } else { 2 }),
                dim(Axis::O, 2, 8),
                dim(Axis::I, 2, 1),
            ],
        ]
        .concat()
        .into(),
        transform: Transform::Halves {
            run: M_TILE * STEP_CHANNELS,
            parts: sizes.parts,
        },
        prologue_channels,
    };
    // Chunks of the sum in a 1x1 factor.
    let pointwise = |factor: &Factor, shares: u32| {
        vec![
            dim(Axis::O, shares, factor.rows),
            dim(Axis::I, factor.chunks, factor.chunk_steps * STEP_CHANNELS),
            dim(Axis::O, factor.rows / M_TILE, M_TILE),
            dim(Axis::I, factor.chunk_steps, STEP_CHANNELS),
        ]
    };
    let (r, s) = (problem.core.r, problem.core.s);
    let core = &sizes.core;
    let share = dim(Axis::I, sizes.senders, sizes.share_groups * STEP_CHANNELS);
    let part = dim(Axis::O, sizes.row_parts, core.rows);
    let tiles = dim(Axis::O, core.rows / M_TILE, M_TILE);
    let core_dims = match core.chunk_steps / (r * s) {
        0 => vec![
            share,
            part,
            dim(Axis::I, sizes.share_groups, STEP_CHANNELS),
            dim(Axis::R, r, 1),
            tiles,
            dim(Axis::S, s, 1),
        ],
        groups => vec![
            share,
            part,
            dim(Axis::I, sizes.share_groups / groups, groups * STEP_CHANNELS),
            tiles,
            dim(Axis::I, groups, STEP_CHANNELS),
            dim(Axis::R, r, 1),
            dim(Axis::S, s, 1),
        ],
    };
    let dims = sizes
        .first
        .iter()
        .map(|first| (pointwise(first, sizes.senders), false))
        .chain([
            (core_dims, sizes.rounds_first),
            (pointwise(&sizes.last, sizes.group), sizes.rounds_core),
        ])
        .chain(sizes.next.iter().map(|next| {
            let dims = vec![
                dim(Axis::I, sizes.group, sizes.last.rows),
                dim(Axis::O, next.rows / M_TILE, M_TILE),
                dim(Axis::I, next.chunk_steps, STEP_CHANNELS),
            ];
            (dims, true)
        }));
    let affine = Problem::Tucker(*problem).affine_channels();
    let weights = Problem::Tucker(*problem).weights();
    dims.zip(weights)
        .enumerate()
        .map(|(index, ((dims, rounded), source))| {
            layout(source, dims, if index == 0 { affine } else { 0 }, rounded)
        })
        .collect()
}

#[derive(Serialize)]
struct Context {
    batched: bool,
    tiles: u32,
    tiles_w: u32,
    c: u32,
    h: u32,
    w: u32,
    n: u32,
    out_h: u32,
    out_w: u32,
    r: u32,
    s: u32,
    taps: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
    dilation_h: u32,
    dilation_w: u32,
    tile_h: u32,
    tile_w: u32,
    members: u32,
    group: u32,
    row_parts: u32,
    senders: u32,
    /// Of the text that a loop over the parts encloses.
    core_indent: u32,
    warps: u32,
    rows: u32,
    row: u32,
    quads: u32,
    plane: u32,
    columns: u32,
    all_columns: u32,
    inner: u32,
    d2_rows: u32,
    row_share: u32,
    resident: bool,
    /// Chunks of weights that are on their way before the wait, and whether others follow.
    ahead: u32,
    follows: bool,
    slots: u32,
    slot: u32,
    /// Chunks of weights that are waited for, and of the first factor's sum that are loaded at once.
    chunks: u32,
    loads: u32,
    min_blocks: u32,
    rounds_first: bool,
    sends_sums: bool,
    rounds_core: bool,
    stores_sums: bool,
    /// Whether shares of the core's sums go through shared memory.
    core_partials: bool,
    staged_at: u32,
    early_at: u32,
    late_at: u32,
    gathered_at: u32,
    middle_at: u32,
    received_at: u32,
    factors_at: u32,
    largest_at: u32,
    arrivals_at: u32,
    chunks_at: u32,
    /// Of what undoes the scales: where that of the core and of the last factor begin, and how many values there are.
    core_factors: u32,
    last_factors: u32,
    factor_floats: u32,
    /// Times four channels of the first factor's output and of the core's; vectors of four pixels of a block's sums, of a
    /// block's pixels, and of a channel.
    first_quads: u32,
    d2_quads: u32,
    exchanged: u32,
    gathered: u32,
    row_vectors: u32,
    /// Vectors of outputs of a thread, and of a channel, all of them or those of a lane.
    output_items: u32,
    pixel_vectors: u32,
    lane_row: u32,
    /// Elements of four channels that a thread rounds of the first factor's output and of the core's.
    first_items: u32,
    inner_items: u32,
    /// Threads that round a pixel.
    rounders: u32,
    idle_rounders: bool,
    first: Option<FactorContext>,
    core: FactorContext,
    /// Elements of what the core multiplies that a chunk of whole filters has, of one position; 0 where a chunk is a row of one.
    core_chunk_quads: u32,
    last: FactorContext,
    /// The first factor of the layer behind: its output channels that a block adds up, where what undoes its scales and its output begin, and the condition for a place outside of that.
    next: Option<FactorContext>,
    next_share: u32,
    next_factors: u32,
    z_at: u32,
    z_bounds: String,
    /// Whether the output that it reads is not stored.
    made_only: bool,
    split: bool,
    /// Threads that stage a position, elements of four channels that one has, and what has to be checked.
    stagers: u32,
    idle_stagers: bool,
    items: u32,
    checks_items: bool,
    checks_c: bool,
    prologue: bool,
    prologue_relu: bool,
    scale_at: usize,
    /// As the stores know them.
    scaled: bool,
    bias: bool,
    residual: bool,
    relu: bool,
    y_vector: u32,
    y_type: &'static str,
    y_elements: &'static [&'static str],
    /// The condition for a place outside the output.
    bounds: String,
}

fn kernel(problem: &TuckerProblem, sizes: Sizes, layouts: &[WeightLayout]) -> KernelBlueprint {
    let shape = problem.core;
    let x = Problem::Tucker(*problem).x();
    let mut end = 0;
    let mut layouts_left = layouts.iter();
    let mut of_factor = |factor: &Factor, warp_k: &str| {
        let layout = layouts_left.next().expect("a layout for each factor");
        let at = usize::next_multiple_of(end, WeightFile::ALIGNMENT as usize / 4);
        end = at + layout.len();
        FactorContext {
            factor: factor.clone(),
            order: StepOrder::new(
                factor.steps,
                warp_k,
                factor.steps.unroll(factor.m * factor.p),
            ),
            at,
            unscale_at: at + layout.weight_len() - layout.unscale_len(),
        }
    };
    let first = sizes.first.as_ref();
    let first = first.map(|first| of_factor(first, "warp_k"));
    let core = of_factor(&sizes.core, "core_warp_k");
    let last = of_factor(&sizes.last, "warp_k");
    let next = sizes.next.as_ref();
    let next = next.map(|next| of_factor(next, "next_warp_k"));
    let scale_at = layouts.first().map_or(0, WeightLayout::weight_len);
    let conv = core_problem(problem);
    let [tiles, tiles_w] = sizes.sums.tiles(&conv);
    // A lane has pairs of neighbouring pixels.
    let most = if sizes.stores_sums { 2 } else { 4 };
    let y_vector = sizes.sums.y_vector(&conv).min(most);
    let (y_type, y_elements) = vector(y_vector);
    let (out_h, out_w) = (shape.out_h(), shape.out_w());
    let pixels = sizes.tile_h * sizes.tile_w;
    let n_rows = sizes.group * sizes.last.rows;
    let outputs = sizes.last.rows * sizes.columns / y_vector;
    let lane_row = sizes.last.p * 2 / y_vector.min(2);
    let output_items = match sizes.stores_sums {
        true => 2 * sizes.last.m * lane_row,
        false => outputs.div_ceil(32 * sizes.warps),
    };
    let outside_image = [
        (sizes.all_columns > pixels, "pixel >= TH * TW".to_owned()),
        (
            !out_h.is_multiple_of(sizes.tile_h),
            "row >= OUT_H".to_owned(),
        ),
        (
            !out_w.is_multiple_of(sizes.tile_w),
            "column >= OUT_W".to_owned(),
        ),
    ];
    let outside_output = [
        (n_rows > problem.n, format!("n0 + n >= {}", problem.n)),
        (
            !sizes.stores_sums && !outputs.is_multiple_of(32 * sizes.warps),
            format!("item >= {outputs}"),
        ),
        (
            sizes.stores_sums && sizes.last.idle,
            "warp_k >= LAST_WARPS_K".to_owned(),
        ),
        (
            sizes.stores_sums && sizes.last.columns > sizes.columns,
            "column_out >= COLUMNS_OUT".to_owned(),
        ),
    ];
    let z = problem.next.unwrap_or(NextFactor { n: 0, keeps: true });
    let next_rows = sizes.next.as_ref().map_or(0, |next| next.rows);
    let outside_next = [(next_rows > z.n, format!("n >= {}", z.n))];
    let any_of = |bounds: &[(bool, String)]| {
        let there = outside_image
            .iter()
            .chain(bounds)
            .filter(|(there, _)| *there);
        let there: Vec<_> = there.map(|(_, bound)| &bound[..]).collect();
        match there.is_empty() {
            true => "false".to_owned(),
            false => there.join(" || "),
        }
    };
    let threads = 32 * sizes.warps;
    let positions = sizes.rows * sizes.row;
    let rounders = threads / sizes.columns;
    let core_factors = sizes
        .first
        .as_ref()
        .map_or(0, |first| sizes.senders * first.rows);
    let d2_rows = sizes.row_parts * sizes.core.rows;
    let last_factors = core_factors + d2_rows;
    let chunks = sizes.factors().map(|factor| factor.chunks).sum();
    let epilogue = problem.epilogue;
    let work = sizes.work(problem);
    let padded_c = match &sizes.first {
        Some(_) => x.c.next_multiple_of(STEP_CHANNELS),
        None => sizes.senders * sizes.share_groups * STEP_CHANNELS,
    };
    let mut args = vec![Arg::X, Arg::Packed];
    args.extend(epilogue.bias.then_some(Arg::Bias));
    args.extend(epilogue.residual.then_some(Arg::Residual));
    args.push(Arg::Y);
    args.extend(stride_args(shape.batch, epilogue.residual));
    KernelBlueprint {
        role: "kernel",
        template: "kernel/tucker_fused.cu",
        grid: [tiles * shape.batch, 1, sizes.members],
        block: [threads, 1, 1],
        cluster: [1, 1, sizes.members],
        shared_bytes: 4 * sizes.shared_floats,
        overlaps: true,
        device: device(&sizes),
        args,
        work,
        context: context(&Context {
            batched: shape.batch > 1,
            tiles,
            tiles_w,
            c: x.c,
            h: shape.h,
            w: shape.w,
            n: problem.n,
            out_h,
            out_w,
            r: shape.r,
            s: shape.s,
            taps: shape.r * shape.s,
            stride_h: shape.stride[0],
            stride_w: shape.stride[1],
            pad_top: shape.padding.top,
            pad_left: shape.padding.left,
            dilation_h: shape.dilation[0],
            dilation_w: shape.dilation[1],
            tile_h: sizes.tile_h,
            tile_w: sizes.tile_w,
            members: sizes.members,
            group: sizes.group,
            row_parts: sizes.row_parts,
            senders: sizes.senders,
            core_indent: if sizes.row_parts > 1 { 4 } else { 0 },
            warps: sizes.warps,
            rows: sizes.rows,
            row: sizes.row,
            quads: sizes.quads,
            plane: sizes.plane,
            columns: sizes.columns,
            all_columns: sizes.all_columns,
            inner: sizes.inner,
            d2_rows,
            row_share: sizes.row_share,
            resident: sizes.resident,
            ahead: sizes.chunks_ahead(),
            follows: sizes.chunks_ahead() < chunks,
            slots: sizes.slots,
            slot: sizes.slot,
            chunks,
            loads: sizes.loads,
            min_blocks: sizes.blocks_beside().min(2),
            rounds_first: sizes.rounds_first,
            sends_sums: sizes.sends_sums,
            rounds_core: sizes.rounds_core,
            stores_sums: sizes.stores_sums,
            core_partials: !sizes.sends_sums && !sizes.rounds_core,
            lane_row,
            staged_at: sizes.staged_at,
            early_at: sizes.early_at,
            late_at: sizes.late_at,
            gathered_at: sizes.gathered_at,
            middle_at: sizes.middle_at,
            received_at: sizes.received_at,
            factors_at: sizes.factors_at,
            largest_at: sizes.largest_at,
            arrivals_at: sizes.arrivals_at,
            chunks_at: sizes.chunks_at,
            core_factors,
            last_factors,
            factor_floats: last_factors + n_rows,
            first_quads: sizes.share_groups * STEP_CHANNELS / 4,
            d2_quads: d2_rows / 4,
            exchanged: sizes.core.rows * sizes.all_columns / 4,
            gathered: d2_rows * sizes.columns / 4,
            row_vectors: sizes.all_columns / 4,
            output_items,
            pixel_vectors: sizes.columns / y_vector,
            first_items: (sizes.share_groups * STEP_CHANNELS / 4).div_ceil(sizes.stagers),
            inner_items: (d2_rows / 4).div_ceil(rounders),
            rounders,
            idle_rounders: rounders * sizes.columns != threads,
            split: sizes.parts == 2,
            stagers: sizes.stagers,
            idle_stagers: sizes.stagers * positions != threads,
            items: sizes.items,
            checks_items: !sizes.quads.is_multiple_of(sizes.stagers),
            checks_c: padded_c != x.c,
            prologue: problem.prologue.is_some(),
            prologue_relu: problem.prologue.is_some_and(|prologue| prologue.relu),
            scale_at,
            scaled: true,
            bias: epilogue.bias,
            residual: epilogue.residual,
            relu: epilogue.relu,
            y_vector,
            y_type,
            y_elements,
            bounds: any_of(&outside_output),
            z_bounds: any_of(&outside_next),
            next_share: sizes.next_share,
            next_factors: last_factors + 2 * n_rows,
            z_at: if z.keeps {
                problem.n * out_h * out_w
            } else {
                0
            },
            made_only: !z.keeps,
            next,
            first,
            core,
            core_chunk_quads: sizes.core.chunk_steps / (shape.r * shape.s) * STEP_CHANNELS / 4,
            last,
        }),
    }
}

/// Parts of the prelude that the kernel uses.
fn device(sizes: &Sizes) -> &'static [DevicePart] {
    let first = usize::from(sizes.members == 1);
    let rounds = sizes.rounds_first || sizes.rounds_core || sizes.next.is_some();
    &DEVICE[first..DEVICE.len() - usize::from(!rounds)]
}

/// The first only with clusters, the last where sums are rounded in registers.
const DEVICE: &[DevicePart] = &[
    DevicePart::Cluster,
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::ChunkCopy,
    DevicePart::Overlap,
    DevicePart::Half,
    DevicePart::Mma,
    DevicePart::Steps,
    DevicePart::RoundedSums,
];
