//! Dynamic programming over all subsets of tensors.
//!
//! `netcon` (Pfeifer, Haegeman and Verstraete 2014), which the paper extends, visits subsets in order of
//! their number of tensors and keeps the best order for each. The product of a subset depends on the subset
//! only: a summed mode disappears exactly when every tensor that has it is included, so that a rank shared by
//! several factors is summed last. Hence the search is exact with a cap too: whether a product exceeds it
//! does not depend on the order.

use super::{ModeKind, TensorNetwork};
use crate::cost::fp32_lanes_floor_us;
use crate::gpu::Gpu;
use std::cmp::Ordering;
use std::fmt;

/// The cost to minimise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cost {
    /// Multiplications, each with an addition: eqs. 11 to 13.
    Multiplications,
    /// Bytes read and written by the operations in fp32, each operand and product once per operation.
    Bytes,
    /// Time on a GPU with one launch for each operation, in picoseconds: the sum of the floors on the fp32
    /// lanes.
    Latency(&'static Gpu),
}

impl Cost {
    fn of(self, multiplications: u64, bytes: u64) -> u64 {
        match self {
            Self::Multiplications => multiplications,
            Self::Bytes => bytes,
            // As a whole number, so that sums are exact and equal costs are equal.
            Self::Latency(gpu) => (1e6
                * fp32_lanes_floor_us(multiplications.saturating_mul(2), bytes, gpu))
            .round() as u64,
        }
    }
}

/// An operand of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepInput {
    /// A tensor of the network.
    Tensor(usize),
    /// The product of an earlier step.
    Step(usize),
}

/// A pairwise operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The operand that contains the earliest tensor of the network.
    pub left: StepInput,
    /// The other operand.
    pub right: StepInput,
    /// The modes of the product with their lengths, in the order of the network's modes; in the last step in
    /// the order of the result.
    pub modes: Vec<(usize, u64)>,
    /// Modes that are summed over in this step.
    pub summed: Vec<usize>,
    /// Modes that are convolved in this step.
    pub convolved: Vec<usize>,
    /// Number of elements of the product.
    pub elements: u64,
    /// Multiplications (eqs. 11 to 13).
    pub multiplications: u64,
    /// Bytes of fp32 read and written.
    pub bytes: u64,
}

/// An order of evaluation of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The operations; each follows those that compute its operands, the last one computes the result.
    pub steps: Vec<Step>,
    /// Total cost, in the unit of the requested [`Cost`].
    pub cost: u64,
    /// Number of elements of the largest intermediate; 0 if there are none.
    pub largest: u64,
}

impl Order {
    /// Multiplications of all steps.
    pub fn multiplications(&self) -> u64 {
        let steps = self.steps.iter().map(|step| step.multiplications);
        steps.fold(0, u64::saturating_add)
    }

    /// Bytes of all steps.
    pub fn bytes(&self) -> u64 {
        let steps = self.steps.iter().map(|step| step.bytes);
        steps.fold(0, u64::saturating_add)
    }
}

/// Why there is no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderError {
    /// Every order has an intermediate that exceeds the cap.
    Cap {
        /// The cap in elements.
        cap: u64,
        /// The smallest cap that allows an order, in elements.
        needed: u64,
    },
    /// Every order costs 2^64 or more.
    TooLarge,
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cap { cap, needed } => write!(
                f,
                "no order keeps every intermediate within {cap} elements; allow at least {needed}"
            ),
            Self::TooLarge => f.write_str("every order costs 2^64 or more; give shorter modes"),
        }
    }
}

impl std::error::Error for OrderError {}

