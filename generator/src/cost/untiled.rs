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
    /// The first round trip to L2.
    first_round_trip: f64,
    /// All dependent round trips.
    l2_round_trips: f64,
    exchange: f64,
    latency: f64,
    compute: f64,
    mma: f64,
    /// L2 traffic.
    l2: f64,
    dram: f64,
    /// Whether every run reads from DRAM, because the launch's data do not fit in L2.
    is_streamed: bool,
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
        let is_streamed = work.dram_bytes > gpu.l2_bytes as f64;
        let dram = match is_streamed {
            true => work.dram_bytes / gpu.sustained_bytes_per_us(),
            false => work.dram_bytes / (f64::from(gpu.dram_gbs) * 1e3),
        };
        let mma = work.mma / work.blocks as f64 * busiest_blocks * model.mma / clock;
        let round_trip = model.l2_round_trip / clock;
        let l2_round_trips = work.l2_round_trips * round_trip * occupancy.waves as f64;
        let last = work.last_round_trips * round_trip;
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
            first_round_trip: work.l2_round_trips.min(1.0) * round_trip,
            l2_round_trips,
            exchange,
            latency,
            compute,
            mma,
            l2,
            dram,
            is_streamed,
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

    /// The dependent round trips and what the SMs do, or the traffic with DRAM if that takes longer. It hides all round trips of a launch that
    /// is [streamed](Self::is_streamed) but the first.
    fn loads_and_work(&self) -> f64 {
        match self.is_streamed {
            true => (self.l2_round_trips + self.busy()).max(self.first_round_trip + self.dram),
            false => self.l2_round_trips + self.busy().max(self.dram),
        }
    }

    /// Their sum, as they overlap.
    pub(super) fn us(&self) -> f64 {
        let us = self.launch - self.saved + self.exchange + self.loads_and_work();
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
            memory: (self.loads_and_work() - self.l2_round_trips - self.busy()).max(0.0),
            ..CostTerms::default()
        };
        CostTerms {
            waves: (self.block_starts + self.last - terms.us()).max(0.0),
            ..terms
        }
    }
}
