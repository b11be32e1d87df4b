//! In how many launches Tucker and CP layers are carried out: one for each factor, two or one, and where the launch of a Tucker layer
//! goes on with the first factor of the one behind.

use super::Planner;
use super::fuse::{Task, TaskGraph};
use super::join::Join;
use crate::ir::{Problem, Tiles};
use crate::scheme::scheme;
use std::ops::Range;

/// The graph with its Tucker and CP layers in the form that takes the least time: as it is measured where their separate tasks are
/// (then what was not measured does not count), else as it is estimated. Layers that can be joined are looked at as one chain,
/// as far as all of them are measured, or none is.
///
/// A layer whose config names a scheme is in the form that the scheme computes, and `tiles: paper` plans separate launches, as the
/// paper does.
pub(super) fn fewest_us(planner: &mut Planner, graph: TaskGraph) -> TaskGraph {
    let mut layers = Layer::all(planner, &graph);
    Layer::join(&mut layers, planner, &graph);
    carried_out(graph, layers)
}

/// The graph with each of its layers in the way whose time is part of the least sum.
fn carried_out(mut graph: TaskGraph, layers: Vec<Layer>) -> TaskGraph {
    let best = fewest_us_from(&layers);
    let mut begun = vec![false; layers.len()];
    let mut tasks = Vec::with_capacity(graph.tasks.len());
    let mut end = 0;
    for (index, layer) in layers.into_iter().enumerate() {
        let (_, way) = best[index][usize::from(begun[index])];
        let way = &layer.ways[way];
        tasks.extend_from_slice(&graph.tasks[end..layer.tasks.start]);
        tasks.extend_from_slice(&way.tasks);
        end = layer.tasks.end;
        if let (true, Some((next, join))) = (way.begins_next, &layer.next) {
            begun[*next] = true;
            graph.place(join);
        }
    }
    tasks.extend_from_slice(&graph.tasks[end..]);
    graph.tasks = tasks;
    graph
}

/// A Tucker or CP layer of a graph.
struct Layer {
    /// Its tasks, one for each factor.
    tasks: Range<usize>,
    /// How ways to carry it out are compared; `None` where there is but one.
    clock: Option<Clock>,
    /// Ways to carry it out, of equal ones the better first.
    ways: Vec<Way>,
    /// The layer whose first factor some of them compute: its index, and how.
    next: Option<(usize, Join)>,
}

/// A way to carry a layer out.
struct Way {
    tasks: Vec<Task>,
    /// The launch ahead has computed the layer's first factor.
    begun: bool,
    /// The last launch computes that of the next layer.
    begins_next: bool,
    /// Infinite where it cannot be taken.
    us: f64,
}

impl Layer {
    /// Those of a graph in order, each for itself.
    fn all(planner: &mut Planner, graph: &TaskGraph) -> Vec<Self> {
        let mut layers = Vec::new();
        let mut index = 0;
        while index < graph.tasks.len() {
            let Some(fusions) = graph.fusions(index) else {
                index += 1;
                continue;
            };
            let tasks = index..index + fusions.separate;
            index = tasks.end;
            let separate = &graph.tasks[tasks.clone()];
            let wanted = fusions.whole.scheme.clone();
            let whole = vec![fusions.whole];
            let rest = fusions.rest;
            let apart = rest.clone().map(|rest| vec![separate[0].clone(), rest]);
            let mut ways: Vec<Vec<Task>> = std::iter::once(whole)
                .chain(apart)
                .chain([separate.to_vec()])
                .collect();
            let clock = match asked_for(planner, wanted.as_deref()) {
                Some(Asked::Whole) => {
                    ways.truncate(1);
                    None
                }
                Some(Asked::Separate) => None,
                None => Clock::new(planner, &units(separate)),
            };
            if clock.is_none() {
                ways.drain(..ways.len() - 1);
            }
            let mut timed = |tasks: Vec<Task>, begun| Way {
                us: clock.map_or(0.0, |clock| clock.us(planner, &units(&tasks))),
                tasks,
                begun,
                begins_next: false,
            };
            let mut ways: Vec<_> = ways.into_iter().map(|way| timed(way, false)).collect();
            if let (Some(_), Some(rest)) = (clock, rest) {
                ways.push(timed(vec![rest], true));
                ways.push(timed(separate[1..].to_vec(), true));
            }
            layers.push(Self {
                tasks,
                clock,
                ways,
                next: None,
            });
        }
        layers
    }

