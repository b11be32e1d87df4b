//! The files of a network in addition to its units: driver, interface, program, build file, README.

mod batches;
mod build;
mod features;
mod launch_call;
mod plan_tables;
mod slots;
mod tensors;
mod variant_tables;
mod weight_file;

use self::batches::BatchContext;
use self::build::BuildContext;
use self::features::Features;
use self::tensors::InterfaceContext;
use self::variant_tables::{VariantContext, variant_context};
use self::weight_file::WeightFileContext;
use super::banner::{CommentStyle, banner};
use super::device_header::device_header_name;
use super::engine::{RenderError, render};
use crate::gpu::Gpu;
use crate::plan::{NetworkPlan, distinct_units, plans_by_gpu};
use serde::Serialize;

/// The context of the templates of a network.
#[derive(Serialize)]
struct NetworkContext {
    banner: String,
    name: String,
    /// The include guard and the prefix of macros.
    guard: String,
    #[serde(rename = "macro")]
    macro_prefix: String,
    device_header: String,
    #[serde(flatten)]
    build: BuildContext,
    #[serde(flatten)]
    interface: InterfaceContext,
    #[serde(flatten)]
    batches: BatchContext,
    #[serde(flatten)]
    features: Features,
    /// Names of the units of all variants.
    units: Vec<String>,
    variants: Vec<VariantContext>,
    /// Whether the driver has to choose among variants.
    multi_variant: bool,
    /// The variants' names in a list.
    variant_names: String,
    file: WeightFileContext,
}

/// A file of a network that one template renders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkFile {
    /// The public header.
    Header,
    /// The driver.
    Driver,
    /// The program.
    Main,
    /// The build file.
    CMake,
    /// The README.
    Readme,
    /// The Python module that runs the network on PyTorch's tensors.
    Python,
}

impl NetworkFile {
    fn template(self) -> &'static str {
        match self {
            Self::Header => "network/network.h",
            Self::Driver => "network/network.cu",
            Self::Main => "network/main.cu",
            Self::CMake => "network/CMakeLists.txt",
            Self::Readme => "network/README.md",
            Self::Python => "network/network.py",
        }
    }

    fn comment(self) -> CommentStyle {
        match self {
            Self::Header | Self::Driver | Self::Main => CommentStyle::Cpp,
            Self::CMake => CommentStyle::CMake,
            Self::Readme | Self::Python => CommentStyle::Prose,
        }
    }
}

/// The text of one of a network's files; `plans` are those of its variants, at least one.
///
/// # Errors
/// [`RenderError`] for a template that does not fit its context, and when there is no plan.
pub fn network_text(plans: &[NetworkPlan], file: NetworkFile) -> Result<String, RenderError> {
    let by_gpu = plans_by_gpu(plans);
    let Some(largest) = by_gpu.first().and_then(|plans| plans.last()) else {
        return Err(RenderError::new(file.template(), "there is no plan"));
    };
    let context = context(plans, &by_gpu, largest, file.comment());
    render(file.template(), &context)
}

/// `by_gpu` are the plans of each variant, `largest` is one for the largest batch.
fn context(
    plans: &[NetworkPlan],
    by_gpu: &[&[NetworkPlan]],
    largest: &NetworkPlan,
    comment: CommentStyle,
) -> NetworkContext {
    let name = &largest.name;
    let title = match comment {
        CommentStyle::Prose => Vec::new(),
        _ => vec![format!(
            "Network {name}: {} -> {}, {}.",
            largest.input_shapes(),
            largest.output_shapes(),
            tensors::format_text(largest)
        )],
    };
    let upper = name.to_ascii_uppercase();
    let gpus: Vec<&Gpu> = by_gpu.iter().map(|plans| plans[0].gpu).collect();
    let gpu_names: Vec<_> = gpus.iter().map(|gpu| gpu.name).collect();
    let multi_variant = by_gpu.len() > 1;
    let features = Features::new(plans);
    let variants = by_gpu
        .iter()
        .map(|plans| variant_context(plans, &features))
        .collect();
    let units = distinct_units(plans);
    let units = units.iter().map(|unit| unit.unit.name.to_string());
    NetworkContext {
        banner: banner(comment, &title, &gpus),
        name: name.clone(),
        guard: format!("{upper}_H"),
        macro_prefix: upper,
        device_header: device_header_name(name),
        build: BuildContext::new(plans, &gpus),
        interface: InterfaceContext::new(largest),
        batches: BatchContext::new(by_gpu[0], multi_variant),
        features,
        units: units.collect(),
        variants,
        multi_variant,
        variant_names: gpu_names.join(", "),
        file: WeightFileContext::new(),
    }
}
