//! A set of separate convolutions: what is tuned, tested and benchmarked outside any network.

use super::{
    ConvOptions, ConvProblem, CpProblem, Epilogue, Layout, NetworkBuilder, OpKind, OpOptions,
    Problem, Prologue,
};
use super::{SpecError, TensorShape, TilePolicy};
use crate::gpu::Gpu;
use serde::Serialize;

/// Convolutions that have nothing to do with each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerSet {
    /// Name: letters, digits, `_`, `-` and `.`, as in a file name.
    pub name: String,
    /// The GPU to plan for.
    pub gpu: &'static Gpu,
    /// How tiles are chosen.
    pub tiles: TilePolicy,
    /// The convolutions.
    pub layers: Vec<LayerSpec>,
}

/// One convolution of a set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerSpec {
    /// Name, of the same characters as a set's; no other layer's [`symbol`] is the same.
    pub name: String,
    /// The convolution.
    pub problem: ConvProblem,
    /// Tucker ranks [D1, D2]; none in a set, whose layers are single convolutions.
    pub ranks: Option<[u32; 2]>,
    /// How its activations lie.
    pub layout: Layout,
    /// Rank of the CP decomposition that takes the place of its weight.
    pub cp_rank: Option<u32>,
    /// A scheme asked for by name instead of the planner's choice.
    pub scheme: Option<String>,
    /// A tile asked for, in the order of the scheme's tile names.
    pub tile: Option<Vec<u32>>,
}

impl LayerSpec {
    /// A convolution of an input, with the checks and the size inference of a conv in a network.
    ///
    /// # Errors
    /// Every mistake, as of the first op of a network.
    pub fn new(
        name: &str,
        x: TensorShape,
        options: ConvOptions,
        prologue: Option<Prologue>,
        residual: bool,
    ) -> Result<Self, Vec<SpecError>> {
        let epilogue = Epilogue {
            bias: options.bias,
            residual,
            activation: options.activation,
        };
        let mut builder = NetworkBuilder::new("layer", x);
        builder.op("conv", None, OpOptions::Conv(options));
        let network = builder.finish()?;
        let OpKind::Conv(conv) = network.op(network.output()).kind.clone() else {
            return Err(Vec::new());
        };
        Ok(Self {
            name: name.to_owned(),
            problem: ConvProblem {
                prologue,
                epilogue,
                reduce: conv.options.reduce,
                precision: conv.options.precision,
                tolerance: conv.options.tolerance,
                ..ConvProblem::new(conv.shape)
            },
            ranks: conv.options.ranks,
            layout: conv.options.layout,
            cp_rank: conv.options.cp_rank,
            scheme: conv.options.scheme,
            tile: conv.options.tile,
        })
    }

    /// What its unit computes: the convolution, or that of the factors of its weight.
    pub fn computes(&self) -> Problem {
        let conv = self.problem;
        match self.cp_rank {
            None => Problem::Conv(conv.in_layout(self.layout)),
            Some(rank) => Problem::Cp(CpProblem { conv, rank }),
        }
    }
}

/// Whether a name fits a set or a layer.
pub(crate) fn is_file_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// The C++ identifier of a set's or layer's name: `-` and `.` become `_`, a digit in front gets `set_`.
pub fn symbol(name: &str) -> String {
    let mut symbol = name.replace(['-', '.'], "_");
    if symbol.starts_with(|c: char| c.is_ascii_digit()) {
        symbol.insert_str(0, "set_");
    }
    symbol
}
