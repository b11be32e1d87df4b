//! Groups: layers whose forms decide what launches of these layers compute.
//!
//! - Of two convolutions that are added, a Tucker layer adds the other one, if that is not a Tucker layer; else the later one adds the
//!   earlier one.
//! - One launch may compute several dense layers: see [`sharing`](super::sharing).
//!
//! Pairs of the one kind and launches of the other one that have a layer in common are one group.

use super::form::Form;
use super::search::{Distinction, Group};
use super::structure::{Layer, Structure};
use crate::ir::{Network, OpId, OpKind};
use crate::plan::SharedLaunch;

/// A group of layers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LayerGroup {
    /// What the search knows of it.
    pub group: Group,
    /// The layers that are added, in pairs; one layer where the other one of a pair has no forms.
    pub sums: Vec<Vec<usize>>,
    /// The layers that may share launches, ascending.
    pub sharing: Vec<usize>,
    /// For each choice, the launches for several of them.
    pub launches: Vec<Vec<SharedLaunch>>,
}

/// The most layers that may share launches in a group, of which each further one makes twice as many sets; and the most choices of such a
/// group. In larger ones no layers share launches, so their times are upper bounds.
const MOST_LAYERS: usize = 12;
/// See [`MOST_LAYERS`].
const MOST_CHOICES: usize = 81;

/// The convolutions of a network that are added in pairs.
pub(super) fn sums(network: &Network) -> Vec<Vec<OpId>> {
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
    let ops = network.ops.iter();
    let sums = ops.filter(|op| matches!(op.kind, OpKind::Binary(..)));
    sums.filter_map(|op| op.inputs.iter().map(|&input| source(input)).collect())
        .collect()
}

/// Sets that have an element in common, directly or by others, as one set; all sorted.
fn connected(sets: impl IntoIterator<Item = Vec<usize>>) -> Vec<Vec<usize>> {
    let mut disjoint: Vec<Vec<usize>> = Vec::new();
    for mut set in sets {
        disjoint.retain(|other| {
            let is_apart = !other.iter().any(|element| set.contains(element));
            if !is_apart {
                set.extend(other);
            }
            is_apart
        });
        set.sort_unstable();
        set.dedup();
        disjoint.push(set);
    }
    disjoint.sort_unstable();
    disjoint
}

impl Structure {
    /// Adds the groups, without launches and times.
    pub(super) fn add_groups(&mut self, sums: &[Vec<OpId>], launches: &[SharedLaunch]) {
        let indices = |ops: &[OpId]| -> Vec<usize> {
            let indices = ops.iter().filter_map(|&op| self.index_of(op));
            indices.collect()
        };
        let sums = sums.iter().map(|pair| indices(pair));
        let may_change = |pair: &Vec<usize>| {
            let mut layers = pair.iter().map(|&index| &self.layers[index]);
            layers.any(|layer| layer.has_several_values(Distinction::Tucker))
        };
        let sums: Vec<Vec<usize>> = sums.filter(may_change).collect();
        let mut sharing = connected(launches.iter().map(|launch| indices(&launch.layers)));
        let groups = loop {
            let sets = connected(sums.iter().chain(&sharing).cloned());
            let groups = sets.iter().map(|set| self.group_of(set, &sums, &sharing));
            let groups: Vec<LayerGroup> = groups.collect();
            let is_too_large = |group: &&LayerGroup| {
                let layers = group.sharing.len();
                layers > MOST_LAYERS || layers > 0 && group.group.choices() > MOST_CHOICES
            };
            let Some(too_large) = groups.iter().find(is_too_large) else {
                break groups;
            };
            sharing.retain(|layers| !too_large.sharing.contains(&layers[0]));
            self.not_searched.push(too_large.sharing.clone());
        };
        for (index, group) in groups.iter().enumerate() {
            for &layer in group.sums.iter().flatten().chain(&group.sharing) {
                self.layers[layer].group = Some(index);
            }
        }
        self.groups = groups;
    }

    /// The group of a set of layers, with those of these sums and of these layers that may share launches which are part of it.
    fn group_of(&self, set: &[usize], sums: &[Vec<usize>], sharing: &[Vec<usize>]) -> LayerGroup {
        let within = |sets: &[Vec<usize>]| -> Vec<Vec<usize>> {
            let sets = sets.iter().filter(|layers| set.contains(&layers[0]));
            sets.cloned().collect()
        };
        let (sums, sharing) = (within(sums), within(sharing).concat());
        let layers = || set.iter().map(|&index| &self.layers[index]);
        let is_other = |form: &Form| matches!(form, Form::LowRank(_) | Form::Cp(_));
        let distinction = match (sums.is_empty(), sharing.is_empty()) {
            (true, _) => Distinction::Dense,
            (false, true) => Distinction::Tucker,
            (false, false) => match layers().any(|layer| layer.forms.iter().any(is_other)) {
                true => Distinction::TuckerAndDense,
                // What is no Tucker layer is dense.
                false => Distinction::Tucker,
            },
        };
        let varying = set.iter().copied();
        let varying = varying.filter(|&index| self.layers[index].has_several_values(distinction));
        LayerGroup {
            group: Group {
                distinction,
                layers: varying.collect(),
                ns: Vec::new(),
            },
            sums,
            sharing,
            launches: Vec::new(),
        }
    }
}

