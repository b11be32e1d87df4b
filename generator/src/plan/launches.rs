//! In how many launches a Tucker layer is carried out: three, two or one.

use super::fuse::{Fusions, Task, TaskGraph};
use super::{Choice, PlanError, Planner};
use crate::scheme::TUCKER;
use crate::spec::{Problem, Tiles};

/// The time that a way to carry a layer out takes.
struct Times {
    estimate_us: f64,
    /// `None` where a unit was not measured.
    measured_us: Option<f64>,
}

/// The graph with each Tucker layer in the form that takes the least time: as it is measured where its three tasks are (then what
/// was not measured does not count), else as it is estimated.
///
/// A layer whose config names a scheme is in the form that the scheme computes, and `tiles: paper` plans three launches, as the
/// paper does.
pub(super) fn fewest_us(planner: &mut Planner, mut graph: TaskGraph) -> TaskGraph {
    let mut tasks = Vec::with_capacity(graph.tasks.len());
    let mut index = 0;
    while index < graph.tasks.len() {
        let fusions = graph.fusions(index);
        let separate = if fusions.is_some() { 3 } else { 1 };
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
    let Fusions { whole, rest } = fusions;
    let ways = [
        vec![whole],
        vec![separate[0].clone(), rest],
        separate.to_vec(),
    ];
    let problems = ways.each_ref().map(|tasks| {
        let problems = tasks.iter().map(|task| (&task.name[..], task.problem));
        problems.collect::<Vec<_>>()
    });
    let wanted = ways[0][0].scheme.clone();
    let index = fastest_way(planner, &problems, wanted.as_deref());
    let [one, two, three] = ways;
    match index {
        0 => one,
        1 => two,
        _ => three,
    }
}

/// Which of three ways to carry a Tucker layer out takes the least time: in one unit, in two, in three. A way is the names and
/// problems of its units; `wanted` is the scheme that the layer asks for.
pub(super) fn fastest_way(
    planner: &mut Planner,
    ways: &[Vec<(&str, Problem)>; 3],
    wanted: Option<&str>,
) -> usize {
    const SEPARATE: usize = 2;
    match wanted {
        Some(TUCKER) => return 0,
        Some(_) => return SEPARATE,
        None if planner.tiles() == Tiles::Paper => return SEPARATE,
        None => {}
    }
    let [one, two, three] = ways.each_ref().map(|way| Times::new(planner, way).ok());
    let Some(three) = three else {
        return SEPARATE;
    };
    let us = |times: &Times| match three.measured_us {
        Some(_) => times.measured_us.unwrap_or(f64::INFINITY),
        None => times.estimate_us,
    };
    // Of equal ones the first: fewer launches.
    let ways = [one.as_ref(), two.as_ref(), Some(&three)];
    let ways = ways.into_iter().enumerate();
    ways.filter_map(|(index, times)| Some((index, us(times?))))
        .reduce(|best, way| if way.1 < best.1 { way } else { best })
        .map_or(SEPARATE, |(index, _)| index)
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
