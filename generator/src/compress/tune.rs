//! Rank choice by measured times: solve, measure the launches of the solution and of its neighbours, solve again.
//!
//! No launch is compared by its measured time with a launch whose predicted time is uncorrected: measured times correct the
//! predictions [around them](crate::plan::Correction).

use super::form::with_forms;
use super::{Budget, Choice, CompressError, Compression, Form};
use crate::ir::{OpId, Problem};
use crate::plan::{Correction, NetworkTime, PlanError, Planner, TaskGraph};
use std::collections::HashSet;
use std::fmt;

/// Why no forms were found by measured times.
#[derive(Debug)]
pub enum TuneError<E> {
    /// Of the search.
    Compress(CompressError),
    /// Of the planner.
    Plan(Vec<PlanError>),
    /// Of the measurement.
    Measure(E),
}

/// The state of a search by measured times, for progress.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    /// Searches so far.
    pub round: usize,
    /// The present choice.
    pub choice: Choice,
    /// Launches that are measured next.
    pub unmeasured: usize,
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self {
            round,
            choice,
            unmeasured,
        } = self;
        write!(
            f,
            "round {round}: {choice}; {unmeasured} launches to measure"
        )
    }
}

impl Compression<'_> {
    /// The forms of least loss within the budgets, or with a limit of the loss those of least time, by measured times of the launches.
    ///
    /// `measure` returns the time of each launch when it is repeated, in microseconds, with the tile that the cost model chooses; `None` for
    /// one that cannot be measured, whose prediction then counts. It is called until all launches of the solution, its separate factors, and the launches of the dense network
    /// and of the solution's neighbours are measured. A neighbour has another form in one layer: the next ranks of the grid,
    /// dense, or for a dense layer the form that is fastest alone.
    ///
    /// Only the first target is measured: of several, the others keep their predicted times.
    ///
    /// # Errors
    /// [`TuneError`].
    pub fn tuned<E>(
        &mut self,
        budgets: &[Budget],
        mut measure: impl FnMut(&[Problem]) -> Result<Vec<Option<f64>>, E>,
        mut progress: impl FnMut(&Tuning),
    ) -> Result<Choice, TuneError<E>> {
        // Without corrections: the predicted times that measured ones are compared with.
        let mut planner = Planner::new(self.first().clock.gpu());
        let mut asked: HashSet<Problem> = HashSet::new();
        let mut measured: Vec<(Problem, f64, f64)> = Vec::new();
        for round in 1.. {
            let dense = self.dense_choice().map_err(TuneError::Plan)?;
            let limits = self.limits(budgets, &dense);
            let choice = self.choose(&limits).map_err(TuneError::Compress)?;
            let launches = self.launches_around(&choice).map_err(TuneError::Plan)?;
            let new = launches.into_iter().map(|problem| problem.measured());
            let new: Vec<Problem> = new.filter(|problem| asked.insert(*problem)).collect();
            progress(&Tuning {
                round,
                choice: choice.clone(),
                unmeasured: new.len(),
            });
            if new.is_empty() {
                return Ok(choice);
            }
            let times = measure(&new).map_err(TuneError::Measure)?;
            for (problem, us) in new.into_iter().zip(times) {
                let predicted = planner.choose("", &problem, None, None);
                if let (Some(us), Ok(predicted)) = (us, predicted) {
                    measured.push((problem, predicted.predicted_us, us));
                }
            }
            self.correct(Correction::new(measured.iter().copied()))
                .map_err(TuneError::Plan)?;
        }
        unreachable!("there are only so many launches to measure")
    }

    /// Corrects all times.
    fn correct(&mut self, correction: Correction) -> Result<(), Vec<PlanError>> {
        let layers = self.layers().iter();
        let forms = layers.map(|layer| (layer.op, layer.forms.clone()));
        let forms = forms.collect();
        self.targets[0].clock.correct(correction);
        self.set_storages(&forms)
    }

    /// The launches of a choice, of the dense network, and of the choice's neighbours.
    fn launches_around(&mut self, choice: &Choice) -> Result<Vec<Problem>, Vec<PlanError>> {
        let dense = &self.first().network;
        let chosen = with_forms(dense, choice.forms.iter().copied());
        let forms = choice.forms.iter();
        let neighbours = forms.flat_map(|&(op, form)| {
            let neighbours = self.neighbours(op, form).into_iter();
            neighbours.map(move |neighbour| (op, neighbour))
        });
        let neighbours = neighbours.map(|neighbour| with_forms(&chosen, [neighbour]));
        let mut networks = vec![chosen.clone(), dense.clone()];
        networks.extend(neighbours);
        let planner = self.targets[0].clock.planner();
        let mut launches = Vec::new();
        for network in &networks {
            let time = NetworkTime::of_network(planner, network)?;
            launches.extend(time.steps.into_iter().map(|step| step.problem));
        }
        // The planner compares measured times only for layers all of whose separate factors are measured.
        let separate = TaskGraph::new(&chosen).tasks.into_iter();
        launches.extend(separate.map(|task| task.problem));
        Ok(launches)
    }

    /// The forms next to one.
    fn neighbours(&self, op: OpId, form: Form) -> Vec<Form> {
        let mut layers = self.layers().iter();
        let Some(layer) = layers.find(|layer| layer.op == op) else {
            return Vec::new();
        };
        // The nearest forms below and above in a number, of those that are equal in another one.
        let nearest = |number: fn(Form) -> Option<u32>, other: fn(Form) -> Option<u32>| {
            let found = layer.forms.iter().copied();
            let found =
                found.filter(|&known| other(known) == other(form) && number(known).is_some());
            let found: Vec<Form> = found.collect();
            let below = found.iter().filter(|known| number(**known) < number(form));
            let above = found.iter().filter(|known| number(**known) > number(form));
            let below = below.max_by_key(|known| number(**known)).copied();
            below
                .into_iter()
                .chain(above.min_by_key(|known| number(**known)).copied())
                .collect::<Vec<_>>()
        };
        let d1 = |form| match form {
            Form::Tucker([d1, _]) => Some(d1),
            _ => None,
        };
        let d2 = |form| match form {
            Form::Tucker([_, d2]) => Some(d2),
            _ => None,
        };
        let rank = |form| match form {
            Form::LowRank(rank) => Some(rank),
            _ => None,
        };
        let cp_rank = |form| match form {
            Form::Cp(rank) => Some(rank),
            _ => None,
        };
        let others = match form {
            Form::Dense => self
                .fastest_alone(op)
                .map(|(form, _)| form)
                .into_iter()
                .collect(),
            Form::Tucker(_) => [nearest(d1, d2), nearest(d2, d1)].concat(),
            Form::LowRank(_) => nearest(rank, |_| None),
            Form::Cp(_) => nearest(cp_rank, |_| None),
        };
        let dense = layer
            .forms
            .iter()
            .copied()
            .filter(|known| *known == Form::Dense);
        others
            .into_iter()
            .chain(dense)
            .filter(|known| *known != form)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::{Limit, Scope};
    use crate::gpu::gpu;
    use crate::ir::{
        Activation, BinaryOp, ConvOptions, Network, NetworkBuilder, OpOptions, TensorShape,
    };
    use crate::plan::problem_label;
    use std::cell::RefCell;
    use tdc_runtime::Checksum;

    /// A chain with a residual.
    fn network() -> Network {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 128, 14, 14));
        let conv = |n| OpOptions::Conv(ConvOptions::new(n));
        builder.op("a", None, conv(192));
        builder.op("b", None, conv(128));
        builder.op("c", None, conv(192));
        let inputs = ["c", "a"].map(str::to_owned);
        let sum = OpOptions::Binary(BinaryOp::Add, Activation::Relu);
        builder.op("sum", Some(&inputs), sum);
        builder.op("d", None, conv(96));
        builder.finish().unwrap()
    }

    fn loss(network: &Network, op: OpId, form: Form) -> f64 {
        match form {
            Form::Tucker([d1, d2]) => {
                let [x, y] = [network.op(op).inputs[0], op].map(|op| network.op(op).y.c);
                1.0 - f64::from(d1 * d2) / f64::from(x * y)
            }
            Form::Dense | Form::LowRank(_) | Form::Cp(_) => 0.0,
        }
    }

    /// Measured times that the cost model errs by, in a way that depends on the launch.
    fn erring(problem: &Problem, predicted_us: f64) -> Option<f64> {
        let label = problem_label(problem);
        let error = Checksum::of(label.as_bytes()) % 1000;
        Some(predicted_us * (0.7 + 0.6 * error as f64 / 1e3))
    }

    /// The choice by the cost model and the one by measured times, each with its true time, and the launches that were measured.
    fn choices(
        measured_us: impl Fn(&Problem, f64) -> Option<f64>,
        limit: Limit,
    ) -> ([(Choice, f64); 2], Vec<Problem>) {
        let network = network();
        let gpu = gpu("h200").unwrap();
        let losses = |op: OpId, form: Form| loss(&network, op, form);
        let scope = Scope {
            step: 32,
            ..Scope::default()
        };
        let mut compression = Compression::new(&network, gpu, &scope, false, &losses).unwrap();
        let predicted = compression.choose(&[limit]).unwrap();
        let asked = RefCell::new(Vec::new());
        let planner = RefCell::new(Planner::new(gpu));
        let us = |problem: &Problem| {
            let choice = planner.borrow_mut().choose("", problem, None, None);
            measured_us(problem, choice.unwrap().predicted_us)
        };
        let measure = |problems: &[Problem]| {
            asked.borrow_mut().extend_from_slice(problems);
            Ok::<_, ()>(problems.iter().map(us).collect())
        };
        let tuned = compression.tuned(&[Budget::Limit(limit)], measure, |_| ());
        let tuned = tuned.unwrap();
        // The launches of the choice by predicted times were measured in the first round.
        let mut truth = |choice: &Choice| {
            let forms = choice.forms.iter().copied();
            compression
                .evaluated(&with_forms(&network, forms))
                .unwrap()
                .us
        };
        let both = [predicted, tuned].map(|choice| {
            let us = truth(&choice);
            (choice, us)
        });
        (both, asked.into_inner())
    }

    #[test]
    fn a_choice_by_measured_times_stands() {
        let (choices, asked) = choices(erring, Limit::Loss(2.0));
        let mut distinct: Vec<String> = asked.iter().map(problem_label).collect();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), asked.len(), "a launch is measured once");
        // With its separate factors, so that the planner compares measured times.
        let chosen = with_forms(&network(), choices[1].0.forms.iter().copied());
        for task in TaskGraph::new(&chosen).tasks {
            assert!(asked.contains(&task.problem.measured()), "{}", task.name);
        }
        let [(predicted, predicted_us), (tuned, tuned_us)] = choices;
        assert_ne!(predicted.forms, tuned.forms);
        assert!(
            (tuned.us - tuned_us).abs() < 1e-9,
            "{} {tuned_us}",
            tuned.us
        );
        assert!(tuned_us < predicted_us, "{tuned_us} {predicted_us}");
        assert!(tuned.loss <= 2.0);
    }

    #[test]
    fn launches_that_are_slower_than_predicted_are_given_up() {
        let slow = |problem: &Problem, us: f64| match problem {
            Problem::Tucker(_) => Some(4.0 * us),
            _ => Some(us),
        };
        let ([(predicted, _), (_, tuned_us)], asked) = choices(slow, Limit::Loss(4.0));
        let is_fused = |problem: &Problem| matches!(problem, Problem::Tucker(_));
        assert!(asked.iter().any(is_fused));
        assert!(predicted.forms.iter().any(|(_, form)| *form != Form::Dense));
        let mut planner = Planner::new(gpu("h200").unwrap());
        let dense = NetworkTime::of_network(&mut planner, &network()).unwrap();
        let dense_us = dense.ns() as f64 / 1e3;
        assert!(tuned_us <= dense_us + 1e-9, "{tuned_us} {dense_us}");
    }

    #[test]
    fn launches_without_a_time_keep_their_predictions() {
        let (both, asked) = choices(|_, _| None, Limit::Loss(1.5));
        let [(predicted, _), (tuned, _)] = both;
        assert!(!asked.is_empty());
        assert_eq!(predicted, tuned);
    }
}
