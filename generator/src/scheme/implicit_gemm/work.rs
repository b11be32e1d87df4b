//! The work of a launch, from which the cost model predicts its time.

use super::geometry::ImplicitGemmGeometry;
use super::k_step::{KStep, unrolls_steps_of_chunk};
use crate::cost::{KernelWork, TiledWork};
use crate::ir::ConvProblem;
use crate::scheme::step_order::{promotion_interval, split_steps_over_warps};
use crate::scheme::tensor_core::{products, separate_accumulators, split_terms};
use crate::scheme::tiling::{InputTraffic, index_divisions};

impl ImplicitGemmGeometry {
    /// Work of the launch, for the cost model. `dram_bytes` are those of the problem.
    pub(super) fn work(&self, problem: &ConvProblem, dram_bytes: f64) -> KernelWork {
        let shape = &problem.shape;
        let threads = 32 * self.warps();
        let few_channels = KStep::for_shape(shape).columns > 1;
        let counts = self.counts(problem);
        let split = split_steps_over_warps(counts, self.tile.warps_k).unwrap_or([1; 3]);
        let warp_steps = [0, 1, 2].map(|axis| counts[axis] / split[axis]);
        let steps = warp_steps.iter().product::<u32>();
        let promotion_interval = promotion_interval(warp_steps, self.split_terms)
            .iter()
            .product::<u32>();
        let unrolls = unrolls_steps_of_chunk(
            self.chunks,
            steps,
            self.tile.m_tiles * self.p_tiles,
            self.split_terms,
        );
        let step = StepWork::new(problem, self.tile.m_tiles, self.p_tiles, promotion_interval);
        let quads = self.quads(problem);
        let elements = quads * self.rows * self.row_len;
        let chunk_weights = self.tile.m_tiles * self.tile.warps_m * self.m_chunk_weights(problem);
        let places = self.rows * self.row_len / self.x_vector;
        // A load of a warp covers 32 pixels of one channel, or eight vectors of each of four channels.
        let of_channel = if self.x_vector > 1 && !few_channels {
            8
        } else {
            32
        };
        let traffic = InputTraffic::new(
            problem,
            [self.tile.th, self.tile.tw],
            4 * quads,
            f64::from(4 * quads * places) / f64::from(of_channel),
        );
        let loads = if problem.prologue.is_some() {
            12.0
        } else {
            4.0
        };
        let (outputs, _) = self.sums.outputs(problem);
        // A run of channels in NHWC is two vectors of partial sums.
        let vectors = if problem.writes_16_bit_nhwc() { 2 } else { 1 };
        // Writes of the columns of a vector conflict as well: two at a time, with few channels all of them.
        let staged_apart = match (few_channels, self.x_vector) {
            (true, columns) => f64::from(columns),
            (false, columns) => f64::from(columns.min(2)),
        };
        KernelWork {
            blocks: self.blocks,
            threads,
            registers: self.registers.allocated,
            shared_bytes: 4 * self.shared_floats,
            dram_bytes,
            cluster: self.tile.cluster,
            pdl: true,
            products: products(problem.precision),
            tiled: Some(TiledWork {
                chunks: f64::from(self.chunks),
                refilled_chunks: f64::from(self.chunks - self.tile.stages),
                k_steps: f64::from(steps),
                loops: f64::from(if unrolls {
                    1
                } else {
                    steps / promotion_interval
                }),
                mma_per_step: step.products,
                dependent_mma: step.dependent_products,
                instructions_per_step: step.instructions,
                wavefronts_per_step: step.wavefronts,
                positions: f64::from(self.items),
                loads_per_position: loads,
                values_per_position: f64::from(4 * self.x_vector),
                divisions_per_position: index_divisions(places, self.row_len / self.x_vector),
                cache_lines: traffic.lines,
                staged_wavefronts: f64::from(elements * self.split_terms) / 16.0 * staged_apart,
                input_bytes: traffic.bytes,
                weight_bytes: f64::from(4 * chunk_weights),
                accumulators: f64::from(4 * self.tile.m_tiles * self.p_tiles),
                partial_sums: f64::from(self.tile.warps_k),
                store_rounds: f64::from(vectors * outputs.div_ceil(threads)),
                store_divisions: self.sums.store_divisions(problem),
                sent_bytes: self.sums.sent_bytes(),
                stored_sectors: self.sums.stored_sectors(problem),
                residual: problem.epilogue.residual,
            }),
            ..KernelWork::default()
        }
    }
}

/// The work of a warp's K step.
pub(super) struct StepWork {
    /// MMA products, and those of them that depend on each other.
    pub(super) products: f64,
    pub(super) dependent_products: f64,
    pub(super) instructions: f64,
    /// Shared-memory wavefronts of the operands.
    pub(super) wavefronts: f64,
}

impl StepWork {
    /// Of a warp with `m_tiles` x `p_tiles` MMA tiles, which adds partial accumulators after every `promotion_interval` steps.
    pub(super) fn new(
        problem: &ConvProblem,
        m_tiles: u32,
        p_tiles: u32,
        promotion_interval: u32,
    ) -> Self {
        let split_terms = split_terms(problem.precision);
        let separate = separate_accumulators(m_tiles * p_tiles, split_terms);
        let split_terms = f64::from(split_terms);
        let [m_tiles, p_tiles] = [m_tiles, p_tiles].map(f64::from);
        let products = m_tiles * p_tiles * (2.0 * split_terms - 1.0);
        let (adding, dependent_products) = match (split_terms > 1.0, separate) {
            (true, true) => (8.0 * m_tiles * p_tiles, 2.0),
            (true, false) => (4.0 * m_tiles * p_tiles, 3.0),
            (false, _) => (0.0, 1.0),
        };
        // With a stride, reads of neighbouring pixels conflict in shared-memory banks. With few channels they do not, because the
        // pixels in between are read as well.
        let conflicts = match KStep::for_shape(&problem.shape).columns {
            1 => f64::from(problem.shape.stride[1].min(4)),
            _ => 1.0,
        };
        Self {
            products,
            dependent_products,
            instructions: m_tiles * split_terms
                + p_tiles
                + products
                + adding / f64::from(promotion_interval),
            wavefronts: 4.0 * m_tiles * split_terms + p_tiles * 2.0 * split_terms * conflicts,
        }
    }
}
