//! The exact search for the candidates that compute all tasks of a graph in the least time.
//!
//! It does not depend on networks, schemes or GPUs. Tasks and values are indices; a format is any type with equality. An
//! [`ExactCover`] has
//!
//! - [options](CoverOption): each computes some tasks, reads and writes values in certain formats, and takes a time;
//! - [conversions](Conversion): each brings a value from one format to another, and takes a time.
//!
//! A solution is a sequence of options and conversions. Each task is computed by exactly one option, and each value that an option reads
//! was written in that format or converted to it before. [`ExactCover::solve`] finds the solution with the least sum of times. It splits
//! the tasks into groups that no option and no choice of formats connects, and processes the tasks of each group in order. Its state is the
//! set of later tasks that an option chosen before computes, and the formats in which each value is available. Only the fastest of the
//! sequences that lead to a state is kept (dynamic programming). In the graphs of networks a group has a few states per task.
//!
//! An option runs at the position of its first task. So it may read only values that tasks before its first one, or the option itself,
//! compute, and it must write every value that tasks of other options read. The caller that builds the options ensures both.

use std::collections::{BTreeMap, HashMap};
use std::ops::Add;

/// Maximum number of states that are kept per task: those with the least lower bound of the total time. Only adversarial graphs have more
/// states; their solution may then be slower than the best one.
const MAX_STATES: usize = 1024;

/// A value in the format in which it is read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge<F> {
    pub value: usize,
    pub format: F,
}

/// A unit that computes some tasks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CoverOption<F> {
    /// The tasks, ascending; at least one.
    pub covers: Vec<usize>,
    pub reads: Vec<Edge<F>>,
    pub writes: Vec<Edge<F>>,
    /// Time, microseconds; finite.
    pub us: f64,
}

/// A unit that converts a value to another format.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Conversion<F> {
    pub value: usize,
    pub from: F,
    pub to: F,
    /// Time, microseconds; finite.
    pub us: f64,
}

/// Tasks, and the options to compute them.
#[derive(Debug, Clone)]
pub(super) struct ExactCover<F> {
    /// Number of tasks. Each runs after those before it.
    pub tasks: usize,
    pub options: Vec<CoverOption<F>>,
    pub conversions: Vec<Conversion<F>>,
    /// Values that are available before the first task.
    pub available: Vec<Edge<F>>,
    /// Values that are needed in a format regardless of the choice: they are converted as soon as they are written.
    pub required: Vec<Edge<F>>,
}

/// One step of a solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Runs the option of this index.
    Run(usize),
    /// Runs the conversion of this index.
    Convert(usize),
}

/// The time of a sequence, then its number of steps: at equal times the sequence with fewer launches is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Cost {
    /// In femtoseconds: a sum of integers does not depend on the order of its terms, so equal times compare as equal.
    femtoseconds: u64,
    steps: usize,
}

impl Cost {
    fn of_step(us: f64) -> Self {
        Self {
            femtoseconds: (us * 1e9).round() as u64,
            steps: 1,
        }
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            femtoseconds: self.femtoseconds.saturating_add(other.femtoseconds),
            steps: self.steps + other.steps,
        }
    }
}

/// A set of formats of one value, as bits.
type Formats = u64;

/// The state of the search before a task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct State {
    /// Tasks from here on that a chosen option computes, ascending.
    covered: Vec<usize>,
    /// For each value that may be read from here on, the formats in which it is available.
    formats: BTreeMap<usize, Formats>,
}

/// A sequence of steps from one state to another.
#[derive(Debug, Clone)]
struct Transition {
    state: State,
    cost: Cost,
    steps: Vec<Step>,
}

impl Transition {
    /// A transition to `state` without a step.
    fn free(state: State) -> Self {
        Self {
            state,
            cost: Cost::default(),
            steps: Vec::new(),
        }
    }
}

/// Conversions of one value, and the formats in which it is available after them.
#[derive(Debug, Clone)]
struct FormatSet {
    formats: Formats,
    cost: Cost,
    conversions: Vec<Step>,
}

/// The best sequence to a state: its cost, the index of the state of the task before, and the steps from there.
struct Reached {
    cost: Cost,
    /// Index among all sequences to states of the same task, in the order of preference at equal cost.
    order: usize,
    previous: usize,
    steps: Vec<Step>,
}

