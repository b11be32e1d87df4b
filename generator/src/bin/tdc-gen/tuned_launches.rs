//! Times of launches on the local GPU, for `compress --tune`.

use crate::failure::Failure;
use crate::tuning_session::{Request, TuningSession};
use std::path::PathBuf;
use tdc_generator::compress::report::TableReport;
use tdc_generator::gpu::Gpu;
use tdc_generator::ir::Problem;
use tdc_generator::measure::tune::{
    Candidate, Outcome, Problems, RunEnd, Selection, Shard, candidates,
};
use tdc_generator::plan::problem_label;

/// Measures launches with the tiles that the cost model chooses.
pub struct TunedLaunches {
    session: TuningSession,
}

impl TunedLaunches {
    /// On a local GPU, which must be the one that ranks are chosen for.
    pub fn new(mut session: TuningSession, gpu: &'static Gpu) -> Result<Self, Failure> {
        if session.gpu.name != gpu.name {
            return Err(Failure::Input(format!(
                "--tune measures on the local GPU, which is `{}`, but the ranks are for `{}`; give --gpu {0}, or leave out --tune",
                session.gpu.name, gpu.name
            )));
        }
        // Rows of kernels that have changed are dropped before any is read.
        session.run(&Problems::default(), &request())?;
        Ok(Self { session })
    }

    /// The table of all measured times, with its path.
    pub fn table(&self) -> (PathBuf, String) {
        let table = self.session.journal.table().to_string();
        (self.session.out.clone(), table)
    }

    /// What a report says about this table.
    pub fn table_report(&self) -> TableReport {
        TableReport::new(&self.session.out, self.session.journal.environment())
    }

    /// The time of each launch, microseconds; `None` if its kernel does not compile, run or compute the right result.
    pub fn measure(&mut self, problems: &[Problem]) -> Result<Vec<Option<f64>>, Failure> {
        let mut requested = Problems::default();
        for problem in problems {
            requested.add_problem(problem);
        }
        let summary = self.session.run(&requested, &request())?;
        match summary.ended {
            RunEnd::Complete => {}
            RunEnd::Interrupted { .. } => {
                return Err(Failure::Check(
                    "interrupted; run the same command to resume".to_owned(),
                ));
            }
            RunEnd::DeviceLost {
                candidate, message, ..
            } => {
                return Err(Failure::Check(format!(
                    "{candidate} made the CUDA context unusable: {message}; run the same command to resume after it"
                )));
            }
        }
        Ok(problems.iter().map(|problem| self.time(problem)).collect())
    }

    fn time(&self, problem: &Problem) -> Option<f64> {
        let problem = problem.measured();
        let chosen = candidates(&problem, self.session.gpu, &[], Selection::Chosen);
        let chosen: &Candidate = chosen.first()?;
        let journal = &self.session.journal;
        let row = journal.get(
            &problem_label(&problem),
            chosen.scheme.name(),
            &chosen.label(),
        )?;
        match row.outcome {
            Outcome::Timed(_, us) | Outcome::QuickOnly(us) => Some(us),
            _ => None,
        }
    }
}

fn request() -> Request {
    Request {
        schemes: Vec::new(),
        selection: Selection::Chosen,
        shard: Shard::WHOLE,
        threads: None,
        budget: None,
    }
}
