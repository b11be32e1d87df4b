//! The sizes that follow from a tile.

use super::sum::Sum;
use super::{WARPGROUP, WGMMA_M, WgmmaTile};
use crate::gpu::{FIRST_CLUSTER_GPU, Gpu};
use crate::ir::{ConvProblem, Format};
use crate::scheme::tensor_core::{
    MMA_K, PROMOTION_INTERVAL, scales_input, split_terms, step_weights_of,
};
use crate::scheme::tiling::RegisterEstimate;
use crate::scheme::{MAX_GRID, Tile};

/// Channels of a plane of the staged input: 16 bytes of 16-bit numbers.
pub(super) const PLANE_CHANNELS: u32 = 8;

/// Buffers of the staged input.
pub(super) const INPUT_STAGES: u32 = 2;

/// Maximum number of K steps of a chunk, which are unrolled.
const MAX_STEPS: u32 = 54;

/// Output channels that a warpgroup exchanges at a time in NCHW and in split NHWC.
const EXCHANGE_CHANNELS: u32 = 32;

/// Distance of two exchanged channels of a warpgroup's pixels, in floats: four modulo the 32 banks, so that the lanes of a warp, with eight
/// pixels of four pairs of channels, write without conflicts.
const CHANNEL_PITCH: u32 = WGMMA_M + 4;

/// Words by which two pixels of a warp with their exchanged channels are further apart than they need be in NHWC: the lanes of a
/// warp, with eight pixels of four pairs of channels, write without conflicts.
const PIXEL_GAP: u32 = 4;

/// Registers of a consumer thread beyond its accumulators, and of a loader thread beyond its loaded values.
const CONSUMER_REGISTERS: u32 = 56;
const LOADER_REGISTERS: u32 = 60;

/// Registers for the address of an item, and whether it is padding.
const ITEM_REGISTERS: u32 = 3;

/// Maximum number of blocks of an SM for which the kernel limits its registers.
const MAX_BLOCKS_PER_SM: u32 = 4;

/// A tile and the sizes that follow from it for a problem.
pub(super) struct WgmmaGeometry {
    pub(super) tile: WgmmaTile,
    /// Columns of one product: the largest of 128, 64 and 32 that divides the tile's output channels.
    pub(super) wgmma_n: u32,
    pub(super) sum: Sum,
    /// Rows and columns of the staged input.
    pub(super) rows: u32,
    pub(super) row_len: u32,
    /// Items of a loader thread: pixels in planes of eight channels.
    pub(super) items: u32,
    pub(super) exchange: Exchange,
    /// Tiles of the output, of all images, and of one row of tiles.
    pub(super) tiles: u32,
    pub(super) tiles_w: u32,
    /// Distance of the tiles of a block: blocks along the pixels.
    pub(super) tile_step: u32,
    /// Terms of each operand: 2 with a hi/lo split, else 1.
    pub(super) split_terms: u32,
    pub(super) registers: Registers,
    pub(super) memory: SharedMemory,
}

/// How outputs pass through shared memory to the lanes that store them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    /// Output channels that are exchanged at a time.
    pub(super) channels: u32,
    /// Distance of channels (NCHW) or pixels (NHWC) meanwhile, in words.
    pub(super) pitch: u32,
    /// Words of a warpgroup.
    pub(super) words: u32,
}

impl Exchange {
    /// For a tile of `tn` output channels.
    pub(super) fn new(problem: &ConvProblem, tn: u32) -> Self {
        let (channels, pitch, exchanged) = match problem.output.dense() {
            Format::FP16_NHWC | Format::BF16_NHWC => {
                let channels = if tn.is_multiple_of(64) { 64 } else { 32 };
                (channels, channels / 2 + PIXEL_GAP, WGMMA_M)
            }
            // A word of hi and one of lo for each pair of channels.
            Format::SPLIT_NHWC => (EXCHANGE_CHANNELS, EXCHANGE_CHANNELS + PIXEL_GAP, WGMMA_M),
            _ => (EXCHANGE_CHANNELS, CHANNEL_PITCH, EXCHANGE_CHANNELS),
        };
        Self {
            channels,
            pitch,
            words: exchanged * pitch,
        }
    }
}

/// Columns of one product: the largest of 128, 64 and 32 that divides a tile's output channels.
pub(super) fn wgmma_n(tn: u32) -> Option<u32> {
    [128, 64, 32].into_iter().find(|n| tn.is_multiple_of(*n))
}

/// Registers of the threads of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Registers {
    /// Blocks of an SM that have enough registers.
    pub(super) blocks_per_sm: u32,
    /// Of each thread when the kernel starts.
    pub(super) at_start: u32,
    /// Of a consumer thread and of a loader thread after they were moved; `None` if those at the start suffice.
    pub(super) moved: Option<[u32; 2]>,
}