impl<F: Copy + PartialEq> ExactCover<F> {
    /// The steps of least time, in execution order. Among equally fast sequences, one with the fewest steps is returned, and among those
    /// the one whose first options compute more tasks. `None` if the options cannot compute all tasks.
    pub(super) fn solve(&self) -> Option<Vec<Step>> {
        let search = Search::new(self);
        let mut steps: Vec<(usize, Vec<Step>)> = Vec::new();
        for group in search.groups() {
            steps.extend(search.solve_group(&group)?);
        }
        steps.sort_by_key(|(task, _)| *task);
        Some(steps.into_iter().flat_map(|(_, steps)| steps).collect())
    }

    /// The time of the [solution](Self::solve), microseconds.
    pub(super) fn least_us(&self) -> Option<f64> {
        let steps = self.solve()?;
        let times = steps.iter().map(|step| match *step {
            Step::Run(index) => self.options[index].us,
            Step::Convert(index) => self.conversions[index].us,
        });
        Some(times.sum())
    }
}

/// An [`ExactCover`] with its indices.
struct Search<'a, F> {
    cover: &'a ExactCover<F>,
    /// For each task, the options whose first task it is, those that compute more tasks first.
    starting: Vec<Vec<usize>>,
    /// For each task, the least time that it takes. The time of an option that computes several tasks is divided equally among them.
    least: Vec<u64>,
    /// Values that are read or written in more than one format, each with its last reader. All other values need no search.
    last_reader: HashMap<usize, usize>,
    /// Distinct formats of each value, by bit. A graph may have more formats than a set has bits, a value has a few.
    formats: HashMap<usize, Vec<F>>,
}

impl<'a, F: Copy + PartialEq> Search<'a, F> {
    fn new(cover: &'a ExactCover<F>) -> Self {
        let mut starting = vec![Vec::new(); cover.tasks];
        let mut least = vec![u64::MAX; cover.tasks];
        for (index, option) in cover.options.iter().enumerate() {
            starting[option.covers[0]].push(index);
            let fraction = Cost::of_step(option.us).femtoseconds / option.covers.len() as u64;
            for &task in &option.covers {
                least[task] = least[task].min(fraction);
            }
        }
        for options in &mut starting {
            options.sort_by_key(|&index| std::cmp::Reverse(cover.options[index].covers.len()));
        }
        let mut search = Self {
            cover,
            starting,
            least,
            last_reader: HashMap::new(),
            formats: HashMap::new(),
        };
        let touched = cover
            .options
            .iter()
            .flat_map(|option| option.reads.iter().chain(&option.writes));
        for conversion in &cover.conversions {
            search.bit(conversion.value, conversion.from);
            search.bit(conversion.value, conversion.to);
        }
        let mut formats_of: HashMap<usize, Formats> = HashMap::new();
        for edge in touched.chain(&cover.available).chain(&cover.required) {
            *formats_of.entry(edge.value).or_default() |= search.bit(edge.value, edge.format);
        }
        let several = formats_of
            .iter()
            .filter(|(_, formats)| formats.count_ones() > 1);
        search.last_reader = several.map(|(&value, _)| (value, 0)).collect();
        for option in &cover.options {
            for edge in &option.reads {
                if let Some(last) = search.last_reader.get_mut(&edge.value) {
                    *last = (*last).max(option.covers[0]);
                }
            }
        }
        search
    }

    /// The bit of a value's format; a new bit for an unknown format.
    fn bit(&mut self, value: usize, format: F) -> Formats {
        let formats = self.formats.entry(value).or_default();
        let known = formats.iter().position(|&known| known == format);
        let index = known.unwrap_or_else(|| {
            formats.push(format);
            formats.len() - 1
        });
        1 << index
    }

    /// The bit of a value's format that is known to [`bit`](Self::bit); 0 for any other format.
    fn known_bit(&self, value: usize, format: F) -> Formats {
        let mut formats = self.formats.get(&value).into_iter().flatten();
        let known = formats.position(|&known| known == format);
        known.map_or(0, |index| 1 << index)
    }

    /// Tasks that must be searched together, ascending: those that one option computes, or that read or write a value with several formats.
    fn groups(&self) -> Vec<Vec<usize>> {
        let mut group_of: Vec<usize> = (0..self.cover.tasks).collect();
        let mut task_of_value: HashMap<usize, usize> = HashMap::new();
        for option in &self.cover.options {
            let first = option.covers[0];
            for &task in &option.covers {
                union(&mut group_of, first, task);
            }
            for edge in option.reads.iter().chain(&option.writes) {
                if self.last_reader.contains_key(&edge.value) {
                    let task = *task_of_value.entry(edge.value).or_insert(first);
                    union(&mut group_of, first, task);
                }
            }
        }
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for task in 0..self.cover.tasks {
            groups
                .entry(root(&mut group_of, task))
                .or_default()
                .push(task);
        }
        groups.into_values().collect()
    }

