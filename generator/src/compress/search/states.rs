//! The states of the search: what must be known before a layer, beside the resources that the layers before it take.

use super::{Distinction, Form, Fusion, Kind, Problem, Targets, Work};
use std::collections::BTreeMap;

/// A [`Kind`] without the D1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Dense,
    Other,
    NoFirst,
    First,
}

impl Class {
    const ALL: [Self; 4] = [Self::Dense, Self::Other, Self::NoFirst, Self::First];

    fn of(form: &Form) -> Self {
        match form.kind {
            Kind::Dense => Self::Dense,
            Kind::Other => Self::Other,
            Kind::NoFirst => Self::NoFirst,
            Kind::First(_) => Self::First,
        }
    }

    fn is_tucker(self) -> bool {
        matches!(self, Self::NoFirst | Self::First)
    }

    fn value(self, distinction: Distinction) -> usize {
        distinction.value(self.is_tucker(), self == Self::Dense)
    }
}

/// What earlier choices require of a later layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Promise {
    /// By class: whether the layer may be of it.
    allowed: [bool; Class::ALL.len()],
    /// Its first factor with this D1 is computed already, for some targets.
    entered: Option<(usize, Targets)>,
}

impl Promise {
    /// The classes of a layer's forms.
    fn none(problem: &Problem, layer: usize) -> Self {
        let mut allowed = [false; Class::ALL.len()];
        for form in &problem.layers[layer].forms {
            allowed[Class::of(form) as usize] = true;
        }
        Self {
            allowed,
            entered: None,
        }
    }

    fn allows(&self, class: Class) -> bool {
        self.allowed[class as usize]
    }

    /// The promise with some of its classes; `None` if none is left.
    fn only(mut self, is_kept: impl Fn(Class) -> bool) -> Option<Self> {
        for class in Class::ALL {
            self.allowed[class as usize] &= is_kept(class);
        }
        self.allowed.contains(&true).then_some(self)
    }

    /// The value of the layer's form, if that is known.
    fn value(&self, distinction: Distinction) -> Option<usize> {
        let allowed = Class::ALL.into_iter().filter(|&class| self.allows(class));
        let mut values = allowed.map(|class| class.value(distinction));
        let first = values.next()?;
        values.all(|value| value == first).then_some(first)
    }
}

/// What is known before a layer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct State {
    /// By layer, for layers from here on.
    promises: BTreeMap<usize, Promise>,
    /// For earlier layers of groups that later layers belong to: the value of the form, in the distinction of the group.
    chosen: BTreeMap<usize, usize>,
}

impl State {
    /// What is required of a layer.
    fn promise(&self, problem: &Problem, layer: usize) -> Promise {
        let known = self.promises.get(&layer).copied();
        known.unwrap_or_else(|| Promise::none(problem, layer))
    }

    /// The state with this promise.
    fn promising(&self, layer: usize, promise: Promise) -> Self {
        let mut state = self.clone();
        state.promises.insert(layer, promise);
        state
    }
}

/// A choice at a layer, but for the form.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Move {
    /// The choice of the layer's group.
    pub choice: usize,
    /// The class of the forms.
    pub class: Class,
    /// Index of the D1 that is promised, and for which targets the first factor is computed already.
    pub entered: Option<(usize, Targets)>,
    /// Index among the exits, and for which targets it is taken.
    pub exit: Option<(usize, Targets)>,
    /// Time of other launches that the group's choice needs; charged once.
    pub ns: u64,
    /// The state after the layer: with an exit one for each D1 of the layer there, else one.
    pub next: Vec<usize>,
}

impl Move {
    /// Whether a form can be taken.
    pub(super) fn allows(&self, form: &Form) -> bool {
        match self.entered {
            Some((d1, _)) => form.kind == Kind::First(d1),
            None => Class::of(form) == self.class,
        }
    }

    /// The work of a form, with the D1 of the exit's layer.
    pub(super) fn work(&self, layer: usize, form: usize, exit_d1: usize) -> Work {
        Work {
            layer,
            choice: self.choice,
            form,
            entered: self
                .entered
                .map_or(Targets::default(), |(_, targets)| targets),
            exit: self.exit.map(|(exit, targets)| Fusion {
                exit,
                d1: exit_d1,
                targets,
            }),
        }
    }
}

/// All states, and the moves between them.
pub(super) struct States {
    /// For each layer, for each state before it, its moves. The first layer has one state. After the last layer there is one, too.
    pub moves: Vec<Vec<Vec<Move>>>,
}

