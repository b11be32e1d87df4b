//! In how many launches a Tucker or CP layer is carried out: one for each factor, two or one.

use super::fuse::{Fusions, Task, TaskGraph};
use super::{Choice, PlanError, Planner};
use crate::scheme::scheme;
use crate::spec::{Problem, Tiles};

/// The time that a way to carry a layer out takes.
struct Times {
    estimate_us: f64,
    /// `None` where a unit was not measured.
    measured_us: Option<f64>,
}

/// The graph with each Tucker or CP layer in the form that takes the least time: as it is measured where its separate tasks are
/// (then what was not measured does not count), else as it is estimated.
///
/// A layer whose config names a scheme is in the form that the scheme computes, and `tiles: paper` plans separate launches, as the
/// paper does.
pub(super) fn fewest_us(planner: &mut Planner, mut graph: TaskGraph) -> TaskGraph {
    let mut tasks = Vec::with_capacity(graph.tasks.len());
    let mut index = 0;
    while index < graph.tasks.len() {
        let fusions = graph.fusions(index);
        let separate = fusions.as_ref().map_or(1, |fusions| fusions.separate);
        let separate = &graph.tasks[index..index + separate];
        index += separate.len();
        tasks.extend(match fusions {
            Some(fusions) => fastest(planner, separate, fusions),
            None => separate.to_vec(),
        });
    }
    graph.tasks = tasks;
    graph
}

fn fastest(planner: &mut Planner, separate: &[Task], fusions: Fusions) -> Vec<Task> {
    let Fusions { whole, rest, .. } = fusions;
    let wanted = whole.scheme.clone();
    let rest = rest.map(|rest| vec![separate[0].clone(), rest]);
    let ways: Vec<Vec<Task>> = std::iter::once(vec![whole])
        .chain(rest)
        .chain([separate.to_vec()])
        .collect();
    let problems: Vec<Vec<_>> = ways
        .iter()
        .map(|tasks| {
            tasks
                .iter()
                .map(|task| (&task.name[..], task.problem))
                .collect()
        })
        .collect();
    let fastest = fastest_way(planner, &problems, wanted.as_deref());
    ways.into_iter().nth(fastest).unwrap_or_default()
}

/// Which way to carry a layer of several factors out takes the least time: the index of it. A way is the names and problems of its
/// units; the first is one unit for all, the last one for each factor. `wanted` is the scheme that the layer asks for.
pub(super) fn fastest_way(
    planner: &mut Planner,
    ways: &[Vec<(&str, Problem)>],
    wanted: Option<&str>,
) -> usize {
    let separate = ways.len().saturating_sub(1);
    match wanted {
        Some(name) if scheme(name).is_some_and(|scheme| scheme.joins_factors()) => return 0,
        Some(_) => return separate,
        None if planner.tiles() == Tiles::Paper => return separate,
        None => {}
    }
    let times: Vec<Option<Times>> = ways
        .iter()
        .map(|way| Times::new(planner, way).ok())
        .collect();
    let Some(Some(apart)) = times.last() else {
        return separate;
    };
    let us = |times: &Times| match apart.measured_us {
        Some(_) => times.measured_us.unwrap_or(f64::INFINITY),
        None => times.estimate_us,
    };
    // Of equal ones the first: fewer launches.
    let times = times.iter().enumerate();
    times
        .filter_map(|(index, times)| Some((index, us(times.as_ref()?))))
        .reduce(|best, way| if way.1 < best.1 { way } else { best })
        .map_or(separate, |(index, _)| index)
}

impl Times {
    fn new(planner: &mut Planner, way: &[(&str, Problem)]) -> Result<Self, PlanError> {
        let choices: Vec<Choice> = way
            .iter()
            .map(|(name, problem)| planner.choose(name, problem, None, None))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            estimate_us: choices.iter().map(|choice| choice.estimate_us).sum(),
            measured_us: choices.iter().map(|choice| choice.measured_us).sum(),
        })
    }
}
