//! The exact search for the forms of all layers: the least time within a loss, or the least loss within a time and further limits.
//!
//! It does not depend on networks or GPUs. A [`Problem`] has layers in the order of execution. Each takes one of its [forms](Form), and a
//! form of a Tucker layer may be fused with the first factor of a later one. Times come from a [`Times`].
//!
//! 1. [`states`] lists what must be known before each layer: which later layers have promised their D1 to a launch that is already chosen,
//!    and the choices that decide who adds a residual, or which layers share a launch. States and the
//!    moves between them form an acyclic graph; a solution is a path.
//! 2. [`bound`] relaxes the limits to prices (Lagrangian relaxation). For each state it has the least price of the layers from there on.
//! 3. [`labels`] extends all partial solutions layer by layer. It keeps those that no other one with the same state dominates, and that can
//!    still be better than the best solution known, by the bound.
//!
//! Times of fused launches are expensive to predict and there are up to a million of them. They start as lower bounds, and become exact
//! where a bound does not rule them out.

mod bound;
mod labels;
mod states;

use bound::Bound;
use states::States;

/// Resources that a solution takes; the sum of what its layers take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Cost {
    /// Nanoseconds.
    pub ns: u64,
    /// In units of [`LOSS_UNIT`](super::LOSS_UNIT).
    pub loss: u64,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes of weights.
    pub weight_bytes: u64,
}

/// A resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Resource {
    Time,
    Loss,
    Flops,
    WeightBytes,
}

impl Resource {
    pub const ALL: [Self; 4] = [Self::Time, Self::Loss, Self::Flops, Self::WeightBytes];
}

impl Cost {
    pub fn get(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Time => self.ns,
            Resource::Loss => self.loss,
            Resource::Flops => self.flops,
            Resource::WeightBytes => self.weight_bytes,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            ns: self.ns + other.ns,
            loss: self.loss + other.loss,
            flops: self.flops + other.flops,
            weight_bytes: self.weight_bytes + other.weight_bytes,
        }
    }
}

/// What other layers must know of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The layer as it is.
    Dense,
    /// Neither dense nor a Tucker layer.
    Other,
    /// A Tucker layer without a first factor.
    NoFirst,
    /// A Tucker layer with a first factor; index of its D1 among those of the layer.
    First(usize),
}

/// A form of a layer, without its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    pub kind: Kind,
    pub loss: u64,
    pub flops: u64,
    pub weight_bytes: u64,
}

/// A first factor that a layer's launch can compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exit {
    /// The later layer that it belongs to.
    pub layer: usize,
}

/// A layer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Layer {
    /// At least one.
    pub forms: Vec<Form>,
    /// Number of different D1.
    pub d1s: usize,
    /// The group whose choices decide what the layer computes besides its own weights.
    pub group: Option<usize>,
    /// For each choice of the group (one without a group): the first factors that can be fused, in the order in which they run. Only the
    /// first one of those that their layers have can be.
    pub exits: Vec<Vec<Exit>>,
}

/// What a group must know of the forms of its layers: each form has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Distinction {
    /// Whether it is that of a Tucker layer, which decides who adds a residual.
    #[default]
    Tucker,
    /// Whether it is dense, which decides which launches can compute several layers.
    Dense,
    /// Both.
    TuckerAndDense,
}

impl Distinction {
    /// The number of values.
    pub(super) fn values(self) -> usize {
        match self {
            Self::Tucker | Self::Dense => 2,
            Self::TuckerAndDense => 3,
        }
    }

    /// The value of a form.
    pub(super) fn value(self, is_tucker: bool, is_dense: bool) -> usize {
        let [tucker, dense] = [is_tucker, is_dense].map(usize::from);
        match self {
            Self::Tucker => tucker,
            Self::Dense => dense,
            Self::TuckerAndDense => dense + 2 * tucker,
        }
    }
}

/// Layers whose forms decide what launches of these layers compute.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Group {
    /// What is decided by the forms.
    pub distinction: Distinction,
    /// The layers whose forms have several values, ascending. A choice of the group is a number whose digits are the values of these layers, the
    /// first one least.
    pub layers: Vec<usize>,
    /// For each choice: time of other launches that only this choice needs.
    pub ns: Vec<u64>,
}

