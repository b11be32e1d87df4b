//! The constants of the cost model of a GPU, fitted by `tdc-gen calibrate`.

use super::{DEFAULT_GPU, Gpu};
use std::fmt;
use std::sync::LazyLock;
use thiserror::Error;

/// Declares a group of constants once: fields, names in files, and their order as numbers.
macro_rules! constants {
    ($(#[$group_doc:meta])* $group:ident { $($(#[$doc:meta])* $name:ident = $start:literal,)* }) => {
        $(#[$group_doc])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct $group {
            $($(#[$doc])* pub $name: f64,)*
        }

        impl $group {
            /// Names of the constants, in order.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// Values before any measurement; calibration stays close to them where measurements say little.
            pub const INITIAL: Self = Self { $($name: $start,)* };

            /// The constants in order.
            pub fn values(&self) -> Vec<f64> {
                vec![$(self.$name),*]
            }

            /// The constants of a list in order; missing ones have their initial values.
            pub fn from_values(values: &[f64]) -> Self {
                let mut values = values.iter().copied();
                Self { $($name: values.next().unwrap_or($start),)* }
            }
        }
    };
}

constants! {
    /// Costs of the parts of a tiled kernel ([`TiledWork`](crate::cost::TiledWork)); clocks of a streaming multiprocessor (SM)
    /// unless the name or comment says otherwise.
    TiledConstants {
        /// Clocks until the input of the first chunk has arrived from L2.
        first_chunk_latency = 47.0,
        /// Clocks until the input of a later chunk has arrived. It is requested while the chunk before is computed.
        later_chunk_latency = 730.0,
        /// Clocks that a block loses if it does not fit on an SM before a block of the predecessor kernel has ended.
        pdl_no_room = 250.0,
        /// Clocks that a block loses if it shares its SM with a block of the predecessor kernel.
        pdl_shared_sm = 85.0,
        /// Issue of one MMA on an SM partition.
        mma_issue = 7.5,
        /// Latency of an MMA whose accumulator the next one needs.
        mma_latency = 55.0,
        /// Start and end of a warp's loop over K steps: the first operands arrive, and the last MMAs finish.
        loop_drain = 15.0,
        /// Fraction of the shared-memory reads of a loop's first K step, by all warps of the SM, that no arithmetic hides.
        loop_start_reads = 0.5,
        /// A warp instruction on an SM partition with enough warps to hide its latency.
        instruction_issue = 1.1,
        /// A warp instruction on an SM partition that has no other warp.
        instruction_latency = 2.7,
        /// A wavefront of 128 bytes of shared memory.
        shared_wavefront = 1.2,
        /// Instructions for each value that is staged.
        staging_per_value = 9.6,
        /// Instructions for each load that is staged.
        staging_per_load = 5.5,
        /// Instructions for each division in the index of a load.
        load_index_division = 13.0,
        /// A cache line of 128 bytes that a warp's load touches.
        cache_line = 1.2,
        /// The barriers of a chunk.
        chunk_barriers = 110.0,
        /// Additional clocks of these barriers for each warp.
        chunk_barriers_per_warp = 51.0,
        /// Additional clocks of a chunk whose weights could not be prefetched.
        stage_refill = 240.0,
        /// Instructions for each partial sum.
        partial_add = 3.0,
        /// Instructions for each round in which all threads store.
        store_round = 21.0,
        /// Instructions for each division in the index of a store.
        store_index_division = 4.6,
        /// A sector of 32 bytes that is stored, or read of a residual.
        stored_sector = 1.5,
        /// Clocks until a residual has arrived.
        residual_latency = 550.0,
        /// Clocks from the start of the exchange of partial sums in a cluster until a block has all of them.
        cluster_exchange_latency = 520.0,
        /// Bytes per clock that an SM sends to other SMs.
        cluster_bytes_per_clock = 12.0,
        /// Factor on the time of clusters of three blocks: SMs are paired.
        cluster_of_3 = 1.1,
        /// Bytes per clock that one SM reads from L2 if no other SM does.
        l2_bytes_per_clock = 130.0,
        /// Bytes per clock of each SM if all SMs read from L2.
        l2_bytes_per_clock_all_sms = 29.0,
        /// Exponent of the p-norm that combines costs that overlap in time.
        norm_exponent = 3.9,
    }
}

impl TiledConstants {
    /// The same with costs that overlap taking as long as the longest of them: faster to compute, and never more.
    pub(crate) fn with_infinity_norm(self) -> Self {
        Self {
            norm_exponent: f64::INFINITY,
            ..self
        }
    }
}

constants! {
    /// Costs of the parts of any other kernel.
    UntiledConstants {
        /// Warps that keep the fp32 lanes of an SM busy.
        busy_warps = 12.0,
        /// Bytes per clock that one SM reads from L2.
        l2_bytes_per_clock = 32.0,
        /// Clocks of an L2 round trip.
        l2_round_trip = 280.0,
        /// Clocks of an SM for one MMA, without the instructions around it.
        mma = 1.2,
        /// Time saved by programmatic dependent launch, microseconds.
        pdl_saving_us = 0.35,
        /// Exchange of partial sums in a cluster, microseconds, and what each block adds to it.
        exchange_us = 0.24,
        /// See [`exchange_us`](Self::exchange_us).
        exchange_block_us = 0.03,
        /// Factor on arithmetic and loads that alternate without overlap (103 kernels of `direct` and `pointwise`).
        unpipelined = 1.5,
        /// From the start of one block to that of the next, microseconds (pooling with 3136 to 12544 blocks).
        block_start_us = 0.00125,
    }
}

constants! {
    /// The rough time by which tile spaces are pruned, for kernels that are not tiled; clocks of an SM.
    RoughConstants {
        /// An L2 round trip.
        l2_round_trip = 500.0,
        /// An MMA.
        mma = 2.0,
        /// Bytes per clock that one SM reads from L2.
        l2_bytes_per_clock = 32.0,
        /// Exchange of partial sums in a cluster.
        exchange = 900.0,
    }
}

constants! {
    /// `tucker_fused`; clocks of an SM.
    TuckerFusedConstants {
        /// Factor on the latencies of the factors' steps.
        steps = 1.02,
        /// A 1x1 factor.
        pointwise_factor = 540.0,
        /// A chunk of weights.
        chunk = 410.0,
        /// An exchange of sums in a cluster, and each value that a block exchanges.
        exchange = 330.0,
        /// See [`exchange`](Self::exchange).
        exchanged_value = 0.52,
        /// Partial sums of the core in shared memory.
        core_partials = 800.0,
        /// A packed weight of the layer that a block reads from L2, beyond [`hidden_weights`](Self::hidden_weights). If not all SMs have blocks,
        /// weights count in proportion.
        weight = 0.126,
        /// Packed weights that arrive while the block waits for its predecessor and for its input, if all SMs have blocks.
        hidden_weights = 18000.0,
        /// A packed weight that is copied while the block computes, because shared memory does not hold all weights.
        streamed_weight = 0.05,
        /// Factor on the clocks of an MMA, for the instructions around it.
        product = 3.2,
        /// A warp of the block.
        warp = 36.0,
        /// Each other block on the same SM.
        co_resident_block = 1200.0,
        /// Instructions of a warp to stage one load.
        staged_load = 21.5,
        /// Factor on the L2 traffic of sectors that are stored, or read of a residual.
        stored_sector = 1.76,
    }
}

constants! {
    /// `inverted_residual`; clocks of an SM.
    InvertedResidualConstants {
        /// A block: its barriers, and the load of the input.
        block = 3000.0,
        /// Factor on the latencies of the expansion's and the projection's steps.
        steps = 1.0,
        /// Staging a channel quad, for each warp.
        staged_load = 20.0,
        /// Applying the epilogue of the expansion to 32 values, and storing them.
        expanded_value = 5.0,
        /// Reading a channel quad, or its weights, for the depthwise filter; for each warp.
        filter_read = 4.0,
        /// The exchange of partial sums in a cluster, and each value that a block exchanges.
        exchange = 600.0,
        /// See [`exchange`](Self::exchange).
        exchanged_value = 0.3,
        /// Copying a packed weight to shared memory.
        weight = 0.02,
        /// Fraction of a block's work that each other block on the same SM delays it by.
        co_resident_block = 0.3,
    }
}

constants! {
    /// `dense_step`; clocks of an SM.
    DenseStepConstants {
        /// A block: its barriers, and the loads of the input.
        block = 2200.0,
        /// Factor on the latencies of the steps of both convolutions.
        steps = 1.0,
        /// Staging a channel quad, for each warp.
        staged_load = 20.0,
        /// Adding the sums of a quad of new channels, and staging it; for each warp.
        grown_quad = 60.0,
        /// The exchange of partial sums in a cluster, and each value that a block exchanges.
        exchange = 300.0,
        /// See [`exchange`](Self::exchange).
        exchanged_value = 0.3,
        /// Copying a packed weight to shared memory.
        weight = 0.01,
        /// Fraction of a block's work that each other block on the same SM delays it by.
        co_resident_block = 0.5,
    }
}

constants! {
    /// `cp_chain`; clocks of an SM.
    CpChainConstants {
        /// Reading 128 bytes of shared memory, in instructions of an SM.
        shared_read = 4.0,
        /// Barriers of a block.
        block_latency = 1000.0,
        /// A group of loads that are in flight together.
        load_latency = 700.0,
    }
}

constants! {
    /// `wgmma`; clocks of an SM.
    WgmmaConstants {
        /// Factor on the time of products at the peak rate of the tensor cores.
        product = 1.15,
        /// Least time of a step: loading its operands.
        step = 50.0,
        /// Factor on the time in which shared memory delivers the operands.
        shared_memory = 1.2,
        /// A stage of weights: waits, and products that start and drain.
        stage = 100.0,
        /// The same where products of the next stage start before.
        overlapped_stage = 50.0,
        /// Adding a partial sum.
        promoted_value = 1.2,
        /// Staging 32 values.
        staged_value = 2.2,
        /// A cache line of the input.
        cache_line = 1.2,
        /// Bytes per clock that an SM reads from L2.
        l2_bytes_per_clock = 32.0,
        /// Until the input of a chunk has arrived.
        load_latency = 1200.0,
        /// Converting a chunk, without its values: barriers.
        chunk = 200.0,
        /// Loading and converting a value, for each warp of an SM partition that does it.
        loaded_value = 8.0,
        /// A tile, without its chunks and outputs.
        tile = 300.0,
        /// A sector of 32 bytes that is stored, or read of a residual, in NCHW.
        stored_sector = 1.5,
        /// The same in fp16 NHWC.
        stored_sector_nhwc = 1.5,
        /// A block.
        start = 900.0,
    }
}

constants! {
    /// `wgmma_nhwc`; clocks of an SM.
    WgmmaNhwcConstants {
        /// Factor on the time of products at the peak rate of the tensor cores.
        product = 1.12,
        /// Factor on the time in which shared memory delivers the operands.
        shared_memory = 1.35,
        /// Adding a partial sum.
        promoted_value = 1.2,
        /// A chunk of the input: waits of a consumer.
        chunk = 18.0,
        /// A chunk of the input: waits of a loader.
        loaded_chunk = 433.0,
        /// A copy of 16 bytes by each thread of a loader.
        copy = 8.28,
        /// Bytes per clock that an SM reads from L2.
        l2_bytes_per_clock = 81.0,
        /// Until a copy has arrived, of the input and of a stage of weights.
        load_latency = 1299.0,
        weights_latency = 67.0,
        /// A tile, without its chunks and outputs.
        tile = 627.0,
        /// Eight outputs, which are stored, or read of a residual, in NHWC.
        stored_run = 0.651,
        /// The same in NCHW.
        stored_run_nchw = 3.18,
        /// Until a residual of the channels that are exchanged at a time has arrived.
        residual_latency = 1615.0,
        /// The exchange of partial sums in a cluster, and each value that a block receives.
        exchange = 300.0,
        /// See [`exchange`](Self::exchange).
        exchanged_value = 0.3,
        /// A block.
        start = 2499.0,
    }
}

constants! {
    /// `winograd`; clocks of an SM.
    WinogradConstants {
        /// Latency of a step without its products, and of each product.
        step_latency = 120.0,
        /// See [`step_latency`](Self::step_latency).
        mma_latency = 16.0,
        /// Latency of a load that is staged.
        staging_latency = 72.0,
        /// Latency of adding one partial sum.
        partial_sum_latency = 4.0,
        /// Factor on L2 traffic.
        l2_traffic = 1.3,
        /// L2 round trips of a block, and of each chunk.
        l2_round_trips = 4.2,
        /// See [`l2_round_trips`](Self::l2_round_trips).
        chunk_round_trips = 0.06,
    }
}

constants! {
    /// `input_stationary`, fitted to 430 tiles; instructions of a thread.
    InputStationaryConstants {
        /// A thread, without the rest.
        thread = 100.0,
        /// A run of pixels in a row.
        run = 30.0,
        /// A load without padding, and one that checks for padding.
        load = 4.0,
        /// See [`load`](Self::load).
        padded_load = 10.0,
        /// A vector of filters, and each of its taps.
        filter_vector = 8.0,
        /// See [`filter_vector`](Self::filter_vector).
        tap = 8.0,
        /// A store.
        store = 12.0,
        /// L2 round trips of a block.
        l2_round_trips = 4.0,
    }
}

constants! {
    /// `depthwise_nhwc`; instructions of a thread, unless stated.
    DepthwiseNhwcConstants {
        /// A thread, without its strips.
        thread = 60.0,
        /// A strip, without loads, products and stores.
        strip = 40.0,
        /// The load of a run, with the cache lines that it touches.
        load = 8.0,
        /// The store of a run.
        store = 8.0,
        /// Input that a block reads from L2, in units of what it reads if each value is loaded once.
        reread = 1.0,
        /// L2 round trips of the first strip.
        round_trips = 2.0,
        /// L2 round trips of each other strip.
        strip_round_trips = 0.7,
    }
}

constants! {
    /// `mma_nhwc`; clocks of an SM, unless stated.
    MmaNhwcConstants {
        /// A launch, beyond that of any kernel.
        start = 900.0,
        /// A copy of 16 bytes by each thread before the first stage.
        first_copy = 21.1,
        /// The barrier of a stage.
        step = 139.0,
        /// A product, in units of the time that the GPU's best rate implies.
        product = 2.12,
        /// A wavefront of 128 bytes of shared memory. A load of four 8x8 matrices has four.
        shared_wavefront = 1.33,
        /// A warp instruction on an SM partition.
        instruction = 1.91,
        /// Instructions for a load of four matrices.
        load = 10.6,
        /// A K step of a warp: until its matrices are loaded.
        load_latency = 33.4,
        /// The store of a run of eight channels by a block, with its sums' way through shared memory.
        stored_run = 1.95,
        /// The same for a thread whose stores do not overlap.
        store_latency = 359.0,
        /// Bytes that an SM gets from L2 in a clock if all of them read.
        l2_bytes_per_clock = 30.9,
        /// Traffic of chunks with less than a cache line of 128 bytes of each pixel, in addition: times the cache lines that they would be,
        /// less one.
        narrow = 0.178,
        /// The time of memory traffic beside that of the blocks, in units of the time that the rates of L2 and DRAM imply.
        memory = 0.6,
    }
}

constants! {
    /// What a launch takes in a network beyond its time when it is repeated (ten plans of 21 to 207 launches).
    NetworkConstants {
        /// The boundary to the predecessor kernel, which is another one, microseconds.
        boundary_us = 0.26,
        /// Reading the weights from DRAM instead of L2, in units of the time in which DRAM delivers them; of launches whose arithmetic hides a
        /// part of it.
        cold_weights = 0.5,
        /// Of weights that L2 does not hold, what a repeated launch finds in L2 nevertheless and a launch in a network does not, as a fraction of
        /// L2.
        kept_weights = 0.3,
    }
}

constants! {
    /// Constants of schemes that have few.
    OtherConstants {
        /// `depthwise`: a cache line that a load of a warp touches, in instructions of an SM.
        depthwise_cache_line = 4.0,
        /// `pointwise`: L2 round trips of a step.
        pointwise_step_round_trips = 1.3,
        /// `tvm`: instructions of a step, without loads and products (fitted to 18 tiles of the TVM tutorial's problem).
        tvm_step = 150.0,
        /// `tvm`: instructions of a load.
        tvm_load = 12.0,
        /// `tvm`: L2 round trips of a step without, and with, a pipeline.
        tvm_step_round_trips = 1.3,
        /// See [`tvm_step_round_trips`](Self::tvm_step_round_trips).
        tvm_pipelined_step_round_trips = 0.15,
        /// `tdc`, `tdc_rows`: an atomic addition, in bytes of L2 traffic (an H200 executes about 80 per clock, at any addresses).
        tdc_atomic_bytes = 53.0,
    }
}

/// Declares the groups of a model once.
macro_rules! groups {
    ($($(#[$doc:meta])* $group:ident: $type:ident,)*) => {
        /// The constants of the cost model for one GPU: one line `group.name value` each in `generated/model`.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct CostModel {
            $($(#[$doc])* pub $group: $type,)*
        }

        impl CostModel {
            /// Values before any measurement.
            pub const INITIAL: Self = Self { $($group: $type::INITIAL,)* };

            /// Names of the constants, with their groups, and values.
            fn named_values(&self) -> Vec<(String, f64)> {
                let mut found = Vec::new();
                $(
                    let names = $type::NAMES.iter().map(|name| format!("{}.{name}", stringify!($group)));
                    found.extend(names.zip(self.$group.values()));
                )*
                found
            }

            /// The constants in the order of [`named_values`](Self::named_values).
            fn from_values(mut values: &[f64]) -> Self {
                let mut next = |len: usize| {
                    let (group, rest) = values.split_at(len.min(values.len()));
                    values = rest;
                    group
                };
                Self { $($group: $type::from_values(next($type::NAMES.len())),)* }
            }
        }
    };
}

groups! {
    /// Tiled kernels with products in fp32: on the fp32 lanes, or on the tensor cores with a hi/lo split.
    tiled: TiledConstants,
    /// Tiled kernels with products in tf32: on the tensor cores without a split, scaled to the range of fp16.
    tiled_tf32: TiledConstants,
    /// Tiled kernels with products in fp16 or bf16.
    tiled_half: TiledConstants,
    /// All other kernels.
    untiled: UntiledConstants,
    /// Pruning.
    rough: RoughConstants,
    /// `tucker_fused` with products in fp32.
    tucker_fused: TuckerFusedConstants,
    /// `tucker_fused` with products in tf32 or fp16, which have the same kernel.
    tucker_fused_half: TuckerFusedConstants,
    /// `dense_step` with products in fp32.
    dense_step: DenseStepConstants,
    /// `dense_step` with products in tf32, fp16 or bf16, which have the same kernel.
    dense_step_half: DenseStepConstants,
    /// `inverted_residual` with products in fp32.
    inverted_residual: InvertedResidualConstants,
    /// `inverted_residual` with products in tf32, fp16 or bf16, which have the same kernel.
    inverted_residual_half: InvertedResidualConstants,
    /// `cp_chain`.
    cp_chain: CpChainConstants,
    /// `wgmma` with products in fp32 or tf32, whose partial sums are promoted.
    wgmma: WgmmaConstants,
    /// `wgmma` with products in fp16 or bf16.
    wgmma_half: WgmmaConstants,
    /// `wgmma_nhwc` with products in fp16.
    wgmma_nhwc: WgmmaNhwcConstants,
    /// `wgmma_nhwc` and the schemes around it with products in fp32 or tf32, of split inputs.
    wgmma_split: WgmmaNhwcConstants,
    /// `winograd`.
    winograd: WinogradConstants,
    /// `input_stationary`.
    input_stationary: InputStationaryConstants,
    /// `depthwise_nhwc`.
    depthwise_nhwc: DepthwiseNhwcConstants,
    /// `mma_nhwc`.
    mma_nhwc: MmaNhwcConstants,
    /// Schemes with few constants.
    other: OtherConstants,
    /// Launches of a network.
    network: NetworkConstants,
}

/// How a tiled kernel computes products; kernels of a kind share the constants of the cost model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Products {
    /// On the fp32 lanes, or on the tensor cores with a hi/lo split.
    #[default]
    Fp32,
    /// On the tensor cores without a split, scaled to the range of fp16.
    Tf32,
    /// On the tensor cores in fp16 or bf16.
    Half,
}

impl CostModel {
    /// The constants of tiled kernels.
    pub fn tiled(&self, products: Products) -> &TiledConstants {
        match products {
            Products::Fp32 => &self.tiled,
            Products::Tf32 => &self.tiled_tf32,
            Products::Half => &self.tiled_half,
        }
    }

    /// The constants of `tucker_fused`.
    pub(crate) fn tucker_fused(&self, products: Products) -> &TuckerFusedConstants {
        match products {
            Products::Fp32 => &self.tucker_fused,
            Products::Tf32 | Products::Half => &self.tucker_fused_half,
        }
    }

    /// The constants of `dense_step`.
    pub(crate) fn dense_step(&self, products: Products) -> &DenseStepConstants {
        match products {
            Products::Fp32 => &self.dense_step,
            Products::Tf32 | Products::Half => &self.dense_step_half,
        }
    }

    /// The constants of `inverted_residual`.
    pub(crate) fn inverted_residual(&self, products: Products) -> &InvertedResidualConstants {
        match products {
            Products::Fp32 => &self.inverted_residual,
            Products::Tf32 | Products::Half => &self.inverted_residual_half,
        }
    }

    /// The constants of `wgmma`.
    pub(crate) fn wgmma(&self, products: Products) -> &WgmmaConstants {
        match products {
            Products::Fp32 | Products::Tf32 => &self.wgmma,
            Products::Half => &self.wgmma_half,
        }
    }

    /// The constants of `wgmma_nhwc`.
    pub(crate) fn wgmma_nhwc(&self, products: Products) -> &WgmmaNhwcConstants {
        match products {
            Products::Fp32 | Products::Tf32 => &self.wgmma_split,
            Products::Half => &self.wgmma_nhwc,
        }
    }

    /// The values of a group, in order; empty if there is no such group.
    pub fn group(&self, name: &str) -> Vec<f64> {
        let all = self.named_values().into_iter();
        let of_group = all.filter(|(constant, _)| group_of(constant) == name);
        of_group.map(|(_, value)| value).collect()
    }

    /// The same with other values of a group.
    pub fn with_group(&self, name: &str, values: &[f64]) -> Self {
        let mut values = values.iter().copied();
        let changed = self.named_values().into_iter().map(|(constant, value)| {
            match group_of(&constant) == name {
                true => values.next().unwrap_or(value),
                false => value,
            }
        });
        Self::from_values(&changed.collect::<Vec<_>>())
    }

    /// The committed constants for a GPU, after the name of the GPU that they were fitted on; those of the H200, in clocks, for a GPU without
    /// measurements.
    pub(super) fn committed(gpu: &Gpu) -> (&'static str, &'static Self) {
        static MEASURED: LazyLock<Vec<(&str, CostModel)>> = LazyLock::new(|| {
            let models = tdc_generated::MODELS.iter();
            models
                .map(|&(name, text)| {
                    let model = CostModel::parse(text);
                    (
                        name,
                        model.expect("the committed constants are well formed"),
                    )
                })
                .collect()
        });
        static INITIAL: CostModel = CostModel::INITIAL;
        let of = |name: &str| MEASURED.iter().find(|(measured, _)| *measured == name);
        of(gpu.name)
            .or_else(|| of(DEFAULT_GPU))
            .map_or(("initial", &INITIAL), |(name, model)| (*name, model))
    }

    /// Parses the format that [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    /// [`CostModelError`] if the text has any other format, or lacks a constant.
    pub fn parse(text: &str) -> Result<Self, CostModelError> {
        let known = Self::INITIAL.named_values();
        let mut values: Vec<Option<f64>> = vec![None; known.len()];
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let error = |expected| CostModelError::Line {
                line: index + 1,
                text: line.to_owned(),
                expected,
            };
            let (name, value) = line
                .split_once(' ')
                .ok_or_else(|| error("a name and a number"))?;
            let place = known
                .iter()
                .position(|(known, _)| known == name)
                .ok_or_else(|| error("the name of a constant"))?;
            let value = value.parse::<f64>().ok();
            let value = value.filter(|value| value.is_finite() && *value > 0.0);
            values[place] = Some(value.ok_or_else(|| error("a number above 0"))?);
        }
        match values.iter().position(Option::is_none) {
            Some(missing) => Err(CostModelError::Missing(known[missing].0.clone())),
            None => Ok(Self::from_values(
                &values.into_iter().flatten().collect::<Vec<_>>(),
            )),
        }
    }
}

/// The group of a constant named `group.name`.
fn group_of(constant: &str) -> &str {
    constant.split('.').next().unwrap_or_default()
}

impl fmt::Display for CostModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.named_values() {
            // Fitted values need no more digits.
            let value = (value * 1e5).round() / 1e5;
            writeln!(f, "{name} {value}")?;
        }
        Ok(())
    }
}

/// Error of [`CostModel::parse`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CostModelError {
    /// An invalid line.
    #[error("line {line}: `{text}`: expected {expected}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Text of the line.
        text: String,
        /// The text that was expected.
        expected: &'static str,
    },
    /// No line has this constant.
    #[error("`{0}` is missing")]
    Missing(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;

    #[test]
    fn constants_are_read_back() {
        let mut model = CostModel::INITIAL;
        model.tiled.cache_line = 123.4567;
        let text = format!("# a comment\n\n{model}");
        assert_eq!(CostModel::parse(&text), Ok(model));
        let values: Vec<_> = model.named_values().into_iter().map(|(_, v)| v).collect();
        assert_eq!(CostModel::from_values(&values), model);
        assert_eq!(
            TiledConstants::from_values(&model.tiled.values()),
            model.tiled
        );
        assert!(TiledConstants::NAMES.len() <= 30);
    }

    #[test]
    fn what_is_no_constant_is_told() {
        let text = CostModel::INITIAL.to_string();
        let cases = [
            (
                text.replace("tiled.cache_line 1.2", "tiled.cache_line -1.2"),
                "a number above 0",
            ),
            (
                text.replace("tiled.cache_line 1.2", "tiled.cache_line x"),
                "a number above 0",
            ),
            (
                text.replace("\ntiled.cache_line ", "\ntiled.cache_lines "),
                "the name of a constant",
            ),
            (
                text.replace("tiled.cache_line 1.2", "tiled.cache_line"),
                "a name and a number",
            ),
            (
                text.replace("tiled.cache_line 1.2\n", ""),
                "`tiled.cache_line` is missing",
            ),
        ];
        for (text, expected) in cases {
            let error = CostModel::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn gpus_that_nobody_measured_have_the_constants_of_the_h200() {
        let of = |name| gpu(name).unwrap().cost_model();
        assert_eq!(of("a100"), of("h200"));
    }
}
