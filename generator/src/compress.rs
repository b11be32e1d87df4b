//! Rank choice: which layers of a network to decompose, and at which ranks, so that the network is fast and loses little.
//!
//! The [loss](Losses) of a network is the sum of its layers'; its time is that of the very launches that the planner would choose for these
//! ranks, by the cost model, with what launches take in a network ([`NetworkTime`]).
//!
//! 1. [`Scope`] lists the forms of each layer.
//! 2. `structure` reads off the planner's graphs what each layer computes, depending on the forms of others.
//! 3. `layer_times` predicts the times, on demand.
//! 4. `search` finds the forms.

mod clock;
mod eligible;
mod form;
mod layer_times;
pub mod loss;
mod method;
pub mod report;
mod search;
mod structure;

pub use eligible::{Decomposition, Ineligible, Scope};
pub use form::{Form, has_ranks, with_forms};
pub use method::Method;

use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Epilogue, LinearProblem, Network, OpId, OpKind};
use crate::plan::{NetworkTime, PlanError, Planner};
use clock::Clock;
use form::{LayerProblem, form_of};
use layer_times::{LayerTimes, d1s};
use search::{Cost, Goal, Resource, Search, Solution, Unsolved};
use std::collections::BTreeMap;
use std::fmt;
use structure::Structure;

/// The resolution of losses: they are compared, and added, as multiples of this.
pub const LOSS_UNIT: f64 = 1e-9;

/// The loss of a layer in a form other than dense.
pub type Losses<'a> = dyn Fn(OpId, Form) -> f64 + 'a;

/// A network whose layers may have other forms.
pub struct Compression {
    /// Without ranks but those that are kept.
    network: Network,
    structure: Structure,
    clock: Clock,
    problem: search::Problem,
    ineligible: Vec<(OpId, Ineligible)>,
}

/// A limit as a user states it: some are relative to the dense network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// A limit as it is.
    Limit(Limit),
    /// Times as fast as the dense network.
    Speedup(f64),
    /// Fraction of the dense network's operations that is saved.
    FlopsCut(f64),
}

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Time of the network, microseconds.
    Us(f64),
    /// Floating-point operations of its convolutions and linear layers.
    Flops(u64),
    /// Bytes of its weights in fp32.
    WeightBytes(u64),
    /// Loss.
    Loss(f64),
}

/// The forms of a network's layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// For each layer that may be decomposed.
    pub forms: Vec<(OpId, Form)>,
    /// Predicted time of the network, microseconds.
    pub us: f64,
    /// Sum of the losses.
    pub loss: f64,
    /// Floating-point operations of all convolutions and linear layers.
    pub flops: u64,
    /// Bytes of all weights in fp32.
    pub weight_bytes: u64,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self {
            us,
            loss,
            flops,
            weight_bytes,
            ..
        } = self;
        let (gflop, mb) = (*flops as f64 / 1e9, *weight_bytes as f64 / 1e6);
        write!(
            f,
            "{us:.2} us, a loss of {loss:.4}, {gflop:.3} GFLOP, {mb:.2} MB of weights"
        )
    }
}

/// Why no forms were found.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CompressError {
    /// A limit cannot be kept.
    #[error("no forms of the layers keep {limit}: the nearest is {nearest}")]
    Limit {
        /// The limit.
        limit: String,
        /// What can be kept.
        nearest: String,
    },
    /// A method other than the search keeps the limits with no reduction.
    #[error(
        "this method keeps the limits with no reduction of 0 to 99 %; the nearest is {nearest}"
    )]
    Method {
        /// The nearest choice.
        nearest: String,
    },
    /// Each limit can be kept, but not all of them together.
    #[error("no forms of the layers keep all limits together; each of them alone can be kept")]
    Together,
}

impl Compression {
    /// For a network on a GPU. Ranks of the network are removed, unless `keep_ranks`.
    ///
    /// # Errors
    /// One for each layer that cannot be planned.
    pub fn new(
        network: &Network,
        gpu: &'static Gpu,
        scope: &Scope,
        keep_ranks: bool,
        losses: &Losses,
    ) -> Result<Self, Vec<PlanError>> {
        let ops = || (0..network.ops.len()).map(OpId);
        let removed = ops().filter(|&op| !keep_ranks && has_ranks(network, op));
        let network = with_forms(network, removed.map(|op| (op, Form::Dense)));
        let mut forms = BTreeMap::new();
        let mut ineligible = Vec::new();
        for op in ops() {
            match (form_of(&network, op), scope.forms(&network, op)) {
                (Some(form), _) if form != Form::Dense => {
                    forms.insert(op, vec![form]);
                }
                (_, Some(Ok(mut found))) => {
                    found.retain(|&form| scope.allows(losses(op, form)));
                    forms.insert(op, found);
                }
                (_, Some(Err(reason))) => ineligible.push((op, reason)),
                (_, None) => {}
            }
        }
        let mut planner = Planner::new(gpu);
        let structure = Structure::new(&network, &forms, &mut planner)?;
        let problem = search_problem(&network, &structure, losses);
        Ok(Self {
            network,
            structure,
            clock: Clock::new(gpu),
            problem,
            ineligible,
        })
    }