impl Layer {
    fn has_several_values(&self, distinction: Distinction) -> bool {
        let mut values = self.forms.iter().map(|&form| value_of(distinction, form));
        let first = values.next();
        values.any(|value| Some(value) != first)
    }
}

/// The value of a form.
pub(super) fn value_of(distinction: Distinction, form: Form) -> usize {
    distinction.value(matches!(form, Form::Tucker(_)), form == Form::Dense)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_with_common_elements_are_one() {
        let sets = [vec![7, 6], vec![0, 1], vec![2, 3], vec![4, 5], vec![3, 0]];
        assert_eq!(connected(sets), [vec![0, 1, 2, 3], vec![4, 5], vec![6, 7]]);
    }

    fn structure(forms: &[&[Form]]) -> Structure {
        let layers = forms.iter().enumerate().map(|(index, forms)| Layer {
            op: OpId(index),
            forms: forms.to_vec(),
            group: None,
            contexts: Vec::new(),
        });
        Structure {
            layers: layers.collect(),
            groups: Vec::new(),
            not_searched: Vec::new(),
            other_ns: 0,
        }
    }

    fn launch(layers: &[usize]) -> SharedLaunch {
        SharedLaunch {
            layers: layers.iter().copied().map(OpId).collect(),
            problem: crate::ir::Problem::Conv(crate::ir::ConvProblem::new(
                tdc_runtime::ConvShape::new(1, 1, 1, 1, 1, 1),
            )),
        }
    }

    #[test]
    fn groups_distinguish_what_their_sums_and_launches_depend_on() {
        let (dense, tucker, low_rank) = (Form::Dense, Form::Tucker([8, 8]), Form::LowRank(8));
        let layers: [&[Form]; 9] = [
            // A sum, whose second layer also shares a launch with a layer of low rank; then with one that can be a Tucker layer.
            &[dense, tucker],
            &[dense, tucker],
            &[dense, low_rank],
            &[dense, tucker],
            &[dense],
            &[dense, tucker],
            // Two layers that share a launch, one of which stays dense; and a sum of layers that are never Tucker layers.
            &[dense, low_rank],
            &[dense],
            &[dense, low_rank],
        ];
        let mut structure = structure(&layers);
        let pair = |a, b| vec![OpId(a), OpId(b)];
        let sums = [pair(0, 1), pair(3, 4), pair(6, 8)];
        structure.add_groups(&sums, &[launch(&[1, 2]), launch(&[3, 5]), launch(&[6, 7])]);
        let found = structure.groups.iter().map(|group| {
            let Group {
                distinction,
                layers,
                ..
            } = &group.group;
            (*distinction, layers.clone(), group.sharing.clone())
        });
        let expected = [
            (Distinction::TuckerAndDense, vec![0, 1, 2], vec![1, 2]),
            (Distinction::Tucker, vec![3, 5], vec![3, 5]),
            (Distinction::Dense, vec![6], vec![6, 7]),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        let of_layers = structure.layers.iter().map(|layer| layer.group);
        let [a, b, c] = [Some(0), Some(1), Some(2)];
        assert_eq!(
            of_layers.collect::<Vec<_>>(),
            [a, a, a, b, b, b, c, c, None]
        );
    }

    #[test]
    fn layers_of_large_groups_share_no_launches() {
        let varying: &[Form] = &[Form::Dense, Form::Tucker([8, 8])];
        for (count, is_group) in [(6, true), (7, false)] {
            let mut structure = structure(&vec![varying; count]);
            let all: Vec<usize> = (0..count).collect();
            structure.add_groups(&[vec![OpId(0), OpId(1)]], &[launch(&all)]);
            assert_eq!(structure.groups.len(), 1);
            let group = &structure.groups[0];
            assert_eq!(group.sharing.len(), if is_group { count } else { 0 });
            let varying = if is_group { count } else { 2 };
            assert_eq!(group.group.layers.len(), varying);
        }
        for (count, is_group) in [(12, true), (13, false)] {
            let mut structure = structure(&vec![&[Form::Dense][..]; count]);
            let all: Vec<usize> = (0..count).collect();
            structure.add_groups(&[], &[launch(&all)]);
            assert_eq!(structure.groups.len(), usize::from(is_group));
            let not_searched = if is_group { vec![] } else { vec![all] };
            assert_eq!(structure.not_searched, not_searched);
        }
    }
}
