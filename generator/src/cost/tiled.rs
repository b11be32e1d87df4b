//! The cost model of tiled kernels.

use super::{CostTerms, KernelWork, TiledWork, occupancy, resident_blocks};
use crate::gpu::{Gpu, TiledConstants};

/// The p-norm: combines costs that overlap in time. It is nearly the largest of them if that is much larger than the others.
fn p_norm<const N: usize>(exponent: f64, terms: [f64; N]) -> f64 {
    let most = terms.into_iter().fold(f64::MIN_POSITIVE, f64::max);
    if exponent.is_infinite() {
        return most;
    }
    // A term of less than a hundredth of the largest changes nothing.
    let others = terms
        .into_iter()
        .filter(|&term| term < most && term > 0.01 * most);
    let sum: f64 = others.map(|term| (term / most).powf(exponent)).sum();
    most * (1.0 + sum).powf(1.0 / exponent)
}

/// The terms of the predicted time of a tiled kernel, whose blocks fit the GPU, with the constants of a model.
pub fn tiled_terms(
    work: &KernelWork,
    tiled: &TiledWork,
    gpu: &Gpu,
    model: &TiledConstants,
) -> CostTerms {
    let blocks = work.blocks as f64;
    let clock = f64::from(gpu.clock_mhz);
    let sms = f64::from(gpu.sms);
    let blocks_per_sm = f64::from(occupancy(work, gpu).blocks_per_sm.max(1));
    let resident_blocks = resident_blocks(work.cluster, blocks_per_sm, gpu);
    let busiest_blocks = (blocks * blocks_per_sm / resident_blocks).ceil();
    // With programmatic dependent launch, the blocks of the successor kernel start while this one runs, if there is room: the fraction
    // of them that do not fit at all, and that must share an SM with a block of this kernel. A kernel pays this as a successor, and its
    // predecessor is taken to be as large as itself.
    let without = |room: f64| ((2.0 * blocks - room) / blocks).clamp(0.0, 1.0);
    let (no_room, shared_sm) = (
        without(resident_blocks),
        without(resident_blocks / blocks_per_sm),
    );
    // Blocks that had to wait start on the SM that becomes free first, so an SM may get one block more than the mean.
    let resident = busiest_blocks.min(blocks_per_sm)
        + no_room * (blocks_per_sm - busiest_blocks).clamp(0.0, 1.0);
    let warps = f64::from(work.threads.div_ceil(32));
    // Warps of the fullest SM partition, and of the SM.
    let partition_warps = (warps / 4.0).ceil().max(resident * warps / 4.0);
    let all = resident * warps;
    let norm_exponent = model.norm_exponent;
    // Clocks for one instruction of each warp of a partition.
    let instruction = p_norm(
        norm_exponent,
        [
            partition_warps * model.instruction_issue,
            model.instruction_latency,
        ],
    );

    let product = tiled.mma_per_step * model.mma_issue;
    let latency = product.max(tiled.dependent_mma * model.mma_latency)
        + model.loop_drain * tiled.loops / tiled.k_steps;
    let step = p_norm(
        norm_exponent,
        [
            partition_warps * product,
            instruction * tiled.instructions_per_step,
            all * tiled.wavefronts_per_step * model.shared_wavefront,
            latency,
        ],
    );
    // Nothing hides the first operands of a loop: all warps load them at the same time.
    let compute = tiled.k_steps * step
        + tiled.loops
            * model.loop_start_reads
            * all
            * tiled.wavefronts_per_step
            * model.shared_wavefront;

    let staging = tiled.positions
        * (model.load_index_division * tiled.divisions_per_position
            + model.staging_per_load * tiled.loads_per_position
            + model.staging_per_value * tiled.values_per_position);
    let shared =
        tiled.staged_wavefronts * model.shared_wavefront + tiled.cache_lines * model.cache_line;
    let stage = p_norm(norm_exponent, [instruction * staging, resident * shared])
        + model.chunk_barriers
        + model.chunk_barriers_per_warp * all;
    let bytes = |bytes: f64| resident * bytes / model.l2_bytes_per_clock;
    let load = model.first_chunk_latency
        + bytes(tiled.input_bytes)
        + no_room * (model.pdl_no_room + bytes(tiled.weight_bytes))
        + shared_sm * model.pdl_shared_sm;
    let later = p_norm(
        norm_exponent,
        [
            stage + compute,
            model.later_chunk_latency + bytes(tiled.input_bytes + tiled.weight_bytes),
        ],
    );
    let wait = (tiled.chunks - 1.0) * (later - stage - compute)
        + tiled.refilled_chunks * model.stage_refill;

    let adding = tiled.store_rounds * (model.store_round + model.partial_add * tiled.partial_sums)
        + model.partial_add * tiled.accumulators
        + model.store_index_division * tiled.store_divisions;
    let reduce = instruction * adding;
    let exchange = if work.cluster > 1 {
        model.cluster_exchange_latency + resident * tiled.sent_bytes / model.cluster_bytes_per_clock
    } else {
        0.0
    };
    let residual = if tiled.residual {
        model.residual_latency
    } else {
        0.0
    };
    let store = resident * tiled.stored_sectors * model.stored_sector + residual;

    let slower = if work.cluster == 3 {
        model.cluster_of_3
    } else {
        1.0
    };
    let us = |clocks: f64| slower * clocks / clock;
    let mut terms = CostTerms {
        launch: gpu.launch_us,
        load: us(load),
        stage: us(tiled.chunks * stage),
        compute: us(tiled.chunks * compute),
        wait: us(wait),
        reduce: us(reduce),
        exchange: us(exchange),
        store: us(store),
        ..CostTerms::default()
    };
    let block = terms.us() - terms.launch;
    // The blocks of a last, partial wave run a little faster because they share the SM with fewer others.
    let waves = busiest_blocks / busiest_blocks.min(blocks_per_sm);
    let rounds = waves.floor() + (waves - waves.floor()).sqrt();
    terms.waves = block * (rounds - 1.0);
    let memory = gpu.launch_us + work.dram_bytes / gpu.sustained_bytes_per_us();
    let all_bytes = blocks * tiled.chunks * (tiled.input_bytes + tiled.weight_bytes);
    let level_2 = gpu.launch_us + all_bytes / (sms * model.l2_bytes_per_clock_all_sms * clock);
    let so_far = terms.us();
    let fourth_powers = so_far.powi(4) + memory.powi(4) + level_2.powi(4);
    terms.memory = fourth_powers.sqrt().sqrt() - so_far;
    terms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::kernel_us;
    use crate::gpu::gpu;

    /// A block that computes for about a microsecond.
    fn tiled() -> TiledWork {
        TiledWork {
            chunks: 2.0,
            refilled_chunks: 0.0,
            k_steps: 9.0,
            mma_per_step: 12.0,
            dependent_mma: 3.0,
            instructions_per_step: 20.0,
            wavefronts_per_step: 20.0,
            loops: 3.0,
            positions: 2.0,
            loads_per_position: 4.0,
            values_per_position: 16.0,
            divisions_per_position: 1.0,
            cache_lines: 200.0,
            staged_wavefronts: 40.0,
            input_bytes: 10_000.0,
            weight_bytes: 10_000.0,
            accumulators: 16.0,
            partial_sums: 3.0,
            store_rounds: 2.0,
            store_divisions: 4.0,
            sent_bytes: 10_000.0,
            stored_sectors: 130.0,
            residual: false,
        }
    }

    fn tiled_us(blocks: u64, cluster: u32, change: impl Fn(&mut TiledWork)) -> f64 {
        let mut tiled = tiled();
        change(&mut tiled);
        let work = KernelWork {
            blocks,
            threads: 384,
            registers: 96,
            shared_bytes: 120 * 1024,
            dram_bytes: 1e5,
            cluster,
            pdl: true,
            tiled: Some(tiled),
            ..KernelWork::default()
        };
        kernel_us(&work, gpu("h200").unwrap())
    }

    #[test]
    fn more_of_anything_takes_longer() {
        let plain = tiled_us(112, 1, |_| ());
        let more: [fn(&mut TiledWork); 8] = [
            |tiled| tiled.chunks *= 2.0,
            |tiled| tiled.k_steps *= 2.0,
            |tiled| tiled.mma_per_step *= 3.0,
            |tiled| tiled.positions *= 4.0,
            |tiled| tiled.input_bytes *= 8.0,
            |tiled| tiled.partial_sums *= 8.0,
            |tiled| tiled.store_rounds *= 4.0,
            |tiled| tiled.stored_sectors *= 10.0,
        ];
        for (index, more) in more.into_iter().enumerate() {
            assert!(tiled_us(112, 1, more) > 1.02 * plain, "{index}");
        }
    }

    #[test]
    fn blocks_beyond_the_number_of_sms_take_another_wave() {
        let alone = tiled_us(132, 1, |_| ());
        assert!(tiled_us(112, 1, |_| ()) <= alone);
        // One block of 120 KB fits on an SM.
        assert!(tiled_us(133, 1, |_| ()) > 1.4 * alone);
        // An H200 holds 15 clusters of eight such blocks, not the 16 that would fill 128 SMs.
        let clusters = tiled_us(120, 8, |_| ());
        assert!(clusters > alone);
        assert!(tiled_us(128, 8, |_| ()) > 1.4 * clusters);
    }
}
