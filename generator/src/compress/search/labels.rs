//! The exact search among partial solutions.

use super::bound::Bound;
use super::states::Move;
use super::{Cost, Goal, Price, Resource, Search, Solution, Targets, TimeBound, Times, Work};

/// A partial solution.
#[derive(Clone)]
struct Label {
    cost: Cost,
    /// Index of the label of the state before, and the last layer's work.
    previous: usize,
    work: Work,
}

/// A way to extend the labels of a state.
struct Arc {
    work: Work,
    next: usize,
    cost: Cost,
    time: TimeBound,
}

impl<T: Times> Search<'_, T> {
    /// The best solution within the limits. `known` is one, if any was seen.
    pub(super) fn exact(
        &mut self,
        goal: &Goal,
        bound: &Bound,
        mut known: Option<Solution>,
    ) -> Option<Solution> {
        // Without a known solution: one that a narrow search finds, which is the wider the longer it finds none.
        let mut slack = NARROW_SLACK;
        while known.is_none() && !goal.limits.is_empty() && slack < 1.0 {
            let pruning = Pruning::narrow(self, goal, bound, slack);
            known = self.extended(goal, &pruning, Some(NARROW));
            slack *= 4.0;
        }
        let pruning = Pruning::new(self, goal, bound, known.as_ref());
        self.extended(goal, &pruning, None).or(known)
    }

    /// Extends labels layer by layer; returns the best solution that is not pruned. With `most`, only so many labels of a state are kept,
    /// those with the least bound.
    fn extended(
        &mut self,
        goal: &Goal,
        pruning: &Pruning,
        most: Option<usize>,
    ) -> Option<Solution> {
        let layers = self.problem.layers.len();
        let mut before: Vec<Vec<Label>> = vec![vec![Label {
            cost: self.problem.constant,
            previous: 0,
            work: Work {
                layer: 0,
                choice: 0,
                form: 0,
                entered: Targets::default(),
                exit: None,
            },
        }]];
        // All labels in the order of layers and states, to trace a solution back.
        let mut trace: Vec<Vec<Label>> = Vec::with_capacity(layers);
        for layer in 0..layers {
            let arcs = self.surviving_arcs(layer, &before, pruning);
            let states = pruning.bound.rest[layer + 1].len();
            let mut after: Vec<Vec<Label>> = vec![Vec::new(); states];
            let mut first = 0;
            for (labels, arcs) in before.iter().zip(&arcs) {
                for arc in arcs {
                    for (index, label) in labels.iter().enumerate() {
                        let cost = label.cost.plus(arc.cost);
                        if pruning.keeps(layer + 1, arc.next, &cost) {
                            after[arc.next].push(Label {
                                cost,
                                previous: first + index,
                                work: arc.work,
                            });
                        }
                    }
                }
                first += labels.len();
            }
            for (state, labels) in after.iter_mut().enumerate() {
                keep_undominated(labels, &pruning.resources);
                if let Some(most) = most.filter(|most| labels.len() > *most) {
                    let order = |label: &Label| pruning.total(layer + 1, state, &label.cost);
                    labels.sort_by(|a, b| order(a).total_cmp(&order(b)));
                    labels.truncate(most);
                }
            }
            trace.push(before.into_iter().flatten().collect());
            before = after;
        }
        let value = |label: &&Label| {
            let cost = &label.cost;
            (cost.get(goal.minimise), cost.ns, cost.loss)
        };
        let best = before.into_iter().flatten().collect::<Vec<_>>();
        let best = best.iter().min_by_key(value)?;
        let mut label = best.clone();
        let mut work = Vec::with_capacity(layers);
        for labels in trace.iter().rev() {
            work.push(label.work);
            label = labels[label.previous].clone();
        }
        work.reverse();
        Some(Solution {
            cost: best.cost,
            work,
        })
    }

    /// For each state, the arcs that can extend one of its labels, with exact times, and without those that another arc to the same
    /// state dominates.
    fn surviving_arcs(
        &mut self,
        layer: usize,
        before: &[Vec<Label>],
        pruning: &Pruning,
    ) -> Vec<Vec<Arc>> {
        let mut arcs: Vec<Vec<Arc>> = Vec::with_capacity(before.len());
        for (state, labels) in before.iter().enumerate() {
            let mut found = Vec::new();
            // An arc that the cheapest label cannot take in the relaxation is taken by no label.
            let order = |label: &&Label| pruning.total(layer, state, &label.cost);
            let cheapest = labels.iter().min_by(|a, b| order(a).total_cmp(&order(b)));
            if let Some(cheapest) = cheapest {
                for step in &self.states.moves[layer][state] {
                    self.arcs_of(layer, step, &cheapest.cost, pruning, &mut found);
                }
            }
            arcs.push(found);
        }
        let inexact: Vec<Work> = arcs
            .iter()
            .flatten()
            .filter(|arc| !arc.time.is_exact)
            .map(|arc| arc.work)
            .collect();
        self.times.refine(&inexact);
        for arcs in &mut arcs {
            arcs.retain_mut(|arc| {
                let time = self.times.bound(arc.work);
                arc.cost.ns += u64::from(time.ns) - u64::from(arc.time.ns);
                arc.time = time;
                time != TimeBound::NEVER
            });
            arcs.sort_by_key(|arc| arc.next);
        }
        arcs.into_iter()
            .map(|arcs| undominated_arcs(arcs, &pruning.resources))
            .collect()
    }

    /// The arcs by a move that the label with this cost, the cheapest of its state, can take.
    fn arcs_of(
        &self,
        layer: usize,
        step: &Move,
        cheapest: &Cost,
        pruning: &Pruning,
        found: &mut Vec<Arc>,
    ) {
        // Limits are not considered: another label of the state may take less of them.
        let most = pruning.limit - pruning.bound.price.total(cheapest);
        let Bound { price, rest } = pruning.bound;
        let mut visit = |total, work, next, time: TimeBound| {
            if total <= most {
                found.push(Arc {
                    work,
                    next,
                    cost: self.cost_of(step, work, time.ns),
                    time,
                });
            }
            most
        };
        self.for_each(layer, step, price, &rest[layer + 1], most, &mut visit);
    }
}