/// The cheapest order in which no intermediate has more than `cap` elements. The given tensors, the result
/// and temporary data inside a step are exempt. Among orders of equal cost, one with the smallest maximal
/// intermediate is returned.
///
/// # Errors
/// If the cap excludes all orders, or costs exceed 64 bits.
pub fn cheapest_order(
    network: &TensorNetwork,
    cost: Cost,
    cap: Option<u64>,
) -> Result<Order, OrderError> {
    let products = Products::of(network);
    let cap = cap.unwrap_or(u64::MAX);
    let best = products.best(cap, |left, right| {
        let (multiplications, bytes) = products.step_work(left, right);
        cost.of(multiplications, bytes)
    });
    let all = products.all();
    match best[all] {
        None => Err(OrderError::Cap {
            cap,
            needed: products.smallest_cap(),
        }),
        Some(BestSplit { cost: u64::MAX, .. }) => Err(OrderError::TooLarge),
        Some(found) => {
            let mut steps = Vec::with_capacity(network.tensors().len() - 1);
            products.collect_steps(all, &best, &mut steps);
            Ok(Order {
                steps,
                cost: found.cost,
                largest: found.largest,
            })
        }
    }
}

/// A set of tensors, one bit each.
type Set = usize;

/// The best way to compute the product of a set.
#[derive(Clone, Copy)]
struct BestSplit {
    cost: u64,
    /// Number of elements of the largest intermediate, without this set's product.
    largest: u64,
    left: Set,
}

/// Modes and sizes of the products of all sets of tensors.
struct Products<'n> {
    network: &'n TensorNetwork,
    /// For each mode, the tensors that have it and its length in each.
    uses: Vec<(Set, Vec<u64>)>,
    /// For each set, the modes of its product, one bit each.
    modes: Vec<u64>,
    /// For each set, the number of elements of its product; saturates at `u64::MAX`.
    elements: Vec<u64>,
}

impl<'n> Products<'n> {
    fn of(network: &'n TensorNetwork) -> Self {
        let tensors = network.tensors();
        let mut uses = vec![(0, vec![0; tensors.len()]); network.modes().len()];
        for (index, tensor) in tensors.iter().enumerate() {
            for &(mode, length) in &tensor.modes {
                uses[mode].0 |= 1 << index;
                uses[mode].1[index] = length;
            }
        }
        let mut products = Self {
            network,
            uses,
            modes: Vec::new(),
            elements: Vec::new(),
        };
        for set in 0..1 << tensors.len() {
            let present = products.present(set);
            let lengths = bits(present).map(|mode| products.length(mode, set));
            products.elements.push(lengths.fold(1, u64::saturating_mul));
            products.modes.push(present);
        }
        products
    }

    /// All tensors.
    fn all(&self) -> Set {
        self.modes.len() - 1
    }

    /// The modes of a set's product.
    fn present(&self, set: Set) -> u64 {
        let mut present = 0;
        for (mode, (holders, _)) in self.uses.iter().enumerate() {
            let summed = self.network.modes()[mode].kind == ModeKind::Summed && holders & !set == 0;
            if holders & set != 0 && !summed {
                present |= 1 << mode;
            }
        }
        present
    }

    /// The length of a mode in the product of a set that has it.
    fn length(&self, mode: usize, set: Set) -> u64 {
        let (holders, lengths) = &self.uses[mode];
        match self.network.modes()[mode].kind {
            ModeKind::Convolved { output, .. } if holders & !set == 0 => output,
            _ => lengths[(holders & set).trailing_zeros() as usize],
        }
    }

    /// The modes that are convolved when two sets are combined.
    fn convolved(&self, left: Set, right: Set) -> impl Iterator<Item = usize> {
        let shared = bits(self.modes[left] & self.modes[right]);
        shared.filter(|&mode| matches!(self.network.modes()[mode].kind, ModeKind::Convolved { .. }))
    }

    /// Multiplications and bytes of combining the products of two sets. The length of each mode that either
    /// has counts once (eqs. 11 and 13); that of a convolved mode counts times the filter's (eq. 12; if the
    /// output is not as long as the signal, the products actually computed).
    fn step_work(&self, left: Set, right: Set) -> (u64, u64) {
        let both = left | right;
        let modes = bits(self.modes[left] | self.modes[right]);
        let lengths = modes.map(|mode| self.length(mode, both));
        let filters =
            self.convolved(left, right)
                .map(|mode| match self.network.modes()[mode].kind {
                    ModeKind::Convolved { filter, .. } => filter,
                    ModeKind::Kept | ModeKind::Summed => 1,
                });
        let multiplications = lengths.chain(filters).fold(1, u64::saturating_mul);
        let elements = [left, right, both].map(|set| self.elements[set]);
        let elements = elements.into_iter().fold(0, u64::saturating_add);
        (multiplications, elements.saturating_mul(4))
    }