    /// The best steps for the tasks of a group, each list with the task at which it runs.
    fn solve_group(&self, group: &[usize]) -> Option<Vec<(usize, Vec<Step>)>> {
        let mut start = State::default();
        for edge in &self.cover.available {
            if self.last_reader.contains_key(&edge.value) {
                *start.formats.entry(edge.value).or_default() |=
                    self.known_bit(edge.value, edge.format);
            }
        }
        let reached = Reached {
            cost: Cost::default(),
            order: 0,
            previous: 0,
            steps: Vec::new(),
        };
        // For each task and for the end, the states before it.
        let mut layers: Vec<Vec<(State, Reached)>> = vec![vec![(start, reached)]];
        for &task in group {
            let mut next: BTreeMap<State, Reached> = BTreeMap::new();
            let mut order = 0;
            for (index, (state, reached)) in layers.last()?.iter().enumerate() {
                for transition in self.transitions(state, task) {
                    let mut state = transition.state;
                    state
                        .formats
                        .retain(|value, _| self.last_reader[value] > task);
                    let cost = reached.cost + transition.cost;
                    if next.get(&state).is_none_or(|known| cost < known.cost) {
                        let reached = Reached {
                            cost,
                            order,
                            previous: index,
                            steps: transition.steps,
                        };
                        next.insert(state, reached);
                    }
                    order += 1;
                }
            }
            let mut next: Vec<_> = next.into_iter().collect();
            if next.len() > MAX_STATES {
                next.sort_by_key(|(state, reached)| self.bound(state, reached));
                next.truncate(MAX_STATES);
            }
            next.sort_by_key(|(_, reached)| reached.order);
            layers.push(next);
        }
        let last = layers.pop()?;
        let (_, mut reached) = last.into_iter().min_by_key(|(_, reached)| reached.cost)?;
        let mut steps = Vec::new();
        for (&task, mut layer) in group.iter().zip(layers).rev() {
            steps.push((task, std::mem::take(&mut reached.steps)));
            reached = layer.swap_remove(reached.previous).1;
        }
        steps.reverse();
        Some(steps)
    }

    /// A lower bound of the total time through a state, without a term that all states before one task have in common: the time so far,
    /// less the minimum times of the later tasks that it already includes.
    fn bound(&self, state: &State, reached: &Reached) -> u64 {
        let paid: u64 = state.covered.iter().map(|&task| self.least[task]).sum();
        reached.cost.femtoseconds.saturating_sub(paid)
    }

    /// The transitions from the state before a task to states after it.
    fn transitions(&self, state: &State, task: usize) -> Vec<Transition> {
        if state.covered.first() == Some(&task) {
            let mut state = state.clone();
            state.covered.remove(0);
            return vec![Transition::free(state)];
        }
        let mut all = Vec::new();
        for &index in &self.starting[task] {
            let option = &self.cover.options[index];
            let later = &option.covers[1..];
            if later.iter().any(|task| state.covered.contains(task)) {
                continue;
            }
            let mut state = state.clone();
            state.covered.extend(later);
            state.covered.sort_unstable();
            let mut transitions = vec![Transition::free(state)];
            for edge in &option.reads {
                transitions = self.converted(transitions, edge);
            }
            for transition in &mut transitions {
                transition.cost = transition.cost + Cost::of_step(option.us);
                transition.steps.push(Step::Run(index));
                for edge in &option.writes {
                    if self.last_reader.contains_key(&edge.value) {
                        let formats = &mut transition.state.formats;
                        *formats.entry(edge.value).or_default() |=
                            self.known_bit(edge.value, edge.format);
                    }
                }
            }
            for edge in &self.cover.required {
                if option.writes.iter().any(|write| write.value == edge.value) {
                    transitions = self.converted(transitions, edge);
                }
            }
            all.extend(transitions);
        }
        all
    }

