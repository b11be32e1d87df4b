//! The Rust expression of a kernel with its code.
//!
//! A slice of anything but plain numbers is put into a constant, so that it has a static lifetime in any
//! context.

use super::expression::{kernel_type, op};
use crate::plan::KernelOp;
use tdc_runtime::{Arch, Arg, Filter, Launch, LayoutDim, Step, Transform, Variant, WeightLayout};

/// An image that the expression's file includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFile {
    /// The architecture that it was compiled for.
    pub arch: Arch,
    /// PTX instead of machine code.
    pub ptx: bool,
    /// Index of the variant.
    pub variant: usize,
    /// Name of the file, in the folder of the expression's file.
    pub file: String,
    /// Symbol, registers, static shared bytes and spilled bytes of each kernel.
    pub kernels: Vec<(String, [u32; 3])>,
}

/// A variant in the expression's file.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantFile<'a> {
    /// As [`KernelVariant::device_name`](tdc_runtime::KernelVariant::device_name).
    pub device_name: &'a str,
    /// Launches and layouts.
    pub variant: &'a Variant,
    /// Scheme and tile of each unit.
    pub choices: Vec<(&'a str, String)>,
    /// Predicted time in microseconds.
    pub predicted_us: f64,
    /// Name of the file with the CUDA source, in the folder of the expression's file.
    pub source: String,
}

/// A kernel with its variants and images.
pub fn kernel(name: &str, op: &KernelOp, variants: &[VariantFile], images: &[ImageFile]) -> String {
    let body = lines([
        format!("name: {name:?},"),
        format!("op: {},", self::op(op)),
        format!("variants: {},", slice("KernelVariant", variants, variant)),
        format!("images: {},", plain(images, image)),
    ]);
    let kind = kernel_type(op);
    format!("{{\n    const KERNEL: {kind} = __tdc::Kernel {{{body}    }};\n    KERNEL\n}}\n")
}

/// Lines inside braces.
fn lines(lines: impl IntoIterator<Item = String>) -> String {
    let lines = lines.into_iter();
    let lines = lines.map(|line| format!("\n        {}", line.replace('\n', "\n    ")));
    lines.collect::<String>() + "\n"
}

/// A slice with elements of any type.
fn slice<T>(element: &str, items: &[T], text: impl Fn(&T) -> String) -> String {
    let items: String = items
        .iter()
        .map(|item| format!("        {},\n", text(item).replace('\n', "\n        ")))
        .collect();
    format!("{{\n    const ITEMS: &[__tdc::{element}] = &[\n{items}    ];\n    ITEMS\n}}")
}

/// As [`slice()`], as a `Cow`.
fn cow<T>(element: &str, items: &[T], text: impl Fn(&T) -> String) -> String {
    format!("__tdc::Cow::Borrowed({})", slice(element, items, text))
}

/// A slice of plain numbers, which needs no constant.
fn plain<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    let items: Vec<_> = items.iter().map(text).collect();
    format!("&[{}]", items.join(", "))
}

fn variant(file: &VariantFile) -> String {
    let VariantFile {
        device_name,
        variant,
        choices,
        predicted_us,
        source,
    } = file;
    let Variant {
        gpu,
        min_arch,
        steps,
        workspace_bytes,
        weights,
        extra_weight_layouts,
        bias_len,
    } = variant;
    let choices = plain(choices, |(scheme, tile)| {
        format!("__tdc::UnitChoice {{ scheme: {scheme:?}, tile: {tile:?} }}")
    });
    let variant = [
        format!("gpu: __tdc::Cow::Borrowed({gpu:?}),"),
        format!("min_arch: {},", arch(*min_arch)),
        format!("steps: {},", cow("Step", steps, step)),
        format!("workspace_bytes: {workspace_bytes},"),
        format!("weights: {},", layout(weights)),
        format!(
            "extra_weight_layouts: {},",
            cow("WeightLayout", extra_weight_layouts, layout)
        ),
        format!("bias_len: {bias_len},"),
    ];
    let variant: String = variant
        .map(|line| format!("    {}\n", line.replace('\n', "\n    ")))
        .concat();
    let parts = [
        format!("device_name: {device_name:?},"),
        format!("variant: __tdc::Variant {{\n{variant}}},"),
        format!("choices: {choices},"),
        // `{:?}` of a float reads back as the same float.
        format!("predicted_us: {predicted_us:?},"),
        format!("source: include_str!({source:?}),"),
    ];
    let parts: String = parts
        .map(|line| format!("    {}\n", line.replace('\n', "\n    ")))
        .concat();
    format!("__tdc::KernelVariant {{\n{parts}}}")
}

fn arch(arch: Arch) -> String {
    format!("__tdc::Arch::new({})", arch.sm)
}

fn image(image: &ImageFile) -> String {
    let ImageFile {
        arch,
        ptx,
        variant,
        file,
        kernels,
    } = image;
    let format = if *ptx { "Ptx" } else { "Cubin" };
    let kernels = plain(kernels, |(kernel, [registers, shared, spilled])| {
        format!(
            "__tdc::KernelUsage {{ kernel: {kernel:?}, registers: {registers}, shared_bytes: {shared}, spilled_bytes: {spilled} }}"
        )
    });
    format!(
        "__tdc::Image {{ arch: {}, format: __tdc::ImageFormat::{format}, variant: {variant}, bytes: include_bytes!({file:?}), \
         kernels: {kernels} }}",
        self::arch(*arch)
    )
}

fn step(step: &Step) -> String {
    match step {
        Step::Launch(Launch {
            kernel,
            grid,
            block,
            cluster,
            shared_bytes,
            pdl,
            args,
        }) => format!(
            "__tdc::Step::Launch(__tdc::Launch {{\n    kernel: __tdc::Cow::Borrowed({kernel:?}),\n    grid: {grid:?},\n    \
             block: {block:?},\n    cluster: {cluster:?},\n    shared_bytes: {shared_bytes},\n    pdl: {pdl},\n    \
             args: __tdc::Cow::Borrowed({}),\n}})",
            plain(args, |&value| arg(value))
        ),
        Step::Memset { target, bytes } => format!(
            "__tdc::Step::Memset {{ target: {}, bytes: {bytes} }}",
            arg(*target)
        ),
    }
}

fn arg(arg: Arg) -> String {
    // The names that `Debug` prints are those of the source.
    format!("__tdc::Arg::{arg:?}")
}

fn layout(layout: &WeightLayout) -> String {
    let WeightLayout {
        source,
        dims,
        filter,
        transform,
        prologue_channels,
    } = layout;
    let filter = match filter {
        Filter::Taps => "Taps".to_owned(),
        Filter::MergedGroups { merged, n } => {
            format!("MergedGroups {{ merged: {merged}, n: {n} }}")
        }
        Filter::Winograd(winograd) => format!("Winograd(__tdc::Winograd::{winograd:?})"),
    };
    let transform = match transform {
        Transform::None => "None".to_owned(),
        Transform::Fp16 { run, terms } => format!("Fp16 {{ run: {run}, terms: {terms} }}"),
        Transform::Bf16 => "Bf16".to_owned(),
    };
    let dims = plain(dims, |LayoutDim { axis, count, step }| {
        format!("__tdc::LayoutDim {{ axis: __tdc::Axis::{axis:?}, count: {count}, step: {step} }}")
    });
    format!(
        "__tdc::WeightLayout {{\n    source: {source:?},\n    dims: __tdc::Cow::Borrowed({dims}),\n    \
         filter: __tdc::Filter::{filter},\n    transform: __tdc::Transform::{transform},\n    \
         prologue_channels: {prologue_channels},\n}}"
    )
}
