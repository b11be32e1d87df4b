//! Launches that compute several dense layers: a convolution with its projection shortcut, convolutions of the same input, dense steps, or the
//! three convolutions of an inverted residual.
//!
//! Layers that may share launches are a [group](super::groups): which launches there are depends on which of them are dense. The
//! search counts the time of all of them at the first one ([`Part::First`]): the least sum over launches of one layer and of several.

use super::clock::Clock;
use super::form::{Form, with_forms};
use super::layer_times::dense_alone_ns;
use super::structure::{Context, Structure};
use crate::ir::{Network, OpId, Problem};
use crate::plan::{FoldedNetwork, SharedLaunch};
use std::collections::BTreeMap;

/// What is counted as the time of a dense layer that may share launches.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    /// The time of this layer and of the others.
    First {
        /// The others in launches of their own.
        others: Vec<Context>,
        /// The launches for several of them.
        launches: Vec<Joint>,
    },
    /// Nothing: the first layer has its time.
    Other,
}

/// A launch for several layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Joint {
    /// Bit 0 is the first layer, bit i + 1 the i-th of the others.
    pub layers: u32,
    /// What it computes.
    pub problem: Problem,
}

/// Adds all that plans of a network with these forms of its layers may have, unless one for the same layers is known. Who adds the residual
/// of a sum decides which convolutions can be computed together, so they are those of the dense network, and of networks in which layers
/// that are added are Tucker layers.
pub(super) fn add_shared_launches(
    network: &Network,
    forms: &BTreeMap<OpId, Vec<Form>>,
    sums: &[Vec<OpId>],
    all: &mut Vec<SharedLaunch>,
) {
    let with_tucker = |layers: &[OpId]| {
        let chosen = forms.iter().filter_map(|(&op, forms)| {
            let is_tucker = |form: &&Form| matches!(form, Form::Tucker(_));
            let tucker = forms.iter().find(is_tucker).copied();
            let tucker = tucker.filter(|_| layers.contains(&op));
            let dense = forms.contains(&Form::Dense).then_some(Form::Dense);
            Some((op, tucker.or(dense)?))
        });
        let network = with_forms(network, chosen);
        SharedLaunch::of_graph(&FoldedNetwork::new(&network).graph)
    };
    let subsets = sums.iter().flat_map(|pair| {
        let single = pair.iter().map(std::slice::from_ref);
        single.chain([&pair[..]])
    });
    for launch in [&[][..]].into_iter().chain(subsets).flat_map(with_tucker) {
        if all.iter().all(|known| known.layers != launch.layers) {
            all.push(launch);
        }
    }
}

impl Structure {
    /// Sets the parts of all layers that may share launches, as they are stored.
    pub(super) fn share_launches(&mut self) {
        let groups = std::mem::take(&mut self.groups);
        for group in &groups {
            for (choice, launches) in group.launches.iter().enumerate() {
                self.share_launches_of_choice(&group.sharing, choice, launches);
            }
        }
        self.groups = groups;
    }

    fn share_launches_of_choice(
        &mut self,
        layers: &[usize],
        choice: usize,
        launches: &[SharedLaunch],
    ) {
        for &index in layers {
            self.layers[index].contexts[choice].part = None;
        }
        let indices = |launch: &SharedLaunch| {
            let indices = launch.layers.iter().filter_map(|&op| self.index_of(op));
            indices.collect::<Vec<_>>()
        };
        let context = |index: usize| &self.layers[index].contexts[choice];
        let usable = launches.iter().filter_map(|launch| {
            let layers = indices(launch);
            let mut contexts = layers.iter().map(|&index| context(index));
            let is_usable = contexts.all(|context| context.can_share(&launch.problem));
            is_usable.then_some((layers, launch.problem))
        });
        let usable: Vec<(Vec<usize>, Problem)> = usable.collect();
        let mut sharing: Vec<usize> = usable
            .iter()
            .flat_map(|(layers, _)| layers.clone())
            .collect();
        sharing.sort_unstable();
        sharing.dedup();
        let Some((&first, others)) = sharing.split_first() else {
            return;
        };
        let bit = |index: &usize| sharing.iter().position(|layer| layer == index);
        let launches = usable.iter().map(|(layers, problem)| Joint {
            layers: layers.iter().filter_map(bit).map(|bit| 1 << bit).sum(),
            problem: *problem,
        });
        let part = Part::First {
            launches: launches.collect(),
            others: others.iter().map(|&index| context(index).clone()).collect(),
        };
        for &index in others {
            self.layers[index].contexts[choice].part = Some(Part::Other);
        }
        self.layers[first].contexts[choice].part = Some(part);
    }
}

