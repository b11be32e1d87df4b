//! What the layers of a network compute, depending on the forms of other layers.
//!
//! The planner folds ops into the layers before or after them, and computes some layers together. Some of its rules depend on forms:
//!
//! - What the layers of a [group](super::groups) compute depends on the forms of all of them.
//! - Of the Tucker layers that read a Tucker layer's output, the first one that has a first factor is the one whose factor can be fused
//!   with it.
//!
//! Everything is read off the graphs that the planner itself folds, one for each choice of a group.

use super::form::{Form, LayerProblem, with_forms};
use super::groups::{LayerGroup, value_of};
use super::search::{Distinction, Exit};
use super::sharing::Part;
use super::stored::Stored;
use crate::ir::{ConvertProblem, Network, OpId, Problem};
use crate::plan::{
    FoldedNetwork, FusableReaders, MixedLaunch, PlanError, Planner, SharedLaunch, Task,
};
use std::collections::BTreeMap;

/// A layer that may have several forms, or Tucker ranks that are kept, or that may share a launch with another layer.
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

    /// A form of this kind; with a first factor if there is one.
    fn example(&self, network: &Network, is_kind: impl Fn(Form) -> bool) -> Form {
        let problem = LayerProblem::of(network, self.op);
        let has_first = |form: &Form| problem.is_some_and(|problem| problem.d1(*form).is_some());
        let found = || {
            let forms = self.forms.iter().copied();
            forms.filter(|&form| is_kind(form))
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
    /// What is counted as its time if it is dense and may share launches with others.
    pub part: Option<Part>,
    /// The first factors that can be fused with it if it is a Tucker layer.
    pub exits: Vec<Exit>,
    /// Whether its own output is stored too when one of them is.
    pub stores_output: bool,
}

/// The layers of a network, in the order in which they run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Structure {
    pub layers: Vec<Layer>,
    pub groups: Vec<LayerGroup>,
    /// Sets of layers that may share launches which are not searched, because there are too many.
    pub not_searched: Vec<Vec<usize>>,
    /// Time of all other launches, nanoseconds.
    pub other_ns: u64,
}

impl Structure {
    /// For a network without ranks but those of layers with a single form, all of whose layers read and write NCHW. `forms` has the forms of
    /// its layers. Layers and groups are the same for all targets: `launches` has the shared launches of any of them.
    pub(super) fn new(
        network: &Network,
        forms: &BTreeMap<OpId, Vec<Form>>,
        sums: &[Vec<OpId>],
        launches: &[SharedLaunch],
        planner: &mut Planner,
    ) -> Result<Self, Vec<PlanError>> {
        let mut forms = forms.clone();
        for &op in launches.iter().flat_map(|launch| &launch.layers) {
            forms.entry(op).or_insert_with(|| vec![Form::Dense]);
        }
        let layers = forms.into_iter().map(|(op, forms)| Layer {
            op,
            forms,
            group: None,
            contexts: Vec::new(),
        });
        let mut structure = Self {
            layers: layers.collect(),
            groups: Vec::new(),
            not_searched: Vec::new(),
            other_ns: 0,
        };
        structure.add_groups(sums, launches);
        let base = Folded::new(network, &structure, &[]);
        for index in 0..structure.layers.len() {
            if structure.layers[index].group.is_none() {
                let context = base.context(&structure, index);
                structure.layers[index].contexts = vec![context];
            }
        }
        let base_ns = base.other_ns(&structure, planner)?;
        structure.other_ns = base_ns;
        for group in 0..structure.groups.len() {
            structure.add_choices(network, group, base_ns, planner)?;
        }
        structure.share_launches();
        Ok(structure)
    }

    /// Whether an op is one of the layers.
    pub(super) fn has_layer(&self, op: OpId) -> bool {
        self.index_of(op).is_some()
    }

    /// The index of the layer that is this op.
    pub(super) fn index_of(&self, op: OpId) -> Option<usize> {
        self.layers.iter().position(|layer| layer.op == op)
    }

