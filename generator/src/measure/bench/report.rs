//! What was measured, as plain data.

use super::published::Published;
use super::{Environment, FasterThanPlan, Mean, NearFp32LanesFloor};
use crate::ir::{Precision, Reduce};
use crate::plan::ChosenBy;
use serde::{Deserialize, Serialize};
use tdc_runtime::ConvShape;

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Name of the network, layer set or series.
    pub name: String,
    /// Where and how it was measured.
    pub environment: Environment,
    /// A problem each.
    pub problems: Vec<ProblemReport>,
    /// Published times of the same problems.
    pub published: Option<Published>,
    /// What ended the run before its time; later problems are missing.
    pub stopped: Option<String>,
}

/// The times of one convolution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProblemReport {
    /// `C,N,H,W` and what is unusual.
    pub label: String,
    /// Sizes.
    pub shape: ConvShape,
    /// Floating-point operations of the direct convolution, or of a CP layer's factors.
    pub flops: u64,
    /// Bytes when every tensor is moved once, as floats.
    pub bytes: u64,
    /// [Physical limit](crate::cost::floor_us) of one launch in the precision, microseconds.
    pub floor_us: f64,
    /// That of one that leaves arithmetic to the [fp32 lanes](crate::gpu::fp32_lanes_floor_us), microseconds.
    pub fp32_lanes_floor_us: f64,
    /// How our kernels may round products.
    pub precision: Precision,
    /// The relative error that a result may have.
    pub tolerance: f64,
    /// Who chose what the config's plan takes; `None` without a plan.
    pub plan_chosen_by: Option<ChosenBy>,
    /// Our candidates, in the order of [`candidates`](super::candidates).
    pub candidates: Vec<CandidateResult>,
    /// cuDNN's; `None` without cuDNN.
    pub cudnn: Option<CudnnReport>,
}

/// What came of one of our candidates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateResult {
    /// The scheme.
    pub scheme: String,
    /// How it adds partial sums.
    pub reduce: Reduce,
    /// The tile with its letters.
    pub tile: String,
    /// Who chose it, see [`Candidate::selected_by`](super::Candidate::selected_by).
    pub selected_by: Vec<String>,
    /// Estimated time, microseconds.
    pub predicted_us: Option<f64>,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Measurement,
}

impl CandidateResult {
    /// The scheme, and `atomic` behind it where sums are not ordered.
    pub fn kind(&self) -> String {
        match self.reduce {
            Reduce::Ordered => self.scheme.clone(),
            Reduce::Atomic => format!("{} atomic", self.scheme),
        }
    }

    /// Whether a word is among its [`selected_by`](Self::selected_by).
    pub fn is_selected_by(&self, pick: &str) -> bool {
        self.selected_by.iter().any(|known| known == pick)
    }

    /// Its times, when it was right.
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
    /// Right, and timed.
    Timed(Timed),
    /// Wrong, or not to be had.
    Failed {
        /// The reason.
        failure: String,
    },
}

/// Times of something that is right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Microseconds on the same buffers over and over: they stay in the level-2 cache where they fit.
    pub us: f64,
    /// Microseconds on buffers that take turns, together more than twice the cache; not measured for every candidate.
    pub cold_us: Option<f64>,
    /// Relative error against float64, as an L2 norm.
    pub relative_error: f64,
}

/// cuDNN's times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CudnnReport {
    /// The best on floats within the bound that our kernels keep.
    pub same_bound: Option<CudnnBest>,
    /// The best that computes with floats: within 2e-5, which Winograd and FFT keep and TF32 does not.
    pub fp32_arithmetic: Option<CudnnBest>,
    /// The best on floats by whatever means, TF32 included: within 1e-3.
    pub fp32_data: Option<CudnnBest>,
    /// The best on halves: within 5e-3.
    pub fp16: Option<CudnnBest>,
    /// Every algorithm that ran: those on floats, then those on halves, each the quickest first.
    pub candidates: Vec<CudnnCandidate>,
    /// How many algorithms were refused when they should run.
    pub failed: usize,
    /// Why an interface has no algorithm at all.
    pub notes: Vec<String>,
}

/// One algorithm of cuDNN, timed like our kernels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CudnnBest {
    /// Data type, layout, and algorithm with math type or engine with knobs.
    pub algorithm: String,
    /// Its times.
    #[serde(flatten)]
    pub timed: Timed,
}

/// One algorithm of cuDNN, timed quickly to find the best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CudnnCandidate {
    /// As in [`CudnnBest`].
    pub algorithm: String,
    /// Microseconds, by fewer launches than a figure that counts.
    pub quick_us: f64,
    /// Relative error against float64; `None` where enough quicker ones were right, so that it was not checked and does not count.
    pub relative_error: Option<f64>,
}

impl ProblemReport {
    /// What the config's plan takes, when it is right. Where it was not asked for, the quickest.
    pub fn planned(&self) -> Option<&CandidateResult> {
        match self.first_selected_by("plan") {
            Some(planned) => planned.timed().map(|_| planned),
            None => self.best(),
        }
    }

    /// The first with a word among its [`selected_by`](CandidateResult::selected_by).
    pub fn first_selected_by(&self, pick: &str) -> Option<&CandidateResult> {
        self.candidates
            .iter()
            .find(|candidate| candidate.is_selected_by(pick))
    }

    /// The quickest of ours.
    pub fn best(&self) -> Option<&CandidateResult> {
        let us =
            |candidate: &CandidateResult| candidate.timed().map_or(f64::INFINITY, |timed| timed.us);
        let timed = self
            .candidates
            .iter()
            .filter(|candidate| candidate.timed().is_some());
        timed.min_by(|a, b| us(a).total_cmp(&us(b)))
    }

    /// The quickest of ours for each scheme and way of adding sums, in the order of first appearance.
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

    /// Microseconds of what the plan takes.
    pub fn planned_us(&self) -> Option<f64> {
        Some(self.planned()?.timed()?.us)
    }

    /// Microseconds of the quickest of ours.
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

    /// Published times of a problem as they would be here: scaled by cuDNN's times here and there. `None` when there is nothing to
    /// scale by, or the problem is not among them.
    pub fn published_us(&self, problem: &ProblemReport) -> Option<Vec<Option<f64>>> {
        let here = problem.cudnn_best(|cudnn| &cudnn.fp32_arithmetic)?.timed.us;
        self.published.as_ref()?.scaled(&problem.label, here)
    }

    /// Our candidates that are not right or could not be had, a line each.
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

    /// Why interfaces of cuDNN have no algorithm at all, each reason once with the first problem that it was given for.
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

    /// The report and what sums it up as JSON.
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
