//! The order in which the factors of a CP layer are applied: the cheapest contraction order (CP paper, section 3).
//!
//! Only orders that are a chain of convolutions are considered. They start with the factor of the input channels and end with that of the
//! output channels, which sums over the rank, so only the order of the two filters is free. It matters with a stride or without padding:
//! the first filter omits rows or columns, which the second one then need not compute. A Tucker layer has only one such chain.

use crate::ir::CpProblem;
use crate::sequence::{
    Convolution, Cost, Order, Padding, Step, StepInput, TensorNetwork, TensorSpec, cheapest_order,
};
use std::num::NonZeroU32;

/// Indices of tensors of the network: the input is 0, followed by the factors in order.
const VERTICAL: usize = 2;
const HORIZONTAL: usize = 3;

/// Whether the 1 x S filter comes before the R x 1 filter. If both orders cost the same, the R x 1 filter is first.
pub(crate) fn horizontal_first(problem: &CpProblem) -> bool {
    let order = network(problem)
        .and_then(|network| cheapest_order(&network, Cost::Multiplications, None).ok());
    order.is_some_and(|order| factors(&order) == Some([1, HORIZONTAL, VERTICAL, 4]))
}

/// `U[c,y,x] S[c,k] V[k,y] H[k,x] T[k,n] -> [n,y,x]`, convolved over y and x without further padding: U is the padded input.
fn network(problem: &CpProblem) -> Option<TensorNetwork> {
    let shape = &problem.conv.shape;
    let operand = |name: &str, modes: &[(&str, u32)]| TensorSpec {
        name: name.to_owned(),
        modes: modes
            .iter()
            .map(|&(label, length)| (label.to_owned(), NonZeroU32::new(length)))
            .collect(),
    };
    let padded_h = shape.padding.top + shape.h + shape.padding.bottom;
    let padded_w = shape.padding.left + shape.w + shape.padding.right;
    let operands = [
        operand("U", &[("c", shape.c), ("y", padded_h), ("x", padded_w)]),
        operand("S", &[("c", shape.c), ("k", problem.rank)]),
        operand("V", &[("k", problem.rank), ("y", shape.r)]),
        operand("H", &[("k", problem.rank), ("x", shape.s)]),
        operand("T", &[("k", problem.rank), ("n", shape.n)]),
    ];
    let convolution = |label: &str, axis: usize| {
        let convolution = Convolution {
            padding: Padding::Valid,
            stride: NonZeroU32::new(shape.stride[axis])?,
            dilation: NonZeroU32::new(shape.dilation[axis])?,
        };
        Some((label.to_owned(), convolution))
    };
    let result = ["n", "y", "x"].map(str::to_owned);
    let convolutions = [convolution("y", 0)?, convolution("x", 1)?];
    TensorNetwork::new(&operands, &result, &convolutions).ok()
}

/// The factors in the order in which they are contracted with the input; `None` if two of them are contracted with each other.
fn factors(order: &Order) -> Option<[usize; 4]> {
    let contracted = |(index, step): (usize, &Step)| {
        let before = match index {
            0 => StepInput::Tensor(0),
            _ => StepInput::Step(index - 1),
        };
        match (step.left, step.right) {
            (left, StepInput::Tensor(factor)) if left == before => Some(factor),
            (StepInput::Tensor(factor), right) if right == before => Some(factor),
            _ => None,
        }
    };
    let factors: Option<Vec<usize>> = order.steps.iter().enumerate().map(contracted).collect();
    factors?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ConvProblem;
    use tdc_runtime::{ConvShape, Padding};

    fn layer(shape: ConvShape, rank: u32) -> CpProblem {
        let conv = ConvProblem::new(shape);
        CpProblem { conv, rank }
    }

    /// Whether the horizontal filter first needs fewer multiplications, counted from the convolutions themselves.
    fn cheaper(problem: &CpProblem) -> bool {
        let filters = |horizontal_first| {
            let [_, one, other, _] = problem.factors_in_order(horizontal_first);
            one.flops() + other.flops()
        };
        filters(true) < filters(false)
    }

    #[test]
    fn the_filter_that_leaves_out_more_comes_first() {
        let plain = ConvShape::new(7, 11, 20, 30, 3, 5);
        let padded = ConvShape {
            padding: Padding::all(2),
            ..plain
        };
        for (stride, expected) in [
            ([1, 2], true),
            ([2, 1], false),
            ([3, 1], false),
            ([1, 4], true),
        ] {
            for shape in [plain, padded] {
                let shape = ConvShape { stride, ..shape };
                let problem = layer(shape, 3);
                assert_eq!(cheaper(&problem), expected, "{shape:?}");
                assert_eq!(horizontal_first(&problem), expected, "{shape:?}");
            }
        }
    }

    #[test]
    fn equal_costs_leave_the_vertical_filter_first() {
        let square = ConvShape {
            padding: Padding::all(1),
            ..ConvShape::new(64, 96, 28, 28, 3, 3)
        };
        let strided = ConvShape {
            stride: [2, 2],
            ..square
        };
        for shape in [square, strided, ConvShape::new(5, 6, 1, 1, 1, 1)] {
            assert!(!cheaper(&layer(shape, 4)), "{shape:?}");
            assert!(!horizontal_first(&layer(shape, 4)), "{shape:?}");
        }
    }

    #[test]
    fn either_order_has_the_same_outputs() {
        let shape = ConvShape {
            stride: [2, 3],
            dilation: [1, 2],
            padding: Padding {
                top: 1,
                left: 0,
                bottom: 2,
                right: 3,
            },
            ..ConvShape::new(5, 9, 17, 23, 4, 3)
        };
        for horizontal_first in [false, true] {
            let chain = layer(shape, 2).factors_in_order(horizontal_first);
            for (from, to) in chain.iter().zip(&chain[1..]) {
                assert_eq!([from.n, from.out_h(), from.out_w()], [to.c, to.h, to.w]);
            }
            let last = chain[3];
            let found = [last.n, last.out_h(), last.out_w()];
            assert_eq!(found, [shape.n, shape.out_h(), shape.out_w()]);
        }
    }
}
