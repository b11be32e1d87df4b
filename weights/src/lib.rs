//! From a checkpoint to a packed weight file.
//!
//! ```text
//! recipes (what each slot is made from) + Checkpoint --resolve--> SlotValues (fp32, OIHW) --pack--> bytes of the weight file
//! ```
//!
//! [`resolve`] reads each tensor when a recipe needs it, folds batch normalisation into weights and biases and factorises
//! layers into Tucker form. It works in f64 and rounds to fp32 once, at the end. [`pack`] brings the values into the order in
//! which the kernels read them.

mod checkpoint;
mod error;
mod file;
mod random;
mod recipe;
mod resolve;
mod tucker;

pub use checkpoint::Checkpoint;
pub use error::{CheckpointError, FileError, WeightError, WeightErrors};
pub use file::{PackedFile, pack};
pub use recipe::{Affine, FactorPart, SlotRecipe, TuckerLayer, WeightSource};
pub use resolve::{Factorisation, Resolved, SlotValues, resolve};
pub use tucker::{Factors, NoConvergence};