    /// The same transitions, each followed by conversions that make a value available in a format. Transitions without such conversions are
    /// dropped.
    fn converted(&self, transitions: Vec<Transition>, edge: &Edge<F>) -> Vec<Transition> {
        if !self.last_reader.contains_key(&edge.value) {
            return transitions;
        }
        let mut all = Vec::new();
        for transition in transitions {
            let formats = transition.state.formats.get(&edge.value);
            for set in self.format_sets(edge, formats.copied().unwrap_or_default()) {
                let mut transition = transition.clone();
                transition.state.formats.insert(edge.value, set.formats);
                transition.cost = transition.cost + set.cost;
                transition.steps.extend(set.conversions);
                all.push(transition);
            }
        }
        all
    }

    /// The sets of formats that conversions can lead to, from the formats in which a value is available, each with the cheapest
    /// conversions. Only sets that contain the format of `edge` are returned. If `formats` already contains it, there are no conversions.
    fn format_sets(&self, edge: &Edge<F>, formats: Formats) -> Vec<FormatSet> {
        let needed = self.known_bit(edge.value, edge.format);
        let mut sets = vec![FormatSet {
            formats,
            cost: Cost::default(),
            conversions: Vec::new(),
        }];
        if formats & needed != 0 {
            return sets;
        }
        let conversions = self.cover.conversions.iter().enumerate();
        let conversions: Vec<_> = conversions
            .filter(|(_, conversion)| conversion.value == edge.value)
            .collect();
        // A conversion adds a format: a set is final when all sets with fewer formats were continued.
        let mut done = 0;
        while done < sets.len() {
            sets[done..].sort_by_key(|set| set.formats.count_ones());
            let set = sets[done].clone();
            done += 1;
            for &(index, conversion) in &conversions {
                let to = self.known_bit(conversion.value, conversion.to);
                if set.formats & self.known_bit(conversion.value, conversion.from) == 0
                    || set.formats & to != 0
                {
                    continue;
                }
                let mut continued = set.clone();
                continued.formats |= to;
                continued.cost = continued.cost + Cost::of_step(conversion.us);
                continued.conversions.push(Step::Convert(index));
                let mut known = sets.iter_mut();
                match known.find(|known| known.formats == continued.formats) {
                    Some(known) if continued.cost < known.cost => *known = continued,
                    Some(_) => {}
                    None => sets.push(continued),
                }
            }
        }
        sets.retain(|set| set.formats & needed != 0);
        sets
    }
}

/// The representative of a task's group.
fn root(group_of: &mut [usize], task: usize) -> usize {
    let mut root = task;
    while group_of[root] != root {
        group_of[root] = group_of[group_of[root]];
        root = group_of[root];
    }
    root
}

