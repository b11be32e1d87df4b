//! Finds the cheapest order in which to contract a tensor network pairwise.
//!
//! A tensor network multiplies several tensors into one. The order of the pairwise operations determines the
//! number of multiplications and the sizes of intermediates, but not the result. Two tensors are combined by
//! *generalised tensor operations* (Reustle, Rabbani and Huang, "Fast GPU Convolution for CP-decomposed
//! Tensorial Neural Networks", section 1.1), along all modes that both have: contraction, convolution or
//! partial outer product.
//!
//! [`TensorNetwork`] is a network whose labels were checked, [`parse_network`] reads one from its notation, [`cheapest_order`] searches.
//!
//! ```
//! use tdc_generator::sequence::{Cost, cheapest_order, parse_network};
//!
//! let network = parse_network("chain", "A[i:9, j:2] B[j, k:9] C[k, l:2] -> D[i, l]").unwrap();
//! let order = cheapest_order(&network, Cost::Multiplications, None).unwrap();
//! // B C first: 2 * 9 * 2, then A with the product: 9 * 2 * 2.
//! assert_eq!(order.cost, 72);
//! ```

mod network;
mod notation;
mod search;

pub use network::{
    Convolution, MAX_MODES, MAX_TENSORS, Mode, ModeKind, Padding, Tensor, TensorNetwork,
    TensorNetworkError, TensorNetworkLocation, TensorSpec,
};
pub use notation::parse_network;
pub use search::{Cost, Order, OrderError, Step, StepInput, cheapest_order};
