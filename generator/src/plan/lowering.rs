//! In how many launches Tucker and CP layers are carried out: one for each factor, two or one, and where the launch of a Tucker layer
//! goes on with the first factor of the one behind.

use super::Planner;
use super::fuse::{Task, TaskGraph};
use super::next_fusion::NextFusion;
use crate::ir::{Problem, TilePolicy};
use crate::scheme::scheme;
use std::ops::Range;

/// The graph with its Tucker and CP layers in the form that takes the least time: as it is measured where their separate tasks are
/// (then what was not measured does not count), else as it is estimated. Layers that can be joined are looked at as one chain,
/// as far as all of them are measured, or none is.
///
/// A layer whose config names a scheme is in the form that the scheme computes, and `tiles: paper` plans separate launches, as the
/// paper does.
pub(super) fn choose_lowerings(planner: &mut Planner, graph: TaskGraph) -> TaskGraph {
    let mut layers = FactorizedLayer::find(planner, &graph);
    FactorizedLayer::add_fused_lowerings(&mut layers, planner, &graph);
    apply_lowerings(graph, layers)
}

/// The graph with each of its layers in the way whose time is part of the least sum.
fn apply_lowerings(mut graph: TaskGraph, layers: Vec<FactorizedLayer>) -> TaskGraph {
    let best = best_per_layer(&layers);
    let mut first_computed = vec![false; layers.len()];
    let mut tasks = Vec::with_capacity(graph.tasks.len());
    let mut end = 0;
    for (index, layer) in layers.into_iter().enumerate() {
        let (_, lowering) = best[index][usize::from(first_computed[index])];
        let lowering = &layer.lowerings[lowering];
        tasks.extend_from_slice(&graph.tasks[end..layer.tasks.start]);
        tasks.extend_from_slice(&lowering.tasks);
        end = layer.tasks.end;
        if let (true, Some((next, fusion))) = (lowering.computes_next_first, &layer.next) {
            first_computed[*next] = true;
            graph.place_fused_outputs(fusion);
        }
    }
    tasks.extend_from_slice(&graph.tasks[end..]);
    graph.tasks = tasks;
    graph
}

/// A Tucker or CP layer of a graph.
struct FactorizedLayer {
    /// Its tasks, one for each factor.
    tasks: Range<usize>,
    /// How ways to carry it out are compared; `None` where there is but one.
    time_source: Option<TimeSource>,
    /// Ways to carry it out, of equal ones the better first.
    lowerings: Vec<Lowering>,
    /// The layer whose first factor some of them compute: its index, and how.
    next: Option<(usize, NextFusion)>,
}

/// A way to carry a layer out.
struct Lowering {
    tasks: Vec<Task>,
    /// The launch ahead has computed the layer's first factor.
    first_computed: bool,
    /// The last launch computes that of the next layer.
    computes_next_first: bool,
    /// Infinite where it cannot be taken.
    us: f64,
}

impl FactorizedLayer {
    /// Those of a graph in order, each for itself.
    fn find(planner: &mut Planner, graph: &TaskGraph) -> Vec<Self> {
        let mut layers = Vec::new();
        let mut index = 0;
        while index < graph.tasks.len() {
            let Some(fused_tasks) = graph.fused_tasks(index) else {
                index += 1;
                continue;
            };
            let tasks = index..index + fused_tasks.separate_count;
            index = tasks.end;
            let separate = &graph.tasks[tasks.clone()];
            let requested_scheme = fused_tasks.whole.scheme.clone();
            let whole = vec![fused_tasks.whole];
            let core_last = fused_tasks.core_last;
            let first_separate = core_last
                .clone()
                .map(|core_last| vec![separate[0].clone(), core_last]);
            let mut lowerings: Vec<Vec<Task>> = std::iter::once(whole)
                .chain(first_separate)
                .chain([separate.to_vec()])
                .collect();
            let time_source = match requested_lowering(planner, requested_scheme.as_deref()) {
                Some(RequestedLowering::Whole) => {
                    lowerings.truncate(1);
                    None
                }
                Some(RequestedLowering::Separate) => None,
                None => TimeSource::new(planner, &units(separate)),
            };
            if time_source.is_none() {
                lowerings.drain(..lowerings.len() - 1);
            }
            let mut timed = |tasks: Vec<Task>, first_computed| Lowering {
                us: time_source.map_or(0.0, |time_source| time_source.us(planner, &units(&tasks))),
                tasks,
                first_computed,
                computes_next_first: false,
            };
            let mut lowerings: Vec<_> = lowerings
                .into_iter()
                .map(|lowering| timed(lowering, false))
                .collect();
            if let (Some(_), Some(core_last)) = (time_source, core_last) {
                lowerings.push(timed(vec![core_last], true));
                lowerings.push(timed(separate[1..].to_vec(), true));
            }
            layers.push(Self {
                tasks,
                time_source,
                lowerings,
                next: None,
            });
        }
        layers
    }

