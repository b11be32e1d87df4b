//! In how many launches a Tucker layer is carried out: three, two or one.

use super::fuse::{Fusions, Task, TaskGraph};
use super::{Choice, PlanError, Planner};
use crate::scheme::TUCKER;
use crate::spec::Tiles;

/// A way to carry a layer out, and the time it takes.
struct Way {
    tasks: Vec<Task>,
    estimate_us: f64,
    /// `None` where a task was not measured.
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
    match whole.scheme.as_deref() {
        Some(TUCKER) => return vec![whole],
        Some(_) => return separate.to_vec(),
        None if planner.tiles() == Tiles::Paper => return separate.to_vec(),
        None => {}
    }
    let Ok(three) = Way::new(planner, separate.to_vec()) else {
        return separate.to_vec();
    };
    // Of equal ones the first: fewer launches.
    let fused = [vec![whole], vec![separate[0].clone(), rest]];
    let mut ways: Vec<Way> = fused
        .into_iter()
        .filter_map(|tasks| Way::new(planner, tasks).ok())
        .collect();
    ways.push(three);
    let is_measured = ways[ways.len() - 1].measured_us.is_some();
    let us = |way: &Way| match is_measured {
        true => way.measured_us.unwrap_or(f64::INFINITY),
        false => way.estimate_us,
    };
    let fastest = ways
        .into_iter()
        .reduce(|best, way| match us(&way) < us(&best) {
            true => way,
            false => best,
        });
    fastest.map_or_else(|| separate.to_vec(), |way| way.tasks)
}

impl Way {
    fn new(planner: &mut Planner, tasks: Vec<Task>) -> Result<Self, PlanError> {
        let choices: Vec<Choice> = tasks
            .iter()
            .map(|task| planner.choose(&task.name, &task.problem, None, None))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            tasks,
            estimate_us: choices.iter().map(|choice| choice.estimate_us).sum(),
            measured_us: choices.iter().map(|choice| choice.measured_us).sum(),
        })
    }
}