impl Context {
    /// Whether a launch for several layers reads and writes the formats in which this one of them is stored.
    fn can_share(&self, problem: &Problem) -> bool {
        match problem {
            Problem::Projected(projected) => self.is_stored_in(projected.format),
            _ => self.stored.is_none(),
        }
    }

    /// The time of the layer if it is dense, with those of others of which it is the first; nanoseconds, if their problems were evaluated.
    pub(super) fn dense_ns(&self, clock: &Clock) -> Option<u32> {
        let (others, launches) = match &self.part {
            None => return dense_alone_ns(clock, self),
            Some(Part::Other) => return Some(0),
            Some(Part::First { others, launches }) => (others, launches),
        };
        let ns = |ns: Option<u32>| ns.map_or(f64::INFINITY, f64::from);
        let contexts = std::iter::once(self).chain(others);
        let alone: Vec<f64> = contexts
            .map(|context| ns(dense_alone_ns(clock, context)))
            .collect();
        let launches = launches.iter();
        let joint: Vec<(u32, f64)> = launches
            .map(|launch| (launch.layers, ns(clock.ns(&launch.problem))))
            .collect();
        let least = least_sum(&alone, &joint);
        (least <= f64::from(u32::MAX)).then_some(least as u32)
    }

    /// The problems of launches for several layers that are counted here if the layer is dense.
    pub(super) fn joint_problems(&self) -> impl Iterator<Item = Problem> {
        let launches = match &self.part {
            Some(Part::First { launches, .. }) => &launches[..],
            _ => &[],
        };
        launches.iter().map(|launch| launch.problem)
    }
}

/// The least sum of times that computes all layers: each one alone, or several by one of the joint launches, whose bits are the layers.
pub(super) fn least_sum(alone: &[f64], joint: &[(u32, f64)]) -> f64 {
    // For each set of layers.
    let mut least = vec![0.0; 1 << alone.len()];
    for set in 1..least.len() {
        let first = set.trailing_zeros();
        let mut best = least[set & (set - 1)] + alone[first as usize];
        for &(layers, time) in joint {
            let layers = layers as usize;
            if layers >> first & 1 == 1 && layers & set == layers {
                best = f64::min(best, least[set & !layers] + time);
            }
        }
        least[set] = best;
    }
    least[least.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_sum_is_that_of_the_best_partition() {
        assert_eq!(least_sum(&[3.0, 4.0, 5.0], &[]), 12.0);
        // Two launches that share a layer exclude each other.
        let joint = [(0b011, 5.0), (0b110, 6.0)];
        assert_eq!(least_sum(&[3.0, 4.0, 5.0], &joint), 9.0);
        assert_eq!(
            least_sum(&[3.0, 4.0, 5.0], &[(0b011, 5.0), (0b111, 9.5)]),
            9.5
        );
        assert_eq!(least_sum(&[3.0, 4.0, 5.0], &[(0b101, 9.0)]), 12.0);
        // A layer without a launch of its own.
        assert_eq!(least_sum(&[f64::INFINITY, 4.0], &[(0b11, 6.0)]), 6.0);
        assert_eq!(least_sum(&[f64::INFINITY], &[]), f64::INFINITY);
    }
}
