//! The times of a network's layers in each of their forms.
//!
//! For several GPUs or batches, [`LayerTimes`] adds the times of all, each with a weight.

use super::clock::Clock;
use super::form::{Form, LayerProblem};
use super::search::{self, TimeBound, Times};
use super::structure::{Context, Layer, Structure};
use crate::ir::{ConvProblem, CpProblem, FusedTucker, NextFactor, Problem, TuckerProblem};
use tdc_runtime::FactorRole;

/// What a launch, or several, of a layer compute on one target; see [`search::Work`].
#[derive(Debug, Clone, Copy)]
struct Work {
    layer: usize,
    choice: usize,
    form: usize,
    entered: bool,
    /// Index of the exit, and of the D1 of the layer there.
    exit: Option<(usize, usize)>,
}

impl Work {
    fn on(work: search::Work, target: usize) -> Self {
        let fusion = work.exit.filter(|fusion| fusion.targets.contains(target));
        Self {
            layer: work.layer,
            choice: work.choice,
            form: work.form,
            entered: work.entered.contains(target),
            exit: fusion.map(|fusion| (fusion.exit, fusion.d1)),
        }
    }
}

/// The weighted sums of the times of all targets.
pub(super) struct LayerTimes<'a> {
    targets: Vec<(TargetTimes<'a>, f64)>,
}

impl<'a> LayerTimes<'a> {
    /// With structure, clock and weight of each target.
    pub(super) fn new(
        targets: impl IntoIterator<Item = (&'a Structure, &'a mut Clock, f64)>,
    ) -> Self {
        let targets = targets.into_iter();
        Self {
            targets: targets
                .map(|(structure, clock, weight)| (TargetTimes::new(structure, clock), weight))
                .collect(),
        }
    }

    fn sum(&self, time: impl Fn(usize, &TargetTimes) -> TimeBound) -> TimeBound {
        let mut sum = TimeBound {
            ns: 0,
            is_exact: true,
        };
        for (target, (times, weight)) in self.targets.iter().enumerate() {
            let bound = time(target, times);
            if bound == TimeBound::NEVER {
                return bound;
            }
            sum.ns = sum.ns.saturating_add(weighted(bound.ns, *weight));
            sum.is_exact &= bound.is_exact;
        }
        sum
    }
}

/// A time with the weight of its target, rounded.
fn weighted(ns: u32, weight: f64) -> u32 {
    (f64::from(ns) * weight).round() as u32
}

impl Times for LayerTimes<'_> {
    fn bound(&self, work: search::Work) -> TimeBound {
        self.sum(|target, times| times.bound(Work::on(work, target)))
    }

    fn least_ns(&self, work: search::Work) -> u32 {
        let least = |target: usize, times: &TargetTimes| TimeBound {
            ns: times.least_ns(Work::on(work, target)),
            is_exact: false,
        };
        self.sum(least).ns
    }

    fn refine(&mut self, work: &[search::Work]) {
        for (target, (times, _)) in self.targets.iter_mut().enumerate() {
            let work: Vec<Work> = work.iter().map(|&work| Work::on(work, target)).collect();
            times.refine(&work);
        }
    }
}

/// The predicted times of a [`Structure`] on one target.
struct TargetTimes<'a> {
    structure: &'a Structure,
    clock: &'a mut Clock,
    /// For each layer, for each of its contexts.
    tables: Vec<Vec<Table>>,
}

/// The times of a layer in one context.
struct Table {
    /// For each form: without an exit; not entered and entered.
    plain: Vec<[TimeBound; 2]>,
    /// For each form: lower bounds with any exit.
    least: Vec<[TimeBound; 2]>,
    /// For each exit.
    exits: Vec<ExitTable>,
}

/// The exact times with one exit; 0 where they are not known yet.
struct ExitTable {
    d1s: Vec<u32>,
    ns: Vec<u32>,
}