impl Group {
    /// The number of choices.
    pub(super) fn choices(&self) -> usize {
        self.distinction.values().pow(self.layers.len() as u32)
    }

    /// The choice in which its layers have these values.
    pub(super) fn choice(&self, value: impl Fn(usize) -> usize) -> usize {
        let values = self.layers.iter().rev().map(|&layer| value(layer));
        values.fold(0, |choice, value| {
            choice * self.distinction.values() + value
        })
    }

    /// The layers with their values in a choice.
    pub(super) fn values_in(&self, choice: usize) -> impl Iterator<Item = (usize, usize)> {
        let values = self.distinction.values();
        let layers = self.layers.iter().enumerate();
        layers.map(move |(digit, &layer)| (layer, choice / values.pow(digit as u32) % values))
    }
}

/// Layers in the order of execution.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Problem {
    pub layers: Vec<Layer>,
    pub groups: Vec<Group>,
    /// What all solutions take.
    pub constant: Cost,
    /// Number of GPUs and batches that launches are chosen for.
    pub targets: usize,
}

/// What a launch, or several, of a layer compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Work {
    pub layer: usize,
    /// The choice of the layer's group.
    pub choice: usize,
    pub form: usize,
    /// Where an earlier launch computes the layer's first factor.
    pub entered: Targets,
    /// The first factor that the layer's launch computes too.
    pub exit: Option<Fusion>,
}

/// A first factor that is fused with an earlier layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Fusion {
    /// Index among the exits of the choice.
    pub exit: usize,
    /// Index of the D1 of the layer there.
    pub d1: usize,
    /// Where they are fused; elsewhere they are separate.
    pub targets: Targets,
}

/// A set of the GPUs and batches that a network is planned for: forms are the same for all, launches are chosen for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(super) struct Targets(pub u32);

impl Targets {
    pub fn contains(self, target: usize) -> bool {
        self.0 >> target & 1 == 1
    }

    /// All sets that are not empty.
    fn sets(count: usize) -> impl Iterator<Item = Self> {
        (1..1u32 << count).map(Self)
    }
}

/// A time in nanoseconds, or a lower bound of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeBound {
    pub ns: u32,
    pub is_exact: bool,
}

impl TimeBound {
    /// Of work that cannot be done.
    pub const NEVER: Self = Self {
        ns: u32::MAX,
        is_exact: true,
    };
}

/// The times of launches.
pub(super) trait Times {
    /// The time of work, or a lower bound.
    fn bound(&self, work: Work) -> TimeBound;

    /// A lower bound of the times of work with any D1 of the exit's layer, nanoseconds.
    fn least_ns(&self, work: Work) -> u32;

    /// Makes the times of all this work exact.
    fn refine(&mut self, work: &[Work]);
}

/// What is minimised, and within what.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Goal {
    pub minimise: Resource,
    /// Each resource at most once, and not the one that is minimised.
    pub limits: Vec<(Resource, u64)>,
}

/// The forms of all layers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Solution {
    pub cost: Cost,
    /// For each layer.
    pub work: Vec<Work>,
}

/// Why there is no solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsolved {
    /// No solution keeps this limit; the least value of the resource is this.
    Limit { resource: Resource, least: u64 },
    /// Each limit can be kept, but not all of them together.
    Together,
}

/// A problem with its states.
pub(super) struct Search<'a, T> {
    problem: &'a Problem,
    states: States,
    times: &'a mut T,
}

impl<'a, T: Times> Search<'a, T> {
    pub fn new(problem: &'a Problem, times: &'a mut T) -> Self {
        Self {
            states: States::new(problem),
            problem,
            times,
        }
    }

    /// The solution with the least of the goal's resource within its limits; of equal ones always the same.
    pub fn solve(&mut self, goal: &Goal) -> Result<Solution, Unsolved> {
        for &(resource, limit) in &goal.limits {
            let least = self.least(resource).cost.get(resource);
            if least > limit {
                return Err(Unsolved::Limit { resource, least });
            }
        }
        let (bound, known) = self.priced(goal);
        self.exact(goal, &bound, known).ok_or(Unsolved::Together)
    }

