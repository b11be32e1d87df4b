//! Rank choice: which layers of a network to decompose, and at which ranks, so that the network is fast and loses little.
//!
//! The [loss](Losses) of a network is the sum of its layers'; its time is that of the very launches that the planner would choose for these
//! ranks, by the cost model, with what launches take in a network ([`NetworkTime`]).
//!
//! 1. [`Scope`] lists the forms of each layer.
//! 2. `structure` reads off the planner's graphs what each layer computes, depending on the forms of others.
//! 3. `stored` has the formats in which layers read and write activations.
//! 4. `layer_times` predicts the times, on demand.
//! 5. `search` finds the forms.
//! 6. `tune` corrects the times by measured ones, and searches again.

mod clock;
mod eligible;
mod form;
mod layer_times;
pub mod loss;
mod lower_bound;
mod method;
pub mod report;
mod search;
mod stored;
mod structure;
mod tune;

pub use eligible::{Decomposition, Ineligible, Scope};
pub use form::{Form, has_ranks, incomparable, with_forms};
pub use lower_bound::LowerBound;
pub use method::Method;
pub use tune::{TuneError, Tuning};

use crate::gpu::Gpu;
use crate::ir::{Network, OpId, Problem};
use crate::plan::{NetworkTime, PlanError, Planner, TaskGraph};
use clock::Clock;
use eligible::is_requested;
use form::{form_of, weight_bytes};
use layer_times::LayerTimes;
use search::{Cost, Goal, Resource, Search, Solution, Unsolved};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use structure::Structure;

/// The resolution of losses: they are compared, and added, as multiples of this.
pub const LOSS_UNIT: f64 = 1e-9;

/// The loss of a layer in a form other than dense; infinite for a form that is no candidate.
pub type Losses<'a> = dyn Fn(OpId, Form) -> f64 + 'a;

/// A network whose layers may have other forms, for one or several GPUs and batches.
pub struct Compression<'a> {
    losses: &'a Losses<'a>,
    /// At least one.
    targets: Vec<Target>,
    /// What is searched: one problem for each [`Storage`] that makes a difference.
    problems: Vec<(Storage, search::Problem)>,
    ineligible: Vec<(OpId, Ineligible)>,
}

/// A GPU and a batch that the network is planned for.
struct Target {
    /// Without ranks but those that are kept.
    network: Network,
    /// With all layers in NCHW.
    nchw: Structure,
    /// With layers stored as in the plan of the dense network, unless that is NCHW too.
    as_dense: Option<Structure>,
    clock: Clock,
    /// Time of the dense network, nanoseconds.
    dense_ns: f64,
    /// The factor of its times in the time of the network: their sum is the mean of the times relative to the dense network, times the
    /// dense network's time on the first target.
    weight: f64,
}

/// The formats of the values between layers, in which the search has the time of each layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Storage {
    /// NCHW. A launch may compute the first factor of a later layer too.
    Nchw,
    /// As in the plan of the dense network.
    AsDense,
}

impl Target {
    fn new(
        network: Network,
        gpu: &'static Gpu,
        forms: &BTreeMap<OpId, Vec<Form>>,
    ) -> Result<Self, Vec<PlanError>> {
        let mut target = Self {
            network,
            nchw: Structure::default(),
            as_dense: None,
            clock: Clock::new(gpu),
            dense_ns: 0.0,
            weight: 1.0,
        };
        target.plan_dense(forms)?;
        Ok(target)
    }

    /// Plans the dense network, for layers with these forms.
    fn plan_dense(&mut self, forms: &BTreeMap<OpId, Vec<Form>>) -> Result<(), Vec<PlanError>> {
        let mut planner = self.clock.planner();
        self.nchw = Structure::new(&self.network, forms, &mut planner)?;
        let dense = NetworkTime::of_network(&mut planner, &self.network)?;
        self.as_dense = self.nchw.stored_as(&self.network, &dense);
        self.dense_ns = dense.ns() as f64;
        Ok(())
    }

    fn structure(&self, storage: Storage) -> &Structure {
        match storage {
            Storage::Nchw => &self.nchw,
            Storage::AsDense => self.as_dense.as_ref().unwrap_or(&self.nchw),
        }
    }
}

/// The most targets of a choice.
pub const MAX_TARGETS: usize = 4;

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
    /// Predicted time of the network, microseconds. Of several targets: the mean of the times relative to the dense network, times the dense
    /// network's time on the first target.
    pub us: f64,
    /// Predicted time on each target, microseconds.
    pub target_us: Vec<f64>,
    /// Sum of the losses; infinite if the loss of a layer is not known.
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

