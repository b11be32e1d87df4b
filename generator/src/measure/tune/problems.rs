//! The problems of configs.

use crate::config::{Config, Overrides};
use crate::ir::{Precision, Problem};
use crate::plan::{PlanError, candidate_problems, plan_network, problem_label};
use std::collections::HashSet;

/// Distinct problems, normalised to their tuning keys, in order of first appearance in the configs.
#[derive(Debug, Clone, Default)]
pub struct Problems {
    problems: Vec<(String, Problem)>,
    known: HashSet<String>,
}

impl Problems {
    /// The forms in which rows of a table measure the problems of a config: with its ranks and dense, in its own precision and in each
    /// other.
    pub fn measured_forms() -> Vec<Overrides> {
        let precisions = Precision::NAMES.iter();
        let precisions = precisions.map(|&(_, precision)| Some(precision));
        let precisions = std::iter::once(None).chain(precisions);
        let forms = precisions.flat_map(|precision| {
            [false, true].map(|dense| Overrides {
                dense,
                precision,
                ..Overrides::default()
            })
        });
        forms.collect()
    }

    /// Adds every problem of a config that is not there yet: of all units that a plan of a network may have, or of each layer of a
    /// set.
    pub fn add(&mut self, config: &Config) {
        match config {
            Config::Network(network) => {
                for problem in candidate_problems(network) {
                    self.add_problem(&problem);
                }
            }
            Config::LayerSet(set) => {
                for layer in &set.layers {
                    self.add_problem(&layer.computes());
                }
            }
        }
    }

    /// Adds only the problems of a config's plan: of the units of a network on each of its GPUs, or of each layer of a set.
    ///
    /// # Errors
    /// One for each layer that cannot be planned.
    pub fn add_planned(&mut self, config: &Config) -> Result<(), Vec<PlanError>> {
        let Config::Network(network) = config else {
            self.add(config);
            return Ok(());
        };
        for gpu in network.gpus.gpus() {
            for unit in plan_network(network, gpu)?.units {
                self.add_problem(&unit.problem);
            }
        }
        Ok(())
    }

    /// Adds a problem that is not there yet.
    pub fn add_problem(&mut self, problem: &Problem) {
        let problem = problem.measured();
        let key = problem_label(&problem);
        if self.known.insert(key.clone()) {
            self.problems.push((key, problem));
        }
    }

    /// Key and problem of each entry.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Problem)> {
        self.problems
            .iter()
            .map(|(key, problem)| (&key[..], problem))
    }

    /// Number of problems.
    pub fn len(&self) -> usize {
        self.problems.len()
    }

    /// Whether there are no problems.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml;

    #[test]
    fn planned_problems_are_the_units_of_the_plan_and_fewer_than_all() {
        let text = "name: net\ninput: 1x16x9x11\nops:\n  - {op: conv, name: a, n: 24, ranks: [8, 8]}\n  \
                    - {op: conv, name: b, n: 16, kernel: 1}\n";
        let config = yaml::parse(text, "net.yaml", &Overrides::default()).unwrap();
        let (mut planned, mut all) = (Problems::default(), Problems::default());
        planned.add_planned(&config).unwrap();
        all.add(&config);
        let Config::Network(network) = &config else {
            panic!("{config:?}");
        };
        let plan = plan_network(network, network.gpus.gpus()[0]).unwrap();
        let units = plan.units.iter();
        let units: HashSet<_> = units
            .map(|unit| problem_label(&unit.problem.measured()))
            .collect();
        let found: HashSet<_> = planned.iter().map(|(key, _)| key.to_owned()).collect();
        assert_eq!(found, units);
        assert!(planned.len() < all.len());
        assert!(planned.iter().all(|(key, _)| all.known.contains(key)));
    }
}
