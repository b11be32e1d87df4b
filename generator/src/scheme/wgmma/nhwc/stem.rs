//! `wgmma_stem`: the first layer of a network, with at most four channels, as a product of [folded](super::fold) pixels.
//!
//! A kernel folds the image. If its scale depends on the input, another kernel finds the largest magnitude first.

use super::fold::{self, Fold, fold_kernel, fold_work};
use super::prepared::Preparation;
use crate::ir::{ConvProblem, Format, ProblemKind};
use crate::scheme::{KernelBlueprint, LaunchWork, split_maxima};
use tdc_runtime::{Arg, WeightLayout};

/// Folding of images with few channels; see the [module](self).
pub struct Stem;

impl Preparation for Stem {
    const NAME: &'static str = "wgmma_stem";
    const PROBLEMS: &'static str = "convolutions with at most four input channels and a stride of 1 or 2; on Hopper GPUs, from 8 images on";

    fn prepared(&self, problem: &ConvProblem) -> Option<ConvProblem> {
        Some(Fold::new(problem)?.folded(problem))
    }

    fn kernels(&self, problem: &ConvProblem, to: Arg) -> Vec<KernelBlueprint> {
        let input = ProblemKind::input(problem).shape;
        let maxima = is_scaled(problem).then(|| split_maxima::kernel(input, to));
        let folding = fold_kernel(&fold_of(problem), problem, to);
        maxima.into_iter().chain([folding]).collect()
    }

    fn work(&self, problem: &ConvProblem) -> Vec<LaunchWork> {
        let launch = |role, work| LaunchWork { role, work };
        let input = ProblemKind::input(problem).shape;
        let maxima =
            is_scaled(problem).then(|| launch(split_maxima::ROLE, split_maxima::work(input)));
        let folding = launch(fold::ROLE, fold_work(&fold_of(problem), problem));
        maxima.into_iter().chain([folding]).collect()
    }

    fn layout(&self, problem: &ConvProblem, tn: u32, _: u32) -> WeightLayout {
        fold_of(problem).layout(problem, tn)
    }
}

fn fold_of(problem: &ConvProblem) -> Fold {
    Fold::new(problem).expect("a supported convolution")
}

/// Whether the folded image has a scale.
fn is_scaled(problem: &ConvProblem) -> bool {
    fold_of(problem).folded(problem).input == Format::SPLIT_NHWC
}
