//! Occupancy, the floor of a launch, and a first estimate of a kernel's time.

use super::{CostModel, TiledConstants};
use crate::gpu::Gpu;
use crate::ir::{Precision, Problem};
use serde::Serialize;

/// What one launch does, as far as time depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KernelWork {
    /// Blocks of the grid.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread, estimated.
    pub registers: u32,
    /// Static and dynamic shared memory of a block, bytes.
    pub shared_bytes: u32,
    /// Floating-point operations of the whole launch, idle lanes counted as working.
    pub flops: f64,
    /// Share of the issued instructions that are multiply-adds, 0 to 1.
    pub fma_fraction: f64,
    /// Bytes read and written through the level-2 cache by the whole launch.
    pub l2_bytes: f64,
    /// Bytes moved to and from memory when every tensor is touched once.
    pub dram_bytes: f64,
    /// Dependent trips to the level-2 cache in one thread, one behind the other.
    pub l2_round_trips: f64,
    /// Products of 16x16 with 16x8 fp16 matrices by the tensor cores, of the whole launch.
    pub mma: f64,
    /// Clocks that a block needs however idle its multiprocessor is, besides the trips: dependent instructions and barriers.
    pub latency_clocks: f64,
    /// Whether loads and arithmetic take turns, a step of the sum after the other, and hide little of each other.
    pub unpipelined: bool,
    /// Blocks of a cluster that add up their sums; 0 or 1 for none.
    pub cluster: u32,
    /// Whether the launch may begin before the one ahead of it has ended.
    pub pdl: bool,
    /// More of a kernel whose blocks stage chunks, compute steps and add up shares; what is said above of its arithmetic and traffic
    /// does not count then.
    pub tiled: Option<TiledWork>,
}

/// What a block of a tiled kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TiledWork {
    /// Chunks, one after the other.
    pub chunks: f64,
    /// Those whose weights are asked for when an earlier chunk is done with its own, there being fewer buffers than chunks.
    pub refilled_chunks: f64,
    /// Steps of a warp in a chunk.
    pub k_steps: f64,
    /// Runs of them between which the compiler moves nothing: loads of operands do not come before the sums of the run ahead.
    pub loops: f64,
    /// Products of 16x16 with 16x8 matrices by the tensor cores of a warp's step, and how many wait for each other.
    pub mma_per_step: f64,
    /// See [`mma_per_step`](Self::mma_per_step).
    pub dependent_mma: f64,
    /// Instructions of a warp's step.
    pub instructions_per_step: f64,
    /// Times 128 bytes that a warp's step reads of shared memory.
    pub wavefronts_per_step: f64,
    /// Places from which a thread loads for a chunk, and for each the loads, the values, and the divisions by what is no power of
    /// two that find it.
    pub positions: f64,
    /// See [`positions`](Self::positions).
    pub loads_per_position: f64,
    /// See [`positions`](Self::positions).
    pub values_per_position: f64,
    /// See [`positions`](Self::positions).
    pub divisions_per_position: f64,
    /// Lines of 128 bytes that the loads of a block's warps touch for a chunk.
    pub cache_lines: f64,
    /// Times 128 bytes that a block writes to shared memory for a chunk.
    pub staged_wavefronts: f64,
    /// Bytes of input that a block loads for a chunk, in whole sectors of 32.
    pub input_bytes: f64,
    /// Bytes of weights.
    pub weight_bytes: f64,
    /// Sums that a thread holds.
    pub accumulators: f64,
    /// Shares of each sum in a block.
    pub partial_sums: f64,
    /// Rounds in which all threads add up and store.
    pub store_rounds: f64,
    /// Divisions by what is no power of two that find the places of a thread's outputs in all rounds.
    pub store_divisions: f64,
    /// Bytes that a block of a cluster sends to the others.
    pub sent_bytes: f64,
    /// Sectors of 32 bytes that a block stores, and reads of a residual.
    pub stored_sectors: f64,
    /// Whether there is a residual.
    pub residual: bool,
}

