//! What there is to measure in configs.

use crate::config::Config;
use crate::ir::Problem;
use crate::plan::{TaskGraph, problem_label};
use std::collections::HashSet;

/// Distinct problems, as they are measured, in the order in which configs first have them.
#[derive(Debug, Clone, Default)]
pub struct Problems {
    problems: Vec<(String, Problem)>,
    known: HashSet<String>,
}

impl Problems {
    /// Adds every problem of a config that is not there yet: of each task of a network after fusion, of what
    /// could take the place of those of a Tucker or CP layer, with the first factor of the layer behind too, of each layer of a set.
    pub fn add(&mut self, config: &Config) {
        match config {
            Config::Network(network) => {
                let graph = TaskGraph::new(network);
                for (index, task) in graph.tasks.iter().enumerate() {
                    self.add_problem(&task.problem);
                    if let Some(fused_tasks) = graph.fused_tasks(index) {
                        self.add_problem(&fused_tasks.whole.problem);
                        if let Some(core_last) = fused_tasks.core_last {
                            self.add_problem(&core_last.problem);
                        }
                    }
                    if let Some(fusion) = graph.next_fusion(index) {
                        self.add_problem(&fusion.whole.problem);
                        self.add_problem(&fusion.core_last.problem);
                    }
                }
            }
            Config::LayerSet(set) => {
                for layer in &set.layers {
                    self.add_problem(&layer.computes());
                }
            }
        }
    }

    fn add_problem(&mut self, problem: &Problem) {
        let problem = problem.measured();
        let key = problem_label(&problem);
        if self.known.insert(key.clone()) {
            self.problems.push((key, problem));
        }
    }

    /// Key and problem of each.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Problem)> {
        self.problems
            .iter()
            .map(|(key, problem)| (&key[..], problem))
    }

    /// Number of problems.
    pub fn len(&self) -> usize {
        self.problems.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }
}
