//! The cost model: occupancy, the physical limit of a launch, and the predicted time of a kernel.

mod estimate;
mod model;

pub(crate) use estimate::slots;
pub use estimate::{
    KernelWork, Occupancy, Terms, TiledWork, floor_us, kernel_terms, kernel_us, memset_us,
    occupancy, tiled_terms,
};
pub use model::{Model, ModelError};