/// Where the time of a launch goes, microseconds, as the busiest multiprocessor sees it. What happens at the same time is in
/// the term that it is hidden behind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct CostTerms {
    /// The launch, less what overlapping the one ahead saves.
    pub launch: f64,
    /// Of a tiled kernel, until the first chunk is there, and what is lost where the launch ahead leaves no room. Of another one,
    /// dependent trips to the level-2 cache, and bytes through it where they take longer than the arithmetic or take turns with it.
    pub load: f64,
    /// Dependent instructions and barriers of a kernel that is not tiled and tells them.
    pub latency: f64,
    /// Staging: rounding, writing to shared memory, barriers.
    pub stage: f64,
    /// Steps, or all arithmetic.
    pub compute: f64,
    /// Waiting for later chunks.
    pub wait: f64,
    /// Adding up the shares of a block.
    pub reduce: f64,
    /// Adding up those of a cluster.
    pub exchange: f64,
    /// Storing.
    pub store: f64,
    /// Blocks behind the first that a multiprocessor takes, with all their terms; of a kernel that is not tiled, what it takes to begin
    /// many small blocks, beyond all other terms.
    pub waves: f64,
    /// Memory, or the level-2 cache for all multiprocessors together, where they are slower than all that.
    pub memory: f64,
}

impl CostTerms {
    /// Their sum.
    pub fn us(&self) -> f64 {
        self.launch
            + self.load
            + self.latency
            + self.stage
            + self.compute
            + self.wait
            + self.reduce
            + self.exchange
            + self.store
            + self.waves
            + self.memory
    }
}

/// How many blocks a multiprocessor holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Occupancy {
    /// Resident blocks of a multiprocessor; 0 when a block does not fit at all.
    pub blocks_per_sm: u32,
    /// Resident threads over the most possible, 0 to 1.
    pub fraction: f64,
    /// Rounds in which the grid is worked off.
    pub waves: u64,
}

/// Resident blocks by threads, registers, shared memory and the block limit.
pub fn occupancy(work: &KernelWork, gpu: &Gpu) -> Occupancy {
    // Registers are handed out to warps in units of 256.
    let warps = work.threads.div_ceil(32);
    let registers = (work.registers * 32).next_multiple_of(256) * warps;
    let by_shared = if work.shared_bytes > gpu.shared_per_block {
        0
    } else {
        let taken = work.shared_bytes + gpu.shared_reserved;
        gpu.shared_per_sm.checked_div(taken).unwrap_or(u32::MAX)
    };
    let blocks_per_sm = gpu
        .blocks_per_sm
        .min(gpu.threads_per_sm / (warps * 32))
        .min(gpu.registers_per_sm / registers.max(1))
        .min(by_shared);
    let resident = u64::from(blocks_per_sm * gpu.sms);
    Occupancy {
        blocks_per_sm,
        fraction: f64::from(blocks_per_sm * warps * 32) / f64::from(gpu.threads_per_sm),
        waves: if resident == 0 {
            0
        } else {
            work.blocks.div_ceil(resident)
        },
    }
}

/// The physical limit of one launch for a problem, microseconds: the empty launch, then arithmetic or memory, whichever takes longer.
/// Arithmetic is that of the definition, products at the best rate that the GPU has for their precision; memory is each tensor moved
/// once. Rates are those that were measured, else the peak ones.
pub fn floor_us(problem: &Problem, gpu: &Gpu) -> f64 {
    let rate = match problem.weights().is_empty() {
        true => gpu.sustained_flops_per_us(),
        false => gpu.product_flops_per_us(problem.precision()),
    };
    let compute = problem.flops() as f64 / rate;
    let memory = problem.bytes() as f64 / gpu.best_bytes_per_us();
    gpu.launch_us + compute.max(memory)
}

