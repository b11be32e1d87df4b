//! The cost model of kernels that are not tiled.

use super::{CostTerms, KernelWork, Occupancy, resident_blocks};
use crate::gpu::Gpu;

/// How arithmetic and loads overlap.
enum Overlap {
    /// The longer one hides the other.
    Full,
    /// They alternate. Both take longer by this factor.
    Alternating(f64),
    /// Nothing overlaps: blocks stage, compute and store in sequence.
    None,
}

/// The costs of a launch, microseconds.
pub(super) struct UntiledCosts {
    launch: f64,
    /// Saved by programmatic dependent launch.
    saved: f64,
    l2_round_trips: f64,
    exchange: f64,
    latency: f64,
    compute: f64,
    mma: f64,
    /// L2 traffic.
    l2: f64,
    dram: f64,
    /// Until the last block has started.
    block_starts: f64,
    /// From then to the end, beyond what the other terms hide.
    last: f64,
    overlap: Overlap,
}

impl UntiledCosts {
    pub(super) fn new(work: &KernelWork, occupancy: &Occupancy, gpu: &Gpu) -> Self {
        let model = &gpu.cost_model().untiled;
        let clock = f64::from(gpu.clock_mhz);
        let busiest_blocks = (work.blocks as f64 / resident_blocks(work.cluster, 1.0, gpu)).ceil();
        let resident = busiest_blocks.min(f64::from(occupancy.blocks_per_sm));
        let warps = resident * f64::from(work.threads.div_ceil(32));
        // With few warps the lanes are partly idle. Schemes that estimate their latencies have that in `latency_clocks`.
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
        let last = work.last_round_trips * model.l2_round_trip / clock;
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
            block_starts: work.blocks as f64 * model.block_start_us,
            last,
            overlap: if work.latency_clocks > 0.0 {
                Overlap::None
            } else if work.unpipelined {
                Overlap::Alternating(model.unpipelined)
            } else {
                Overlap::Full
            },
        }
    }

    /// Time in which the SMs are busy.
    fn busy(&self) -> f64 {
        match self.overlap {
            Overlap::None => self.latency + self.compute + self.mma + self.l2,
            Overlap::Alternating(times) => times * (self.compute + self.l2),
            Overlap::Full => self.compute.max(self.l2),
        }
    }

    /// Their sum, as they overlap.
    pub(super) fn us(&self) -> f64 {
        let busy = self.busy().max(self.dram);
        let us = self.launch - self.saved + self.l2_round_trips + self.exchange + busy;
        us.max(self.block_starts) + self.last
    }

    /// [`us`](Self::us) as terms.
    pub(super) fn terms(&self) -> CostTerms {
        let (latency, compute, l2) = match self.overlap {
            Overlap::None => (self.latency, self.compute + self.mma, self.l2),
            Overlap::Alternating(times) => (0.0, times * self.compute, times * self.l2),
            Overlap::Full => (0.0, self.compute, (self.l2 - self.compute).max(0.0)),
        };
        let terms = CostTerms {
            launch: self.launch - self.saved,
            load: self.l2_round_trips + l2 + self.last,
            latency,
            compute,
            exchange: self.exchange,
            memory: (self.dram - self.busy()).max(0.0),
            ..CostTerms::default()
        };
        CostTerms {
            waves: (self.block_starts + self.last - terms.us()).max(0.0),
            ..terms
        }
    }
}