    /// The layers that stay as they are, each with the reason.
    pub fn ineligible(&self) -> &[(OpId, Ineligible)] {
        &self.ineligible
    }

    /// The network without ranks but those that are kept.
    pub fn dense(&self) -> &Network {
        &self.network
    }

    /// The forms of a network's own ranks.
    pub fn own_forms(&self, network: &Network) -> Vec<(OpId, Form)> {
        let layers = self.structure.layers.iter();
        let own = layers.filter_map(|layer| Some((layer.op, form_of(network, layer.op)?)));
        own.collect()
    }

    /// The choice that leaves everything dense but what is kept.
    ///
    /// # Errors
    /// One for each layer that cannot be planned.
    pub fn dense_choice(&self, losses: &Losses) -> Result<Choice, Vec<PlanError>> {
        let kept = self
            .structure
            .layers
            .iter()
            .map(|layer| (layer.op, layer.forms[0]));
        self.evaluated(kept.collect(), losses)
    }

    /// The limits of budgets, with the dense network's choice.
    pub fn limits(&self, budgets: &[Budget], dense: &Choice) -> Vec<Limit> {
        let budgets = budgets.iter();
        let limits = budgets.map(|budget| match *budget {
            Budget::Limit(limit) => limit,
            Budget::Speedup(speedup) => Limit::Us(dense.us / speedup),
            Budget::FlopsCut(cut) => Limit::Flops((dense.flops as f64 * (1.0 - cut)) as u64),
        });
        limits.collect()
    }

    /// The choices of least loss at times from the least possible one to that of the dense network: `points` of them at most, without
    /// equal ones, the fastest first.
    pub fn frontier(
        &mut self,
        dense: &Choice,
        points: u32,
        mut progress: impl FnMut(u32, &Choice),
    ) -> Vec<Choice> {
        let fastest_us = self.fastest().us;
        let mut frontier: Vec<Choice> = Vec::new();
        for point in 0..points {
            let at = f64::from(point) / f64::from(points.max(2) - 1);
            let us = fastest_us + at * (dense.us - fastest_us).max(0.0);
            let Ok(choice) = self.choose(&[Limit::Us(us)]) else {
                continue;
            };
            progress(point, &choice);
            if frontier.last() != Some(&choice) {
                frontier.push(choice);
            }
        }
        frontier
    }

    /// The forms of least loss within the limits. With a limit of the loss: those of least time.
    ///
    /// # Errors
    /// [`CompressError`] if there are none.
    pub fn choose(&mut self, limits: &[Limit]) -> Result<Choice, CompressError> {
        let has_loss = limits.iter().any(|limit| matches!(limit, Limit::Loss(_)));
        let goal = Goal {
            minimise: match has_loss {
                true => Resource::Time,
                false => Resource::Loss,
            },
            limits: limits.iter().map(|limit| limit.of_resource()).collect(),
        };
        let mut times = LayerTimes::new(&self.structure, &mut self.clock);
        let solution = Search::new(&self.problem, &mut times).solve(&goal);
        let solution = solution.map_err(|unsolved| error(unsolved, limits))?;
        Ok(self.choice(&solution))
    }

    /// The forms of least time, regardless of the loss.
    pub fn fastest(&mut self) -> Choice {
        let mut times = LayerTimes::new(&self.structure, &mut self.clock);
        let solution = Search::new(&self.problem, &mut times).least(Resource::Time);
        self.choice(&solution)
    }

