//! The problem of the search, for layers that are stored in certain formats.

use super::form::{Form, with_forms};
use super::groups::{LayerGroup, sums};
use super::layer_times::LayerTimes;
use super::search::{self, Cost};
use super::sharing::add_shared_launches;
use super::structure::Structure;
use super::{Losses, Target, loss_units, work_of};
use crate::ir::OpId;
use crate::plan::{NetworkTime, PlanError, TaskGraph};
use std::collections::BTreeMap;

/// The layers of all targets with the formats in which they are stored.
pub(super) struct Storage {
    /// For each target.
    pub structures: Vec<Structure>,
    /// The problem of the search.
    pub problem: search::Problem,
}

impl Storage {
    fn new(targets: &[Target], structures: Vec<Structure>, losses: &Losses) -> Self {
        Self {
            problem: search_problem(targets, &structures, losses),
            structures,
        }
    }

    /// All layers in NCHW; then, unless that is the same, as in the plan of the dense network. `forms` has the forms of the layers.
    pub(super) fn all(
        targets: &mut [Target],
        forms: &BTreeMap<OpId, Vec<Form>>,
        losses: &Losses,
    ) -> Result<Vec<Self>, Vec<PlanError>> {
        let sums = sums(&targets[0].network);
        let mut launches = Vec::new();
        for target in targets.iter() {
            add_shared_launches(&target.network, forms, &sums, &mut launches);
        }
        let nchw = targets.iter_mut().map(|target| {
            let planner = target.clock.planner();
            Structure::new(&target.network, forms, &sums, &launches, planner)
        });
        let nchw: Vec<Structure> = nchw.collect::<Result<_, _>>()?;
        let as_dense = Self::as_planned(targets, &nchw, &[], losses)?;
        let is_same = as_dense.structures == nchw;
        let nchw = Self::new(targets, nchw, losses);
        let as_dense = Some(as_dense).filter(|_| !is_same);
        Ok(std::iter::once(nchw).chain(as_dense).collect())
    }

    /// As in the plans of the network with these forms, and dense layers otherwise. `nchw` has the layers in NCHW.
    pub(super) fn as_planned(
        targets: &mut [Target],
        nchw: &[Structure],
        forms: &[(OpId, Form)],
        losses: &Losses,
    ) -> Result<Self, Vec<PlanError>> {
        let structures = targets.iter_mut().zip(nchw).map(|(target, nchw)| {
            let network = with_forms(&target.network, forms.iter().copied());
            let time = NetworkTime::of_network(target.clock.planner(), &network)?;
            Ok(nchw.stored_as(&network, &time))
        });
        let structures = structures.collect::<Result<_, Vec<PlanError>>>()?;
        Ok(Self::new(targets, structures, losses))
    }

    /// The times of the layers.
    pub(super) fn layer_times<'a>(&'a self, targets: &'a mut [Target]) -> LayerTimes<'a> {
        let targets = targets.iter_mut().zip(&self.structures);
        LayerTimes::new(
            targets.map(|(target, structure)| (structure, &mut target.clock, target.weight)),
        )
    }
}

/// The problem of the search: forms with their losses, operations and weights; the latter of the first target.
fn search_problem(
    targets: &[Target],
    structures: &[Structure],
    losses: &Losses,
) -> search::Problem {
    let network = &targets[0].network;
    let structure = &structures[0];
    let sum_ns = |ns: &dyn Fn(&Structure) -> u64| -> u64 {
        let all = targets.iter().zip(structures);
        all.map(|(target, structure)| (ns(structure) as f64 * target.weight).round() as u64)
            .sum()
    };
    let groups = structure.groups.iter().enumerate();
    let groups = groups.map(|(index, LayerGroup { group, .. })| search::Group {
        ns: (0..group.ns.len())
            .map(|choice| sum_ns(&|structure| structure.groups[index].group.ns[choice]))
            .collect(),
        ..group.clone()
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
                (Form::Dense, _) => search::Kind::Dense,
                (Form::LowRank(_) | Form::Cp(_), _) => search::Kind::Other,
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
