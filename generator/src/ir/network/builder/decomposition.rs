//! Checks of the ranks of factorised layers.

use super::NetworkBuilder;
use crate::ir::{ConvOptions, Reduce, SpecLocation, TensorShape};

impl NetworkBuilder {
    /// Checks the ranks of a convolution.
    pub(super) fn check_decomposition(
        &mut self,
        index: usize,
        x: TensorShape,
        options: &ConvOptions,
    ) {
        if let Some(ranks) = options.ranks {
            self.check_tucker_ranks(index, x, options, ranks);
        }
        if let Some(rank) = options.cp_rank {
            self.check_cp_rank(index, x, options, rank);
        }
        if let Some(rank) = options.rank {
            self.check_rank(index, [options.n, x.c], rank);
            self.check_pointwise(index, options);
        }
    }

    fn check_tucker_ranks(
        &mut self,
        index: usize,
        x: TensorShape,
        options: &ConvOptions,
        ranks: [u32; 2],
    ) {
        let limits = [
            (x.c, "D1 is at most the input channels"),
            (options.n, "D2 is at most the output channels"),
        ];
        for (item, (limit, what)) in limits.into_iter().enumerate() {
            let rank = ranks[item];
            if rank == 0 || rank > limit {
                self.error(
                    SpecLocation::Item(index, "ranks", item),
                    format!("rank {rank} is not between 1 and {limit}"),
                    format!("{what}; ranks are written [D1, D2]"),
                );
            }
        }
        if options.groups != 1 {
            self.error(
                SpecLocation::Key(index, "ranks"),
                format!(
                    "a convolution with {} groups cannot have Tucker ranks",
                    options.groups
                ),
                "leave out `ranks` or `groups`",
            );
        }
    }

    /// Checks the rank of a CP decomposition.
    fn check_cp_rank(&mut self, index: usize, x: TensorShape, options: &ConvOptions, rank: u32) {
        // The rank of a tensor is at most the product of all its sizes but the largest.
        let sizes = [options.n, x.c, options.kernel[0], options.kernel[1]].map(u64::from);
        let largest = sizes.into_iter().max().unwrap_or(1);
        let product = sizes.into_iter().fold(1, u64::saturating_mul);
        let limit = product / largest.max(1);
        if rank == 0 || u64::from(rank) > limit {
            self.error(
                SpecLocation::Key(index, "cp_rank"),
                format!("rank {rank} is not between 1 and {limit}"),
                "no weight of these sizes has a larger CP rank than the product of all but the largest",
            );
        }
        for (wrong, message, help) in [
            (
                options.groups != 1,
                format!(
                    "a convolution with {} groups cannot have a CP rank",
                    options.groups
                ),
                "leave out `cp_rank` or `groups`",
            ),
            (
                options.ranks.is_some(),
                "a convolution cannot have a CP rank and Tucker ranks".to_owned(),
                "leave out `cp_rank` or `ranks`",
            ),
            (
                options.reduce == Reduce::Atomic,
                "a convolution with a CP rank cannot add by atomics".to_owned(),
                "leave out `cp_rank` or `reduce`",
            ),
        ] {
            if wrong {
                self.error(SpecLocation::Key(index, "cp_rank"), message, help);
            }
        }
    }

    /// Checks the rank of the weight of a 1x1 convolution or of a linear layer, a matrix of `sizes` [N, C].
    pub(super) fn check_rank(&mut self, index: usize, sizes: [u32; 2], rank: u32) -> Option<()> {
        let limit = sizes[0].min(sizes[1]);
        if rank == 0 || rank > limit {
            self.error(
                SpecLocation::Key(index, "rank"),
                format!("rank {rank} is not between 1 and {limit}"),
                "no weight of these sizes has a larger rank than its inputs or its outputs",
            );
            return None;
        }
        Some(())
    }

    /// Checks that a convolution with a rank has a weight that is a matrix, and no option for factors that it does not have.
    fn check_pointwise(&mut self, index: usize, options: &ConvOptions) {
        let [r, s] = options.kernel;
        for (wrong, what, help) in [
            (
                options.kernel != [1, 1],
                format!("a convolution with a {r}x{s} filter cannot have a rank"),
                "write `kernel: 1`, or `ranks: [D1, D2]`",
            ),
            (
                options.groups != 1,
                format!("a convolution with {} groups cannot have a rank", options.groups),
                "leave out `rank` or `groups`",
            ),
            (
                options.ranks.is_some(),
                "a convolution cannot have a rank and Tucker ranks".to_owned(),
                "leave out `rank` or `ranks`",
            ),
            (
                options.cp_rank.is_some(),
                "a convolution cannot have a rank and a CP rank".to_owned(),
                "leave out `rank` or `cp_rank`",
            ),
            (
                options.reduce == Reduce::Atomic,
                "a convolution with a rank cannot add by atomics".to_owned(),
                "leave out `rank` or `reduce`",
            ),
            (
                options.scheme.is_some(),
                "the scheme of a convolution with a rank cannot be chosen: it has one for each of its two factors".to_owned(),
                "leave out `rank` or `scheme`",
            ),
        ] {
            if wrong {
                self.error(SpecLocation::Key(index, "rank"), what, help);
            }
        }
    }
}