    /// Whether the launch of a factor of the next layer, which takes `factor_us`, is more than what is lost by tasks that save it. With
    /// that factor they take no less than as many without it; so where those are far from the layer's best, as all of a
    /// large layer in one launch is, nothing need be estimated. What was measured tells by itself.
    fn may_pay(&self, tasks: &[Task], begun: bool, factor_us: f64) -> bool {
        let own = || self.ways.iter().filter(|way| way.begun == begun);
        let best_us = own().map(|way| way.us).fold(f64::INFINITY, f64::min);
        let mut alike = own().filter(|way| way.tasks.len() == tasks.len());
        self.clock == Some(Clock::Measured) || alike.any(|way| way.us < best_us + factor_us)
    }

    /// Adds the ways that go on with the first factor of the layer behind.
    fn join(layers: &mut [Self], planner: &mut Planner, graph: &TaskGraph) {
        for index in 0..layers.len() {
            let Some(clock) = layers[index].clock else {
                continue;
            };
            let Some(join) = graph.join(layers[index].tasks.start) else {
                continue;
            };
            let behind = layers
                .iter()
                .position(|layer| layer.tasks.start == join.behind && layer.clock == Some(clock));
            let Some(behind) = behind else {
                continue;
            };
            let first = graph.tasks[layers[index].tasks.start].clone();
            let factor_us = clock.us(planner, &units(&graph.tasks[join.behind..=join.behind]));
            let ways = [
                (vec![join.whole.clone()], false),
                (vec![first, join.rest.clone()], false),
                (vec![join.rest.clone()], true),
            ];
            let ways = ways.map(|(tasks, begun)| Way {
                us: match layers[index].may_pay(&tasks, begun, factor_us) {
                    true => clock.us(planner, &units(&tasks)),
                    false => f64::INFINITY,
                },
                tasks,
                begun,
                begins_next: true,
            });
            layers[index].ways.splice(0..0, ways);
            layers[index].next = Some((behind, join));
        }
    }
}

/// For each layer, the least time from there to the end of its chain and the way that it begins with: where it has to compute its
/// first factor, and where the launch ahead has.
fn fewest_us_from(layers: &[Layer]) -> Vec<[(f64, usize); 2]> {
    let mut best = vec![[(f64::INFINITY, 0); 2]; layers.len()];
    // The next layer of each stands behind it.
    for (index, layer) in layers.iter().enumerate().rev() {
        best[index] = [false, true].map(|begun| {
            let ways = layer.ways.iter().enumerate();
            let times = ways.filter(|(_, way)| way.begun == begun).map(|(at, way)| {
                let next = layer.next.as_ref();
                let behind = next.map(|(next, _)| best[*next][usize::from(way.begins_next)].0);
                (way.us + behind.unwrap_or(0.0), at)
            });
            least(times).unwrap_or((f64::INFINITY, 0))
        });
    }
    best
}

/// The least of some times with what belongs to it; of equal ones the first.
fn least(times: impl Iterator<Item = (f64, usize)>) -> Option<(f64, usize)> {
    times.reduce(|best, time| if time.0 < best.0 { time } else { best })
}

/// Names and problems of tasks.
fn units(tasks: &[Task]) -> Vec<(&str, Problem)> {
    let units = tasks.iter().map(|task| (&task.name[..], task.problem));
    units.collect()
}

/// Which way to carry a layer of several factors out takes the least time: the index of it. A way is the names and problems of its
/// units; the first is one unit for all, the last one for each factor. `wanted` is the scheme that the layer asks for.
pub(super) fn fastest_way(
    planner: &mut Planner,
    ways: &[Vec<(&str, Problem)>],
    wanted: Option<&str>,
) -> usize {
    let separate = ways.len().saturating_sub(1);
    match asked_for(planner, wanted) {
        Some(Asked::Whole) => return 0,
        Some(Asked::Separate) => return separate,
        None => {}
    }
    let Some(clock) = ways.last().and_then(|units| Clock::new(planner, units)) else {
        return separate;
    };
    let times = ways.iter().map(|units| clock.us(planner, units));
    least(times.zip(0..)).map_or(separate, |(_, index)| index)
}

