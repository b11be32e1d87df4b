//! The cost model: occupancy, the physical limit of a launch, and the predicted time of a kernel.
//!
//! A scheme describes what a launch does ([`KernelWork`]). [`kernel_us`] predicts its time on a GPU with the constants of the
//! GPU's [cost model](crate::gpu::CostModel): [tiled](tiled_terms) kernels by a detailed model, all others by a simpler one.

mod bound;
mod floor;
mod kernel;
mod occupancy;
mod overlap;
mod terms;
mod tiled;
mod untiled;
mod work;

pub(crate) use bound::{TiledTotals, fp32_issue_us};
pub use floor::{floor_us, fp32_lanes_floor_us};
pub use kernel::{copy_us, kernel_terms, kernel_us, memset_us};
pub(crate) use occupancy::resident_blocks;
pub use occupancy::{Occupancy, occupancy};
pub(crate) use overlap::overlapped;
pub use terms::CostTerms;
pub use tiled::tiled_terms;
pub use work::{KernelWork, TiledWork};