impl Registers {
    /// For `consumers` warpgroups whose threads need `consumer` registers, and `producers` that need `loader`; `None` if a block has too
    /// few.
    pub(super) fn new(
        [consumers, producers]: [u32; 2],
        consumer: u32,
        loader: u32,
        most_blocks: u32,
    ) -> Option<Self> {
        let [consumer, loader] = [consumer, loader].map(|number| number.next_multiple_of(8));
        (1..=most_blocks.min(MAX_BLOCKS_PER_SM))
            .rev()
            .find_map(|blocks_per_sm| {
                let threads = 32 * WARPGROUP * (consumers + producers);
                let at_start = RegisterEstimate::max_per_thread(threads * blocks_per_sm) / 8 * 8;
                if consumer.max(loader) <= at_start {
                    return Some(Self {
                        blocks_per_sm,
                        at_start,
                        moved: None,
                    });
                }
                let all = at_start * (consumers + producers);
                let consumer_gets =
                    (all.checked_sub(producers * loader)? / consumers / 8 * 8).min(240);
                (consumer <= consumer_gets && loader < at_start).then_some(Self {
                    blocks_per_sm,
                    at_start,
                    moved: Some([consumer_gets, loader]),
                })
            })
    }
}

/// Offsets in shared memory, in floats. The buffers of the weights come first.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedMemory {
    pub(super) input_at: u32,
    /// Dequantisation scales of the staged chunks.
    pub(super) input_scales_at: u32,
    /// Largest magnitude of each loader warp, for two chunks in turn.
    pub(super) warp_max_at: u32,
    /// Outputs of a warpgroup that pass to the lanes that store them.
    pub(super) exchange_at: u32,
    /// Scales and shifts of the prologue.
    pub(super) prologue_at: u32,
    /// Dequantisation scales and biases of the output channels.
    pub(super) epilogue_at: u32,
    pub(super) barriers_at: u32,
    pub(super) floats: u32,
}

impl WgmmaGeometry {
    /// `None` if the tile is invalid, or does not fit the problem or the GPU.
    pub(super) fn new(problem: &ConvProblem, tile: WgmmaTile, gpu: &Gpu) -> Option<Self> {
        let WgmmaTile {
            th,
            tw,
            tn,
            warpgroups,
            chunk_groups,
            stages,
            producers,
            load_stages,
            block_tiles,
        } = tile;
        let within = |number: u32, most: u32| (1..=most).contains(&number);
        if ![(th, 1024), (tw, 1024), (tn, 256), (warpgroups, 4)]
            .into_iter()
            .chain([
                (chunk_groups, 8),
                (stages, 16),
                (producers, 2),
                (load_stages, 2),
            ])
            .chain([(block_tiles, 1 << 16)])
            .all(|(number, most)| within(number, most))
            || th * tw > WGMMA_M * warpgroups
        {
            return None;
        }
        let shape = &problem.shape;
        let wgmma_n = wgmma_n(tn)?;
        let groups = shape.c.div_ceil(MMA_K);
        let steps = chunk_groups * shape.r * shape.s;
        if !groups.is_multiple_of(chunk_groups) || steps > MAX_STEPS {
            return None;
        }
        let stage_steps = (1..=PROMOTION_INTERVAL)
            .rev()
            .find(|interval| steps.is_multiple_of(*interval))?;
        let rows = staged_rows(problem, th);
        let row_len = (tw - 1) * staged_strides(problem)[1] + (shape.s - 1) * shape.dilation[1] + 1;
        let loader_warps = WARPGROUP * producers - 1;
        let planes = chunk_groups * MMA_K / PLANE_CHANNELS;
        let items = (planes * rows * row_len).div_ceil(32 * loader_warps);
        let split_terms = split_terms(problem.precision);
        let sum = Sum {
            chunks: groups / chunk_groups,
            steps,
            stage_steps,
            step_weights: step_weights_of(tn, split_terms),
            stages,
        };
        let accumulators = tn / 2
            * if scales_input(problem.precision) {
                2
            } else {
                1
            };
        let plane = rows * row_len;
        let loaded = items * (PLANE_CHANNELS * load_stages + ITEM_REGISTERS);
        // Four words of a pixel in a plane.
        let input = 4 * INPUT_STAGES * planes * plane * split_terms;
        let exchange = Exchange::new(problem, tn);
        let memory = SharedMemory::new(Buffers {
            weights: stages * sum.stage_weights(),
            input,
            exchange: warpgroups * exchange.words,
            prologue: match problem.prologue {
                Some(_) => 2 * shape.c.next_multiple_of(MMA_K),
                None => 0,
            },
            tn,
            stages,
            loader_warps,
        });
        let tiles_w = shape.out_w().div_ceil(tw);
        let tiles = (shape.batch * shape.out_h()).div_ceil(th) * tiles_w;
        let tile_step = tiles.div_ceil(block_tiles);
        // The source is the same for all GPUs.
        let of_source = &FIRST_CLUSTER_GPU;
        let by_shared = of_source.shared_per_sm / (4 * memory.floats + of_source.shared_reserved);
        let registers = Registers::new(
            [warpgroups, producers],
            accumulators + CONSUMER_REGISTERS,
            loaded + LOADER_REGISTERS,
            by_shared,
        )?;
        let fits = memory.floats <= gpu.shared_per_block / 4
            && tile_step <= MAX_GRID
            && block_tiles <= tiles;
        fits.then_some(Self {
            tile,
            wgmma_n,
            sum,
            rows,
            row_len,
            items,
            exchange,
            tiles,
            tiles_w,
            tile_step,
            split_terms,
            registers,
            memory,
        })
    }

