//! `tdc` generates specialised CUDA kernels and whole networks offline.
//!
//! This crate is the facade: it re-exports the types of `tdc-runtime` and has [`kernel!`], which plans one convolution while
//! a program is compiled. Networks and layer sets are the work of the `tdc-gen` command line, built from `tdc-generator`.

pub use tdc_runtime::*;

#[doc(hidden)]
pub use tdc_macros::kernel_impl;

/// Plans a convolution while the program is compiled and embeds what comes out: a constant expression of type [`Kernel`].
///
/// The sizes come first, C, N, H, W: input channels, output channels, input height and width. Then keys in any order, each
/// once. They are the words of the layers in a config, with the same meaning, defaults and checks:
///
/// | key | value | default |
/// |---|---|---|
/// | `kernel` | number or `[R, S]` | 3 |
/// | `stride`, `dilation` | number or `[vertical, horizontal]` | 1 |
/// | `pad` | `same`, number, `[vertical, horizontal]`, `[top, left, bottom, right]`, `{top: 1}` | `same` |
/// | `groups`, `batch` | number | 1 |
/// | `bias`, `relu`, `residual` | `true` or `false` | `false` |
/// | `prologue` | `true` (scale and shift of the input), `{relu: true}` (ReLU behind them) | none |
/// | `scheme` | name of an algorithm | the planner's choice |
/// | `tile` | list of the scheme's numbers; needs `scheme` | the planner's choice |
/// | `reduce` | `ordered`, or `atomic`: float atomics as TDC publishes them, for schemes `tdc` and `tdc_rows` | `ordered` |
/// | `precision` | how products may be rounded: `fp32`, `tf32`, `fp16` or `bf16` | `fp32` |
/// | `tolerance` | relative error that is allowed where `precision` allows less, such as `5e-6` | none |
/// | `tiles` | `tuned`: as measured where the table of the GPU has the problem; `model`: by our estimate of time; `paper`: by the TDC paper's equations | `tuned` |
/// | `gpu` | name of the GPU to plan for | `h200` |
///
/// The [`Kernel`] has the CUDA C++ text, the launches with their parameters and the layout of the packed weights. The text
/// is not compiled to machine code here: give it to NVRTC. Neither planning nor building needs a GPU or a CUDA toolkit.
///
/// ```
/// use tdc::{Arch, Kernel, Step};
///
/// static CONV: Kernel = tdc::kernel!(conv 64,32,56,56, relu = true, gpu = h100);
///
/// assert_eq!(CONV.flops(), 2 * 64 * 32 * 3 * 3 * 56 * 56);
/// let variant = CONV.unit().variant_for("h100", Arch::new(90)).unwrap();
/// for step in variant.steps.iter() {
///     if let Step::Launch(launch) = step {
///         println!("{} on {:?} blocks of {:?}", launch.kernel, launch.grid, launch.block);
///         assert!(CONV.source().contains(&*launch.kernel));
///     }
/// }
/// let weights = vec![0.5; CONV.shape.weight_len() as usize];
/// let mut packed = vec![0.0; variant.weights.len()];
/// variant.weights.pack(&weights, &[], &[], &mut packed).unwrap();
/// ```
///
/// A mistake is an error of the compiler at its word:
///
/// ```compile_fail
/// static CONV: tdc::Kernel = tdc::kernel!(conv 64,32,56,56, groups = 5);
/// ```
#[macro_export]
macro_rules! kernel {
    ($($call:tt)*) => {
        $crate::kernel_impl!($crate $($call)*)
    };
}
