//! The states of the search: what must be known before a layer, beside the resources that the layers before it take.

use super::{Form, Problem, Work};
use std::collections::BTreeMap;

/// What earlier choices require of a later layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Promise {
    /// Whether it is a Tucker layer.
    Tucker(bool),
    /// It is a Tucker layer with this D1, and its first factor is computed already.
    Entered(usize),
}

impl Promise {
    fn is_tucker(self) -> bool {
        match self {
            Self::Tucker(is_tucker) => is_tucker,
            Self::Entered(_) => true,
        }
    }
}

/// What is known before a layer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct State {
    /// By layer, for layers from here on.
    promises: BTreeMap<usize, Promise>,
    /// For earlier layers of groups that later layers belong to: whether it is a Tucker layer.
    chosen: BTreeMap<usize, bool>,
}

/// A choice at a layer, but for the form.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Move {
    /// The choice of the layer's group.
    pub choice: usize,
    /// Whether the layer is a Tucker layer.
    pub is_tucker: bool,
    /// Index of the D1 that is promised; the first factor is then computed already.
    pub entered: Option<usize>,
    /// Index among the exits.
    pub exit: Option<usize>,
    /// Time of other launches that the group's choice needs; charged once.
    pub ns: u64,
    /// The state after the layer: with an exit one for each D1 of the layer there, else one.
    pub next: Vec<usize>,
}

impl Move {
    /// Whether a form can be taken.
    pub(super) fn allows(&self, form: &Form) -> bool {
        match self.entered {
            Some(d1) => form.d1 == Some(d1),
            None => form.d1.is_some() == self.is_tucker,
        }
    }

    /// The work of a form, with the D1 of the exit's layer.
    pub(super) fn work(&self, layer: usize, form: usize, exit_d1: usize) -> Work {
        Work {
            layer,
            choice: self.choice,
            form,
            entered: self.entered.is_some(),
            exit: self.exit.map(|exit| (exit, exit_d1)),
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
    let promise = state.promises.get(&layer).copied();
    let entered = match promise {
        Some(Promise::Entered(d1)) => Some(d1),
        _ => None,
    };
    let mut moves = Vec::new();
    for is_tucker in [false, true] {
        let is_kept = promise.is_none_or(|promise| promise.is_tucker() == is_tucker);
        if !is_kept || !can_be(problem, layer, is_tucker) {
            continue;
        }
        let mut decided = state.clone();
        decided.promises.remove(&layer);
        decided.chosen.insert(layer, is_tucker);
        for state in with_group_decided(problem, layer, &decided) {
            let (choice, ns) = group_choice(problem, layer, &state);
            let mut add = |exit: Option<usize>, states: Vec<State>| {
                let numbers = states.into_iter();
                let numbers = numbers.map(|state| after.number(forgotten(problem, layer, state)));
                moves.push(Move {
                    choice,
                    is_tucker,
                    entered,
                    exit,
                    ns,
                    next: numbers.collect(),
                });
            };
            add(None, vec![state.clone()]);
            if !is_tucker {
                continue;
            }
            let mut passed = state;
            for (index, exit) in problem.layers[layer].exits[choice].iter().enumerate() {
                let target = exit.layer;
                let known = passed.promises.get(&target).copied();
                if matches!(known, None | Some(Promise::Tucker(true))) {
                    let entered = (0..problem.layers[target].d1s).map(|d1| {
                        let mut state = passed.clone();
                        state.promises.insert(target, Promise::Entered(d1));
                        state
                    });
                    add(Some(index), entered.collect());
                }
                // Only the first reader that is a Tucker layer is fused, so this one is none if a later one is.
                if known.is_some_and(Promise::is_tucker) || !can_be(problem, target, false) {
                    break;
                }
                passed.promises.insert(target, Promise::Tucker(false));
            }
        }
    }
    moves
}

/// Whether a layer has a form that is, or is not, a Tucker layer.
fn can_be(problem: &Problem, layer: usize, is_tucker: bool) -> bool {
    let mut forms = problem.layers[layer].forms.iter();
    forms.any(|form| form.d1.is_some() == is_tucker)
}

/// The states in which the later layers of the layer's group have promised whether they are Tucker layers.
fn with_group_decided(problem: &Problem, layer: usize, state: &State) -> Vec<State> {
    let mut states = vec![state.clone()];
    let Some(group) = problem.layers[layer].group else {
        return states;
    };
    for &member in problem.groups[group].layers.iter().filter(|&&m| m > layer) {
        if state.promises.contains_key(&member) {
            continue;
        }
        let promised = |is_tucker: bool| {
            states.iter().map(move |state| {
                let mut state = state.clone();
                let promise = Promise::Tucker(is_tucker);
                state.promises.insert(member, promise);
                state
            })
        };
        states = promised(false).chain(promised(true)).collect();
    }
    states
}

/// The choice of the layer's group, and the time that it needs if the layer is the last that decides it.
fn group_choice(problem: &Problem, layer: usize, state: &State) -> (usize, u64) {
    let Some(group) = problem.layers[layer].group else {
        return (0, 0);
    };
    let group = &problem.groups[group];
    let is_tucker = |member: &usize| {
        let promised = state.promises.get(member);
        let promised = promised.map(|promise| promise.is_tucker());
        promised.or_else(|| state.chosen.get(member).copied()) == Some(true)
    };
    let members = group.layers.iter().enumerate();
    let choice = members
        .filter(|(_, member)| is_tucker(member))
        .map(|(bit, _)| 1 << bit)
        .sum();
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