    pub(super) fn from_tile(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(problem, WgmmaTile::from_tile(tile)?, gpu)
    }

    /// The sizes of a supported tile.
    pub(super) fn of_supported(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    pub(super) fn consumer_warps(&self) -> u32 {
        WARPGROUP * self.tile.warpgroups
    }

    pub(super) fn threads(&self) -> u32 {
        32 * (self.consumer_warps() + 1 + self.loader_warps())
    }

    /// Blocks of the grid: tiles of output channels, then of pixels.
    pub(super) fn grid(&self, problem: &ConvProblem) -> [u32; 3] {
        [problem.shape.n.div_ceil(self.tile.tn), self.tile_step, 1]
    }

    /// Warps that load the input. One more of the producers copies the weights.
    pub(super) fn loader_warps(&self) -> u32 {
        WARPGROUP * self.tile.producers - 1
    }

    /// Pixels of a plane of the staged input.
    pub(super) fn plane(&self) -> u32 {
        self.rows * self.row_len
    }
}

/// Sizes of the buffers in shared memory, in floats.
struct Buffers {
    weights: u32,
    input: u32,
    /// Of all consumer warpgroups.
    exchange: u32,
    prologue: u32,
    /// Output channels of a block.
    tn: u32,
    /// Stages of the weights.
    stages: u32,
    loader_warps: u32,
}

impl SharedMemory {
    fn new(buffers: Buffers) -> Self {
        let Buffers { tn, stages, .. } = buffers;
        let input_at = buffers.weights;
        let input_scales_at = input_at + buffers.input;
        let warp_max_at = input_scales_at + INPUT_STAGES;
        // Aligned to 16 bytes.
        let exchange_at = (warp_max_at + 2 * buffers.loader_warps).next_multiple_of(4);
        let prologue_at = exchange_at + buffers.exchange;
        let epilogue_at = prologue_at + buffers.prologue;
        let barriers_at = (epilogue_at + 2 * tn).next_multiple_of(2);
        Self {
            input_at,
            input_scales_at,
            warp_max_at,
            exchange_at,
            prologue_at,
            epilogue_at,
            barriers_at,
            // Two barriers of 8 bytes for each buffer.
            floats: (barriers_at + 4 * (stages + INPUT_STAGES)).next_multiple_of(4),
        }
    }
}

/// Distances of adjacent outputs in the staged input: the strides, or 1 along an axis where the filter has one tap and what strides skip
/// is not staged.
fn staged_strides(problem: &ConvProblem) -> [u32; 2] {
    let shape = &problem.shape;
    let taps = [shape.r, shape.s];
    std::array::from_fn(|axis| match taps[axis] {
        1 => 1,
        _ => shape.stride[axis],
    })
}

/// Staged rows of an image, with the padding that its outputs read.
pub(super) fn image_rows(problem: &ConvProblem) -> u32 {
    let shape = &problem.shape;
    (shape.out_h() - 1) * staged_strides(problem)[0] + (shape.r - 1) * shape.dilation[0] + 1
}

/// Whether a tile of `th` rows may have rows of several images.
pub(super) fn crosses_images(problem: &ConvProblem, th: u32) -> bool {
    problem.shape.batch > 1 && !problem.shape.out_h().is_multiple_of(th)
}

/// Rows of the staged input: those between the first and the last one that a tile reads, counted across images with their padding.
fn staged_rows(problem: &ConvProblem, th: u32) -> u32 {
    let shape = &problem.shape;
    let reach = (shape.r - 1) * shape.dilation[0] + 1;
    let [stride, _] = staged_strides(problem);
    if !crosses_images(problem, th) {
        return (th - 1) * stride + reach;
    }
    let out_h = shape.out_h();
    let row = |v: u32| v / out_h * image_rows(problem) + v % out_h * stride;
    let tiles = (shape.batch * out_h).div_ceil(th);
    // The first rows of tiles repeat after at most as many tiles as an image has rows.
    let spans = (0..tiles.min(out_h)).map(|tile| row(tile * th + th - 1) - row(tile * th));
    spans.max().unwrap_or(0) + reach
}