impl Gpu {
    /// The best rate of products in a precision, on tensor cores or lanes, FLOP per microsecond: as measured, else the peak.
    ///
    /// One fp16 number an operand, scaled where that is needed, keeps the bounds of tf32, fp16 and bf16; two, and three products of
    /// them, keep that of fp32.
    pub fn product_flops_per_us(&self, precision: Precision) -> f64 {
        let peak = f64::from(self.tensor_flops) * f64::from(self.clock_mhz) * f64::from(self.sms);
        let tensor_cores = match (precision, self.sustained) {
            (Precision::Fp32, Some(rates)) => rates.split_tflops * 1e6,
            (Precision::Fp32, None) => peak / 3.0,
            (_, Some(rates)) => rates.half_tflops * 1e6,
            (_, None) => peak,
        };
        tensor_cores.max(self.sustained_flops_per_us())
    }
}

/// What one launch takes that leaves arithmetic to the fp32 lanes and moves bytes as a copy does, microseconds: a bar for kernels,
/// which those on the tensor cores pass.
pub fn fp32_lanes_floor_us(flops: u64, bytes: u64, gpu: &Gpu) -> f64 {
    let compute = flops as f64 / gpu.sustained_flops_per_us();
    let memory = bytes as f64 / gpu.sustained_bytes_per_us();
    gpu.launch_us + compute.max(memory)
}

/// Estimated time of setting bytes to zero in a CUDA graph, microseconds: a launch that only writes.
pub fn memset_us(bytes: u64, gpu: &Gpu) -> f64 {
    gpu.launch_us + bytes as f64 / (f64::from(gpu.dram_gbs) * 1e3)
}

/// Estimated time of one launch in a CUDA graph, microseconds; infinite when a block does not fit.
///
/// The busiest multiprocessor's arithmetic (slower with too few warps to hide latency), the traffic through the level-2 cache
/// and memory, whichever is longest, behind the launch and the dependent trips to memory of each wave.
pub fn kernel_us(work: &KernelWork, gpu: &Gpu) -> f64 {
    let Some(occupancy) = runs(work, gpu) else {
        return f64::INFINITY;
    };
    match &work.tiled {
        Some(tiled) => tiled_terms(work, tiled, gpu, &CostModel::for_gpu(gpu).tiled).us(),
        None => Parts::new(work, &occupancy, gpu).us(),
    }
}

/// Where the [estimated time](kernel_us) of a launch goes; `None` when a block does not fit.
pub fn kernel_terms(work: &KernelWork, gpu: &Gpu) -> Option<CostTerms> {
    let occupancy = runs(work, gpu)?;
    Some(match &work.tiled {
        Some(tiled) => tiled_terms(work, tiled, gpu, &CostModel::for_gpu(gpu).tiled),
        None => Parts::new(work, &occupancy, gpu).terms(),
    })
}

/// How a launch fills the GPU; `None` where a block does not fit. What a fallback would take is not estimated either: no plan should
/// want it.
fn runs(work: &KernelWork, gpu: &Gpu) -> Option<Occupancy> {
    let occupancy = occupancy(work, gpu);
    let falls_back = work.mma > 0.0 && !gpu.has_mma() || work.cluster > 1 && gpu.max_cluster() == 1;
    (occupancy.blocks_per_sm > 0 && !falls_back).then_some(occupancy)
}

/// How arithmetic and loads of a kernel that is not tiled hide each other.
enum Hiding {
    /// Whichever takes longer hides the other.
    Whole,
    /// They take turns, and each so many times as long as by itself.
    Turns(f64),
    /// What blocks stage, compute and store comes behind their latency: where there are few, nothing overlaps.
    None,
}

/// What the time of a launch that is not tiled is made of, microseconds.
struct Parts {
    launch: f64,
    /// Saved by overlapping the launch ahead.
    saved: f64,
    l2_round_trips: f64,
    exchange: f64,
    latency: f64,
    compute: f64,
    mma: f64,
    /// Through the level-2 cache.
    l2: f64,
    dram: f64,
    /// Until the last block has begun.
    begins: f64,
    hiding: Hiding,
}

