//! Schemes: algorithms with their template, tile space, estimate and weight layout.
//!
//! Adding one = a file here, a template, and a line in [`SCHEMES`].

mod convert;
mod convolution;
mod cp;
mod cp_chain;
mod cp_fused;
mod depthwise;
mod device;
mod direct;
mod direct_tiled;
mod elementwise;
mod global_pool;
mod implicit_gemm;
mod info;
mod input_stationary;
mod linear;
mod pointwise;
mod pool;
mod reduction;
mod reference;
mod single_channel;
mod step_order;
mod stride_fixed;
mod tdc;
mod tensor_core;
mod tile;
mod tiling;
mod tucker_fused;
mod tvm;
mod winograd;

pub use device::DevicePart;
pub use info::{PublishedTiles, SchemeInfo, Source};
pub use reference::scheme_reference;
use tile::tile_numbers;
pub use tile::{Tile, TileField, TileNameError, names as tile_names};

use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{Activation, Problem, number_label};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// Blocks of a grid in its second and in its third dimension at most.
const MAX_GRID: u32 = 65535;

/// Every scheme, in the order in which ties are broken.
pub const SCHEMES: &[&dyn Scheme] = &[
    &implicit_gemm::ImplicitGemm,
    &winograd::WinogradScheme,
    &direct_tiled::DirectTiled,
    &pointwise::Pointwise,
    &input_stationary::InputStationary,
    &depthwise::Depthwise,
    &direct::Direct,
    &tucker_fused::TuckerFused,
    &cp_chain::CpChain,
    &cp_fused::CpFused,
    &tdc::Tdc,
    &tdc::TdcRows,
    &tvm::Tvm,
    &single_channel::SingleChannel,
    &stride_fixed::StrideFixed,
    &linear::Linear,
    &pool::Pool,
    &global_pool::GlobalPool,
    &elementwise::ElementwiseScheme,
    &convert::Convert,
];

/// An algorithm for some kinds of problems.
pub trait Scheme: Sync {
    /// Its name in configs and file names.
    fn name(&self) -> &'static str;

    /// The numbers of its tile, in order.
    fn tile_fields(&self) -> &'static [TileField];

    /// Facts about it.
    fn info(&self) -> SchemeInfo;

    /// See [`SchemeInfo::is_default`].
    fn is_default(&self) -> bool {
        self.info().is_default
    }

    /// See [`SchemeInfo::fuses_factors`].
    fn fuses_factors(&self) -> bool {
        self.info().fuses_factors
    }

    /// The tiles to choose from on a GPU: those that fit it, pruned to the most promising. Empty if the scheme does not support the
    /// problem, or has only a fallback on the GPU.
    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile>;

    /// [`tiles`](Self::tiles) before pruning.
    fn unpruned_tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        self.tiles(problem, gpu)
    }

    /// Whether a tile is valid for the problem and fits the GPU: one of [`tiles`](Self::tiles), or one that was pruned there, or one that
    /// the GPU runs by the kernel's fallback.
    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        self.tiles(problem, gpu).contains(tile)
    }

    /// The work of a supported tile, for the cost model: that of its [`blueprint`](Self::blueprint), which a scheme with many
    /// tiles computes without making one.
    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let blueprint = self.blueprint(problem, tile, gpu);
        let launch = |kernel: KernelBlueprint| LaunchWork {
            role: kernel.role,
            work: kernel.work,
        };
        UnitWork {
            launches: blueprint.kernels.into_iter().map(launch).collect(),
            zeroed_bytes: blueprint.zeroed.map(|zeroed| zeroed.bytes),
        }
    }

    /// How a problem is computed with a supported tile. Only the work in it depends on the GPU: kernels of the same problem, scheme and
    /// tile have the same source on every GPU.
    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint;
}

/// The scheme of a name.
pub fn scheme(name: &str) -> Option<&'static dyn Scheme> {
    SCHEMES.iter().copied().find(|scheme| scheme.name() == name)
}

