//! Rank choice: which layers of a network to decompose, and at which ranks, so that the network is fast and loses little.
//!
//! The [loss](Losses) of a network is the sum of its layers'; its time is that of the very launches that the planner would choose for these
//! ranks, by the cost model, with what launches take in a network ([`NetworkTime`]).
//!
//! 1. [`Scope`] lists the forms of each layer.
//! 2. `structure` reads off the planner's graphs what each layer computes, depending on the forms of others.
//! 3. `groups` has the layers whose forms decide what they compute; `sharing` the launches that several dense layers share.
//! 4. `stored` and `storage` have the formats in which layers read and write activations.
//! 5. `layer_times` predicts the times, on demand.
//! 6. `search` finds the forms. `replacement` then tries other kinds of forms in single layers.
//! 7. `tune` corrects the times by measured ones, and searches again.

mod clock;
mod eligible;
mod form;
mod frontier;
mod groups;
mod layer_times;
pub mod loss;
mod lower_bound;
mod method;
mod parallel;
mod replacement;
pub mod report;
mod search;
mod sharing;
mod storage;
mod stored;
mod structure;
mod tune;

pub use eligible::{Decomposition, Ineligible, Scope, ScopeError};
pub use form::{Form, has_ranks, incomparable, with_forms};
pub use frontier::Frontier;
pub use lower_bound::LowerBound;
pub use method::Method;
pub use tune::{TuneError, Tuning};

use crate::gpu::Gpu;
use crate::ir::{ConvertProblem, Layout, Network, OpId, Problem};
use crate::plan::{NetworkTime, PlanError, TaskGraph};
use clock::{Clock, OnPrediction};
use eligible::is_requested;
use form::{form_of, weight_bytes};
use layer_times::LayerTimes;
use replacement::compared;
use search::{Goal, Resource, Search, Solution, Unsolved};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use storage::Storage;

/// The resolution of losses: they are compared, and added, as multiples of this.
pub const LOSS_UNIT: f64 = 1e-9;

/// The loss of a layer in a form other than dense; infinite for a form that is no candidate.
pub type Losses<'a> = dyn Fn(OpId, Form) -> f64 + 'a;

/// A network whose layers may have other forms, for one or several GPUs and batches.
pub struct Compression<'a> {
    losses: &'a Losses<'a>,
    /// At least one.
    targets: Vec<Target>,
    /// What is searched first: with all layers in NCHW; and if those are different, with layers stored as in the plan of the dense network, as in
    /// the plans of the fastest forms of each of these two searches, and as in plans where only one part of the network has the fastest forms.
    storages: Vec<Storage>,
    ineligible: Vec<(OpId, Ineligible)>,
}

/// A GPU and a batch that the network is planned for.
struct Target {
    /// Without ranks but those that are kept.
    network: Network,
    clock: Clock,
    /// The factor of its times in the time of the network: their sum is the mean of the times relative to the dense network, times the
    /// dense network's time on the first target.
    weight: f64,
}

impl Target {
    /// The time of the network without ranks, nanoseconds.
    fn dense_ns(&mut self) -> Result<f64, Vec<PlanError>> {
        let time = NetworkTime::of_network(self.clock.planner(), &self.network)?;
        Ok(time.ns() as f64)
    }
}

/// The most searches from one storage.
const MOST_SEARCHES: usize = 3;

/// The part of its time in the search below which the plan of a choice counts as faster.
const FASTER: f64 = 0.99;