/// Labels of a state that a narrow search keeps, and how far above the least total price they may be at first, as a fraction.
const NARROW: usize = 64;
/// See [`NARROW`].
const NARROW_SLACK: f64 = 0.01;

/// Which partial solutions cannot be better than the known one.
struct Pruning<'a> {
    bound: &'a Bound,
    /// The total price of the known solution if it took all of the limits.
    limit: f64,
    limits: Vec<(Resource, u64)>,
    /// For each limit, the least of its resource from each state on.
    least: Vec<Bound>,
    /// The resources by which labels are compared.
    resources: Vec<Resource>,
}

impl<'a> Pruning<'a> {
    fn new<T: Times>(
        search: &mut Search<T>,
        goal: &Goal,
        bound: &'a Bound,
        known: Option<&Solution>,
    ) -> Self {
        let of_limits: f64 = goal
            .limits
            .iter()
            .map(|&(resource, limit)| bound.price.get(resource) * limit as f64)
            .sum();
        let limit = known.map_or(f64::INFINITY, |known| {
            let value = known.cost.get(goal.minimise) as f64;
            // Bounds are sums of rounded products.
            (bound.price.get(goal.minimise) * value + of_limits) * (1.0 + 1e-9)
        });
        Self::below(search, goal, bound, limit)
    }

    /// For solutions whose total price is above the least one by a fraction at most.
    fn narrow<T: Times>(search: &mut Search<T>, goal: &Goal, bound: &'a Bound, slack: f64) -> Self {
        let least = bound.price.total(&search.problem.constant) + bound.rest[0][0];
        Self::below(search, goal, bound, least * (1.0 + slack))
    }

    fn below<T: Times>(search: &mut Search<T>, goal: &Goal, bound: &'a Bound, limit: f64) -> Self {
        let limits = goal.limits.iter();
        let least = limits.map(|&(resource, _)| search.relaxed(&Price::of(resource, 1.0)).0);
        let limited = goal.limits.iter().map(|&(resource, _)| resource);
        Self {
            least: least.collect(),
            bound,
            limit,
            limits: goal.limits.clone(),
            resources: std::iter::once(goal.minimise).chain(limited).collect(),
        }
    }

    /// A lower bound of the total price of all solutions that a partial one leads to.
    fn total(&self, layer: usize, state: usize, cost: &Cost) -> f64 {
        self.bound.price.total(cost) + self.bound.rest[layer][state]
    }

    /// Whether some extension of a partial solution may be better and keep the limits.
    fn keeps(&self, layer: usize, state: usize, cost: &Cost) -> bool {
        let mut limits = self.limits.iter().zip(&self.least);
        limits.all(|(&(resource, limit), least)| {
            let rest = least.rest[layer][state];
            cost.get(resource) as f64 + rest * (1.0 - 1e-12) <= limit as f64
        }) && self.total(layer, state, cost) <= self.limit
    }
}

/// Whether `a` takes no more of each resource than `b`.
fn dominates(a: &Cost, b: &Cost, resources: &[Resource]) -> bool {
    resources.iter().all(|&r| a.get(r) <= b.get(r))
}

fn amounts(cost: &Cost, resources: &[Resource]) -> Vec<u64> {
    resources
        .iter()
        .map(|&resource| cost.get(resource))
        .collect()
}

/// Removes labels that another one dominates; of equal ones the first is kept.
fn keep_undominated(labels: &mut Vec<Label>, resources: &[Resource]) {
    labels.sort_by_cached_key(|label| amounts(&label.cost, resources));
    let mut kept: Vec<Label> = Vec::with_capacity(labels.len());
    for label in labels.drain(..) {
        // Sorted by the first resource; with two, the last one kept has the least of the second.
        let is_dominated = match resources.len() {
            0..=2 => kept
                .last()
                .is_some_and(|known| dominates(&known.cost, &label.cost, resources)),
            _ => kept
                .iter()
                .any(|known| dominates(&known.cost, &label.cost, resources)),
        };
        if !is_dominated {
            kept.push(label);
        }
    }
    *labels = kept;
}

/// The arcs of a state, sorted by the next state, without those that another arc to the same state dominates.
fn undominated_arcs(arcs: Vec<Arc>, resources: &[Resource]) -> Vec<Arc> {
    let mut kept: Vec<Arc> = Vec::with_capacity(arcs.len());
    for of_next in arcs.chunk_by(|a, b| a.next == b.next) {
        let start = kept.len();
        let mut order: Vec<&Arc> = of_next.iter().collect();
        order.sort_by_cached_key(|arc| amounts(&arc.cost, resources));
        for arc in order {
            let mut known = kept[start..].iter();
            if !known.any(|known| dominates(&known.cost, &arc.cost, resources)) {
                kept.push(Arc { ..*arc });
            }
        }
    }
    kept
}