/// Merges the groups of two tasks.
fn union(group_of: &mut [usize], a: usize, b: usize) {
    let (a, b) = (root(group_of, a), root(group_of, b));
    group_of[a.max(b)] = a.min(b);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of a linear congruential generator.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize % end
        }

        fn us(&mut self) -> f64 {
            1.0 + self.below(6) as f64
        }

        /// One of three formats, mostly the first.
        fn format(&mut self) -> u8 {
            [1, 2].get(self.below(9)).copied().unwrap_or(0)
        }
    }

    /// A chain whose values are each written in one format and read in another one, 140 formats in all: more than the bits of a set.
    #[test]
    fn each_value_has_formats_of_its_own() {
        let tasks = 70;
        let edge = |value: usize, format: usize| Edge { value, format };
        let options = (0..tasks).map(|task| CoverOption {
            covers: vec![task],
            reads: vec![edge(task, 2 * task)],
            writes: vec![edge(task + 1, 2 * task + 1)],
            us: 1.0,
        });
        let conversions = (1..tasks).map(|value| Conversion {
            value,
            from: 2 * value - 1,
            to: 2 * value,
            us: 1.0,
        });
        let cover = ExactCover {
            tasks,
            options: options.collect(),
            conversions: conversions.collect(),
            available: vec![edge(0, 0)],
            required: Vec::new(),
        };
        let steps = cover.solve().unwrap();
        let expected = (0..tasks).flat_map(|task| {
            let conversion = task.checked_sub(1).map(Step::Convert);
            conversion.into_iter().chain([Step::Run(task)])
        });
        assert_eq!(steps, expected.collect::<Vec<_>>());
    }

    /// A graph whose task `t` reads one or two of the values 0 to `t` and writes value `t + 1`. Value 0 is the input.
    fn random_cover(random: &mut Random) -> ExactCover<u8> {
        let tasks = 1 + random.below(6);
        let reads: Vec<Vec<usize>> = (0..tasks)
            .map(|task| {
                (0..=random.below(2))
                    .map(|_| random.below(task + 1))
                    .collect()
            })
            .collect();
        let mut options = Vec::new();
        let mut add = |covers: Vec<usize>, random: &mut Random| {
            let inside = |value: &usize| covers.iter().any(|task| task + 1 == *value);
            let outside = |task: &usize| !covers.contains(task);
            let mut read: Vec<_> = covers
                .iter()
                .flat_map(|&task| reads[task].clone())
                .collect();
            read.retain(|value| !inside(value));
            if read.iter().any(|&value| value > covers[0]) {
                return;
            }
            let is_read = |value: usize| {
                let mut others = (0..tasks).filter(outside);
                value == tasks || others.any(|task| reads[task].contains(&value))
            };
            let written = covers.iter().map(|task| task + 1);
            let written: Vec<_> = written.filter(|&value| is_read(value)).collect();
            let mut edge = |value| Edge {
                value,
                format: random.format(),
            };
            options.push(CoverOption {
                reads: read.into_iter().map(&mut edge).collect(),
                writes: written.into_iter().map(&mut edge).collect(),
                covers,
                us: random.us(),
            });
        };
        for task in 0..tasks {
            if random.below(40) > 0 {
                add(vec![task], random);
            }
        }
        for _ in 0..random.below(7) {
            let covers: Vec<_> = (0..tasks).filter(|_| random.below(2) == 0).collect();
            if !covers.is_empty() {
                add(covers, random);
            }
        }
        let conversions = (0..random.below(11)).map(|_| Conversion {
            value: random.below(tasks + 1),
            from: random.below(3) as u8,
            to: random.below(3) as u8,
            us: random.us(),
        });
        let conversions = conversions.collect();
        let required = (1..=tasks).filter(|_| random.below(6) == 0);
        let required: Vec<_> = required.collect();
        ExactCover {
            tasks,
            options,
            conversions,
            available: vec![Edge {
                value: 0,
                format: 0,
            }],
            required: required
                .into_iter()
                .map(|value| Edge {
                    value,
                    format: random.format(),
                })
                .collect(),
        }
    }

    /// The least time of all subsets of options and conversions that are a solution, and the fewest steps that take it.
    fn by_brute_force(cover: &ExactCover<u8>) -> Option<(f64, usize)> {
        let mut best: Option<(f64, usize)> = None;
        for chosen in 0u32..1 << cover.options.len() {
            let chosen: Vec<_> = cover
                .options
                .iter()
                .enumerate()
                .filter(|(index, _)| chosen >> index & 1 == 1)
                .map(|(_, option)| option)
                .collect();
            let mut covered: Vec<_> = chosen.iter().flat_map(|option| &option.covers).collect();
            covered.sort_unstable();
            if !covered.into_iter().copied().eq(0..cover.tasks) {
                continue;
            }
            for converted in 0u32..1 << cover.conversions.len() {
                let conversions = cover.conversions.iter().enumerate();
                let conversions = conversions.filter(|(index, _)| converted >> index & 1 == 1);
                let conversions: Vec<_> = conversions.map(|(_, conversion)| conversion).collect();
                let written = chosen.iter().flat_map(|option| &option.writes);
                let mut available: Vec<_> = written.chain(&cover.available).copied().collect();
                for _ in &conversions {
                    for conversion in &conversions {
                        let edge = |format| Edge {
                            value: conversion.value,
                            format,
                        };
                        if available.contains(&edge(conversion.from)) {
                            available.push(edge(conversion.to));
                        }
                    }
                }
                let is_written = |value| {
                    let mut written = chosen.iter().flat_map(|option| &option.writes);
                    written.any(|write| write.value == value)
                };
                let required = cover.required.iter();
                let required = required.filter(|edge| is_written(edge.value));
                let read = chosen.iter().flat_map(|option| &option.reads);
                if read.chain(required).all(|edge| available.contains(edge)) {
                    let us = chosen.iter().map(|option| option.us).sum::<f64>()
                        + conversions.iter().map(|step| step.us).sum::<f64>();
                    let found = (us, chosen.len() + conversions.len());
                    best = Some(best.map_or(found, |best| match found < best {
                        true => found,
                        false => best,
                    }));
                }
            }
        }
        best
    }

    /// Time and number of steps, after a check that they can run in this order and compute each task once.
    fn replayed(cover: &ExactCover<u8>, steps: &[Step]) -> (f64, usize) {
        let mut available = cover.available.clone();
        let mut covered: Vec<usize> = Vec::new();
        let mut us = 0.0;
        for step in steps {
            match *step {
                Step::Run(index) => {
                    let option = &cover.options[index];
                    for edge in &option.reads {
                        assert!(available.contains(edge), "{edge:?} of {option:?}");
                    }
                    available.extend(&option.writes);
                    covered.extend(&option.covers);
                    us += option.us;
                }
                Step::Convert(index) => {
                    let conversion = &cover.conversions[index];
                    let edge = |format| Edge {
                        value: conversion.value,
                        format,
                    };
                    assert!(available.contains(&edge(conversion.from)));
                    assert!(!available.contains(&edge(conversion.to)));
                    available.push(edge(conversion.to));
                    us += conversion.us;
                }
            }
        }
        covered.sort_unstable();
        assert!(covered.into_iter().eq(0..cover.tasks));
        for edge in &cover.required {
            let is_written = available.iter().any(|known| known.value == edge.value);
            assert!(!is_written || available.contains(edge), "{edge:?}");
        }
        (us, steps.len())
    }

    #[test]
    fn the_search_finds_what_brute_force_finds() {
        let mut random = Random(1);
        let (mut solved, mut fused, mut converted) = (0, 0, 0);
        for case in 0..1200 {
            let cover = random_cover(&mut random);
            let steps = cover.solve();
            let found = steps.as_ref().map(|steps| replayed(&cover, steps));
            assert_eq!(found, by_brute_force(&cover), "case {case}: {cover:?}");
            for step in steps.iter().flatten() {
                match *step {
                    Step::Run(index) => fused += usize::from(cover.options[index].covers.len() > 1),
                    Step::Convert(_) => converted += 1,
                }
            }
            solved += usize::from(found.is_some());
        }
        // The cases are of all kinds.
        assert!((300..1100).contains(&solved), "{solved}");
        assert!(fused > 200, "{fused}");
        assert!(converted > 60, "{converted}");
    }

    /// Tasks that can be fused in pairs, each with the one `distance` tasks later.
    fn pairs(tasks: usize, distance: usize) -> ExactCover<u8> {
        let option = |covers: Vec<usize>, us| CoverOption {
            covers,
            reads: Vec::new(),
            writes: Vec::new(),
            us,
        };
        let single = (0..tasks).map(|task| option(vec![task], 2.0));
        let fused = (0..tasks - distance)
            .step_by(2 * distance)
            .flat_map(|start| start..start + distance)
            .map(|task| option(vec![task, task + distance], 3.0));
        ExactCover {
            tasks,
            options: single.chain(fused).collect(),
            conversions: Vec::new(),
            available: Vec::new(),
            required: Vec::new(),
        }
    }

    /// 500 options are chosen before the tasks that they cover, each in a separate group, so there are few states.
    #[test]
    fn independent_groups_are_searched_on_their_own() {
        let cover = pairs(1000, 500);
        let steps = cover.solve().unwrap();
        assert_eq!(replayed(&cover, &steps), (1500.0, 500));
    }

    /// The same, but with one value in two formats that all of them read.
    #[test]
    fn a_graph_of_too_many_states_has_a_solution() {
        let mut cover = pairs(64, 32);
        for (index, option) in cover.options.iter_mut().enumerate() {
            let format = u8::from(index == 63);
            option.reads.push(Edge { value: 0, format });
        }
        let edge = |format| Edge { value: 0, format };
        cover.available = vec![edge(0), edge(1)];
        let steps = cover.solve().unwrap();
        assert_eq!(replayed(&cover, &steps), (96.0, 32));
    }

    #[test]
    fn ties_go_to_fewer_steps_and_then_to_options_of_more_tasks() {
        let mut cover = pairs(4, 2);
        for option in &mut cover.options {
            // Sums of these depend on their order in floating point.
            option.us = 0.1 * option.covers.len() as f64;
        }
        let steps = cover.solve().unwrap();
        assert_eq!(steps.len(), 2, "{steps:?}");

        // Three tasks as 1 + 2 and as 2 + 1.
        let option = |covers: &[usize], us| CoverOption::<u8> {
            covers: covers.to_vec(),
            reads: Vec::new(),
            writes: Vec::new(),
            us,
        };
        cover.tasks = 3;
        cover.options = vec![
            option(&[0], 0.1),
            option(&[1, 2], 0.2),
            option(&[2], 0.1),
            option(&[0, 1], 0.2),
        ];
        assert_eq!(cover.solve().unwrap(), [Step::Run(3), Step::Run(2)]);
    }
}
