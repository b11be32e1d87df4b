//! What the layers of a network compute, depending on the forms of other layers.
//!
//! The planner folds ops into the layers before or after them, and computes some layers together. Three of its rules depend on forms:
//!
//! - Of two convolutions that are added, a Tucker layer adds the other one, if that is not a Tucker layer; else the later one adds the
//!   earlier one. Such a pair is a [group](Group): what both compute depends on which of them are Tucker layers.
//! - A 1x1 convolution and its projection shortcut may be one launch if both are dense. They are a group as well.
//! - Of the Tucker layers that read a Tucker layer's output, the first one that has a first factor is the one whose factor can be fused
//!   with it.
//!
//! Everything is read off the graphs that the planner itself folds, one for each choice of a group that depends on Tucker layers. Which pairs
//! there are is read off the graph of the dense network.

use super::form::{Form, LayerProblem, with_forms};
use super::search::{Criterion, Exit, Group};
use super::stored::Stored;
use crate::ir::{ConvertProblem, Network, OpId, OpKind, Problem, ProjectedProblem};
use crate::plan::{FoldedNetwork, FusableReaders, PlanError, Planner, ProjectedPair, Task};
use std::collections::BTreeMap;

/// A layer that may have several forms, or Tucker ranks that are kept, or that may share a launch with such a layer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Layer {
    pub op: OpId,
    /// At least one.
    pub forms: Vec<Form>,
    pub group: Option<usize>,
    /// For each choice of the group (one without a group), what the layer computes.
    pub contexts: Vec<Context>,
}

impl Layer {
    /// Whether it may have another form than dense, or has one that is kept.
    pub fn may_be_decomposed(&self) -> bool {
        self.forms != [Form::Dense]
    }

    fn can_be_tucker(&self, is_tucker: bool) -> bool {
        let mut forms = self.forms.iter();
        forms.any(|form| matches!(form, Form::Tucker(_)) == is_tucker)
    }

    /// A form that is, or is not, a Tucker layer; with a first factor if there is one.
    fn example(&self, network: &Network, is_tucker: bool) -> Form {
        let problem = LayerProblem::of(network, self.op);
        let has_first = |form: &Form| problem.is_some_and(|problem| problem.d1(*form).is_some());
        let found = || {
            let forms = self.forms.iter().copied();
            forms.filter(|form| matches!(form, Form::Tucker(_)) == is_tucker)
        };
        let example = found().find(has_first).or_else(|| found().next());
        example.unwrap_or(self.forms[0])
    }
}

/// What a layer computes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Context {
    /// The layer, with the ops that are folded into it.
    pub problem: LayerProblem,
    /// How it is stored, unless it reads and writes NCHW in the units of its own kind. Then no launch also computes the first factor of another
    /// layer.
    pub stored: Option<Stored>,
    /// The part that it has in the launch of a dense convolution and its projection shortcut.
    pub part: Option<PairPart>,
    /// The first factors that can be fused with it if it is a Tucker layer.
    pub exits: Vec<Exit>,
    /// Whether its own output is stored too when one of them is.
    pub stores_output: bool,
}

/// The part of a layer in the launch of a dense convolution and its projection shortcut.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PairPart {
    /// The convolution.
    Convolution {
        /// What the launch computes.
        joint: Problem,
        /// The shortcut in a launch of its own.
        shortcut: Box<Context>,
    },
    /// The shortcut: its time is part of that of the convolution.
    Shortcut,
}

/// A convolution and its projection shortcut, which are a group.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pair {
    /// Indices of the convolution and of the shortcut among the layers.
    pub layers: [usize; 2],
    /// What one launch for both computes.
    pub problem: ProjectedProblem,
}

/// The layers of a network, in the order in which they run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Structure {
    pub layers: Vec<Layer>,
    pub groups: Vec<Group>,
    /// The groups that may be one launch.
    pub pairs: Vec<Pair>,
    /// Time of all other launches, nanoseconds.
    pub other_ns: u64,
}

