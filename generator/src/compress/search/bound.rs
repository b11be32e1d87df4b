//! The relaxation: every resource has a price instead of a limit.

use super::states::Move;
use super::{Cost, Price, Resource, Search, Solution, TimeBound, Times, Work};
use std::collections::BTreeSet;

/// Work within this fraction of the least total price is made exact together with that of the best solution.
const REFINED_FRACTION: f64 = 1e-3;

/// The least price from each state on.
pub(super) struct Bound {
    pub price: Price,
    /// For each layer, for each state before it; and for the end.
    pub rest: Vec<Vec<f64>>,
}

/// A way to go on from a state.
#[derive(Clone, Copy)]
struct Step<'a> {
    by: &'a Move,
    work: Work,
    next: usize,
    time: TimeBound,
}

impl<T: Times> Search<'_, T> {
    /// The least prices, and the solution of least total price. All times of that solution are exact.
    pub(super) fn relaxed(&mut self, price: &Price) -> (Bound, Solution) {
        loop {
            let bound = self.bound(price);
            let path = self.cheapest_path(&bound);
            if path.iter().all(|step| step.time.is_exact) {
                let cost = path.iter().fold(self.problem.constant, |cost, step| {
                    cost.plus(self.cost_of(step.by, step.work, step.time.ns))
                });
                let work = path.iter().map(|step| step.work).collect();
                return (bound, Solution { cost, work });
            }
            let work = self.inexact_near(&bound, &path);
            self.times.refine(&work);
        }
    }

    fn bound(&self, price: &Price) -> Bound {
        let layers = self.problem.layers.len();
        let mut rest = vec![Vec::new(); layers + 1];
        rest[layers] = vec![0.0];
        for layer in (0..layers).rev() {
            let of_state = |moves: &Vec<Move>| {
                let mut least = f64::INFINITY;
                let mut least_so_far = least;
                for step in moves {
                    let rest = &rest[layer + 1];
                    let mut visit = |total, _, _, _| {
                        least = least.min(total);
                        least
                    };
                    self.for_each(layer, step, price, rest, least_so_far, &mut visit);
                    least_so_far = least;
                }
                least
            };
            rest[layer] = self.states.moves[layer].iter().map(of_state).collect();
        }
        Bound {
            price: *price,
            rest,
        }
    }

    /// Calls `visit` with each way to go on by a move: its total price with the rest's, work, next state and time. Forms are left out
    /// whose ways all have a higher price than `most`, or than `visit` last returned.
    pub(super) fn for_each(
        &self,
        layer: usize,
        step: &Move,
        price: &Price,
        rest: &[f64],
        mut most: f64,
        visit: &mut dyn FnMut(f64, Work, usize, TimeBound) -> f64,
    ) {
        let of_ns = price.get(Resource::Time);
        let next = step.next.iter();
        let least_rest = next.map(|&next| rest[next]).fold(f64::INFINITY, f64::min);
        let forms = &self.problem.layers[layer].forms;
        for (index, form) in forms.iter().enumerate() {
            if !step.allows(form) {
                continue;
            }
            let fixed = price.total(&form.cost(step.ns));
            let least_ns = self.times.least_ns(step.work(layer, index, 0));
            if fixed + of_ns * f64::from(least_ns) + least_rest > most {
                continue;
            }
            for (exit_d1, &next) in step.next.iter().enumerate() {
                let work = step.work(layer, index, exit_d1);
                let time = self.times.bound(work);
                if time != TimeBound::NEVER {
                    let total = fixed + of_ns * f64::from(time.ns) + rest[next];
                    most = visit(total, work, next, time);
                }
            }
        }
    }

    /// The path of least total price; the first of several.
    fn cheapest_path(&self, bound: &Bound) -> Vec<Step<'_>> {
        let mut path = Vec::new();
        let mut state = 0;
        for layer in 0..self.problem.layers.len() {
            let mut best: Option<(f64, Step)> = None;
            for step in &self.states.moves[layer][state] {
                let rest = &bound.rest[layer + 1];
                let mut visit = |total, work, next, time| {
                    if best.as_ref().is_none_or(|(least, _)| total < *least) {
                        let found = Step {
                            by: step,
                            work,
                            next,
                            time,
                        };
                        best = Some((total, found));
                    }
                    best.as_ref().map_or(f64::INFINITY, |(least, _)| *least)
                };
                self.for_each(layer, step, &bound.price, rest, f64::INFINITY, &mut visit);
            }
            let (_, step) = best.expect("each layer has a form without a promise");
            state = step.next;
            path.push(step);
        }
        path
    }

    /// Inexact work on paths that are almost as cheap as this one and leave it at one layer only.
    fn inexact_near(&self, bound: &Bound, path: &[Step]) -> Vec<Work> {
        let mut found = BTreeSet::new();
        let slack = REFINED_FRACTION * bound.rest[0][0];
        let mut state = 0;
        for (layer, taken) in path.iter().enumerate() {
            let limit = bound.rest[layer][state] + slack;
            for step in &self.states.moves[layer][state] {
                let rest = &bound.rest[layer + 1];
                let mut visit = |total, work, _, time: TimeBound| {
                    if !time.is_exact && total <= limit {
                        found.insert(work);
                    }
                    limit
                };
                self.for_each(layer, step, &bound.price, rest, limit, &mut visit);
            }
            state = taken.next;
        }
        found.into_iter().collect()
    }

    /// The resources of work, with those of the move.
    pub(super) fn cost_of(&self, step: &Move, work: Work, ns: u32) -> Cost {
        let form = &self.problem.layers[work.layer].forms[work.form];
        form.cost(u64::from(ns) + step.ns)
    }
}
