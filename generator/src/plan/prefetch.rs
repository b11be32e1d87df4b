//! `tiles: paper` for the schemes `single_channel` and `stride_fixed`: tiles that hide the latency of global memory (stride-fixed paper,
//! sections 2.2, 3.1 and 3.2).
//!
//! The equations are those of the text, including its errors. It counts two multiply-adds per clock and lane (they are two operations, one
//! multiply-add). The middle form of eq. 5 adds `(K-1) Wx` values to a number of bytes; the last form, which is used here, includes the
//! factor 4. R x S replaces K x K. The paper does not print the bound by registers; a check that a tile fits the GPU replaces it.
//! In steps 1 and 2 a range without an integer means one piece.

use crate::gpu::Gpu;
use crate::scheme::{PublishedTiles, Tile};
use tdc_runtime::ConvShape;

/// Threads of a block; each SM has [`BLOCKS_PER_SM`] of them (section 4).
const THREADS: u32 = 512;
/// See [`THREADS`].
const BLOCKS_PER_SM: u32 = 2;
/// M', the filters of a block; with W'x, its pixels, "when the performance becomes best" (section 4).
const BLOCK_FILTERS: u32 = 64;
/// See [`BLOCK_FILTERS`].
const BLOCK_PIXELS: u32 = 128;

/// The work that hides a GPU's memory latency (table 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetch {
    /// N_FMA: multiply-adds of an SM for each set of data while the next one is in flight.
    pub fmas: u64,
    /// Bytes per clock of the complete GPU.
    pub bytes_per_clock: u64,
    /// V_s before it is rounded to threads: bytes in flight that keep memory busy.
    pub bytes: u64,
    /// Threads of an SM, in complete warps, that have this number of bytes in flight with 4 bytes each.
    pub threads_per_sm: u64,
}

impl Prefetch {
    /// The work for a GPU.
    pub fn of(gpu: &Gpu) -> Self {
        let latency = u64::from(gpu.memory_latency);
        let clock_mhz = gpu.base_clock_mhz.unwrap_or(gpu.clock_mhz);
        let bytes_per_clock = u64::from(gpu.dram_gbs) * 1000 / u64::from(clock_mhz);
        let bytes = bytes_per_clock * latency;
        let threads = bytes.div_ceil(4).div_ceil(u64::from(gpu.sms));
        Self {
            fmas: latency * u64::from(gpu.fp32_lanes) * 2,
            bytes_per_clock,
            bytes,
            threads_per_sm: threads.next_multiple_of(32),
        }
    }
}

/// The division of a convolution of one channel (section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Division {
    /// Each SM keeps some filters on the chip; the map is loaded in P pieces (eqs. 5 and 6).
    Filters {
        /// P.
        pieces: u32,
    },
    /// Each SM keeps some rows of the map on the chip; the filters are loaded in Q pieces (eqs. 8 and 9).
    Map {
        /// Q.
        pieces: u32,
    },
}

impl Division {
    /// The division of a convolution of one channel, by the four steps.
    pub fn of(shape: &ConvShape, gpu: &Gpu) -> Self {
        let [w_x, w_y, m, sms] = [shape.w, shape.h, shape.n, gpu.sms].map(i64::from);
        let taps = i64::from(shape.r) * i64::from(shape.s);
        let more_rows = i64::from(shape.r) - 1;
        let fmas = Prefetch::of(gpu).fmas as i64;
        let shared = i64::from(gpu.shared_per_sm);
        let ceil = |a: i64, b: i64| (a + b - 1) / b;
        let (share_m, share_y) = (ceil(m, sms), ceil(w_y, sms));

        // Steps 1 to 3: the least number within the bounds.
        let least = |bytes: i64, room: i64, fmas_of_one: i64, most: i64| {
            let upper = (fmas_of_one / fmas).min(most);
            let lower = if room > 0 {
                ceil(bytes, room)
            } else {
                i64::MAX
            };
            if lower <= upper { lower.max(1) } else { 1 }
        };
        let p = least(
            4 * w_y * w_x,
            shared - 4 * taps * share_m - more_rows * 4 * w_x,
            taps * share_m * w_y * w_x,
            w_y,
        );
        let q = least(
            4 * m * taps,
            shared - 4 * w_x * (share_y + more_rows),
            taps * m * share_y * w_x,
            m,
        );
        // Step 4, with eqs. 5 and 8.
        let d1 = 4 * (taps * share_m + (ceil(w_y, p) + more_rows) * w_x);
        let d2 = 4 * (taps * ceil(m, q) + (share_y + more_rows) * w_x);
        if d1 < d2 {
            Self::Filters { pieces: p as u32 }
        } else {
            Self::Map { pieces: q as u32 }
        }
    }