impl Structure {
    /// For a network without ranks but those of layers with a single form, all of whose layers read and write NCHW. `forms` has the forms of
    /// its layers.
    pub(super) fn new(
        network: &Network,
        forms: &BTreeMap<OpId, Vec<Form>>,
        planner: &mut Planner,
    ) -> Result<Self, Vec<PlanError>> {
        let (forms, pairs) = with_projections(network, forms);
        let layers = forms.into_iter().map(|(op, forms)| Layer {
            op,
            forms,
            group: None,
            contexts: Vec::new(),
        });
        let mut structure = Self {
            layers: layers.collect(),
            groups: Vec::new(),
            pairs: Vec::new(),
            other_ns: 0,
        };
        structure.add_groups(network);
        structure.add_pairs(pairs);
        let base = Folded::new(network, &structure, &[]);
        for index in 0..structure.layers.len() {
            let contexts = match structure.layers[index].group {
                None => 1,
                Some(group) => match structure.groups[group].criterion {
                    Criterion::Tucker => 0,
                    Criterion::Dense => structure.groups[group].ns.len(),
                },
            };
            // Only the last one of a pair will differ, where the plan joins it.
            let context = base.context(&structure, index);
            structure.layers[index].contexts = vec![context; contexts];
        }
        let base_ns = base.other_ns(&structure, planner)?;
        structure.other_ns = base_ns;
        for group in 0..structure.groups.len() {
            if structure.groups[group].criterion == Criterion::Tucker {
                structure.add_choices(network, group, base_ns, planner)?;
            }
        }
        Ok(structure)
    }

    /// Whether an op is one of the layers.
    pub(super) fn has_layer(&self, op: Option<OpId>) -> bool {
        self.layers.iter().any(|layer| Some(layer.op) == op)
    }

    /// The convolutions that are added in pairs.
    fn add_groups(&mut self, network: &Network) {
        let consumers = network.consumers();
        // The convolution whose output, or a function of it, this op is, if nothing else reads it.
        let source = |mut op: OpId| loop {
            if consumers[op.0].len() != 1 {
                return None;
            }
            match &network.op(op).kind {
                OpKind::Conv(_) => return Some(op),
                OpKind::ScaleShift(_) | OpKind::Activation(_) => op = network.op(op).inputs[0],
                _ => return None,
            }
        };
        for op in &network.ops {
            if !matches!(op.kind, OpKind::Binary(..)) {
                continue;
            }
            let Some(pair) = op.inputs.iter().map(|&input| source(input)).collect() else {
                continue;
            };
            let pair: Vec<OpId> = pair;
            let members: Vec<usize> = (0..self.layers.len())
                .filter(|&index| pair.contains(&self.layers[index].op))
                .collect();
            let varying = members.iter().copied().filter(|&index| {
                let layer = &self.layers[index];
                layer.can_be_tucker(true) && layer.can_be_tucker(false)
            });
            let varying: Vec<usize> = varying.collect();
            if varying.is_empty() {
                continue;
            }
            for index in members {
                self.layers[index].group = Some(self.groups.len());
            }
            self.groups.push(Group {
                criterion: Criterion::Tucker,
                layers: varying,
                ns: Vec::new(),
            });
        }
    }

    /// The convolutions with projection shortcuts. What else is folded into both does not depend on their forms, none of which is a Tucker
    /// layer.
    fn add_pairs(&mut self, pairs: Vec<ProjectedPair>) {
        for pair in pairs {
            let index = |op: OpId| self.layers.iter().position(|layer| layer.op == op);
            let (Some(layer), Some(shortcut)) = (index(pair.layer), index(pair.shortcut)) else {
                continue;
            };
            let layers = [layer, shortcut];
            let is_free = |&index: &usize| {
                let layer = &self.layers[index];
                layer.group.is_none() && !layer.can_be_tucker(true)
            };
            if !layers.iter().all(is_free) {
                continue;
            }
            let mut varying = layers.to_vec();
            varying.retain(|&index| self.layers[index].forms.len() > 1);
            varying.sort_unstable();
            for index in layers {
                self.layers[index].group = Some(self.groups.len());
            }
            self.groups.push(Group {
                criterion: Criterion::Dense,
                ns: vec![0; 1 << varying.len()],
                layers: varying,
            });
            self.pairs.push(Pair {
                layers,
                problem: pair.problem,
            });
        }
    }

    /// Contexts and other launches for each choice of a group.
    fn add_choices(
        &mut self,
        network: &Network,
        group: usize,
        base_ns: u64,
        planner: &mut Planner,
    ) -> Result<(), Vec<PlanError>> {
        let varying = self.groups[group].layers.clone();
        let mut other_ns = Vec::new();
        for choice in 0..1usize << varying.len() {
            let bits = varying.iter().enumerate();
            let classes: Vec<(usize, bool)> = bits
                .map(|(bit, &layer)| (layer, choice >> bit & 1 == 1))
                .collect();
            let folded = Folded::new(network, self, &classes);
            for index in 0..self.layers.len() {
                if self.layers[index].group == Some(group) {
                    let context = folded.context(self, index);
                    self.layers[index].contexts.push(context);
                }
            }
            other_ns.push(folded.other_ns(self, planner)?);
        }
        // What every choice needs is part of all solutions.
        let least = other_ns.iter().copied().min().unwrap_or(base_ns);
        self.other_ns = self.other_ns + least - base_ns;
        self.groups[group].ns = other_ns.iter().map(|ns| ns - least).collect();
        Ok(())
    }
}