impl ExitTable {
    fn index(&self, form: usize, entered: bool, d1: usize) -> usize {
        (2 * form + usize::from(entered)) * self.d1s.len() + d1
    }
}

/// The problems of a Tucker layer.
struct TuckerProblems {
    /// If the layer has one.
    first: Option<Problem>,
    /// The factors after it.
    rest: Vec<Problem>,
    fused: Option<FusedTucker>,
}

impl TuckerProblems {
    fn new(conv: &ConvProblem, ranks: [u32; 2]) -> Self {
        let chain = conv.tucker_chain(ranks);
        let fused = FusedTucker::new(&chain);
        let (first, rest) = chain
            .into_iter()
            .partition::<Vec<_>, _>(|(role, _)| *role == FactorRole::First);
        let problem = |(_, factor)| Problem::Conv(factor);
        Self {
            first: first.into_iter().map(problem).next(),
            rest: rest.into_iter().map(problem).collect(),
            fused,
        }
    }

    /// The complete layer in one launch.
    fn whole(&self) -> Option<Problem> {
        self.fused.map(|fused| Problem::Tucker(fused.whole))
    }

    /// Core and last factor in one launch.
    fn core_last(&self) -> Option<Problem> {
        self.fused?.core_last.map(Problem::Tucker)
    }

    fn all(&self) -> Vec<Problem> {
        let fused = self.whole().into_iter().chain(self.core_last());
        let separate = self.first.iter().chain(&self.rest).copied();
        separate.chain(fused).collect()
    }
}

impl<'a> TargetTimes<'a> {
    /// With the times of all forms without exits.
    fn new(structure: &'a Structure, clock: &'a mut Clock) -> Self {
        clock.evaluate(structure.layers.iter().flat_map(|layer| {
            let contexts = layer.contexts.iter();
            contexts.flat_map(move |context| plain_problems(layer, context))
        }));
        let tables = structure.layers.iter().map(|layer| {
            let contexts = layer.contexts.iter();
            contexts
                .map(|context| Table::new(structure, layer, context, clock))
                .collect()
        });
        Self {
            tables: tables.collect(),
            structure,
            clock,
        }
    }

    fn context(&self, work: Work) -> (&'a Layer, &'a Context) {
        let layer = &self.structure.layers[work.layer];
        (layer, &layer.contexts[work.choice])
    }

    /// The layer's problems with the first factor of an exit's layer.
    fn fused_with_exit(&self, work: Work) -> Option<FusedWithExit> {
        let (exit, d1) = work.exit?;
        let (layer, context) = self.context(work);
        let target = &self.structure.layers[context.exits[exit].layer];
        if context.stored.is_some() || target.contexts[0].stored.is_some() {
            return None;
        }
        let d1 = self.tables[work.layer][work.choice].exits[exit].d1s[d1];
        let Form::Tucker(ranks) = layer.forms[work.form] else {
            return None;
        };
        let next = NextFactor {
            n: d1,
            stores_layer_output: context.stores_output,
        };
        let problems = TuckerProblems::new(context.problem.conv()?, ranks);
        let FusedTucker { whole, core_last } = problems.fused?;
        let with_next = |tucker| {
            Problem::Tucker(TuckerProblem {
                next: Some(next),
                ..tucker
            })
        };
        let [first, _, _] = target.contexts[0].problem.conv()?.tucker_factors([d1, 1]);
        Some(FusedWithExit {
            whole: with_next(whole),
            core_last: core_last.map(with_next),
            next: Problem::Conv(first),
            layer: problems,
        })
    }