    /// Whether the launch of a factor of the next layer, which takes `factor_us`, is more than what is lost by tasks that save it. With
    /// that factor they take no less than as many without it; so where those are far from the layer's best, as all of a
    /// large layer in one launch is, nothing need be estimated. What was measured tells by itself.
    fn may_be_faster(&self, tasks: &[Task], first_computed: bool, factor_us: f64) -> bool {
        let own = || {
            self.lowerings
                .iter()
                .filter(|lowering| lowering.first_computed == first_computed)
        };
        let best_us = own()
            .map(|lowering| lowering.us)
            .fold(f64::INFINITY, f64::min);
        let mut same_launch_count = own().filter(|lowering| lowering.tasks.len() == tasks.len());
        self.time_source == Some(TimeSource::Measured)
            || same_launch_count.any(|lowering| lowering.us < best_us + factor_us)
    }

    /// Adds the ways that go on with the first factor of the layer behind.
    fn add_fused_lowerings(layers: &mut [Self], planner: &mut Planner, graph: &TaskGraph) {
        for index in 0..layers.len() {
            let Some(time_source) = layers[index].time_source else {
                continue;
            };
            let Some(fusion) = graph.next_fusion(layers[index].tasks.start) else {
                continue;
            };
            let next_layer = layers.iter().position(|layer| {
                layer.tasks.start == fusion.next_first && layer.time_source == Some(time_source)
            });
            let Some(next_layer) = next_layer else {
                continue;
            };
            let first = graph.tasks[layers[index].tasks.start].clone();
            let factor_us = time_source.us(
                planner,
                &units(&graph.tasks[fusion.next_first..=fusion.next_first]),
            );
            let lowerings = [
                (vec![fusion.whole.clone()], false),
                (vec![first, fusion.core_last.clone()], false),
                (vec![fusion.core_last.clone()], true),
            ];
            let lowerings = lowerings.map(|(tasks, first_computed)| Lowering {
                us: match layers[index].may_be_faster(&tasks, first_computed, factor_us) {
                    true => time_source.us(planner, &units(&tasks)),
                    false => f64::INFINITY,
                },
                tasks,
                first_computed,
                computes_next_first: true,
            });
            layers[index].lowerings.splice(0..0, lowerings);
            layers[index].next = Some((next_layer, fusion));
        }
    }
}

/// For each layer, the least time from there to the end of its chain and the way that it begins with: where it has to compute its
/// first factor, and where the launch ahead has.
fn best_per_layer(layers: &[FactorizedLayer]) -> Vec<[(f64, usize); 2]> {
    let mut best = vec![[(f64::INFINITY, 0); 2]; layers.len()];
    // The next layer of each stands behind it.
    for (index, layer) in layers.iter().enumerate().rev() {
        best[index] = [false, true].map(|first_computed| {
            let lowerings = layer.lowerings.iter().enumerate();
            let times = lowerings
                .filter(|(_, lowering)| lowering.first_computed == first_computed)
                .map(|(at, lowering)| {
                    let next = layer.next.as_ref();
                    let rest_us = next
                        .map(|(next, _)| best[*next][usize::from(lowering.computes_next_first)].0);
                    (lowering.us + rest_us.unwrap_or(0.0), at)
                });
            min_by_time(times).unwrap_or((f64::INFINITY, 0))
        });
    }
    best
}