/// The convolutions of a network with projection shortcuts that may be dense; and the forms of all layers, with the one form of layers of such
/// pairs that stay dense.
fn with_projections(
    network: &Network,
    forms: &BTreeMap<OpId, Vec<Form>>,
) -> (BTreeMap<OpId, Vec<Form>>, Vec<ProjectedPair>) {
    let mut forms = forms.clone();
    let can_be_dense = forms
        .iter()
        .filter(|(_, forms)| forms.contains(&Form::Dense));
    let dense = with_forms(network, can_be_dense.map(|(&op, _)| (op, Form::Dense)));
    let pairs = ProjectedPair::all(&FoldedNetwork::new(&dense).graph);
    for pair in &pairs {
        let layers = [pair.layer, pair.shortcut];
        // Without forms of either the pair is one of the other launches.
        if layers.iter().any(|op| forms.contains_key(op)) {
            for op in layers {
                forms.entry(op).or_insert_with(|| vec![Form::Dense]);
            }
        }
    }
    (forms, pairs)
}

/// A network in which every layer that can be a Tucker layer is one, but for some.
struct Folded {
    network: FoldedNetwork,
}

impl Folded {
    fn new(network: &Network, structure: &Structure, classes: &[(usize, bool)]) -> Self {
        let forms = structure.layers.iter().enumerate().map(|(index, layer)| {
            let mut known = classes.iter();
            let known = known.find(|(of, _)| *of == index);
            let is_tucker = known.is_none_or(|(_, is_tucker)| *is_tucker);
            (layer.op, layer.example(network, is_tucker))
        });
        Self {
            network: FoldedNetwork::new(&with_forms(network, forms)),
        }
    }

    fn context(&self, structure: &Structure, index: usize) -> Context {
        let op = structure.layers[index].op;
        let tasks = &self.network.graph.tasks;
        let is_of_layer = |task: &Task| task.parameters.layer == Some(op);
        let first = tasks.iter().position(is_of_layer);
        let readers = first.and_then(|first| FusableReaders::new(&self.network.graph, first));
        let layer_of = |task: &usize| {
            let op = tasks[*task].parameters.layer;
            let mut layers = structure.layers.iter();
            layers.position(|layer| Some(layer.op) == op)
        };
        let exits = readers.iter().flat_map(|readers| &readers.tasks);
        Context {
            problem: self.problem(op),
            stored: None,
            part: None,
            exits: exits
                .filter_map(layer_of)
                .map(|layer| Exit { layer })
                .collect(),
            stores_output: readers.is_some_and(|readers| readers.stores_layer_output),
        }
    }

    fn problem(&self, op: OpId) -> LayerProblem {
        let mut layers = self.network.layers.iter();
        match layers.find(|(id, _)| *id == op) {
            Some((_, Problem::Conv(conv))) => LayerProblem::Conv(*conv),
            Some((_, Problem::Linear(linear))) => LayerProblem::Linear(*linear),
            other => unreachable!("a layer is a convolution or linear: {other:?}"),
        }
    }

    /// Time of the tasks that belong to no layer of the structure, from and to NCHW, and of conversions to the formats of the network's outputs.
    fn other_ns(
        &self,
        structure: &Structure,
        planner: &mut Planner,
    ) -> Result<u64, Vec<PlanError>> {
        let (mut sum, mut errors) = (0, Vec::new());
        let graph = &self.network.graph;
        let tasks = graph.tasks.iter();
        let others = tasks.filter(|task| !structure.has_layer(task.parameters.layer));
        let others = others.map(|task| planner.task_ns(task));
        let mut add = |ns| match ns {
            Ok(ns) => sum += ns,
            Err(error) => errors.push(error),
        };
        others.for_each(&mut add);
        for (output, &to) in graph.outputs.iter().zip(&graph.output_formats) {
            let value = &graph.values[output.0];
            if value.format != to {
                let (x, from) = (value.shape, value.format);
                let conversion = Problem::Convert(ConvertProblem { x, from, to });
                add(planner.problem_ns(&value.name, &conversion));
            }
        }
        match errors.is_empty() {
            true => Ok(sum),
            false => Err(errors),
        }
    }
}