    /// The exact time of work with an exit whose problems were evaluated.
    fn exit_ns(&self, work: Work) -> Option<u32> {
        let fused = self.fused_with_exit(work)?;
        let layer = &fused.layer;
        let clock = &*self.clock;
        let next_ns = clock.ns(&fused.next)?;
        let [plain, entered] = self.tables[work.layer][work.choice].plain[work.form];
        // As in the planner: a launch with the factor is not considered if the launch without it takes as long as separate launches.
        let extended = |base: &Problem, with_next: &Problem, separate: TimeBound| {
            let base_ns = clock.ns(base)?;
            match base_ns < separate.ns.saturating_add(next_ns) {
                // Measured times may be below those of launches that do less; bounds may not be above the times.
                true => clock.ns(with_next).map(|ns| ns.max(base_ns)),
                false => None,
            }
        };
        let core_last = layer.core_last().zip(fused.core_last);
        let core_last_ns = core_last.and_then(|(base, next)| extended(&base, &next, entered));
        if work.entered {
            return core_last_ns;
        }
        let first_ns = layer.first.and_then(|first| clock.ns(&first));
        let separate = first_ns.zip(core_last_ns).map(|(a, b)| a.saturating_add(b));
        let whole_ns = extended(&layer.whole()?, &fused.whole, plain);
        separate.into_iter().chain(whole_ns).min()
    }
}

/// A Tucker layer's problems with the first factor of the layer of an exit.
struct FusedWithExit {
    whole: Problem,
    core_last: Option<Problem>,
    /// The separate launch of that factor.
    next: Problem,
    /// The layer without it.
    layer: TuckerProblems,
}

/// The problems of a layer's launches without exits, in all of its forms.
fn plain_problems(layer: &Layer, context: &Context) -> Vec<Problem> {
    let forms = layer.forms.iter();
    forms
        .flat_map(|&form| context_problems(context, form))
        .collect()
}

/// The problems of all launches that may compute a layer in a form, as it is stored.
pub(super) fn context_problems(context: &Context, form: Form) -> Vec<Problem> {
    let mut problems = match context.stored {
        Some(_) => context.stored_problems(form),
        None => layer_problems(&context.problem, form),
    };
    if form == Form::Dense {
        problems.extend(context.joint_problems());
    }
    problems
}

/// The same of a layer whose input and output are NCHW.
pub(super) fn layer_problems(layer: &LayerProblem, form: Form) -> Vec<Problem> {
    match (form, layer.conv()) {
        (Form::Tucker(ranks), Some(conv)) => TuckerProblems::new(conv, ranks).all(),
        _ => {
            let whole = whole_cp(layer, form);
            layer.factors(form).into_iter().chain(whole).collect()
        }
    }
}

/// A CP layer in one launch.
pub(super) fn whole_cp(layer: &LayerProblem, form: Form) -> Option<Problem> {
    match (form, layer.conv()) {
        (Form::Cp(rank), Some(&conv)) => Some(Problem::Cp(CpProblem { conv, rank })),
        _ => None,
    }
}

/// The time of a layer that is not a Tucker layer: of separate launches, or of one.
fn other_ns(clock: &Clock, layer: &LayerProblem, form: Form) -> Option<u32> {
    let separate = clock.sum_ns(&layer.factors(form));
    let whole = whole_cp(layer, form).and_then(|whole| clock.ns(&whole));
    separate.into_iter().chain(whole).min()
}

impl Table {
    fn new(structure: &Structure, layer: &Layer, context: &Context, clock: &Clock) -> Self {
        let forms = layer.forms.iter();
        let times = forms.map(|&form| times_without_exit(clock, context, form));
        let (plain, least) = times.unzip();
        let exits = context.exits.iter().map(|exit| {
            let target = &structure.layers[exit.layer];
            let d1s = target.contexts[0].problem.d1s(&target.forms);
            ExitTable {
                ns: vec![0; 2 * layer.forms.len() * d1s.len()],
                d1s,
            }
        });
        Self {
            plain,
            least,
            exits: exits.collect(),
        }
    }
}

