//! Schemes: algorithms with their template, tile space, work for the cost model, and weight layout.
//!
//! A new scheme is a file here, a template, and an entry in [`SCHEMES`].

mod channel_norm;
mod conv_transpose;
mod convert;
mod convolution;
mod cp;
mod cp_chain;
mod cp_fused;
mod dense_step;
mod depthwise;
mod depthwise_nhwc;
mod device;
mod direct;
mod direct_tiled;
mod elementwise;
mod factor;
mod global_pool;
mod implicit_gemm;
mod info;
mod input_stationary;
mod inverted_residual;
mod linear;
mod lrn;
mod merged_groups;
mod mma_nhwc;
mod normalize;
mod pad;
mod per_element;
mod pointwise;
mod pool;
mod reduction;
mod reference;
mod resize;
mod search;
mod shared_offsets;
mod single_channel;
mod split_maxima;
mod squeeze_excite;
mod step_order;
mod stored_pairs;
mod stride_fixed;
mod tdc;
mod tensor_core;
mod tile;
mod tiling;
mod tucker_fused;
mod tvm;
mod wgmma;
mod winograd;

pub use device::DevicePart;
pub use info::{PublishedTiles, SchemeInfo, Source};
pub use reference::scheme_reference;
pub use search::{KnownRegisters, TileSearch};
use tile::tile_numbers;
pub use tile::{Tile, TileField, TileNameError, names as tile_names};

use crate::cost::{KernelWork, kernel_us, memset_us};
use crate::gpu::Gpu;
use crate::ir::{Activation, Layout, Problem, number_label};
use serde::Serialize;
use tdc_runtime::{Arg, WeightFile, WeightLayout};

/// Maximum number of blocks of a grid along its second and its third dimension.
pub(crate) const MAX_GRID: u32 = 65535;

/// Every scheme. Ties of predicted time go to the scheme that is first in this order.
pub const SCHEMES: &[&dyn Scheme] = &[
    &implicit_gemm::ImplicitGemm,
    &wgmma::Wgmma,
    &wgmma::WgmmaNhwc,
    &wgmma::Projected,
    &wgmma::Prepared(wgmma::Converted),
    &wgmma::Prepared(wgmma::Stem),
    &mma_nhwc::MmaNhwc,
    &winograd::WinogradScheme,
    &direct_tiled::DirectTiled,
    &pointwise::Pointwise,
    &input_stationary::InputStationary,
    &depthwise::Depthwise,
    &depthwise_nhwc::DepthwiseNhwc,
    &direct::Direct,
    &tucker_fused::TuckerFused,
    &dense_step::DenseStep,
    &inverted_residual::InvertedResidual,
    &cp_chain::CpChain,
    &cp_fused::CpFused,
    &tdc::Tdc,
    &tdc::TdcRows,
    &tvm::Tvm,
    &single_channel::SingleChannel,
    &stride_fixed::StrideFixed,
    &linear::Linear,
    &conv_transpose::ConvTranspose,
    &pool::Pool,
    &resize::Resize,
    &channel_norm::ChannelNorm,
    &lrn::Lrn,
    &normalize::Normalize,
    &pad::Pad,
    &global_pool::GlobalPool,
    &squeeze_excite::SqueezeExcite,
    &elementwise::ElementwiseScheme,
    &convert::Convert,
];

/// An algorithm for some kinds of problems, with its template, tile space, work and weight layout.
pub trait Scheme: Sync {
    /// The scheme's name in configs and file names.
    fn name(&self) -> &'static str;

    /// The numbers of the scheme's tile, in the order of [`Tile`].
    fn tile_fields(&self) -> &'static [TileField];

    /// Source, supported problems and defaults of the scheme, for the planner, messages and the reference.
    fn info(&self) -> SchemeInfo;

    /// Whether the planner considers the scheme by default: [`SchemeInfo::is_default`].
    fn is_default(&self) -> bool {
        self.info().is_default
    }

    /// Whether the planner considers the scheme for a problem if the config requests none. Measured times of a table count in any case.
    fn is_considered(&self, _problem: &Problem, _gpu: &Gpu) -> bool {
        self.is_default()
    }

    /// Whether the scheme computes all factors of a factorised layer in one launch: [`SchemeInfo::fuses_factors`].
    fn fuses_factors(&self) -> bool {
        self.info().fuses_factors
    }

    /// The candidate tiles for a GPU: those that fit it, pruned to the ones with the least rough time. Empty if the scheme does
    /// not support the problem, or if the GPU runs only the kernel's fallback.
    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile>;

    /// The tiles of [`tiles`](Self::tiles) before pruning.
    fn unpruned_tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        self.tiles(problem, gpu)
    }

    /// Offers a search the tiles that may have the least predicted time of all.
    fn search(&self, problem: &Problem, search: &mut TileSearch<'_>) {
        for tile in self.tiles(problem, search.gpu()) {
            let work = self.work(problem, &tile, search.gpu());
            search.offer(tile, &work);
        }
    }

    /// Whether a tile is valid for the problem and fits the GPU. Includes tiles that [`tiles`](Self::tiles) has pruned, and those
    /// that the GPU runs by the kernel's fallback.
    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        self.tiles(problem, gpu).contains(tile)
    }

    /// The work of a supported tile, for the cost model: that of its [`blueprint`](Self::blueprint). Schemes with many tiles
    /// compute it without a blueprint.
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

    /// How a problem is computed with a supported tile. Only the blueprint's work depends on the GPU: kernels of the same
    /// problem, scheme and tile have the same source on every GPU.
    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint;
}

/// The scheme with the given name, if it exists.
pub fn scheme(name: &str) -> Option<&'static dyn Scheme> {
    SCHEMES.iter().copied().find(|scheme| scheme.name() == name)
}

