//! `tdc` generates specialised CUDA kernels and whole networks offline.
//!
//! This crate is the facade: it re-exports the types of `tdc-runtime` and has [`kernel!`] and [`kernels!`], which plan and compile layers
//! while a program is compiled. Networks and layer sets are the work of the `tdc-gen` command line, built from `tdc-generator`.

pub use tdc_runtime::*;

#[doc(hidden)]
pub use tdc_macros::{kernel_impl, kernels_impl};

/// What the files of kernels refer to.
#[doc(hidden)]
pub mod __embedded {
    pub use std::borrow::Cow;
    pub use tdc_runtime::*;
}

/// Plans and compiles a layer while the program is compiled and embeds what comes out: a constant expression of type [`Kernel`].
///
/// The op and its sizes come first, then keys in any order, each once. The keys are the words of the layers in a config, with the same
/// meaning, defaults and checks.
///
/// | call | what it computes | type |
/// |---|---|---|
/// | `conv C,N,H,W` | a convolution of C x H x W to N channels | [`Kernel<Conv>`](Conv) |
/// | `pointwise C,N,H,W` | the same with a 1x1 filter | [`Kernel<Conv>`](Conv) |
/// | `depthwise C,H,W` | one filter for each channel | [`Kernel<Conv>`](Conv) |
/// | `tucker C,N,H,W, ranks = [D1, D2]` | 1x1 to D1 channels, the filter to D2, 1x1 to N, in as few launches as is fastest | [`Kernel<Tucker>`](Tucker) |
/// | `"net.yaml", layer = "name"` | a convolution of a config with all that is fused to it | either |
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
/// | `arch` | `sm_90`, or a list: what machine code is compiled for | that of `gpu`, else `TDC_ARCH`, else `[sm_80, sm_90]` |
/// | `gpu` | name of the GPU to plan for, or a list | one for each architecture |
/// | `tiles` | `tuned`: as measured where the table of the GPU has the problem; `model`: by our estimate of time; `paper`: by the TDC paper's equations | `tuned` |
/// | `table` | path of a table of measured times that `tdc-gen tune` wrote | the built-in ones |
///
/// Paths are relative to the crate's folder. A kernel holds machine code for each architecture and PTX of the newest one, the CUDA
/// text, the launches and the layout of the packed weights. With a feature such as `cuda-13000` it is loaded into a `cudarc` context and
/// launched: see the module `cuda`. NVRTC compiles when the crate is built, once for each kernel; `tdc-gen prepare` does that ahead of
/// time and away from where the crate is built. `docs/reference/kernel-macro.md` in the repository has the rest: caches, offline builds, costs.
///
/// ```
/// use tdc::{Arch, Kernel};
///
/// static CONV: Kernel = tdc::kernel!(conv 16,8,7,7, relu = true, gpu = h200);
///
/// assert_eq!(CONV.flops(), 2 * 16 * 8 * 3 * 3 * 7 * 7);
/// let image = CONV.image_for("NVIDIA H200", Arch::new(90)).unwrap();
/// println!("{image}: {} bytes", image.bytes.len());
/// let variant = CONV.variant_of(image).unwrap();
/// for launch in variant.launches() {
///     println!("{} on {:?} blocks of {:?}", launch.kernel, launch.grid, launch.block);
///     assert!(variant.source.contains(&*launch.kernel));
/// }
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

/// Modules with a constant for each convolution of a config, named as its layer in capitals: `layer1.0.conv1` is
/// `LAYER1_0_CONV1`.
///
/// Behind the path the keys `gpu`, `arch`, `tiles` and `table` of [`kernel!`] may stand.
///
/// ```
/// tdc::kernels! {
///     pub mod layers = "tests/embedded/layers.yaml", arch = sm_80;
/// }
///
/// assert_eq!(layers::_1X1.op.shape.r, 1);
/// ```
#[macro_export]
macro_rules! kernels {
    ($($call:tt)*) => {
        $crate::kernels_impl!($crate $($call)*);
    };
}
