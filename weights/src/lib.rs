//! Packs a checkpoint into a weight file.
//!
//! ```text
//! recipes (source of each slot) + Checkpoint --resolve--> SlotValues (fp32, OIHW) --pack--> bytes of the weight file
//! ```
//!
//! [`resolve()`] reads each tensor when a recipe needs it, folds BatchNorm into weights and biases, and
//! factorises layers into Tucker, CP or low-rank form. It computes in f64 and rounds to fp32 once, at the end.
//! [`pack`] reorders the values into the layouts that the kernels read.
//!
//! ```
//! use tdc_runtime::{WeightFile, WeightLayout, WeightSlot};
//! use tdc_weights::{Checkpoint, ScaleShiftSource, SlotRecipe, WeightSource, pack, resolve};
//!
//! let recipes = [SlotRecipe {
//!     slot: WeightSlot {
//!         name: "conv1".to_owned(),
//!         layout: WeightLayout::oihw([64, 3, 7, 7]),
//!         bias_len: 64,
//!     },
//!     weight: Some(WeightSource::Tensor("conv1.weight".to_owned())),
//!     bias: None,
//!     fold: vec![ScaleShiftSource::BatchNorm {
//!         name: "bn1".to_owned(),
//!         eps: 1e-5,
//!         channels: 64,
//!     }],
//!     prologue: None,
//! }];
//! // Or Checkpoint::open("resnet50.safetensors").
//! let checkpoint = Checkpoint::random(&recipes, 0);
//! let resolved = resolve(&recipes, &checkpoint)?;
//! let file = WeightFile::new(recipes.map(|recipe| recipe.slot).to_vec());
//! let packed = pack(&file, &resolved.values)?;
//! assert_eq!(packed.bytes.len() as u64, WeightFile::HEADER_BYTES + file.payload_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod checkpoint;
mod cp;
mod error;
mod file;
mod low_rank;
mod matrix;
mod random;
mod recipe;
mod resolve;
mod tucker;

pub use checkpoint::Checkpoint;
pub use cp::CpFactors;
pub use error::{CheckpointError, FileError, WeightError, WeightErrors};
pub use file::{PackedSection, pack};
pub use low_rank::LowRankFactors;
pub use matrix::{NoConvergence, inner_products, product, transposed};
pub use recipe::{FactorizedLayer, ScaleShiftSource, SlotRecipe, WeightSource};
pub use resolve::{Factorization, Resolved, SlotValues, resolve};
pub use tucker::TuckerFactors;