impl States {
    pub(super) fn new(problem: &Problem) -> Self {
        let mut before: Vec<State> = vec![State::default()];
        let mut moves = Vec::with_capacity(problem.layers.len());
        for layer in 0..problem.layers.len() {
            let mut after = Numbered::default();
            let of_states = before.iter();
            let of_states = of_states.map(|state| moves_from(problem, layer, state, &mut after));
            moves.push(of_states.collect());
            before = after.states;
        }
        Self { moves }
    }
}

/// States with numbers in the order in which they were found.
#[derive(Default)]
struct Numbered {
    states: Vec<State>,
    numbers: BTreeMap<State, usize>,
}

impl Numbered {
    fn number(&mut self, state: State) -> usize {
        let states = &mut self.states;
        *self.numbers.entry(state).or_insert_with_key(|state| {
            states.push(state.clone());
            states.len() - 1
        })
    }
}

/// The moves at a layer from a state before it.
fn moves_from(problem: &Problem, layer: usize, state: &State, after: &mut Numbered) -> Vec<Move> {
    let promise = state.promise(problem, layer);
    let entered = promise.entered;
    let mut moves = Vec::new();
    for class in Class::ALL {
        if !promise.allows(class) {
            continue;
        }
        let mut decided = state.clone();
        decided.promises.remove(&layer);
        if let Some(group) = problem.layers[layer].group {
            let distinction = problem.groups[group].distinction;
            decided.chosen.insert(layer, class.value(distinction));
        }
        for state in with_group_decided(problem, layer, &decided) {
            let (choice, ns) = group_choice(problem, layer, &state);
            let mut add = |exit: Option<(usize, Targets)>, states: Vec<State>| {
                let numbers = states.into_iter();
                let numbers = numbers.map(|state| after.number(forgotten(problem, layer, state)));
                moves.push(Move {
                    choice,
                    class,
                    entered,
                    exit,
                    ns,
                    next: numbers.collect(),
                });
            };
            add(None, vec![state.clone()]);
            if !class.is_tucker() {
                continue;
            }
            let mut passed = state;
            for (index, exit) in problem.layers[layer].exits[choice].iter().enumerate() {
                let target = exit.layer;
                let known = passed.promise(problem, target);
                let with_first = known.only(|class| class == Class::First);
                if let Some(with_first) = with_first.filter(|known| known.entered.is_none()) {
                    for targets in Targets::sets(problem.targets) {
                        let mut entered = Vec::new();
                        for d1 in 0..problem.layers[target].d1s {
                            let promise = Promise {
                                entered: Some((d1, targets)),
                                ..with_first
                            };
                            entered.push(passed.promising(target, promise));
                        }
                        add(Some((index, targets)), entered);
                    }
                }
                // Only the first reader that has a first factor is fused, so this one has none if a later one is.
                let Some(without) = known.only(|class| class != Class::First) else {
                    break;
                };
                passed = passed.promising(target, without);
            }
        }
    }
    moves
}

/// The states in which the later layers of the layer's group have promised the values of their forms.
fn with_group_decided(problem: &Problem, layer: usize, state: &State) -> Vec<State> {
    let mut states = vec![state.clone()];
    let Some(group) = problem.layers[layer].group else {
        return states;
    };
    let group = &problem.groups[group];
    for &member in group.layers.iter().filter(|&&m| m > layer) {
        let promise = state.promise(problem, member);
        let values = 0..group.distinction.values();
        let promises = values
            .filter_map(|value| promise.only(|class| class.value(group.distinction) == value));
        let promised = promises.flat_map(|promise| {
            let states = states.iter();
            states.map(move |state| state.promising(member, promise))
        });
        states = promised.collect();
    }
    states
}

/// The choice of the layer's group, and the time that it needs if the layer is the last that decides it.
fn group_choice(problem: &Problem, layer: usize, state: &State) -> (usize, u64) {
    let Some(group) = problem.layers[layer].group else {
        return (0, 0);
    };
    let group = &problem.groups[group];
    let choice = group.choice(|member| {
        let promised = state.promises.get(&member);
        let promised = promised.and_then(|promise| promise.value(group.distinction));
        let known = promised.or_else(|| state.chosen.get(&member).copied());
        known.unwrap_or_default()
    });
    let is_last = group.layers.last() == Some(&layer);
    (choice, if is_last { group.ns[choice] } else { 0 })
}

/// The state without what no layer after this one asks for.
fn forgotten(problem: &Problem, layer: usize, mut state: State) -> State {
    let rest = &problem.layers[layer + 1..];
    state.chosen.retain(|member, _| {
        let is_asked = |group: usize| problem.groups[group].layers.contains(member);
        rest.iter().any(|later| later.group.is_some_and(is_asked))
    });
    state
}
