//! The cost model: occupancy, the physical limit of a launch, and the predicted time of a kernel.

mod estimate;
mod model;

pub(crate) use estimate::resident_blocks;
pub use estimate::{
    CostTerms, KernelWork, Occupancy, TiledWork, floor_us, fp32_lanes_floor_us, kernel_terms,
    kernel_us, memset_us, occupancy, tiled_terms,
};
pub use model::{CostModel, CostModelError, RoughConstants, TiledConstants};