/// The least of some times with what belongs to it; of equal ones the first.
fn min_by_time(times: impl Iterator<Item = (f64, usize)>) -> Option<(f64, usize)> {
    times.reduce(|best, time| if time.0 < best.0 { time } else { best })
}

/// Names and problems of tasks.
fn units(tasks: &[Task]) -> Vec<(&str, Problem)> {
    let units = tasks.iter().map(|task| (&task.name[..], task.problem));
    units.collect()
}

/// Which way to carry a layer of several factors out takes the least time: the index of it. A way is the names and problems of its
/// units; the first is one unit for all, the last one for each factor. `requested_scheme` is the scheme that the layer asks for.
pub(super) fn fastest_lowering(
    planner: &mut Planner,
    lowerings: &[Vec<(&str, Problem)>],
    requested_scheme: Option<&str>,
) -> usize {
    let separate = lowerings.len().saturating_sub(1);
    match requested_lowering(planner, requested_scheme) {
        Some(RequestedLowering::Whole) => return 0,
        Some(RequestedLowering::Separate) => return separate,
        None => {}
    }
    let Some(time_source) = lowerings
        .last()
        .and_then(|units| TimeSource::new(planner, units))
    else {
        return separate;
    };
    let times = lowerings.iter().map(|units| time_source.us(planner, units));
    min_by_time(times.zip(0..)).map_or(separate, |(_, index)| index)
}

/// The form of a layer that a config asks for.
enum RequestedLowering {
    /// One unit for all factors.
    Whole,
    /// One for each.
    Separate,
}

/// What is asked for by a scheme or a way to choose tiles; `None` where it is left to the planner.
fn requested_lowering(
    planner: &Planner,
    requested_scheme: Option<&str>,
) -> Option<RequestedLowering> {
    match requested_scheme.map(scheme) {
        Some(Some(scheme)) if scheme.fuses_factors() => Some(RequestedLowering::Whole),
        Some(_) => Some(RequestedLowering::Separate),
        None => (planner.tile_policy() == TilePolicy::Paper).then_some(RequestedLowering::Separate),
    }
}

/// How ways to carry a layer out are compared: like with like.
#[derive(Clone, Copy, PartialEq)]
enum TimeSource {
    /// By measured times; what has none does not count.
    Measured,
    /// By estimated ones.
    Predicted,
}

impl TimeSource {
    /// By measured times where all units that compute one factor each have them. `None` where one of those cannot be computed.
    fn new(planner: &mut Planner, separate: &[(&str, Problem)]) -> Option<Self> {
        let mut can = |time_source: &Self| time_source.us(planner, separate).is_finite();
        [Self::Measured, Self::Predicted].into_iter().find(&mut can)
    }

    /// The time of units one behind the other; infinite where one has none.
    fn us(self, planner: &mut Planner, units: &[(&str, Problem)]) -> f64 {
        let us = |(name, problem): &(&str, Problem)| match self {
            Self::Measured => planner.best_measured_us(problem),
            Self::Predicted => {
                let choice = planner.choose(name, problem, None, None);
                choice.ok().map(|choice| choice.predicted_us)
            }
        };
        let times: Option<f64> = units.iter().map(us).sum();
        times.unwrap_or(f64::INFINITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{ConvOptions, NetworkBuilder, OpOptions, TensorShape};

    /// A chain of three Tucker layers: [[F K L], [F][K L], [F][K][L]], ...
    fn chain(scheme: Option<&str>) -> TaskGraph {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 16, 9, 11));
        for name in ["a", "b", "c"] {
            let options = ConvOptions {
                ranks: Some([8, 8]),
                scheme: scheme.filter(|_| name == "b").map(str::to_owned),
                ..ConvOptions::new(16)
            };
            builder.op(name, None, OpOptions::Conv(options));
        }
        TaskGraph::new(&builder.finish().unwrap())
    }