/// What a unit does, for the estimate.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitWork {
    /// Launches in order.
    pub launches: Vec<LaunchWork>,
    /// Bytes zeroed before them.
    pub zeroed_bytes: Option<u64>,
}

/// What one launch does, for the estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaunchWork {
    /// As [`KernelBlueprint::role`].
    pub role: &'static str,
    /// What it does.
    pub work: KernelWork,
}

/// One launch before it has a symbol: a template with its context.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelBlueprint {
    /// What the step does, one word: the end of the kernel's symbol.
    pub role: &'static str,
    /// Name of the template.
    pub template: &'static str,
    /// Finished numbers and choices for the template.
    pub context: serde_json::Value,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads.
    pub block: [u32; 3],
    /// As [`Launch::cluster`](tdc_runtime::Launch::cluster). A kernel with clusters keeps all its shared memory in the dynamic one,
    /// and without them (`tdc_has_clusters()`) the first block of what would be one does all the work.
    pub cluster: [u32; 3],
    /// Dynamic shared memory, bytes.
    pub shared_bytes: u32,
    /// As [`Launch::pdl`](tdc_runtime::Launch::pdl); the text then has `tdc_pdl_wait_and_trigger()` or its two halves.
    pub pdl: bool,
    /// Parts of the device prelude that the text uses, in any order.
    pub device: &'static [DevicePart],
    /// Parameters in order.
    pub args: Vec<Arg>,
    /// For the estimate.
    pub work: KernelWork,
}

/// Memory that a unit's first launch must find zeroed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zeroed {
    /// Where it begins: the output or a place in the workspace.
    pub target: Arg,
    /// Its bytes.
    pub bytes: u64,
}

/// How a problem is carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Blueprint {
    /// Launches in order.
    pub kernels: Vec<KernelBlueprint>,
    /// What is set to zero before the first launch.
    pub zeroed: Option<Zeroed>,
    /// Bytes of workspace.
    pub workspace_bytes: u64,
    /// How the parameters are packed.
    pub weights: WeightLayout,
    /// As [`Variant::extra_weight_layouts`](tdc_runtime::Variant::extra_weight_layouts).
    pub extra_weight_layouts: Vec<WeightLayout>,
}

/// The name of an activation's device function, which the text of a unit declares before its kernels.
pub(crate) fn activation_function(activation: Activation) -> Option<String> {
    let parameters = activation.parameters().into_iter();
    let parameters: String = parameters
        .map(|number| format!("_{}", number_label(number)))
        .collect();
    let name = activation.as_str();
    (activation != Activation::None).then(|| format!("tdc_{name}{parameters}"))
}

/// The context of a template as JSON.
fn context(value: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(value)
        .expect("contexts are plain structs of numbers, strings and booleans")
}

/// The strides that kernels take for batches of more than one image: of the input, the residual if there is one, the output.
fn batch_stride_args(batch: u32, residual: bool) -> Vec<Arg> {
    if batch == 1 {
        return Vec::new();
    }
    let mut args = vec![Arg::XBatchStride];
    if residual {
        args.push(Arg::ResidualBatchStride);
    }
    args.push(Arg::YBatchStride);
    args
}

/// Blocks that a multiprocessor can hold at once, eight at most, by the registers of their threads: each quarter of it has 16384
/// for a quarter of the warps.
fn blocks_per_sm_by_registers(threads: u32, registers: u32) -> u32 {
    let warps = 4 * (16384 / (32 * registers.next_multiple_of(8)));
    (warps / threads.div_ceil(32)).clamp(1, 8)
}

/// The ascending `candidates` up to the first that is at least `size`: a larger one would only idle.
fn candidates_up_to(size: u32, candidates: &[u32]) -> Vec<u32> {
    let end = candidates
        .iter()
        .position(|&candidate| candidate >= size)
        .map_or(candidates.len(), |last| last + 1);
    candidates[..end].to_vec()
}
