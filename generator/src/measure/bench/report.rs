//! Results as plain data.

use super::published::Published;
use super::{Environment, FasterThanPlan, Mean, NearFp32LanesFloor};
use crate::ir::{Precision, Reduce};
use crate::plan::ChosenBy;
use serde::{Deserialize, Serialize};
use tdc_runtime::ConvShape;

/// The results of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Name of the network, layer set or sweep.
    pub name: String,
    /// Environment and method.
    pub environment: Environment,
    /// One report for each problem.
    pub problems: Vec<ProblemReport>,
    /// Published times of the same problems.
    pub published: Option<Published>,
    /// Why the run ended early; later problems are missing.
    pub stopped: Option<String>,
}

/// The times of one convolution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProblemReport {
    /// `C,N,H,W` and the attributes that are not default.
    pub label: String,
    /// Sizes.
    pub shape: ConvShape,
    /// Floating-point operations of the direct convolution, or of a CP layer's factors.
    pub flops: u64,
    /// Bytes moved if every tensor is read or written once, as fp32.
    pub bytes: u64,
    /// [Floor](crate::cost::floor_us) of one launch in the precision, microseconds.
    pub floor_us: f64,
    /// [Floor](crate::cost::fp32_lanes_floor_us) of one launch on the fp32 lanes, microseconds.
    pub fp32_lanes_floor_us: f64,
    /// The precision of the generated kernels.
    pub precision: Precision,
    /// The largest relative error allowed.
    pub tolerance: f64,
    /// Who chose the tile of the config's plan; `None` without a plan.
    pub plan_chosen_by: Option<ChosenBy>,
    /// The generated candidates, in the order of [`candidates`](super::candidates()).
    pub candidates: Vec<CandidateResult>,
    /// cuDNN's results; `None` without cuDNN.
    pub cudnn: Option<CudnnReport>,
}

/// The result of a generated candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateResult {
    /// The scheme.
    pub scheme: String,
    /// How it adds partial sums.
    pub reduce: Reduce,
    /// The tile's label.
    pub tile: String,
    /// Who chose it, see [`Candidate::selected_by`](super::Candidate::selected_by).
    pub selected_by: Vec<String>,
    /// Predicted time in microseconds.
    pub predicted_us: Option<f64>,
    /// Times or failure.
    #[serde(flatten)]
    pub outcome: Measurement,
}

impl CandidateResult {
    /// The scheme, followed by `atomic` if its sums are not ordered.
    pub fn kind(&self) -> String {
        match self.reduce {
            Reduce::Ordered => self.scheme.clone(),
            Reduce::Atomic => format!("{} atomic", self.scheme),
        }
    }

    /// Whether `pick` is among its [`selected_by`](Self::selected_by).
    pub fn is_selected_by(&self, pick: &str) -> bool {
        self.selected_by.iter().any(|known| known == pick)
    }

    /// Its times, if the result was correct.
    pub fn timed(&self) -> Option<&Timed> {
        match &self.outcome {
            Measurement::Timed(timed) => Some(timed),
            Measurement::Failed { .. } => None,
        }
    }
}

/// Times, or why there are none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Measurement {
    /// Correct and timed.
    Timed(Timed),
    /// Incorrect, or not available.
    Failed {
        /// The reason.
        failure: String,
    },
}

/// Times of a correct kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Warm time in microseconds: the same buffers in every run; they stay in L2 if they fit.
    pub us: f64,
    /// Cold time in microseconds: runs rotate over buffers of more than twice the L2; not measured for every
    /// candidate.
    pub cold_us: Option<f64>,
    /// Relative L2 error against float64.
    pub relative_error: f64,
}

/// cuDNN's times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CudnnReport {
    /// The fastest on fp32 data within the error bound of the generated kernels.
    pub same_bound: Option<CudnnBest>,
    /// The fastest with fp32 arithmetic: error within 2e-5, which Winograd and FFT keep and TF32 does not.
    pub fp32_arithmetic: Option<CudnnBest>,
    /// The fastest on fp32 data with any arithmetic, TF32 included: error within 1e-3.
    pub fp32_data: Option<CudnnBest>,
    /// The fastest on fp16 data: error within 5e-3.
    pub fp16: Option<CudnnBest>,
    /// Every algorithm that ran: first those on fp32 data, then those on fp16 data, each sorted by quick
    /// time.
    pub candidates: Vec<CudnnCandidate>,
    /// Number of algorithms that failed when run.
    pub failed: usize,
    /// Why an interface has no algorithms.
    pub notes: Vec<String>,
}

/// One algorithm of cuDNN, timed in full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CudnnBest {
    /// Data type, layout, and algorithm with math type or engine with knobs.
    pub algorithm: String,
    /// Its times.
    #[serde(flatten)]
    pub timed: Timed,
}