    /// Contexts, shared launches, and the time of other launches for each choice of a group.
    fn add_choices(
        &mut self,
        network: &Network,
        group: usize,
        base_ns: u64,
        planner: &mut Planner,
    ) -> Result<(), Vec<PlanError>> {
        let LayerGroup {
            group: of_search,
            sharing,
            ..
        } = self.groups[group].clone();
        let sharing: Vec<OpId> = sharing.iter().map(|&layer| self.layers[layer].op).collect();
        let mut other_ns = Vec::new();
        for choice in 0..of_search.choices() {
            let values = of_search.values_in(choice);
            let values = values.map(|(layer, value)| (layer, of_search.distinction, value));
            let folded = Folded::new(network, self, &values.collect::<Vec<_>>());
            for index in 0..self.layers.len() {
                if self.layers[index].group == Some(group) {
                    let context = folded.context(self, index);
                    self.layers[index].contexts.push(context);
                }
            }
            let mut launches = match sharing.is_empty() {
                true => Vec::new(),
                false => SharedLaunch::of_graph(&folded.network.graph),
            };
            launches.retain(|launch| launch.layers.iter().all(|layer| sharing.contains(layer)));
            self.groups[group].launches.push(launches);
            other_ns.push(folded.other_ns(self, planner)?);
        }
        // What every choice needs is part of all solutions.
        let least = other_ns.iter().copied().min().unwrap_or(base_ns);
        self.other_ns = self.other_ns + least - base_ns;
        self.groups[group].group.ns = other_ns.iter().map(|ns| ns - least).collect();
        Ok(())
    }
}

/// A network in which every layer that can be a Tucker layer is one, but for some.
struct Folded {
    network: FoldedNetwork,
}

impl Folded {
    /// `known`: layers with the values of their forms.
    fn new(
        network: &Network,
        structure: &Structure,
        known: &[(usize, Distinction, usize)],
    ) -> Self {
        let forms = structure.layers.iter().enumerate().map(|(index, layer)| {
            let known = known.iter().find(|(of, ..)| *of == index);
            let form = match known {
                Some(&(_, distinction, value)) => {
                    layer.example(network, |form| value_of(distinction, form) == value)
                }
                None => layer.example(network, |form| matches!(form, Form::Tucker(_))),
            };
            (layer.op, form)
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
        let graph = &self.network.graph;
        let mut errors = Vec::new();
        let mut ns_or_error = |ns| match ns {
            Ok(ns) => ns,
            Err(error) => {
                errors.push(error);
                0
            }
        };
        let of_tasks = graph.tasks.iter().map(|task| {
            let layer = task.parameters.layer;
            match layer.is_some_and(|layer| structure.has_layer(layer)) {
                true => 0,
                false => ns_or_error(planner.task_ns(task)),
            }
        });
        let of_tasks: Vec<u64> = of_tasks.collect();
        let mut sum: u64 = of_tasks.iter().sum();
        for MixedLaunch {
            layers,
            tasks,
            problem,
        } in MixedLaunch::of_graph(graph)
        {
            if layers.iter().any(|&layer| structure.has_layer(layer)) {
                continue;
            }
            if let Ok(ns) = planner.problem_ns("", &problem) {
                // The planner takes what is faster.
                let separate: u64 = tasks.iter().map(|&task| of_tasks[task]).sum();
                sum -= separate.saturating_sub(ns);
            }
        }
        for (output, &to) in graph.outputs.iter().zip(&graph.output_formats) {
            let value = &graph.values[output.0];
            if value.format != to {
                let (x, from) = (value.shape, value.format);
                let conversion = Problem::Convert(ConvertProblem { x, from, to });
                sum += ns_or_error(planner.problem_ns(&value.name, &conversion));
            }
        }
        match errors.is_empty() {
            true => Ok(sum),
            false => Err(errors),
        }
    }
}
