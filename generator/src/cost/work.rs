//! The work of one launch: the input of the cost model.

use crate::gpu::Products;

/// The work of one launch.
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
    /// Floating-point operations of the whole launch. Idle lanes count as working.
    pub flops: f64,
    /// Fraction of the issued instructions that are multiply-adds, 0 to 1.
    pub fma_fraction: f64,
    /// Bytes that the whole launch reads and writes through L2.
    pub l2_bytes: f64,
    /// Bytes moved to and from device memory if every tensor is touched once.
    pub dram_bytes: f64,
    /// L2 round trips of one thread that depend on each other.
    pub l2_round_trips: f64,
    /// Further ones, which a kernel that is limited by the start of its blocks does not hide: those of the last block.
    pub last_round_trips: f64,
    /// Products of 16x16 with 16x8 fp16 matrices on the tensor cores, in the whole launch.
    pub mma: f64,
    /// Clocks of dependent instructions and barriers in a block, without L2 round trips. 0 if the scheme does not estimate them.
    pub latency_clocks: f64,
    /// Whether loads and arithmetic alternate without overlap, step by step.
    pub unpipelined: bool,
    /// Blocks of a cluster that exchange partial sums; 0 or 1 without an exchange.
    pub cluster: u32,
    /// Whether the launch uses programmatic dependent launch.
    pub pdl: bool,
    /// How products are computed.
    pub products: Products,
    /// The work of a block of a tiled kernel, which replaces the arithmetic and the L2 traffic above.
    pub tiled: Option<TiledWork>,
}

/// The work of a block of a tiled kernel: it stages chunks of K in shared memory, computes K steps, and adds partial sums.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TiledWork {
    /// Chunks of a block.
    pub chunks: f64,
    /// Chunks whose weights are copied only after an earlier chunk has released its buffer: there are fewer stages than chunks.
    pub refilled_chunks: f64,
    /// K steps of a warp in a chunk.
    pub k_steps: f64,
    /// Loops over them in a chunk. The compiler moves no instruction from one iteration to another, so operands of an iteration are
    /// loaded only after the sums of the one before.
    pub loops: f64,
    /// Products of 16x16 with 16x8 matrices on the tensor cores in a warp's step.
    pub mma_per_step: f64,
    /// Products of a step that depend on each other.
    pub dependent_mma: f64,
    /// Instructions of a warp's step.
    pub instructions_per_step: f64,
    /// Shared-memory wavefronts (128 bytes) that a warp's step reads.
    pub wavefronts_per_step: f64,
    /// Positions in the input from which a thread loads for a chunk.
    pub positions: f64,
    /// Loads from a position.
    pub loads_per_position: f64,
    /// Values loaded from a position.
    pub values_per_position: f64,
    /// Integer divisions by numbers that are not powers of two to compute a position.
    pub divisions_per_position: f64,
    /// Cache lines (128 bytes) that the loads of a block's warps touch for a chunk.
    pub cache_lines: f64,
    /// Shared-memory wavefronts that a block writes for a chunk.
    pub staged_wavefronts: f64,
    /// Bytes of input that a block loads for a chunk, in whole sectors of 32.
    pub input_bytes: f64,
    /// Bytes of weights that a block loads for a chunk.
    pub weight_bytes: f64,
    /// Accumulators of a thread.
    pub accumulators: f64,
    /// Partial sums of each output in a block.
    pub partial_sums: f64,
    /// Rounds in which all threads add partial sums and store.
    pub store_rounds: f64,
    /// Integer divisions by numbers that are not powers of two to compute the addresses of a thread's outputs, in all rounds.
    pub store_divisions: f64,
    /// Bytes that a block of a cluster sends to the others.
    pub sent_bytes: f64,
    /// Sectors of 32 bytes that a block stores, and reads of a residual.
    pub stored_sectors: f64,
    /// Whether there is a residual.
    pub residual: bool,
}