/// The times of a layer without an exit, and lower bounds with one; not entered and entered.
fn times_without_exit(
    clock: &Clock,
    context: &Context,
    form: Form,
) -> ([TimeBound; 2], [TimeBound; 2]) {
    let alone = |ns| ([bound(ns, true), TimeBound::NEVER], [TimeBound::NEVER; 2]);
    match (form, context.problem.conv()) {
        (Form::Dense, _) => alone(context.dense_ns(clock)),
        _ if context.stored.is_some() => alone(context.stored_ns(clock, form)),
        (Form::Tucker(ranks), Some(conv)) => tucker_times(&TuckerProblems::new(conv, ranks), clock),
        _ => alone(other_ns(clock, &context.problem, form)),
    }
}

/// The same of a Tucker layer whose input and output are NCHW.
fn tucker_times(problems: &TuckerProblems, clock: &Clock) -> ([TimeBound; 2], [TimeBound; 2]) {
    let rest = clock.sum_ns(&problems.rest);
    let of = |problem: Option<Problem>| clock.ns(&problem?);
    let (whole, core_last) = (of(problems.whole()), of(problems.core_last()));
    let least = |times: &[Option<u32>]| times.iter().flatten().copied().min();
    if problems.first.is_none() {
        let plain = bound(least(&[whole, rest]), true);
        return (
            [plain, TimeBound::NEVER],
            [bound(whole, false), TimeBound::NEVER],
        );
    }
    let first = of(problems.first);
    let with_first = |ns: Option<u32>| first.zip(ns).map(|(a, b)| a.saturating_add(b));
    let entered = least(&[core_last, rest]);
    let plain = least(&[whole, with_first(entered)]);
    let any_exit = least(&[whole, with_first(core_last)]);
    (
        [bound(plain, true), bound(entered, true)],
        [bound(any_exit, false), bound(core_last, false)],
    )
}

/// The time of a dense layer in launches of its own, if its problems were evaluated.
pub(super) fn dense_alone_ns(clock: &Clock, context: &Context) -> Option<u32> {
    match context.stored {
        Some(_) => context.stored_ns(clock, Form::Dense),
        None => other_ns(clock, &context.problem, Form::Dense),
    }
}

/// The least time of a layer in launches of its own, if its problems were evaluated; for a dense layer that may share launches see
/// [`Context::dense_ns`].
pub(super) fn separate_ns(clock: &Clock, context: &Context, form: Form) -> Option<u32> {
    let ([plain, _], _) = times_without_exit(clock, context, form);
    (plain != TimeBound::NEVER).then_some(plain.ns)
}

fn bound(ns: Option<u32>, is_exact: bool) -> TimeBound {
    ns.map_or(TimeBound::NEVER, |ns| TimeBound { ns, is_exact })
}

impl TargetTimes<'_> {
    fn bound(&self, work: Work) -> TimeBound {
        let table = &self.tables[work.layer][work.choice];
        let entered = usize::from(work.entered);
        let Some((exit, d1)) = work.exit else {
            return table.plain[work.form][entered];
        };
        let exit = &table.exits[exit];
        match exit.ns[exit.index(work.form, work.entered, d1)] {
            0 => table.least[work.form][entered],
            u32::MAX => TimeBound::NEVER,
            ns => TimeBound { ns, is_exact: true },
        }
    }

    fn least_ns(&self, work: Work) -> u32 {
        let table = &self.tables[work.layer][work.choice];
        let times = match work.exit {
            Some(_) => &table.least,
            None => &table.plain,
        };
        times[work.form][usize::from(work.entered)].ns
    }

    fn refine(&mut self, work: &[Work]) {
        let mut problems = Vec::new();
        for &work in work {
            if let Some(fused) = self.fused_with_exit(work) {
                problems.extend(Some(fused.whole).filter(|_| !work.entered));
                problems.extend(fused.core_last);
                problems.push(fused.next);
            }
        }
        self.clock.evaluate(problems);
        for &work in work {
            let Some((exit, d1)) = work.exit else {
                continue;
            };
            let ns = self.exit_ns(work).unwrap_or(u32::MAX);
            let exit = &mut self.tables[work.layer][work.choice].exits[exit];
            let index = exit.index(work.form, work.entered, d1);
            exit.ns[index] = ns;
        }
    }
}
