//! Checkpoint to weight file, seen from outside.

mod checkpoint;
mod cp;
mod errors;
mod fixtures;
mod folding;
mod packing;
mod reference;
mod tucker;