impl Parts {
    fn new(work: &KernelWork, occupancy: &Occupancy, gpu: &Gpu) -> Self {
        let model = &CostModel::for_gpu(gpu).untiled;
        let clock = f64::from(gpu.clock_mhz);
        let busiest_blocks = (work.blocks as f64 / resident_blocks(work.cluster, 1.0, gpu)).ceil();
        let resident = busiest_blocks.min(f64::from(occupancy.blocks_per_sm));
        let warps = resident * f64::from(work.threads.div_ceil(32));
        // Schemes that tell their latencies need no share of idle lanes.
        let hidden = if work.latency_clocks > 0.0 {
            1.0
        } else {
            (warps / model.busy_warps).min(1.0)
        };
        let rate = gpu.sm_flops_per_us() * work.fma_fraction * hidden;
        let compute = work.flops / work.blocks as f64 * busiest_blocks / rate;
        let busy_sms = f64::from(gpu.sms).min(work.blocks as f64);
        let l2 = work.l2_bytes / (busy_sms * model.l2_bytes_per_clock * clock);
        let dram = work.dram_bytes / (f64::from(gpu.dram_gbs) * 1e3);
        let mma = work.mma / work.blocks as f64 * busiest_blocks * model.mma / clock;
        let l2_round_trips =
            work.l2_round_trips * model.l2_round_trip / clock * occupancy.waves as f64;
        let latency = work.latency_clocks / clock * (busiest_blocks / resident).ceil();
        let saved = if work.pdl && gpu.has_pdl() {
            model.pdl_saving_us.min(0.5 * gpu.launch_us)
        } else {
            0.0
        };
        let exchange = if work.cluster > 1 {
            model.exchange_us + model.exchange_block_us * f64::from(work.cluster)
        } else {
            0.0
        };
        Self {
            launch: gpu.launch_us,
            saved,
            l2_round_trips,
            exchange,
            latency,
            compute,
            mma,
            l2,
            dram,
            begins: work.blocks as f64 * model.block_start_us,
            hiding: if work.latency_clocks > 0.0 {
                Hiding::None
            } else if work.unpipelined {
                Hiding::Turns(model.unpipelined)
            } else {
                Hiding::Whole
            },
        }
    }

    /// What multiprocessors are busy with.
    fn busy(&self) -> f64 {
        match self.hiding {
            Hiding::None => self.latency + self.compute + self.mma + self.l2,
            Hiding::Turns(times) => times * (self.compute + self.l2),
            Hiding::Whole => self.compute.max(self.l2),
        }
    }

    fn us(&self) -> f64 {
        let busy = self.busy().max(self.dram);
        (self.launch - self.saved + self.l2_round_trips + self.exchange + busy).max(self.begins)
    }

    /// The same, in terms whose sum it is.
    fn terms(&self) -> CostTerms {
        let (latency, compute, l2) = match self.hiding {
            Hiding::None => (self.latency, self.compute + self.mma, self.l2),
            Hiding::Turns(times) => (0.0, times * self.compute, times * self.l2),
            Hiding::Whole => (0.0, self.compute, (self.l2 - self.compute).max(0.0)),
        };
        let terms = CostTerms {
            launch: self.launch - self.saved,
            load: self.l2_round_trips + l2,
            latency,
            compute,
            exchange: self.exchange,
            memory: (self.dram - self.busy()).max(0.0),
            ..CostTerms::default()
        };
        CostTerms {
            waves: (self.begins - terms.us()).max(0.0),
            ..terms
        }
    }
}