impl<'a> Compression<'a> {
    /// For a network on a GPU, [without its ranks](without_ranks).
    ///
    /// # Errors
    /// One for each layer that cannot be planned.
    pub fn new(
        network: &Network,
        gpu: &'static Gpu,
        scope: &Scope,
        keep_ranks: bool,
        losses: &'a Losses<'a>,
    ) -> Result<Self, Vec<PlanError>> {
        Self::for_targets(&[(network, gpu)], scope, keep_ranks, losses)
    }

    /// For the same network on several GPUs, or with several batches: at most [`MAX_TARGETS`].
    ///
    /// # Errors
    /// One for each layer that cannot be planned.
    ///
    /// # Panics
    /// If there is no target, or more than [`MAX_TARGETS`].
    pub fn for_targets(
        targets: &[(&Network, &'static Gpu)],
        scope: &Scope,
        keep_ranks: bool,
        losses: &'a Losses<'a>,
    ) -> Result<Self, Vec<PlanError>> {
        assert!((1..=MAX_TARGETS).contains(&targets.len()));
        let network = targets[0].0;
        let network = without_ranks(network, keep_ranks);
        let mut forms = BTreeMap::new();
        let mut ineligible = Vec::new();
        for op in (0..network.ops.len()).map(OpId) {
            match (form_of(&network, op), scope.forms(&network, op)) {
                (Some(form), _) if form != Form::Dense => {
                    forms.insert(op, vec![form]);
                }
                (_, Some(Ok(mut found))) => {
                    found.retain(|&form| form == Form::Dense || losses(op, form).is_finite());
                    let reason = match found.len() {
                        1 => Ineligible::UnknownLoss,
                        _ => Ineligible::LossTooLarge,
                    };
                    found.retain(|&form| form == Form::Dense || scope.allows(losses(op, form)));
                    match found.len() {
                        1 => ineligible.push((op, reason)),
                        _ => {
                            forms.insert(op, found);
                        }
                    }
                }
                (_, Some(Err(reason))) => ineligible.push((op, reason)),
                (_, None) => {}
            }
        }
        let targets = targets
            .iter()
            .map(|&(network, gpu)| Target::new(without_ranks(network, keep_ranks), gpu, &forms));
        let mut targets = targets.collect::<Result<Vec<Target>, _>>()?;
        let (first_ns, count) = (targets[0].dense_ns, targets.len() as f64);
        for target in &mut targets {
            target.weight = first_ns / target.dense_ns / count;
        }
        Ok(Self {
            losses,
            problems: search_problems(&targets, losses),
            targets,
            ineligible,
        })
    }

    /// The layers that may have several forms.
    fn layers(&self) -> &[structure::Layer] {
        &self.first().nchw.layers
    }

    /// The first target.
    fn first(&self) -> &Target {
        &self.targets[0]
    }

    /// A planner for each target.
    fn planners(&self) -> Vec<Planner> {
        let targets = self.targets.iter();
        targets.map(|target| target.clock.planner()).collect()
    }

    /// The weighted sum of the times on the targets, in microseconds.
    fn weighted_us(&self, target_us: &[f64]) -> f64 {
        let targets = self.targets.iter().zip(target_us);
        targets.map(|(target, us)| target.weight * us).sum()
    }

    /// The network without ranks but those that are kept.
    pub fn dense(&self) -> &Network {
        &self.first().network
    }

    /// The network without ranks but those that are kept, as a choice.
    ///
    /// # Errors
    /// One for each layer that cannot be planned.
    pub fn dense_choice(&self) -> Result<Choice, Vec<PlanError>> {
        self.evaluated(&self.first().network)
    }

    /// Time, loss and size of a network with the same layers and any ranks.
    ///
    /// # Errors
    /// One for each layer that cannot be planned.
    pub fn evaluated(&self, network: &Network) -> Result<Choice, Vec<PlanError>> {
        self.evaluated_by(&mut self.planners(), network)
    }

    /// The same with planners that remember times, one for each target.
    fn evaluated_by(
        &self,
        planners: &mut [Planner],
        network: &Network,
    ) -> Result<Choice, Vec<PlanError>> {
        let (flops, weight_bytes) = work_of(&TaskGraph::new(network), |_| true);
        let ops = (0..network.ops.len()).map(OpId);
        let layers = ops.filter_map(|op| Some((op, form_of(network, op)?)));
        let layers: Vec<(OpId, Form)> = layers.collect();
        let mut target_us = Vec::new();
        for (index, (target, planner)) in self.targets.iter().zip(planners).enumerate() {
            let time = match index {
                // Also its other options may differ.
                0 => NetworkTime::of_network(planner, network)?,
                _ => {
                    let network = with_forms(&target.network, layers.iter().copied());
                    NetworkTime::of_network(planner, &network)?
                }
            };
            target_us.push(time.ns() as f64 / 1e3);
        }
        let is_known =
            |&(op, form): &(OpId, Form)| form == Form::Dense || (self.losses)(op, form).is_finite();
        let loss = match layers.iter().all(is_known) {
            true => {
                let losses = layers
                    .iter()
                    .map(|&(op, form)| loss_units(self.losses, op, form));
                losses.sum::<u64>() as f64 * LOSS_UNIT
            }
            false => f64::INFINITY,
        };
        let layers = self.layers().iter();
        let forms = layers.filter_map(|layer| Some((layer.op, form_of(network, layer.op)?)));
        Ok(Choice {
            forms: forms.collect(),
            us: self.weighted_us(&target_us),
            target_us,
            loss,
            flops,
            weight_bytes,
        })
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
        let fastest = self.fastest();
        let fastest_us = fastest.us;
        let mut frontier: Vec<Choice> = Vec::new();
        for point in 0..points {
            let at = f64::from(point) / f64::from(points.max(2) - 1);
            let us = fastest_us + at * (dense.us - fastest_us).max(0.0);
            let choice = match self.choose(&[Limit::Us(us)]) {
                Ok(choice) => choice,
                // For several targets the search rounds times, so it may not find that of the fastest choice.
                Err(_) if point == 0 => fastest.clone(),
                Err(_) => continue,
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
        let mut tightest: BTreeMap<Resource, u64> = BTreeMap::new();
        for (resource, limit) in limits.iter().map(Limit::of_resource) {
            let known = tightest.entry(resource).or_insert(limit);
            *known = limit.min(*known);
        }
        let goal = Goal {
            minimise: match has_loss {
                true => Resource::Time,
                false => Resource::Loss,
            },
            limits: tightest.into_iter().collect(),
        };
        let mut choices = Vec::new();
        let mut unsolved = Vec::new();
        for (storage, problem) in &self.problems {
            let mut times = layer_times(&mut self.targets, *storage);
            match Search::new(problem, &mut times).solve(&goal) {
                Ok(solution) => choices.push(self.choice(&solution)),
                Err(error) => unsolved.push(error),
            }
        }
        let value = |choice: &Choice| match goal.minimise {
            Resource::Time => [choice.us, choice.loss],
            _ => [choice.loss, choice.us],
        };
        let best = choices
            .into_iter()
            .min_by(|a, b| value(a).partial_cmp(&value(b)).unwrap_or(Ordering::Equal));
        best.ok_or_else(|| error(&unsolved, &goal.limits))
    }

    /// The forms of least time, regardless of the loss.
    pub fn fastest(&mut self) -> Choice {
        let mut choices = Vec::new();
        for (storage, problem) in &self.problems {
            let mut times = layer_times(&mut self.targets, *storage);
            let solution = Search::new(problem, &mut times).least(Resource::Time);
            choices.push(self.choice(&solution));
        }
        let fastest = choices.into_iter().min_by(|a, b| a.us.total_cmp(&b.us));
        fastest.expect("NCHW is always searched")
    }

    /// A solution as a choice. The search stops at launches that are fast enough; the planner takes the fastest ones of these forms.
    fn choice(&self, solution: &Solution) -> Choice {
        let layers = self.layers().iter().zip(&solution.work);
        let forms: Vec<(OpId, Form)> = layers
            .map(|(layer, work)| (layer.op, layer.forms[work.form]))
            .collect();
        let target_us = self.targets.iter().map(|target| {
            let network = with_forms(&target.network, forms.iter().copied());
            let planned = NetworkTime::of_network(&mut target.clock.planner(), &network);
            planned.map_or(solution.cost.ns, |time| time.ns()) as f64 / 1e3
        });
        let target_us: Vec<f64> = target_us.collect();
        Choice {
            forms,
            us: self.weighted_us(&target_us),
            target_us,
            loss: solution.cost.loss as f64 * LOSS_UNIT,
            flops: solution.cost.flops,
            weight_bytes: solution.cost.weight_bytes,
        }
    }
}

/// The network without ranks: with `keep_ranks` none are removed, otherwise all but those of layers whose scheme or layout the config
/// requests, which may not fit other ranks.
pub fn without_ranks(network: &Network, keep_ranks: bool) -> Network {
    let ops = (0..network.ops.len()).map(OpId);
    let removed =
        ops.filter(|&op| !keep_ranks && has_ranks(network, op) && !is_requested(network, op));
    with_forms(network, removed.map(|op| (op, Form::Dense)))
}

fn layer_times(targets: &mut [Target], storage: Storage) -> LayerTimes<'_> {
    LayerTimes::new(targets.iter_mut().map(|target| {
        let Target {
            nchw,
            as_dense,
            clock,
            weight,
            ..
        } = target;
        let structure = match storage {
            Storage::Nchw => &*nchw,
            Storage::AsDense => as_dense.as_ref().unwrap_or(nchw),
        };
        (structure, clock, *weight)
    }))
}

/// The problems of the search: with NCHW, and with the formats of the dense network's plan if any target has others.
fn search_problems(targets: &[Target], losses: &Losses) -> Vec<(Storage, search::Problem)> {
    let has_others = targets.iter().any(|target| target.as_dense.is_some());
    let storages = [Some(Storage::Nchw), has_others.then_some(Storage::AsDense)];
    let storages = storages.into_iter().flatten();
    storages
        .map(|storage| (storage, search_problem(targets, storage, losses)))
        .collect()
}

/// The problem of the search: forms with their losses, operations and weights; the latter of the first target.
fn search_problem(targets: &[Target], storage: Storage, losses: &Losses) -> search::Problem {
    let network = &targets[0].network;
    let structure = targets[0].structure(storage);
    let sum_ns = |ns: &dyn Fn(&Structure) -> u64| -> u64 {
        let all = targets.iter();
        all.map(|target| (ns(target.structure(storage)) as f64 * target.weight).round() as u64)
            .sum()
    };
    let groups = structure.groups.iter().enumerate();
    let groups = groups.map(|(index, group)| search::Group {
        layers: group.layers.clone(),
        ns: (0..group.ns.len())
            .map(|choice| sum_ns(&|structure| structure.groups[index].ns[choice]))
            .collect(),
    });
    let layers = structure.layers.iter().map(|layer| {
        let problem = &layer.contexts[0].problem;
        let d1s = problem.d1s(&layer.forms);
        let forms = layer.forms.iter().map(|&form| search::Form {
            kind: match (form, problem.d1(form)) {
                (Form::Tucker(_), Some(d1)) => {
                    search::Kind::First(d1s.partition_point(|&d| d < d1))
                }
                (Form::Tucker(_), None) => search::Kind::NoFirst,
                (Form::Dense | Form::LowRank(_) | Form::Cp(_), _) => search::Kind::Other,
            },
            loss: loss_units(losses, layer.op, form),
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
    // The layers that stay as they are.
    let is_other = |op: OpId| !structure.layers.iter().any(|layer| layer.op == op);
    let (flops, weight_bytes) = work_of(&TaskGraph::new(network), is_other);
    search::Problem {
        layers: layers.collect(),
        groups: groups.collect(),
        targets: targets.len(),
        constant: Cost {
            ns: sum_ns(&|structure| structure.other_ns),
            loss: 0,
            flops,
            weight_bytes,
        },
    }
}

/// Operations and bytes of weights of some layers of a graph.
fn work_of(graph: &TaskGraph, is_counted: impl Fn(OpId) -> bool) -> (u64, u64) {
    let tasks = graph.tasks.iter();
    let layers = tasks.filter(|task| {
        let is_layer = matches!(task.problem, Problem::Conv(_) | Problem::Linear(_));
        is_layer && task.parameters.layer.is_some_and(&is_counted)
    });
    layers.fold((0, 0), |(flops, bytes), task| {
        (
            flops + task.problem.flops(),
            bytes + weight_bytes(&task.problem),
        )
    })
}

/// The most that the loss of a layer counts, in units: sums over any network do not overflow.
const MAX_LOSS: u64 = 1 << 44;

/// The loss of a layer in units.
fn loss_units(losses: &Losses, op: OpId, form: Form) -> u64 {
    if form == Form::Dense {
        return 0;
    }
    let units = (losses(op, form) / LOSS_UNIT).round();
    match units <= MAX_LOSS as f64 {
        true => units as u64,
        // Also if it is no number.
        false => MAX_LOSS,
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

/// The error if no storage has a solution. A limit that one of them keeps can be kept.
fn error(unsolved: &[Unsolved], limits: &[(Resource, u64)]) -> CompressError {
    let missed = unsolved.iter().map(|unsolved| match *unsolved {
        Unsolved::Limit { resource, least } => Some((least, resource)),
        Unsolved::Together => None,
    });
    let Some((least, resource)) = missed.min().flatten() else {
        return CompressError::Together;
    };
    let limit = limits.iter().find(|(of, _)| *of == resource);
    let limit = limit.map_or(0, |(_, limit)| *limit);
    let worded = |value: u64| match resource {
        Resource::Time => format!("{:.2} us", value as f64 / 1e3),
        Resource::Loss => format!("a loss of {}", value as f64 * LOSS_UNIT),
        Resource::Flops => format!("{:.4} GFLOP", value as f64 / 1e9),
        Resource::WeightBytes => format!("{:.3} MB of weights", value as f64 / 1e6),
    };
    CompressError::Limit {
        limit: worded(limit),
        nearest: worded(least),
    }
}

#[cfg(test)]
mod tests;
