//! What schemes with one thread for each output element share: the tile, the constants of their templates, and the launch.

use super::{
    Blueprint, DevicePart, KernelBlueprint, Tile, batch_stride_args, context, tile_numbers,
};
use crate::cost::KernelWork;
use crate::ir::{Problem, TensorShape};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

tile_numbers! {
    /// A tile: the size of a block.
    pub(super) struct PerElementTile {
        /// Threads of a block.
        threads: "t",
    }
}

impl PerElementTile {
    /// Tiles with these numbers of threads.
    pub(super) fn with_threads<const COUNT: usize>(threads: [u32; COUNT]) -> Vec<Tile> {
        threads.map(|threads| Self { threads }.into()).to_vec()
    }
}

/// The part of a template's context that concerns the output elements of all images; it is flattened into the scheme's own context.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Elements {
    threads: u32,
    len: u64,
    image_len: u64,
    batched: bool,
    checks_len: bool,
}

impl Elements {
    /// The outputs of a problem, with a tile of [`PerElementTile`].
    pub(super) fn new(problem: &Problem, tile: &Tile) -> Self {
        Self::of(problem.y(), tile, 1)
    }

    /// The same for threads with `channels` channels of an element of a tensor each, which divide the channels of the tensor.
    pub(super) fn of(y: TensorShape, tile: &Tile, channels: u32) -> Self {
        let PerElementTile { threads } = PerElementTile::from_tile(tile).expect("a supported tile");
        let len = y.len() / u64::from(channels);
        Self {
            threads,
            len,
            image_len: y.image_len() / u64::from(channels),
            batched: y.batch > 1,
            checks_len: !len.is_multiple_of(u64::from(threads)),
        }
    }

    fn blocks(&self) -> u64 {
        self.len.div_ceil(u64::from(self.threads))
    }

    /// Work of a thread that loads what it needs at once and touches every tensor once; schemes say where they differ.
    pub(super) fn work(&self, problem: &Problem) -> KernelWork {
        KernelWork {
            blocks: self.blocks(),
            threads: self.threads,
            flops: problem.flops() as f64,
            fma_fraction: 0.1,
            l2_bytes: problem.bytes() as f64,
            dram_bytes: problem.bytes() as f64,
            l2_round_trips: 1.5,
            ..KernelWork::default()
        }
    }
}

/// The kernel of a scheme.
pub(super) struct PerElementKernel<'a, C> {
    /// Name of the template.
    pub template: &'static str,
    /// Its context, with [`Elements`].
    pub context: &'a C,
    /// The tensors that it reads before it writes the output.
    pub inputs: Vec<Arg>,
    /// Layout of its weights.
    pub weights: WeightLayout,
    /// Its work.
    pub work: KernelWork,
}

impl<C: Serialize> PerElementKernel<'_, C> {
    /// The blueprint for a problem.
    pub(super) fn blueprint(self, problem: &Problem, elements: &Elements) -> Blueprint {
        let has_residual = self.inputs.contains(&Arg::Residual);
        let mut args = self.inputs;
        args.push(Arg::Y);
        args.extend(batch_stride_args(problem.y().batch, has_residual));
        Blueprint {
            kernels: vec![KernelBlueprint {
                role: "kernel",
                template: self.template,
                context: context(self.context),
                grid: [elements.blocks() as u32, 1, 1],
                block: [elements.threads, 1, 1],
                cluster: [1; 3],
                shared_bytes: 0,
                pdl: true,
                device: &[DevicePart::Pdl],
                args,
                work: self.work,
            }],
            zeroed: None,
            workspace_bytes: 0,
            weights: self.weights,
            extra_weight_layouts: Vec::new(),
        }
    }
}