/// The form of a layer that a config asks for.
enum Asked {
    /// One unit for all factors.
    Whole,
    /// One for each.
    Separate,
}

/// What is asked for by a scheme or a way to choose tiles; `None` where it is left to the planner.
fn asked_for(planner: &Planner, wanted: Option<&str>) -> Option<Asked> {
    match wanted.map(scheme) {
        Some(Some(scheme)) if scheme.joins_factors() => Some(Asked::Whole),
        Some(_) => Some(Asked::Separate),
        None => (planner.tiles() == Tiles::Paper).then_some(Asked::Separate),
    }
}

/// How ways to carry a layer out are compared: like with like.
#[derive(Clone, Copy, PartialEq)]
enum Clock {
    /// By measured times; what has none does not count.
    Measured,
    /// By estimated ones.
    Estimated,
}

impl Clock {
    /// By measured times where all units that compute one factor each have them. `None` where one of those cannot be computed.
    fn new(planner: &mut Planner, separate: &[(&str, Problem)]) -> Option<Self> {
        let mut can = |clock: &Self| clock.us(planner, separate).is_finite();
        [Self::Measured, Self::Estimated].into_iter().find(&mut can)
    }

    /// The time of units one behind the other; infinite where one has none.
    fn us(self, planner: &mut Planner, units: &[(&str, Problem)]) -> f64 {
        let us = |(name, problem): &(&str, Problem)| match self {
            Self::Measured => planner.fewest_measured_us(problem),
            Self::Estimated => {
                let choice = planner.choose(name, problem, None, None);
                choice.ok().map(|choice| choice.estimate_us)
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
        let mut layers = Layer::all(&mut planner, &graph);
        Layer::join(&mut layers, &mut planner, &graph);
        for way in layers.iter_mut().flat_map(|layer| &mut layer.ways) {
            way.us = way.tasks.iter().map(|task| us(&task.name)).sum();
        }
        carried_out(graph, layers)
    }

    fn told(graph: &TaskGraph) -> String {
        let names: Vec<_> = graph.tasks.iter().map(|task| &task.name[..]).collect();
        names.join(" ")
    }

    /// A launch of a factor takes 2, the core 3, and each further factor in the same launch 1, of the next layer half of that.
    fn plain(name: &str) -> f64 {
        match name {
            _ if name.contains('+') => 0.5 + plain(name.split('+').next().unwrap()),
            _ if name.ends_with(".first") || name.ends_with(".last") => 2.0,
            _ if name.ends_with(".core") => 3.0,
            _ if name.ends_with(".rest") => 4.0,
            _ => 5.0,
        }
    }

    #[test]
    fn a_chain_takes_the_launches_whose_sum_is_least() {
        let names = |us: &dyn Fn(&str) -> f64| told(&planned(us));
        assert_eq!(names(&plain), "a+b.first b.rest+c.first c.rest");
        // What one layer gains must be more than what the next one loses: `b` behind a launch that has begun it cannot be whole.
        let but = |slow: &'static str, us: f64| {
            move |name: &str| if name == slow { us } else { plain(name) }
        };
        assert_eq!(names(&but("b.rest+c.first", 9.0)), "a+b.first b.rest c");
        assert_eq!(names(&but("a+b.first", 9.0)), "a b+c.first c.rest");
        assert_eq!(names(&but("c.rest", 9.0)), "a+b.first b.rest c");
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
            "b.rest" | "b" => 8.0,
            "a" | "a+b.first" | "b.rest+c.first" | "b+c.first" => 20.0,
            _ => plain(name),
        };
        assert_eq!(names(&apart), "a.first a.rest+b.first b.core b.last c");
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
        let free = fewest_us(&mut planner, chain(None));
        assert!(told(&free).contains('+'), "{}", told(&free));
        let named = fewest_us(&mut planner, chain(Some("direct")));
        assert!(!told(&named).contains('+'), "{}", told(&named));
        let mut planner = Planner::new(gpu("h200").unwrap()).with_tiles(Tiles::Paper);
        assert_eq!(fewest_us(&mut planner, chain(None)), chain(None));
    }
}
