//! How the blocks of a cluster divide the channels.

use crate::ir::DenseStepProblem;
use crate::scheme::tensor_core::MMA_K;

/// The channel quads of the concatenation that a block multiplies. Quad `q` of the block with rank `r` is quad `q * cluster + r` of the
/// concatenation: one of the channels before, or a new one after those.
pub(super) struct BlockQuads {
    /// K steps of the channels before.
    pub(super) before_steps: u32,
    /// The first K step that may have a new channel, and the number of steps from there.
    pub(super) first_grown_step: u32,
    pub(super) grown_steps: u32,
    /// Quads of the concatenation before the new channels, and of these; the last one may have padding.
    pub(super) before: u32,
    pub(super) grown: u32,
    /// New quads of a block at most.
    pub(super) own: u32,
}

/// Channel quads of a K step.
pub(super) const STEP_QUADS: u32 = MMA_K / 4;

impl BlockQuads {
    /// `None` if a quad would have channels before and new ones.
    pub(super) fn new(problem: &DenseStepProblem, cluster: u32) -> Option<Self> {
        let (before, grown) = (problem.before / 4, problem.growth.n.div_ceil(4));
        let first_grown_step = before / cluster / STEP_QUADS;
        let all_steps = (before + grown).div_ceil(cluster).div_ceil(STEP_QUADS);
        problem.before.is_multiple_of(4).then(|| Self {
            before_steps: before.div_ceil(cluster).div_ceil(STEP_QUADS),
            first_grown_step,
            grown_steps: all_steps - first_grown_step,
            before,
            grown,
            own: grown.div_ceil(cluster),
        })
    }

    /// K steps of the packed weights.
    pub(super) fn all_steps(&self) -> u32 {
        self.first_grown_step + self.grown_steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Problem;
    use crate::plan::problem_of_label;

    /// Every quad is in the K steps of one block, and new quads are in those that are multiplied after the exchange.
    #[test]
    fn steps_cover_all_quads() {
        for (before, grow) in [(64, 32), (4, 1), (36, 12), (1000, 37), (100, 8)] {
            let label = format!("densestep_c16_grow{grow}_before{before}_n16_h9_w9_k3x3_p1_concat");
            let Some(Problem::DenseStep(problem)) = problem_of_label(&label) else {
                panic!("{label}");
            };
            for cluster in 1..=8 {
                let quads = BlockQuads::new(&problem, cluster).unwrap();
                for quad in 0..quads.before + quads.grown {
                    let step = quad / cluster / STEP_QUADS;
                    assert!(step < quads.all_steps(), "{label} {cluster} {quad}");
                    match quad < quads.before {
                        true => assert!(step < quads.before_steps),
                        false => assert!(step >= quads.first_grown_step),
                    }
                }
                assert!(quads.own * cluster >= quads.grown);
            }
        }
    }
}