/// Work of a unit, for the cost model.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitWork {
    /// Launches in order.
    pub launches: Vec<LaunchWork>,
    /// Bytes that are set to zero before the launches, if any.
    pub zeroed_bytes: Option<u64>,
}

impl UnitWork {
    /// The predicted time of the unit, microseconds.
    pub fn us(&self, gpu: &Gpu) -> f64 {
        self.us_with(gpu, |launch| launch.work)
    }

    /// The same if the work of each launch is changed.
    fn us_with(&self, gpu: &Gpu, work: impl Fn(&LaunchWork) -> KernelWork) -> f64 {
        let memset = self.zeroed_bytes.map_or(0.0, |bytes| memset_us(bytes, gpu));
        let launches = self
            .launches
            .iter()
            .map(|launch| kernel_us(&work(launch), gpu));
        memset + launches.sum::<f64>()
    }
}

/// Work of one launch, for the cost model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaunchWork {
    /// The role of the kernel: [`KernelBlueprint::role`].
    pub role: &'static str,
    /// Arithmetic, traffic and resources of the launch.
    pub work: KernelWork,
}

/// One launch before its kernel has a symbol: a template with its context.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelBlueprint {
    /// Role of the kernel in one word; the end of the kernel's symbol.
    pub role: &'static str,
    /// Name of the template.
    pub template: &'static str,
    /// Context that the template is rendered with: computed numbers and choices.
    pub context: serde_json::Value,
    /// Size of the grid in blocks, as x, y, z.
    pub grid: [u32; 3],
    /// Size of a block in threads, as x, y, z.
    pub block: [u32; 3],
    /// Size of a cluster in blocks, as [`Launch::cluster`](tdc_runtime::Launch::cluster). A kernel with clusters keeps all its
    /// shared memory in dynamic shared memory. If the architecture has no clusters (`tdc_has_clusters()`), the first block of
    /// each group of this size does the work of all.
    pub cluster: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// Whether the launch uses PDL, as [`Launch::pdl`](tdc_runtime::Launch::pdl). The source then calls
    /// `tdc_pdl_wait_and_trigger()` or its two halves.
    pub pdl: bool,
    /// Parts of the device header that the source uses, in any order.
    pub device: &'static [DevicePart],
    /// Parameters of the kernel, in order.
    pub args: Vec<Arg>,
    /// Work of the launch, for the cost model.
    pub work: KernelWork,
}

/// Memory that is set to zero before a unit's first launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zeroed {
    /// Start of the memory: the output, or an offset in the workspace.
    pub target: Arg,
    /// Size of the memory in bytes.
    pub bytes: u64,
}

/// How a problem is computed with a tile.
#[derive(Debug, Clone, PartialEq)]
pub struct Blueprint {
    /// Launches in order.
    pub kernels: Vec<KernelBlueprint>,
    /// Memory that is set to zero before the first launch.
    pub zeroed: Option<Zeroed>,
    /// Size of the workspace in bytes.
    pub workspace_bytes: u64,
    /// Layout of the packed weights.
    pub weights: WeightLayout,
    /// Further weight layouts, as [`Variant::extra_weight_layouts`](tdc_runtime::Variant::extra_weight_layouts).
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

impl Blueprint {
    /// Kernels in order that read weights with these layouts, without a workspace and memory that is set to zero.
    fn new(kernels: Vec<KernelBlueprint>, layouts: Vec<WeightLayout>) -> Self {
        let mut layouts = layouts.into_iter();
        Self {
            kernels,
            zeroed: None,
            workspace_bytes: 0,
            weights: layouts.next().unwrap_or(WeightLayout::NONE),
            extra_weight_layouts: layouts.collect(),
        }
    }
}

/// Offsets of the blocks of several layouts in the packed parameters, in floats, as
/// [`Variant::packed_layouts`](tdc_runtime::Variant::packed_layouts) has them.
fn packed_offsets<'a>(layouts: impl IntoIterator<Item = &'a WeightLayout>) -> Vec<usize> {
    let mut end = 0;
    let offsets = layouts.into_iter().map(|layout| {
        let at = usize::next_multiple_of(end, WeightFile::ALIGNMENT as usize / 4);
        end = at + layout.len();
        at
    });
    offsets.collect()
}

/// The context of a template as JSON.
fn context(value: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(value)
        .expect("contexts are plain structs of numbers, strings and booleans")
}

/// The stride parameters of kernels for batches of more than one image: of the input, the residual if there is one, and the
/// output.
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

/// Removes the strides of a problem's tensors in NHWC, which are dense.
fn without_nhwc_strides(mut args: Vec<Arg>, problem: &Problem) -> Vec<Arg> {
    let [x, y] = [problem.x_layout(), problem.y_layout()].map(|layout| layout == Layout::Nhwc);
    args.retain(|arg| match arg {
        Arg::XBatchStride => !x,
        Arg::YBatchStride | Arg::ResidualBatchStride => !y,
        _ => true,
    });
    args
}

/// Blocks that an SM can hold at once by the registers of their threads, eight at most. Each SM partition has 16,384 registers
/// for a quarter of the warps.
fn blocks_per_sm_by_registers(threads: u32, registers: u32) -> u32 {
    let warps = 4 * (16384 / (32 * registers.next_multiple_of(8)));
    (warps / threads.div_ceil(32)).clamp(1, 8)
}

/// The ascending `candidates` up to the first one that is at least `size`. Threads would idle with larger ones.
fn candidates_up_to(size: u32, candidates: &[u32]) -> Vec<u32> {
    let end = candidates
        .iter()
        .position(|&candidate| candidate >= size)
        .map_or(candidates.len(), |last| last + 1);
    candidates[..end].to_vec()
}
