//! Tests of the path from a checkpoint to a weight file, through the public interface.

mod checkpoint;
mod cp;
mod errors;
mod fixtures;
mod folding;
mod low_rank;
mod packing;
mod reference;
mod tucker;