    /// The solution with the least of one resource, regardless of all others.
    pub fn least(&mut self, resource: Resource) -> Solution {
        let price = Price::of(resource, 1.0);
        self.relaxed(&price).1
    }

    /// Prices of the limits whose bound is high, and the best solution within the limits that was seen.
    fn priced(&mut self, goal: &Goal) -> (Bound, Option<Solution>) {
        let mut price = Price::of(goal.minimise, 1.0);
        let mut known: Option<Solution> = None;
        let is_within = |cost: &Cost| {
            let mut limits = goal.limits.iter();
            limits.all(|&(resource, limit)| cost.get(resource) <= limit)
        };
        // Prices are found one after the other, each by bisection. Further rounds adapt the first ones to the later ones.
        let rounds = match goal.limits.len() {
            0 | 1 => 1,
            _ => 3,
        };
        for _ in 0..rounds {
            for &(resource, limit) in &goal.limits {
                let mut low = 0.0f64;
                let mut high = f64::INFINITY;
                let mut guess = self.first_price(goal.minimise, resource);
                for _ in 0..BISECTIONS {
                    price.set(resource, guess);
                    let (_, solution) = self.relaxed(&price);
                    let within = solution.cost.get(resource) <= limit;
                    if is_within(&solution.cost) {
                        keep_better(&mut known, solution, goal.minimise);
                    }
                    match within {
                        true => high = guess,
                        false => low = guess,
                    }
                    guess = match high.is_finite() {
                        true => (low + high) / 2.0,
                        false => guess * 4.0,
                    };
                    if high - low < 1e-6 * high {
                        break;
                    }
                }
                price.set(resource, if high.is_finite() { high } else { low });
            }
        }
        let (bound, solution) = self.relaxed(&price);
        if is_within(&solution.cost) {
            keep_better(&mut known, solution, goal.minimise);
        }
        (bound, known)
    }

    /// A first guess of a price: what all of the minimised resource costs for all of the limited one.
    fn first_price(&self, minimised: Resource, limited: Resource) -> f64 {
        let most = |resource: Resource| {
            let layers = self.problem.layers.iter();
            let of_layer = |layer: &Layer| {
                let forms = layer.forms.iter().map(|form| match resource {
                    Resource::Time => 10_000,
                    Resource::Loss => form.loss,
                    Resource::Flops => form.flops,
                    Resource::WeightBytes => form.weight_bytes,
                });
                forms.max().unwrap_or(0)
            };
            layers.map(of_layer).sum::<u64>().max(1) as f64
        };
        most(minimised) / most(limited)
    }
}

/// Steps of the bisection of a price.
const BISECTIONS: usize = 40;

fn keep_better(known: &mut Option<Solution>, solution: Solution, minimise: Resource) {
    let value = |solution: &Solution| {
        let cost = &solution.cost;
        (cost.get(minimise), cost.ns, cost.loss)
    };
    let better = known
        .as_ref()
        .is_none_or(|known| value(&solution) < value(known));
    if better {
        *known = Some(solution);
    }
}

/// A price for each resource: the sum over all is minimised.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Price([f64; Resource::ALL.len()]);

impl Price {
    fn of(resource: Resource, price: f64) -> Self {
        let mut all = Self::default();
        all.set(resource, price);
        all
    }

    fn set(&mut self, resource: Resource, price: f64) {
        self.0[resource as usize] = price;
    }

    fn get(&self, resource: Resource) -> f64 {
        self.0[resource as usize]
    }

    fn total(&self, cost: &Cost) -> f64 {
        let of = |resource| self.get(resource) * cost.get(resource) as f64;
        Resource::ALL.into_iter().map(of).sum()
    }
}

impl Form {
    fn cost(&self, ns: u64) -> Cost {
        Cost {
            ns,
            loss: self.loss,
            flops: self.flops,
            weight_bytes: self.weight_bytes,
        }
    }
}

#[cfg(test)]
mod tests;
