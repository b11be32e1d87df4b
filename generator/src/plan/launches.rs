//! In how many launches a Tucker or CP layer is carried out: one for each factor, two or one.

use super::fuse::{Fusions, Task, TaskGraph};
use super::{Choice, PlanError, Planner};
use crate::scheme::scheme;
use crate::spec::Tiles;

/// A way to carry a layer out, and the time it takes.
struct Way {
    tasks: Vec<Task>,
    estimate_us: f64,
    /// `None` where a task was not measured.
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
    match whole.scheme.as_deref() {
        Some(name) => {
            let joins = scheme(name).is_some_and(|scheme| scheme.joins_factors());
            return if joins {
                vec![whole]
            } else {
                separate.to_vec()
            };
        }
        None if planner.tiles() == Tiles::Paper => return separate.to_vec(),
        None => {}
    }
    let Ok(apart) = Way::new(planner, separate.to_vec()) else {
        return separate.to_vec();
    };
    // Of equal ones the first: fewer launches.
    let rest = rest.map(|rest| vec![separate[0].clone(), rest]);
    let mut ways: Vec<Way> = std::iter::once(vec![whole])
        .chain(rest)
        .filter_map(|tasks| Way::new(planner, tasks).ok())
        .collect();
    ways.push(apart);
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
