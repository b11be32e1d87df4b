//! Finds the cheapest order in which to contract a tensor network pairwise.
//!
//! A tensor network multiplies several tensors into one. The order of the pairwise operations determines the
//! number of multiplications and the sizes of intermediates, but not the result. Two tensors are combined by
//! *generalised tensor operations* (Reustle, Rabbani and Huang, "Fast GPU Convolution for CP-decomposed
//! Tensorial Neural Networks", section 1.1), along all modes that both have: contraction, convolution or
//! partial outer product.
//!
//! [`TensorNetwork`] is a network whose labels were checked, [`parse_network`] reads one from its notation, [`cheapest_order`] searches.

mod network;
mod notation;
mod search;

pub use network::{
    Convolution, MAX_MODES, MAX_TENSORS, Mode, ModeKind, Padding, Tensor, TensorNetwork,
    TensorNetworkError, TensorNetworkLocation, TensorSpec,
};
pub use notation::parse_network;
pub use search::{Cost, Order, OrderError, Step, StepInput, cheapest_order};