/// The part of a limit of time that the plan of a choice may take: the search rounds the times of layers.
const ROUNDED: f64 = 1.001;

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
        for (op, found) in scope.forms(&network) {
            match (form_of(&network, op), found) {
                (Some(form), _) if form != Form::Dense => {
                    forms.insert(op, vec![form]);
                }
                (_, Ok(mut found)) => {
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
                (_, Err(reason)) => ineligible.push((op, reason)),
            }
        }
        let targets = targets.iter().map(|&(network, gpu)| Target {
            network: without_ranks(network, keep_ranks),
            clock: Clock::new(gpu),
            weight: 1.0,
        });
        let mut targets: Vec<Target> = targets.collect();
        let dense = targets.iter_mut().map(Target::dense_ns);
        let dense = dense.collect::<Result<Vec<f64>, _>>()?;
        for (target, ns) in targets.iter_mut().zip(&dense) {
            target.weight = dense[0] / ns / dense.len() as f64;
        }
        let mut compression = Self {
            losses,
            storages: Vec::new(),
            targets,
            ineligible,
        };
        compression.set_storages(&forms)?;
        Ok(compression)
    }

    /// Sets what is called after each launch whose time was predicted, by any thread: searches with a small step predict many.
    pub fn on_prediction(&mut self, call: impl Fn() + Send + Sync + 'static) {
        let call: OnPrediction = Arc::new(call);
        for target in &mut self.targets {
            target.clock.on_prediction(call.clone());
        }
    }

    /// Sets what is searched first. `forms` has the forms of the layers.
    fn set_storages(&mut self, forms: &BTreeMap<OpId, Vec<Form>>) -> Result<(), Vec<PlanError>> {
        self.storages = Storage::all(&mut self.targets, forms, self.losses)?;
        if self.storages.len() == 1 {
            return Ok(());
        }
        let mut fastest = Vec::new();
        for storage in &self.storages {
            let mut times = storage.layer_times(&mut self.targets);
            fastest.push(Search::new(&storage.problem, &mut times).least(Resource::Time));
        }
        let fastest: Vec<Choice> = fastest.iter().map(|of| self.choice(of)).collect();
        let in_nchw = fastest[0].forms.clone();
        let parts = self.parts_of_dense_plan()?;
        let of_parts = parts.iter().map(|part| {
            let forms = in_nchw.iter().filter(|(op, _)| part.contains(op));
            forms.copied().collect()
        });
        let forms = fastest.into_iter().map(|choice| choice.forms);
        let all: Vec<Vec<(OpId, Form)>> = forms.chain(of_parts).collect();
        for forms in all {
            let storage = self.storage_of(&forms).filter(|storage| {
                let mut known = self.storages.iter();
                known.all(|known| known.structures != storage.structures)
            });
            self.storages.extend(storage);
        }
        Ok(())
    }

    /// The layers of the dense network by the parts of its plan on the first target that are stored in NHWC independently: each but the first begins
    /// with a conversion from NCHW.
    fn parts_of_dense_plan(&mut self) -> Result<Vec<Vec<OpId>>, Vec<PlanError>> {
        let target = &mut self.targets[0];
        let time = NetworkTime::of_network(target.clock.planner(), &target.network)?;
        let mut parts = vec![Vec::new()];
        for step in &time.steps {
            if let Problem::Convert(ConvertProblem { from, to, .. }) = &step.problem
                && [from.layout, to.layout] == [Layout::Nchw, Layout::Nhwc]
            {
                parts.push(Vec::new());
            }
            if let Some(part) = parts.last_mut() {
                part.extend(step.layers.iter().map(|part| part.layer));
            }
        }
        parts.retain(|part| !part.is_empty());
        Ok(parts)
    }

    /// The layers as the plan of the dense network stores them.
    fn dense_storage(&self) -> &Storage {
        self.storages.get(1).unwrap_or(&self.storages[0])
    }

    /// The layers of the search.
    fn layers(&self) -> &[structure::Layer] {
        &self.storages[0].structures[0].layers
    }

    /// The first target.
    fn first(&self) -> &Target {
        &self.targets[0]
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
    pub fn dense_choice(&mut self) -> Result<Choice, Vec<PlanError>> {
        self.evaluated(&self.first().network.clone())
    }

    /// Time, loss and size of a network with the same layers and any ranks.
    ///
    /// # Errors
    /// One for each layer that cannot be planned.
    pub fn evaluated(&mut self, network: &Network) -> Result<Choice, Vec<PlanError>> {
        let (flops, weight_bytes) = work_of(&TaskGraph::new(network), |_| true);
        let ops = (0..network.ops.len()).map(OpId);
        let layers = ops.filter_map(|op| Some((op, form_of(network, op)?)));
        let layers: Vec<(OpId, Form)> = layers.collect();
        let mut target_us = Vec::new();
        for (index, target) in self.targets.iter_mut().enumerate() {
            let planner = target.clock.planner();
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
        let layers = self
            .layers()
            .iter()
            .filter(|layer| layer.may_be_decomposed());
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

    /// The forms of least loss within the limits. With a limit of the loss: those of least time.
    ///
    /// # Errors
    /// [`CompressError`] if there are none.
    pub fn choose(&mut self, limits: &[Limit]) -> Result<Choice, CompressError> {
        Ok(self.found_and_replaced(limits)?.swap_remove(0))
    }

    /// What the searches find, the best first; at least one. If [replacements](Self::replaced) improve the best one: also the result of these,
    /// and what a search in the formats of its plan finds.
    fn found_and_replaced(&mut self, limits: &[Limit]) -> Result<Vec<Choice>, CompressError> {
        let mut found = self.found(limits)?;
        let Some(replaced) = self.replaced(&found[0], limits) else {
            return Ok(found);
        };
        let storage = self.storage_of(&replaced.forms).filter(|storage| {
            let mut known = self.storages.iter();
            known.all(|known| known.structures != storage.structures)
        });
        if let Some(storage) = storage {
            // For this search only: the result of a further one shall not depend on it.
            self.storages.push(storage);
            let in_its_formats = self.found_from(self.storages.len() - 1, limits);
            self.storages.pop();
            found.extend(in_its_formats.into_iter().flatten());
        }
        found.push(replaced);
        found.sort_by(|a, b| compared(limits, a, b));
        Ok(found)
    }

    /// What the searches from all storages find, the [best](Self::choose) first; at least one.
    fn found(&mut self, limits: &[Limit]) -> Result<Vec<Choice>, CompressError> {
        self.found_from(0, limits)
    }

    /// The same from the storages with this index and higher ones.
    fn found_from(&mut self, first: usize, limits: &[Limit]) -> Result<Vec<Choice>, CompressError> {
        let mut tightest: BTreeMap<Resource, u64> = BTreeMap::new();
        for (resource, limit) in limits.iter().map(Limit::of_resource) {
            let known = tightest.entry(resource).or_insert(limit);
            *known = limit.min(*known);
        }
        let goal = Goal {
            minimise: match tightest.contains_key(&Resource::Loss) {
                true => Resource::Time,
                false => Resource::Loss,
            },
            limits: tightest.into_iter().collect(),
        };
        let (mut choices, mut unsolved) = self.choices(first, |search| search.solve(&goal));
        // A plan may miss a time that the search expected to keep, by more than what the search rounds.
        let too_slow = |choice: &Choice| {
            let limits = goal.limits.iter();
            let mut times = limits.filter(|(resource, _)| *resource == Resource::Time);
            times.any(|(_, ns)| choice.us * 1e3 > ROUNDED * *ns as f64)
        };
        unsolved.extend(
            choices
                .iter()
                .filter(|choice| too_slow(choice))
                .map(|choice| Unsolved::Limit {
                    resource: Resource::Time,
                    least: (choice.us * 1e3).ceil() as u64,
                }),
        );
        choices.retain(|choice| !too_slow(choice));
        choices.sort_by(|a, b| compared(limits, a, b));
        match choices.is_empty() {
            true => Err(error(&unsolved, &goal.limits)),
            false => Ok(choices),
        }
    }

    /// The forms of least time, regardless of the loss.
    pub fn fastest(&mut self) -> Choice {
        let (choices, _) = self.choices(0, |search| Ok(search.least(Resource::Time)));
        let fastest = choices.into_iter().min_by(|a, b| a.us.total_cmp(&b.us));
        fastest.expect("there is always a fastest solution")
    }

    /// The choices of the storages with this index and higher ones. As long as the plan of a choice is faster than the search expects, the layers are stored as in that plan,
    /// and searched again; where a time cannot be kept, as in the plan of the fastest choice.
    fn choices(
        &mut self,
        first: usize,
        solve: impl Fn(&mut Search<LayerTimes>) -> Result<Solution, Unsolved>,
    ) -> (Vec<Choice>, Vec<Unsolved>) {
        let (mut choices, mut unsolved) = (Vec::new(), Vec::new());
        for index in first..self.storages.len() {
            let mut as_planned: Option<Storage> = None;
            for _ in 0..MOST_SEARCHES {
                let storage = as_planned.as_ref().unwrap_or(&self.storages[index]);
                let mut times = storage.layer_times(&mut self.targets);
                let mut search = Search::new(&storage.problem, &mut times);
                let (solution, error) = match solve(&mut search) {
                    Ok(solution) => (solution, None),
                    Err(error) => (search.least(Resource::Time), Some(error)),
                };
                let choice = self.choice(&solution);
                let searched_us = solution.cost.ns as f64 / 1e3;
                let next = match choice.us < FASTER * searched_us {
                    true => self.storage_of(&choice.forms),
                    false => None,
                };
                let present = as_planned.as_ref().unwrap_or(&self.storages[index]);
                let next = next.filter(|next| next.structures != present.structures);
                match error {
                    Some(error) => unsolved.push(error),
                    None => choices.push(choice),
                }
                as_planned = next;
                if as_planned.is_none() {
                    break;
                }
            }
        }
        (choices, unsolved)
    }

    /// Layers stored as in the plan of the network with these forms; `None` if it cannot be planned.
    fn storage_of(&mut self, forms: &[(OpId, Form)]) -> Option<Storage> {
        let nchw = &self.storages[0].structures;
        Storage::as_planned(&mut self.targets, nchw, forms, self.losses).ok()
    }

    /// A solution as a choice. The search stops at launches that are fast enough; the planner takes the fastest ones of these forms.
    fn choice(&mut self, solution: &Solution) -> Choice {
        let layers = self.layers().iter().zip(&solution.work);
        let forms: Vec<(OpId, Form)> = layers
            .filter(|(layer, _)| layer.may_be_decomposed())
            .map(|(layer, work)| (layer.op, layer.forms[work.form]))
            .collect();
        let target_us = self.targets.iter_mut().map(|target| {
            let network = with_forms(&target.network, forms.iter().copied());
            let planned = NetworkTime::of_network(target.clock.planner(), &network);
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

/// The error if no storage has a solution. The limits are checked in order, so the last one of those that were missed is the first one that
/// no storage keeps.
fn error(unsolved: &[Unsolved], limits: &[(Resource, u64)]) -> CompressError {
    let missed = unsolved.iter().map(|unsolved| match *unsolved {
        Unsolved::Limit { resource, least } => {
            let index = limits.iter().position(|(of, _)| *of == resource);
            (index.unwrap_or(limits.len()), Reverse(least))
        }
        Unsolved::Together => (limits.len(), Reverse(0)),
    });
    let missed = missed
        .max()
        .and_then(|(index, least)| Some((limits.get(index)?, least)));
    let Some((&(resource, limit), Reverse(least))) = missed else {
        return CompressError::Together;
    };
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