    /// The tile of scheme `single_channel`: filters or rows divided among two blocks of 512 threads on each SM, filters rounded to the
    /// four that a thread computes.
    fn tile(self, shape: &ConvShape, gpu: &Gpu) -> Tile {
        let blocks = BLOCKS_PER_SM * gpu.sms;
        let fours = |filters: u32| filters.next_multiple_of(4);
        let [n, h, p, q] = match self {
            Self::Filters { pieces } => {
                let rows = shape.out_h().div_ceil(pieces);
                let pieces = shape.out_h().div_ceil(rows);
                [fours(shape.n.div_ceil(blocks)), rows, pieces, 1]
            }
            Self::Map { pieces } => {
                let filters = fours(shape.n.div_ceil(pieces));
                let pieces = shape.n.div_ceil(filters);
                [filters, shape.out_h().div_ceil(blocks), 1, pieces]
            }
        };
        Tile(vec![n, h, p, q, 4, 4, THREADS])
    }
}

/// The tile of scheme `stride_fixed`. M' = 64 and W'x = 128, so S is 32 bytes if `M' >= 4 N_FMA / (S W'x)` (step 3), else 64. The published
/// tile misses the bound by half a filter, which is ignored. The pixels are in rows of the output's width.
fn block_tile(shape: &ConvShape, gpu: &Gpu) -> Tile {
    let fmas = Prefetch::of(gpu).fmas;
    let filters = |segment: u64| 4 * fmas / (segment * u64::from(BLOCK_PIXELS));
    let segment = if filters(32) <= u64::from(BLOCK_FILTERS) {
        32
    } else {
        64
    };
    let width = shape.out_w().next_power_of_two().clamp(8, BLOCK_PIXELS);
    Tile(vec![
        BLOCK_FILTERS,
        BLOCK_PIXELS / width,
        width,
        segment,
        16,
        1,
    ])
}

/// The published tile of a scheme of the stride-fixed paper for a convolution; `None` for any other scheme.
pub(super) fn published_tile(
    rule: Option<PublishedTiles>,
    shape: &ConvShape,
    gpu: &Gpu,
) -> Option<Tile> {
    match rule? {
        PublishedTiles::SingleChannel => Some(Division::of(shape, gpu).tile(shape, gpu)),
        PublishedTiles::StrideFixed => Some(block_tile(shape, gpu)),
        PublishedTiles::Tdc => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{ConvOptions, LayerSpec, Problem, TensorShape, TilePolicy};
    use crate::plan::{Planner, plan_problem};

    #[test]
    fn a_gtx_1080_ti_needs_what_table_1_says() {
        let needed = Prefetch::of(gpu("gtx1080ti").unwrap());
        assert_eq!(
            needed,
            Prefetch {
                fmas: 66_048,
                bytes_per_clock: 327,
                bytes: 84_366,
                threads_per_sm: 768,
            }
        );
    }

    #[test]
    fn a_single_channel_is_divided_as_the_steps_say() {
        let pascal = gpu("gtx1080ti").unwrap();
        let of = |n, side, k| Division::of(&ConvShape::new(1, n, side, side, k, k), pascal);
        // Too little work for both: D1 = 4 (19 + 784), D2 = 4 (512 + 28).
        assert_eq!(of(512, 28, 1), Division::Map { pieces: 1 });
        // By hand: P at most 9*2*1024*1024/66048 = 285, at least 4 MiB/(98304 - 72 - 8192) = 47; Q at most 5, at least 1.
        // D1 = 4 (18 + (22 + 2) 1024) = 98376, D2 = 4 (288 + (37 + 2) 1024) = 160896.
        assert_eq!(of(32, 1024, 3), Division::Filters { pieces: 47 });
        // P at most 9*10*56*56/66048 = 4, at least 1; D1 = 4 (90 + 58*56) = 13352, D2 = 4 (2304 + 4*56) = 10112.
        assert_eq!(of(256, 56, 3), Division::Map { pieces: 1 });
    }

    #[test]
    fn a_block_has_the_published_sizes() {
        let shape = ConvShape::new(64, 64, 224, 224, 3, 3);
        let of = |name, shape| block_tile(shape, gpu(name).unwrap()).0;
        assert_eq!(of("gtx1080ti", &shape), [64, 1, 128, 32, 16, 1]);
        // A longer latency needs more products: 64 bytes of each filter.
        assert_eq!(of("h200", &shape), [64, 1, 128, 64, 16, 1]);
        let small = ConvShape::new(512, 512, 7, 7, 1, 1);
        assert_eq!(of("gtx1080ti", &small), [64, 16, 8, 32, 16, 1]);
    }

    #[test]
    fn the_published_tiles_are_chosen_where_the_paper_is_asked() {
        let h200 = gpu("h200").unwrap();
        let mut planner = Planner::new(h200).with_tile_policy(TilePolicy::Paper);
        let mut tile = |c, scheme: &str| {
            let x = TensorShape::new(1, c, 56, 56);
            let options = ConvOptions::new(64);
            let layer = LayerSpec::new("conv", x, options, None, false).unwrap();
            let problem = Problem::Conv(layer.problem.in_layout(layer.layout));
            let unit =
                plan_problem(&mut planner, "test", "conv", &problem, Some(scheme), None).unwrap();
            (unit.tile.0, unit.chosen_by.as_str())
        };
        assert_eq!(
            tile(64, "stride_fixed"),
            (vec![64, 2, 64, 64, 16, 1], "paper")
        );
        let (found, chosen_by) = tile(1, "single_channel");
        assert_eq!((&found[4..], chosen_by), (&[4, 4, 512][..], "paper"));
    }
}