    /// For each set the best way to compute its product without an intermediate of more than `cap` elements,
    /// given a cost per step.
    fn best(&self, cap: u64, cost: impl Fn(Set, Set) -> u64) -> Vec<Option<BestSplit>> {
        let mut best: Vec<Option<BestSplit>> = vec![None; self.modes.len()];
        for set in 1..self.modes.len() {
            best[set] = match set.is_power_of_two() {
                true => Some(BestSplit {
                    cost: 0,
                    largest: 0,
                    left: set,
                }),
                false if set != self.all() && self.elements[set] > cap => None,
                false => splits(set)
                    .filter_map(|left| {
                        let right = set ^ left;
                        let (a, b) = (best[left]?, best[right]?);
                        let intermediate_len = |part: Set, best: BestSplit| {
                            best.largest.max(self.intermediate_len(part))
                        };
                        let below = a.cost.saturating_add(b.cost);
                        Some(BestSplit {
                            cost: below.saturating_add(cost(left, right)),
                            largest: intermediate_len(left, a).max(intermediate_len(right, b)),
                            left,
                        })
                    })
                    .min_by(BestSplit::compare),
            };
        }
        best
    }

    /// Number of elements of a set's product if it is an intermediate; 0 for a tensor of the network.
    fn intermediate_len(&self, set: Set) -> u64 {
        match set.is_power_of_two() {
            true => 0,
            false => self.elements[set],
        }
    }

    /// The smallest cap that allows an order.
    fn smallest_cap(&self) -> u64 {
        // With a cost of zero the largest intermediate is minimised.
        let best = self.best(u64::MAX, |_, _| 0);
        best[self.all()].map_or(u64::MAX, |found| found.largest)
    }

    /// Appends the steps that compute a set's product; returns the operand that refers to it.
    fn collect_steps(
        &self,
        set: Set,
        best: &[Option<BestSplit>],
        steps: &mut Vec<Step>,
    ) -> StepInput {
        let Some(found) = best[set].filter(|_| !set.is_power_of_two()) else {
            return StepInput::Tensor(set.trailing_zeros() as usize);
        };
        let (left, right) = (found.left, set ^ found.left);
        let (multiplications, bytes) = self.step_work(left, right);
        let of_left = self.collect_steps(left, best, steps);
        let of_right = self.collect_steps(right, best, steps);
        let modes: Vec<usize> = match set == self.all() {
            true => self.network.result().to_vec(),
            false => bits(self.modes[set]).collect(),
        };
        let gone = (self.modes[left] | self.modes[right]) & !self.modes[set];
        steps.push(Step {
            left: of_left,
            right: of_right,
            modes: modes
                .iter()
                .map(|&mode| (mode, self.length(mode, set)))
                .collect(),
            summed: bits(gone).collect(),
            convolved: self.convolved(left, right).collect(),
            elements: self.elements[set],
            multiplications,
            bytes,
        });
        StepInput::Step(steps.len() - 1)
    }
}

impl BestSplit {
    fn compare(&self, other: &Self) -> Ordering {
        (self.cost, self.largest).cmp(&(other.cost, other.largest))
    }
}

/// For each partition of a set in two, the subset with the set's first tensor.
fn splits(set: Set) -> impl Iterator<Item = Set> {
    let first = set & set.wrapping_neg();
    let others = set ^ first;
    // All proper subsets of the others, from the empty one.
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let now = next.filter(|&now| now != others)?;
        next = Some((now | !others).wrapping_add(1) & others);
        Some(first | now)
    })
}

fn bits(mut of: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (of != 0).then(|| of.trailing_zeros() as usize);
        of &= of.wrapping_sub(1);
        bit
    })
}
