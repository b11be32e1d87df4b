//! Summary of a report: geometric means, plans near the floor of the fp32 lanes, and problems for which
//! others are faster.

use super::{CudnnBest, CudnnReport, ProblemReport, Report};
use serde::Serialize;

/// A geometric mean over problems.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mean {
    /// Title of the ratio.
    pub title: String,
    /// The mean.
    pub mean: f64,
    /// Number of problems.
    pub problems: usize,
}

/// Number of plans near the floor of the fp32 lanes: within 1.8 times the floor, or 2 us above it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NearFp32LanesFloor {
    /// Number of plans near the floor.
    pub count: usize,
    /// Number of problems.
    pub total: usize,
    /// Labels of the other problems, those without a time included.
    pub others: Vec<String>,
}

/// Problems for which something else is faster than the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FasterThanPlan {
    /// Title of what is faster.
    pub title: String,
    /// Labels of the problems; empty if it is faster for none.
    pub problems: Vec<String>,
}

/// Selects one of cuDNN's times.
type CudnnClass = fn(&CudnnReport) -> &Option<CudnnBest>;

impl Report {
    /// cuDNN's error classes with their titles.
    fn cudnn_classes(&self) -> [(String, CudnnClass); 4] {
        [
            (format!("cuDNN within {}", self.bound()), |cudnn| {
                &cudnn.same_bound
            }),
            ("cuDNN fp32 arithmetic".to_owned(), |cudnn| {
                &cudnn.fp32_arithmetic
            }),
            ("cuDNN fp32 data".to_owned(), |cudnn| &cudnn.fp32_data),
            ("cuDNN fp16".to_owned(), |cudnn| &cudnn.fp16),
        ]
    }

    /// The error bound of the generated kernels, for titles.
    fn bound(&self) -> String {
        let mut precisions = self.problems.iter().map(|problem| problem.precision);
        match precisions.next() {
            Some(first) if precisions.all(|other| other == first) => {
                format!("the {} bound", first.as_str())
            }
            _ => "the error bounds".to_owned(),
        }
    }

    /// The geometric means of the report; a ratio that no problem has is left out.
    pub fn means(&self) -> Vec<Mean> {
        let mut means = Vec::new();
        for (index, (title, which)) in self.cudnn_classes().into_iter().enumerate() {
            let us = |problem: &ProblemReport| Some(problem.cudnn_best(which)?.timed.us);
            means.extend(self.mean(&format!("{title} / plan"), us, ProblemReport::planned_us));
            if index == 0 {
                means.extend(self.mean(
                    &format!("{title} / best candidate"),
                    us,
                    ProblemReport::best_us,
                ));
                means.extend(self.mean(
                    &format!("{title} / plan, cold"),
                    |problem| problem.cudnn_best(which)?.timed.cold_us,
                    |problem| problem.planned()?.timed()?.cold_us,
                ));
            }
        }
        means.extend(self.mean(
            "plan / best candidate",
            ProblemReport::planned_us,
            ProblemReport::best_us,
        ));
        means.extend(
            self.mean("plan / floor", ProblemReport::planned_us, |problem| {
                Some(problem.floor_us)
            }),
        );
        means.extend(self.mean(
            "plan / fp32 lanes' floor",
            ProblemReport::planned_us,
            |problem| Some(problem.fp32_lanes_floor_us),
        ));
        for (index, title) in self.published_titles().iter().enumerate() {
            means.extend(self.mean(
                &format!("{title} / plan"),
                |problem| self.published_us(problem)?[index],
                ProblemReport::planned_us,
            ));
        }
        means
    }

    fn mean(
        &self,
        title: &str,
        over: impl Fn(&ProblemReport) -> Option<f64>,
        under: impl Fn(&ProblemReport) -> Option<f64>,
    ) -> Option<Mean> {
        let ratio = |problem| Some(over(problem)? / under(problem)?);
        let ratios: Vec<f64> = self.problems.iter().filter_map(ratio).collect();
        let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        (!ratios.is_empty()).then(|| Mean {
            title: title.to_owned(),
            mean: (logarithms / ratios.len() as f64).exp(),
            problems: ratios.len(),
        })
    }

    /// The plans near the floor of the fp32 lanes.
    pub fn near_fp32_lanes_floor(&self) -> NearFp32LanesFloor {
        let is_near = |problem: &ProblemReport| {
            let floor = problem.fp32_lanes_floor_us;
            let most = (1.8 * floor).max(floor + 2.0);
            problem.planned_us().is_some_and(|us| us <= most)
        };
        let others = self.problems.iter().filter(|problem| !is_near(problem));
        let others: Vec<_> = others.map(|problem| problem.label.clone()).collect();
        NearFp32LanesFloor {
            count: self.problems.len() - others.len(),
            total: self.problems.len(),
            others,
        }
    }

    /// For each error class of cuDNN and each published column, the problems for which it is faster than the
    /// plan.
    pub fn faster_than_plan(&self) -> Vec<FasterThanPlan> {
        let mut columns = Vec::new();
        for (title, which) in self.cudnn_classes() {
            let us = |problem: &ProblemReport| Some(problem.cudnn_best(which)?.timed.us);
            columns.extend(self.faster(&title, us));
        }
        for (index, title) in self.published_titles().iter().enumerate() {
            columns.extend(self.faster(title, |problem| self.published_us(problem)?[index]));
        }
        columns
    }

    /// `None` for a column that cannot be compared for any problem.
    fn faster(
        &self,
        title: &str,
        us: impl Fn(&ProblemReport) -> Option<f64>,
    ) -> Option<FasterThanPlan> {
        let both = |problem: &ProblemReport| Some((us(problem)?, problem.planned_us()?));
        let compared = self.problems.iter().filter_map(|problem| {
            let (other_us, plan_us) = both(problem)?;
            Some((&problem.label, other_us < plan_us))
        });
        let compared: Vec<_> = compared.collect();
        (!compared.is_empty()).then(|| FasterThanPlan {
            title: title.to_owned(),
            problems: compared
                .into_iter()
                .filter(|(_, is_faster)| *is_faster)
                .map(|(label, _)| label.clone())
                .collect(),
        })
    }
}
