//! The terms of a predicted time.

use serde::Serialize;

/// The terms of a launch's predicted time, microseconds, on the SM with the most blocks. Costs that overlap in time are in the term of
/// the longer one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct CostTerms {
    /// The launch, less the time that programmatic dependent launch saves.
    pub launch: f64,
    /// Tiled kernels: until the first chunk has arrived, and delays by a predecessor kernel that still occupies the SM. Other kernels:
    /// dependent L2 round trips, and L2 traffic that arithmetic does not hide.
    pub load: f64,
    /// Dependent instructions and barriers, for kernels that are not tiled and whose scheme estimates them.
    pub latency: f64,
    /// Staging: rounding, writes to shared memory, barriers.
    pub stage: f64,
    /// K steps of tiled kernels; all arithmetic of others.
    pub compute: f64,
    /// Waiting for later chunks.
    pub wait: f64,
    /// Adding the partial sums of a block.
    pub reduce: f64,
    /// Exchanging and adding the partial sums of a cluster.
    pub exchange: f64,
    /// Storing.
    pub store: f64,
    /// Tiled kernels: all terms again for each block after the first on an SM. Other kernels: the time to start many small blocks that no
    /// other term hides.
    pub waves: f64,
    /// Device memory, or L2 for all SMs together, beyond the other terms.
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