    fn choice(&self, solution: &Solution) -> Choice {
        let layers = self.structure.layers.iter().zip(&solution.work);
        let forms: Vec<(OpId, Form)> = layers
            .map(|(layer, work)| (layer.op, layer.forms[work.form]))
            .collect();
        // The search stops at launches that are fast enough; the planner takes the fastest ones of these forms.
        let network = with_forms(&self.network, forms.iter().copied());
        let planned = NetworkTime::predict(&network, Planner::new(self.clock.gpu()));
        let ns = planned.map_or(solution.cost.ns, |time| time.ns());
        Choice {
            forms,
            us: ns as f64 / 1e3,
            loss: solution.cost.loss as f64 * LOSS_UNIT,
            flops: solution.cost.flops,
            weight_bytes: solution.cost.weight_bytes,
        }
    }
}

/// The problem of the search: forms with their losses, operations and weights.
fn search_problem(network: &Network, structure: &Structure, losses: &Losses) -> search::Problem {
    let layers = structure.layers.iter().map(|layer| {
        let problem = &layer.contexts[0].problem;
        let d1s = d1s(&layer.forms);
        let forms = layer.forms.iter().map(|&form| search::Form {
            d1: match form {
                Form::Tucker([d1, _]) => d1s.binary_search(&d1).ok(),
                Form::Dense | Form::LowRank(_) => None,
            },
            loss: match form {
                Form::Dense => 0,
                _ => (losses(layer.op, form) / LOSS_UNIT).round() as u64,
            },
            flops: problem.flops(form),
            weight_bytes: problem.weight_bytes(form),
        });
        search::Layer {
            forms: forms.collect(),
            d1s: d1s.len(),
            group: layer.group,
            exits: layer
                .contexts
                .iter()
                .map(|context| context.exits.clone())
                .collect(),
        }
    });
    let (flops, weight_bytes) = other_work(network, structure);
    search::Problem {
        layers: layers.collect(),
        groups: structure.groups.clone(),
        constant: Cost {
            ns: structure.other_ns,
            loss: 0,
            flops,
            weight_bytes,
        },
    }
}

/// Operations and bytes of weights of the layers that stay as they are.
fn other_work(network: &Network, structure: &Structure) -> (u64, u64) {
    let is_other = |op: &OpId| !structure.layers.iter().any(|layer| layer.op == *op);
    let others = (0..network.ops.len()).map(OpId).filter(is_other);
    let work = others.filter_map(|op| layer_problem(network, op));
    work.fold((0, 0), |(flops, bytes), problem| {
        let dense = Form::Dense;
        (
            flops + problem.flops(dense),
            bytes + problem.weight_bytes(dense),
        )
    })
}

/// A layer without what is folded into it; `None` for an op without weights.
fn layer_problem(network: &Network, op: OpId) -> Option<LayerProblem> {
    match &network.op(op).kind {
        OpKind::Conv(conv) => Some(LayerProblem::Conv(ConvProblem::new(conv.shape))),
        OpKind::Linear(linear) => Some(LayerProblem::Linear(LinearProblem {
            batch: network.op(op).y.batch,
            c: linear.c,
            n: linear.options.n,
            epilogue: Epilogue::default(),
        })),
        _ => None,
    }
}

impl Limit {
    fn of_resource(&self) -> (Resource, u64) {
        match *self {
            Self::Us(us) => (Resource::Time, units(us, 1e-3)),
            Self::Flops(flops) => (Resource::Flops, flops),
            Self::WeightBytes(bytes) => (Resource::WeightBytes, bytes),
            Self::Loss(loss) => (Resource::Loss, units(loss, LOSS_UNIT)),
        }
    }
}

/// The whole units of a limit. A limit that was computed from a number of units may be a rounding error below it.
fn units(value: f64, unit: f64) -> u64 {
    (value / unit * (1.0 + 1e-12)).floor() as u64
}

fn error(unsolved: Unsolved, limits: &[Limit]) -> CompressError {
    let Unsolved::Limit { resource, least } = unsolved else {
        return CompressError::Together;
    };
    let limit = limits.iter().map(Limit::of_resource);
    let limit = limit
        .filter(|(of, _)| *of == resource)
        .map(|(_, n)| n)
        .next();
    let worded = |value: u64| match resource {
        Resource::Time => format!("{:.2} us", value as f64 / 1e3),
        Resource::Loss => format!("a loss of {}", value as f64 * LOSS_UNIT),
        Resource::Flops => format!("{:.4} GFLOP", value as f64 / 1e9),
        Resource::WeightBytes => format!("{:.3} MB of weights", value as f64 / 1e6),
    };
    CompressError::Limit {
        limit: worded(limit.unwrap_or(0)),
        nearest: worded(least),
    }
}

#[cfg(test)]
mod tests;