    /// The chain as it is carried out where each task takes the time that `us` gives its name.
    fn planned(us: &dyn Fn(&str) -> f64) -> TaskGraph {
        let graph = chain(None);
        let mut planner = Planner::new(gpu("h200").unwrap());
        let mut layers = FactorizedLayer::find(&mut planner, &graph);
        FactorizedLayer::add_fused_lowerings(&mut layers, &mut planner, &graph);
        for lowering in layers.iter_mut().flat_map(|layer| &mut layer.lowerings) {
            lowering.us = lowering.tasks.iter().map(|task| us(&task.name)).sum();
        }
        apply_lowerings(graph, layers)
    }

    fn task_names(graph: &TaskGraph) -> String {
        let names: Vec<_> = graph.tasks.iter().map(|task| &task.name[..]).collect();
        names.join(" ")
    }

    /// A launch of a factor takes 2, the core 3, and each further factor in the same launch 1, of the next layer half of that.
    fn plain(name: &str) -> f64 {
        match name {
            _ if name.contains('+') => 0.5 + plain(name.split('+').next().unwrap()),
            _ if name.ends_with(".first") || name.ends_with(".last") => 2.0,
            _ if name.ends_with(".core") => 3.0,
            _ if name.ends_with(".core_last") => 4.0,
            _ => 5.0,
        }
    }

    #[test]
    fn a_chain_takes_the_launches_whose_sum_is_least() {
        let names = |us: &dyn Fn(&str) -> f64| task_names(&planned(us));
        assert_eq!(names(&plain), "a+b.first b.core_last+c.first c.core_last");
        // What one layer gains must be more than what the next one loses: `b` behind a launch that has begun it cannot be whole.
        let but = |slow: &'static str, us: f64| {
            move |name: &str| if name == slow { us } else { plain(name) }
        };
        assert_eq!(
            names(&but("b.core_last+c.first", 9.0)),
            "a+b.first b.core_last c"
        );
        assert_eq!(names(&but("a+b.first", 9.0)), "a b+c.first c.core_last");
        assert_eq!(names(&but("c.core_last", 9.0)), "a+b.first b.core_last c");
        assert_eq!(
            names(&|name| if name.contains('+') {
                f64::INFINITY
            } else {
                plain(name)
            }),
            "a b c"
        );
        // Behind a launch that has begun a layer its core and last factor may be on their own, and before one that begins the
        // next its own first.
        let apart = |name: &str| match name {
            "b.core_last" | "b" => 8.0,
            "a" | "a+b.first" | "b.core_last+c.first" | "b+c.first" => 20.0,
            _ => plain(name),
        };
        assert_eq!(names(&apart), "a.first a.core_last+b.first b.core b.last c");
    }

    #[test]
    fn what_joined_launches_make_has_a_place() {
        let joined = planned(&plain);
        for tasks in joined.tasks.windows(2) {
            assert_eq!(tasks[0].y, tasks[1].x);
            assert_eq!(tasks[0].problem.y(), tasks[1].problem.x());
        }
        assert_eq!(joined.tasks[2].y, joined.output);
    }

    #[test]
    fn a_layer_that_is_asked_for_joins_nothing() {
        let mut planner = Planner::new(gpu("h200").unwrap());
        let free = choose_lowerings(&mut planner, chain(None));
        assert!(task_names(&free).contains('+'), "{}", task_names(&free));
        let named = choose_lowerings(&mut planner, chain(Some("direct")));
        assert!(!task_names(&named).contains('+'), "{}", task_names(&named));
        let mut planner = Planner::new(gpu("h200").unwrap()).with_tile_policy(TilePolicy::Paper);
        assert_eq!(choose_lowerings(&mut planner, chain(None)), chain(None));
    }
}
