//! The times of a network's layers in each of their forms.

use super::clock::Clock;
use super::form::{Form, LayerProblem};
use super::search::{TimeBound, Times, Work};
use super::structure::{Context, Layer, Structure};
use crate::ir::{ConvProblem, NextFactor, Problem, TuckerProblem};

/// The predicted times of a [`Structure`].
pub(super) struct LayerTimes<'a> {
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
    factors: [Problem; 3],
    /// All factors in one launch, and core and last factor in one.
    fused: Option<[TuckerProblem; 2]>,
}

impl TuckerProblems {
    fn new(conv: &ConvProblem, ranks: [u32; 2]) -> Self {
        let factors = conv.tucker_factors(ranks);
        Self {
            fused: TuckerProblem::from_factors(&factors),
            factors: factors.map(Problem::Conv),
        }
    }

    fn all(&self) -> impl Iterator<Item = Problem> {
        let fused = self.fused.into_iter().flatten().map(Problem::Tucker);
        self.factors.into_iter().chain(fused)
    }
}

/// Different D1 of a layer's forms, ascending.
pub(super) fn d1s(forms: &[Form]) -> Vec<u32> {
    let tucker = forms.iter().filter_map(|form| match form {
        Form::Tucker([d1, _]) => Some(*d1),
        _ => None,
    });
    let mut d1s: Vec<u32> = tucker.collect();
    d1s.sort_unstable();
    d1s.dedup();
    d1s
}

impl<'a> LayerTimes<'a> {
    /// With the times of all forms without exits.
    pub(super) fn new(structure: &'a Structure, clock: &'a mut Clock) -> Self {
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

    /// The layer's problems with the first factor of an exit's layer, and the separate launch of that factor.
    fn fused_with_exit(&self, work: Work) -> Option<([Problem; 2], Problem)> {
        let (exit, d1) = work.exit?;
        let (layer, context) = self.context(work);
        let target = &self.structure.layers[context.exits[exit].layer];
        let d1 = self.tables[work.layer][work.choice].exits[exit].d1s[d1];
        let Form::Tucker(ranks) = layer.forms[work.form] else {
            return None;
        };
        let next = NextFactor {
            n: d1,
            stores_layer_output: context.stores_output,
        };
        let fused = TuckerProblems::new(context.problem.conv()?, ranks).fused?;
        let fused = fused.map(|tucker| {
            Problem::Tucker(TuckerProblem {
                next: Some(next),
                ..tucker
            })
        });
        let [first, _, _] = target.contexts[0].problem.conv()?.tucker_factors([d1, 1]);
        Some((fused, Problem::Conv(first)))
    }

    /// The exact time of work with an exit whose problems were evaluated.
    fn exit_ns(&self, work: Work) -> Option<u32> {
        let ([whole_next, core_last_next], next) = self.fused_with_exit(work)?;
        let (layer, context) = self.context(work);
        let Form::Tucker(ranks) = layer.forms[work.form] else {
            return None;
        };
        let problems = TuckerProblems::new(context.problem.conv()?, ranks);
        let [whole, core_last] = problems.fused?.map(Problem::Tucker);
        let clock = &*self.clock;
        let next_ns = clock.ns(&next)?;
        let [plain, entered] = self.tables[work.layer][work.choice].plain[work.form];
        // As in the planner: a launch with the factor is not considered if the launch without it takes as long as separate launches.
        let extended = |base: &Problem, with_next: &Problem, separate: TimeBound| {
            let base_ns = clock.ns(base)?;
            match base_ns < separate.ns.saturating_add(next_ns) {
                true => clock.ns(with_next),
                false => None,
            }
        };
        let core_last_ns = extended(&core_last, &core_last_next, entered);
        if work.entered {
            return core_last_ns;
        }
        let first_ns = clock.ns(&problems.factors[0]);
        let separate = first_ns.zip(core_last_ns).map(|(a, b)| a.saturating_add(b));
        let whole_ns = extended(&whole, &whole_next, plain);
        separate.into_iter().chain(whole_ns).min()
    }
}

/// The problems of a layer's launches without exits, in all of its forms.
fn plain_problems(layer: &Layer, context: &Context) -> Vec<Problem> {
    let forms = layer.forms.iter();
    forms
        .flat_map(|&form| layer_problems(&context.problem, form))
        .collect()
}

/// The problems of all launches that may compute a layer in a form.
pub(super) fn layer_problems(layer: &LayerProblem, form: Form) -> Vec<Problem> {
    match (form, layer.conv()) {
        (Form::Tucker(ranks), Some(conv)) => TuckerProblems::new(conv, ranks).all().collect(),
        _ => layer.factors(form),
    }
}

impl Table {
    fn new(structure: &Structure, layer: &Layer, context: &Context, clock: &Clock) -> Self {
        let times = layer
            .forms
            .iter()
            .map(|&form| match (form, context.problem.conv()) {
                (Form::Tucker(ranks), Some(conv)) => {
                    tucker_times(&TuckerProblems::new(conv, ranks), clock)
                }
                _ => {
                    let ns = clock.sum_ns(&context.problem.factors(form));
                    ([bound(ns, true), TimeBound::NEVER], [TimeBound::NEVER; 2])
                }
            });
        let (plain, least) = times.unzip();
        let exits = context.exits.iter().map(|exit| {
            let d1s = d1s(&structure.layers[exit.layer].forms);
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

/// The times of a Tucker layer without an exit, and lower bounds with one; not entered and entered.
fn tucker_times(problems: &TuckerProblems, clock: &Clock) -> ([TimeBound; 2], [TimeBound; 2]) {
    let first = clock.ns(&problems.factors[0]);
    let core_and_last = clock.sum_ns(&problems.factors[1..]);
    let fused = problems.fused.map(|fused| fused.map(Problem::Tucker));
    let [whole, core_last] = match &fused {
        Some([whole, core_last]) => [clock.ns(whole), clock.ns(core_last)],
        None => [None, None],
    };
    let with_first = |ns: Option<u32>| first.zip(ns).map(|(a, b)| a.saturating_add(b));
    let least = |times: &[Option<u32>]| times.iter().flatten().copied().min();
    let entered = least(&[core_last, core_and_last]);
    let plain = least(&[whole, with_first(entered)]);
    let any_exit = least(&[whole, with_first(core_last)]);
    (
        [bound(plain, true), bound(entered, true)],
        [bound(any_exit, false), bound(core_last, false)],
    )
}

/// The least time of a layer in launches of its own, if its problems were evaluated.
pub(super) fn separate_ns(clock: &Clock, problem: &LayerProblem, form: Form) -> Option<u32> {
    match (form, problem.conv()) {
        (Form::Tucker(ranks), Some(conv)) => {
            let ([plain, _], _) = tucker_times(&TuckerProblems::new(conv, ranks), clock);
            (plain != TimeBound::NEVER).then_some(plain.ns)
        }
        _ => clock.sum_ns(&problem.factors(form)),
    }
}

fn bound(ns: Option<u32>, is_exact: bool) -> TimeBound {
    ns.map_or(TimeBound::NEVER, |ns| TimeBound { ns, is_exact })
}

impl Times for LayerTimes<'_> {
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
            if let Some((fused, next)) = self.fused_with_exit(work) {
                problems.extend(fused.into_iter().skip(usize::from(work.entered)));
                problems.push(next);
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