/// One algorithm of cuDNN, timed quickly to find the fastest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CudnnCandidate {
    /// As in [`CudnnBest`].
    pub algorithm: String,
    /// Quick time in microseconds, from fewer launches than a full time.
    pub quick_us: f64,
    /// Relative error against float64; `None` if enough faster algorithms were correct, so that it was not
    /// checked.
    pub relative_error: Option<f64>,
}

impl ProblemReport {
    /// The candidate of the config's plan, if it is correct; without a plan the fastest candidate.
    pub fn planned(&self) -> Option<&CandidateResult> {
        match self.first_selected_by("plan") {
            Some(planned) => planned.timed().map(|_| planned),
            None => self.best(),
        }
    }

    /// The first candidate with `pick` among its [`selected_by`](CandidateResult::selected_by).
    pub fn first_selected_by(&self, pick: &str) -> Option<&CandidateResult> {
        self.candidates
            .iter()
            .find(|candidate| candidate.is_selected_by(pick))
    }

    /// The fastest generated candidate.
    pub fn best(&self) -> Option<&CandidateResult> {
        let us =
            |candidate: &CandidateResult| candidate.timed().map_or(f64::INFINITY, |timed| timed.us);
        let timed = self
            .candidates
            .iter()
            .filter(|candidate| candidate.timed().is_some());
        timed.min_by(|a, b| us(a).total_cmp(&us(b)))
    }

    /// The fastest candidate of each scheme and mode of reduction, in order of first appearance.
    pub fn best_of_kinds(&self) -> Vec<&CandidateResult> {
        let mut best: Vec<&CandidateResult> = Vec::new();
        for candidate in &self.candidates {
            let Some(timed) = candidate.timed() else {
                continue;
            };
            match best
                .iter_mut()
                .find(|known| known.kind() == candidate.kind())
            {
                None => best.push(candidate),
                Some(known) => {
                    if known.timed().is_none_or(|least| timed.us < least.us) {
                        *known = candidate;
                    }
                }
            }
        }
        best
    }

    /// Microseconds of the plan's candidate.
    pub fn planned_us(&self) -> Option<f64> {
        Some(self.planned()?.timed()?.us)
    }

    /// Microseconds of the fastest candidate.
    pub fn best_us(&self) -> Option<f64> {
        Some(self.best()?.timed()?.us)
    }

    /// One of cuDNN's times.
    pub fn cudnn_best(&self, which: fn(&CudnnReport) -> &Option<CudnnBest>) -> Option<&CudnnBest> {
        which(self.cudnn.as_ref()?).as_ref()
    }
}

impl Report {
    /// Titles of the published columns.
    pub fn published_titles(&self) -> &[String] {
        self.published
            .as_ref()
            .map_or(&[], |published| published.titles())
    }

    /// Published times of a problem, scaled by the ratio of cuDNN's times. `None` if the problem or cuDNN's
    /// time is missing.
    pub fn published_us(&self, problem: &ProblemReport) -> Option<Vec<Option<f64>>> {
        let here = problem.cudnn_best(|cudnn| &cudnn.fp32_arithmetic)?.timed.us;
        self.published.as_ref()?.scaled(&problem.label, here)
    }

    /// One line for each candidate that is incorrect or not available.
    pub fn failures(&self) -> Vec<String> {
        let candidates = self.problems.iter().flat_map(|problem| {
            problem
                .candidates
                .iter()
                .map(move |candidate| (problem, candidate))
        });
        candidates
            .filter_map(|(problem, candidate)| match &candidate.outcome {
                Measurement::Timed(_) => None,
                Measurement::Failed { failure } => Some(format!(
                    "{}, {} {}: {failure}",
                    problem.label,
                    candidate.kind(),
                    candidate.tile
                )),
            })
            .collect()
    }

    /// Why interfaces of cuDNN have no algorithms: each reason once, with the first problem that has it.
    pub fn cudnn_notes(&self) -> Vec<String> {
        let mut known: Vec<&String> = Vec::new();
        let mut lines = Vec::new();
        for problem in &self.problems {
            for note in problem.cudnn.iter().flat_map(|cudnn| &cudnn.notes) {
                if !known.contains(&note) {
                    known.push(note);
                    lines.push(format!("{}, cuDNN {note}", problem.label));
                }
            }
        }
        lines
    }

    /// The report and its summary as JSON.
    ///
    /// # Errors
    /// Serde's.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        struct WithSummary<'a> {
            #[serde(flatten)]
            report: &'a Report,
            geometric_means: Vec<Mean>,
            near_fp32_lanes_floor: NearFp32LanesFloor,
            faster_than_plan: Vec<FasterThanPlan>,
        }
        let document = WithSummary {
            report: self,
            geometric_means: self.means(),
            near_fp32_lanes_floor: self.near_fp32_lanes_floor(),
            faster_than_plan: self.faster_than_plan(),
        };
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }
}