/// The norm of some numbers: nearly the largest where that is much larger than the others.
fn p_norm<const N: usize>(exponent: f64, terms: [f64; N]) -> f64 {
    let most = terms.into_iter().fold(f64::MIN_POSITIVE, f64::max);
    if exponent.is_infinite() {
        return most;
    }
    // What is small beside the largest is not worth a power.
    let others = terms
        .into_iter()
        .filter(|&term| term < most && term > 0.01 * most);
    let sum: f64 = others.map(|term| (term / most).powf(exponent)).sum();
    most * (1.0 + sum).powf(1.0 / exponent)
}

/// Blocks that run at once, in clusters of `cluster`, where an SM holds `blocks_per_sm`.
pub(crate) fn resident_blocks(cluster: u32, blocks_per_sm: f64, gpu: &Gpu) -> f64 {
    if cluster <= 1 {
        return f64::from(gpu.sms) * blocks_per_sm;
    }
    gpu.resident_clusters(cluster, blocks_per_sm) * f64::from(cluster)
}

/// Where the time of a tiled kernel goes that fits the GPU, by the constants of a model.
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
    // Of the next launch, which waits while this one runs: its share of blocks that find no room, and of those that find it only
    // beside one of this.
    let without = |room: f64| ((2.0 * blocks - room) / blocks).clamp(0.0, 1.0);
    let (no_room, shared_sm) = (
        without(resident_blocks),
        without(resident_blocks / blocks_per_sm),
    );
    // Blocks that waited go where the launch ahead leaves first, one more to a multiprocessor that has room for it.
    let resident = busiest_blocks.min(blocks_per_sm)
        + no_room * (blocks_per_sm - busiest_blocks).clamp(0.0, 1.0);
    let warps = f64::from(work.threads.div_ceil(32));
    // Warps of the fullest quarter, and of all.
    let partition_warps = (warps / 4.0).ceil().max(resident * warps / 4.0);
    let all = resident * warps;
    let norm_exponent = model.norm_exponent;
    // For an instruction of each warp of a quarter.
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
    // What a run of steps begins with no sum hides: all warps ask for their first operands.
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
    // A multiprocessor that is not full any more is done with what is left a little sooner.
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
    use crate::gpu::gpu;
    use crate::ir::ConvProblem;
    use tdc_runtime::{ConvShape, Padding};

    fn work() -> KernelWork {
        KernelWork {
            blocks: 1000,
            threads: 256,
            registers: 64,
            shared_bytes: 0,
            flops: 1e6,
            fma_fraction: 0.5,
            l2_bytes: 1e6,
            dram_bytes: 1e6,
            l2_round_trips: 1.0,
            ..KernelWork::default()
        }
    }

    #[test]
    fn occupancy_by_each_limit() {
        let h200 = gpu("h200").unwrap();
        // 64 registers x 256 threads = 16384 registers: four blocks.
        assert_eq!(occupancy(&work(), h200).blocks_per_sm, 4);
        assert_eq!(occupancy(&work(), h200).waves, 2);
        let by_threads = KernelWork {
            registers: 16,
            ..work()
        };
        assert_eq!(occupancy(&by_threads, h200).blocks_per_sm, 8);
        let by_blocks = KernelWork {
            registers: 16,
            threads: 32,
            ..work()
        };
        assert_eq!(occupancy(&by_blocks, h200).blocks_per_sm, 32);
        let by_shared = KernelWork {
            shared_bytes: 75 * 1024,
            ..work()
        };
        assert_eq!(occupancy(&by_shared, h200).blocks_per_sm, 3);
        let too_much = KernelWork {
            shared_bytes: 300 * 1024,
            ..work()
        };
        assert_eq!(occupancy(&too_much, h200).blocks_per_sm, 0);
        assert!(kernel_us(&too_much, h200).is_infinite());
    }

    #[test]
    fn old_gpus_reserve_no_shared_memory() {
        let whole = KernelWork {
            shared_bytes: 64 * 1024,
            ..work()
        };
        assert_eq!(
            occupancy(&whole, gpu("rtx2080ti").unwrap()).blocks_per_sm,
            1
        );
        let half = KernelWork {
            shared_bytes: 48 * 1024,
            ..work()
        };
        assert_eq!(occupancy(&half, gpu("gtx1080ti").unwrap()).blocks_per_sm, 2);
        assert_eq!(occupancy(&work(), gpu("v100").unwrap()).blocks_per_sm, 4);
    }

    /// The sum of the terms is the estimate, whatever a kernel is bound by.
    #[test]
    fn every_launch_has_terms() {
        let h200 = gpu("h200").unwrap();
        let staged = KernelWork {
            latency_clocks: 20_000.0,
            mma: 1e5,
            cluster: 4,
            pdl: true,
            ..work()
        };
        let arithmetic = KernelWork {
            flops: 1e9,
            ..work()
        };
        let cached = KernelWork {
            l2_bytes: 1e8,
            ..work()
        };
        let works = [
            ("latency", staged),
            ("compute", arithmetic),
            ("load", cached),
            (
                "load",
                KernelWork {
                    unpipelined: true,
                    ..cached
                },
            ),
            (
                "memory",
                KernelWork {
                    dram_bytes: 1e9,
                    ..work()
                },
            ),
            (
                "waves",
                KernelWork {
                    blocks: 100_000,
                    ..work()
                },
            ),
            (
                "launch",
                KernelWork {
                    blocks: 1,
                    l2_round_trips: 0.0,
                    flops: 0.0,
                    l2_bytes: 0.0,
                    dram_bytes: 0.0,
                    ..work()
                },
            ),
        ];
        for (bound, work) in works {
            let terms = kernel_terms(&work, h200).unwrap();
            let us = kernel_us(&work, h200);
            assert!(
                (terms.us() / us - 1.0).abs() < 1e-12,
                "{bound}: {terms:?}, {us}"
            );
            let named = [
                ("launch", terms.launch),
                ("load", terms.load),
                ("latency", terms.latency),
                ("compute", terms.compute),
                ("exchange", terms.exchange),
                ("waves", terms.waves),
                ("memory", terms.memory),
            ];
            assert!(named.iter().all(|(_, us)| *us >= 0.0), "{terms:?}");
            let most = named
                .into_iter()
                .max_by(|a, b| a.1.total_cmp(&b.1))
                .unwrap();
            assert_eq!(most.0, bound, "{terms:?}");
        }
        let large = KernelWork {
            shared_bytes: 1 << 20,
            ..work()
        };
        assert_eq!(kernel_terms(&large, h200), None);
    }

    #[test]
    fn the_lanes_floor_is_the_longer_of_arithmetic_and_memory() {
        // Nobody has measured its rates, so the peak ones count.
        let h100 = gpu("h100").unwrap();
        let peak = 2.0 * 128.0 * 1980.0 * 132.0;
        let floor_us = fp32_lanes_floor_us;
        assert!((floor_us(peak as u64 * 3, 0, h100) - 3.55).abs() < 1e-6);
        assert!((floor_us(0, 3_350_000, h100) - 1.55).abs() < 1e-6);
        let h200 = gpu("h200").unwrap();
        assert!((floor_us(51_000_000, 0, h200) - 1.55).abs() < 1e-9);
        assert!((floor_us(51_000_000, 8_600_000, h200) - 2.55).abs() < 1e-9);
    }

    /// An H200 runs 15 clusters of eight blocks at once where a multiprocessor holds one block, though it has room for 16.
    #[test]
    fn clusters_that_find_no_room_wait_for_another_round() {
        let h200 = gpu("h200").unwrap();
        let of_blocks = |blocks: u64, cluster: u32, shared_kib: u32| {
            let work = KernelWork {
                blocks,
                cluster,
                shared_bytes: shared_kib * 1024,
                flops: 0.0,
                l2_bytes: 0.0,
                dram_bytes: 0.0,
                l2_round_trips: 0.0,
                latency_clocks: 19_800.0,
                ..work()
            };
            kernel_us(&work, h200)
        };
        let one_round = of_blocks(120, 8, 200);
        assert!((of_blocks(128, 8, 200) - one_round - 10.0).abs() < 0.1);
        // Without clusters they find it, and so do clusters where two blocks lie on a multiprocessor.
        assert!((of_blocks(128, 1, 200) - of_blocks(120, 1, 200)).abs() < 0.1);
        assert!((of_blocks(128, 8, 100) - one_round).abs() < 0.1);
    }

    /// 64x224x224 to 64x112x112 by a maximum, an output a thread: 15.7 us in blocks of 64 threads, 4.3 us in blocks of 256.
    #[test]
    fn many_small_blocks_take_longer_to_begin_than_to_compute() {
        let h200 = gpu("h200").unwrap();
        let of_threads = |threads: u32| KernelWork {
            blocks: 802_816 / u64::from(threads),
            threads,
            registers: 32,
            flops: 3.2e6,
            fma_fraction: 0.1,
            l2_bytes: 16e6,
            dram_bytes: 16e6,
            l2_round_trips: 2.0,
            pdl: true,
            ..KernelWork::default()
        };
        let [small, large] = [64, 256].map(|threads| kernel_us(&of_threads(threads), h200));
        assert!((small / 15.7 - 1.0).abs() < 0.05, "{small}");
        assert!((large / 4.3 - 1.0).abs() < 0.15, "{large}");
    }

    #[test]
    fn floors_of_convolutions_are_those_of_the_measured_rates() {
        let memory = |rate: f64| 0.55 + 2.0 * 4.0 * 16.777_216 / rate;
        for (sizes, precision, expected, by_lanes) in [
            // 1849.7 and 14.45 million operations at 252 and 51 million a microsecond.
            ([64, 32, 224, 224], Precision::Fp32, 7.890, 36.82),
            ([32, 32, 28, 28], Precision::Fp32, 0.6074, 0.833),
            // 3699.4 million at 858; where that takes less, 19.34 MB at 4.66 TB/s.
            ([256, 256, 56, 56], Precision::Tf32, 4.862, 73.09),
            ([64, 32, 224, 224], Precision::Fp16, 4.700, 36.82),
            // Four bytes an operation: memory.
            (
                [1, 1, 4096, 4096],
                Precision::Fp32,
                memory(4.66),
                memory(4.3),
            ),
        ] {
            let [c, n, h, w] = sizes;
            let kernel = if c == 1 { 1 } else { 3 };
            let problem = Problem::Conv(ConvProblem {
                precision,
                ..ConvProblem::new(ConvShape {
                    padding: Padding::all(kernel / 2),
                    ..ConvShape::new(c, n, h, w, kernel, kernel)
                })
            });
            let h200 = gpu("h200").unwrap();
            let floor = floor_us(&problem, h200);
            assert!((floor / expected - 1.0).abs() < 1e-3, "{sizes:?}: {floor}");
            let floor = fp32_lanes_floor_us(problem.flops(), problem.bytes(), h200);
            assert!((floor / by_lanes - 1.0).abs() < 1e-3, "{sizes:?}: {floor}");
        }
    }

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
    fn blocks_beyond_the_multiprocessors_wait() {
        let alone = tiled_us(132, 1, |_| ());
        assert!(tiled_us(112, 1, |_| ()) <= alone);
        // One block of 120 KB fits a multiprocessor.
        assert!(tiled_us(133, 1, |_| ()) > 1.4 * alone);
        // An H200 holds 15 clusters of eight such blocks, not the 16 that would fill 128 multiprocessors.
        let clusters = tiled_us(120, 8, |_| ());
        assert!(clusters > alone);
        assert!(tiled_us(128, 8, |_| ()) > 1.4 * clusters);
    }
}
