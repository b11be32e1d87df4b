//! Layer sets: independent convolutions that are tuned, tested and benchmarked outside a network.

use super::{
    ConvOptions, ConvProblem, CpProblem, Epilogue, Layout, NetworkBuilder, OpKind, OpOptions,
    Problem, Prologue,
};
use super::{SpecError, TensorShape, TilePolicy};
use crate::gpu::Gpu;
use serde::Serialize;

/// Independent convolutions that share a folder and a test program.
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
    /// Name, of the same characters as a set's. No two layers of a set may have the same [`symbol`].
    pub name: String,
    /// The convolution.
    pub problem: ConvProblem,
    /// Tucker ranks [D1, D2]; none in a set, whose layers are single convolutions.
    pub ranks: Option<[u32; 2]>,
    /// Layout of input and output.
    pub layout: Layout,
    /// Rank of a CP decomposition of the weight.
    pub cp_rank: Option<u32>,
    /// Rank of the weight of a 1x1 convolution; none in a set.
    pub rank: Option<u32>,
    /// The scheme that the config requests; `None`: the planner chooses.
    pub scheme: Option<String>,
    /// The tile that the config requests, in the order of the scheme's tile numbers.
    pub tile: Option<Vec<u32>>,
}

impl LayerSpec {
    /// A convolution with the checks and the size inference of a conv in a network.
    ///
    /// # Errors
    /// All errors, located as in the first op of a network.
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
        let OpKind::Conv(conv) = network.op(network.last_op()).kind.clone() else {
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
            rank: conv.options.rank,
            scheme: conv.options.scheme,
            tile: conv.options.tile,
        })
    }

    /// The problem of its unit: the convolution, or the CP layer with the factors of its weight.
    pub fn computes(&self) -> Problem {
        let conv = self.problem;
        match self.cp_rank {
            None => Problem::Conv(conv.in_layout(self.layout)),
            Some(rank) => Problem::Cp(CpProblem { conv, rank }),
        }
    }
}

/// Whether a set or a layer can have a name.
pub(crate) fn is_file_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// The C++ identifier for the name of a set or layer: `-` and `.` become `_`, and `set_` is put before a leading digit.
pub fn symbol(name: &str) -> String {
    let mut symbol = name.replace(['-', '.'], "_");
    if symbol.starts_with(|c: char| c.is_ascii_digit()) {
        symbol.insert_str(0, "set_");
    }
    symbol
}
