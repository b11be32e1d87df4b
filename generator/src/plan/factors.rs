//! The tasks of a convolution: one, or one for each factor of a Tucker or CP layer.

use super::factor_order;
use super::graph::{Parameters, Task, TaskGraph, ValueId};
use crate::ir::{CpProblem, LayerSpec, OpId, Problem};
use tdc_runtime::FactorRole;

/// The values that a layer reads and writes.
pub(super) struct LayerValues {
    pub x: ValueId,
    pub residual: Option<ValueId>,
    pub y: ValueId,
}

/// The ops whose parameters a layer reads, itself included.
pub(super) struct LayerOps {
    pub layer: OpId,
    /// See [`Parameters::fold`].
    pub fold: Vec<OpId>,
    /// The scale_shift op that is the layer's prologue.
    pub prologue: Option<OpId>,
}

impl TaskGraph {
    /// Adds the tasks of a layer. With Tucker ranks there are three: 1x1 to D1 channels, the R x S core to D2, 1x1 to N (TDC paper, eqs.
    /// 2-4). With a CP rank there are four: 1x1, an R x 1 and a 1 x S filter of each channel in [the cheaper order](factor_order), 1x1 (CP
    /// paper, eq. 7). The prologue belongs to the first factor, the epilogue to the last. The scheme and tile that the config requests
    /// belong to the factors between them.
    pub(super) fn push_layer(&mut self, spec: &LayerSpec, values: &LayerValues, ops: &LayerOps) {
        let (factors, problems) = match (spec.ranks, spec.cp_rank) {
            (Some(ranks), _) => (
                &FactorRole::TUCKER[..],
                spec.problem.tucker_factors(ranks).to_vec(),
            ),
            (None, Some(rank)) => {
                let conv = spec.problem;
                let horizontal_first = factor_order::horizontal_first(&CpProblem { conv, rank });
                let factors = match horizontal_first {
                    true => &FactorRole::CP_HORIZONTAL_FIRST,
                    false => &FactorRole::CP,
                };
                let problems = conv.cp_factors(rank, horizontal_first);
                (&factors[..], problems.to_vec())
            }
            (None, None) => {
                self.tasks.push(Task {
                    name: spec.name.clone(),
                    problem: Problem::Conv(spec.problem.in_layout(spec.layout)),
                    x: values.x,
                    residual: values.residual,
                    y: values.y,
                    parameters: Parameters {
                        layer: Some(ops.layer),
                        factors: Vec::new(),
                        fold: ops.fold.clone(),
                        scale_shift: ops.prologue,
                        next: None,
                    },
                    scheme: spec.scheme.clone(),
                    tile: spec.tile.clone(),
                });
                return;
            }
        };
        let mut x = values.x;
        for (&factor, conv) in factors.iter().zip(problems) {
            let name = format!("{}.{}", spec.name, factor.as_str());
            let (is_first, is_last) = (factor == FactorRole::First, factor == FactorRole::Last);
            let is_inner = !is_first && !is_last;
            let problem = Problem::Conv(conv.in_layout(spec.layout));
            let y = match is_last {
                true => values.y,
                false => self.add_value(name.clone(), problem.y(), None),
            };
            self.tasks.push(Task {
                name,
                problem,
                x,
                residual: values.residual.filter(|_| is_last),
                y,
                parameters: Parameters {
                    layer: Some(ops.layer),
                    factors: vec![factor],
                    fold: match is_last {
                        true => ops.fold.clone(),
                        false => Vec::new(),
                    },
                    scale_shift: ops.prologue.filter(|_| is_first),
                    next: None,
                },
                scheme: spec.scheme.clone().filter(|_| is_inner),
                tile: spec.tile.clone().filter(|_| is_inner),
            });
            x = y;
        }
    }
}
