//! In how many launches Tucker and CP layers are carried out: one for each factor, two or one, and where the launch of a Tucker layer
//! goes on with the first factor of the one behind.

use super::Planner;
use super::fuse::{Task, TaskGraph};
use super::join::Join;
use crate::scheme::scheme;
use crate::spec::{Problem, Tiles};
use std::ops::Range;

/// The graph with its Tucker and CP layers in the form that takes the least time: as it is measured where their separate tasks are
/// (then what was not measured does not count), else as it is estimated. Layers that can be joined are looked at as one chain,
/// as far as all of them are measured, or none is.
///
/// A layer whose config names a scheme is in the form that the scheme computes, and `tiles: paper` plans separate launches, as the
/// paper does.
pub(super) fn fewest_us(planner: &mut Planner, mut graph: TaskGraph) -> TaskGraph {
    let mut layers = Layer::all(planner, &graph);
    Layer::join(&mut layers, planner, &graph);
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
            let ways = [
                (vec![join.whole.clone()], false),
                (vec![first, join.rest.clone()], false),
                (vec![join.rest.clone()], true),
            ];
            let ways = ways.map(|(tasks, begun)| Way {
                us: clock.us(planner, &units(&tasks)),
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
