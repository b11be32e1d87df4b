//! One problem on the GPU: our candidates, then the rival.

use super::rival::CudnnBench;
use super::{BenchProblem, Candidate, OursTime, Outcome, ProblemReport, Refusal, ours};
use crate::compile::Compiler;
use crate::cost::floor_us;
use crate::gpu::Gpu;
use crate::ir::Reduce;
use crate::plan::PlannedUnit;
use crate::verify::{DeviceError, GpuDevice, ProblemData, tolerance};

/// Why a problem has no report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    /// The user wants the run to end.
    Asked,
    /// Nothing more can be done on the device.
    Device(DeviceError),
}

impl From<DeviceError> for Cut {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// The measuring of one problem.
pub struct ProblemBench<'a> {
    /// Where.
    pub device: &'a mut GpuDevice,
    /// The GPU that kernels and floor are for.
    pub gpu: &'static Gpu,
    /// The problem.
    pub problem: &'a BenchProblem,
    /// Its operands and the expected result.
    pub data: ProblemData,
    /// Bytes of the GPU's level-2 cache.
    pub l2_bytes: u64,
    /// Asked often whether to end.
    pub stop: &'a dyn Fn() -> bool,
}

impl ProblemBench<'_> {
    /// Checks and times candidates, and the rival's algorithms; refusals are rows too.
    ///
    /// # Errors
    /// [`Cut`].
    pub fn measure(
        &mut self,
        candidates: &[Candidate],
        refusals: &[Refusal],
        compiler: &impl Compiler,
        rival: Option<&mut CudnnBench>,
    ) -> Result<ProblemReport, Cut> {
        let problem = self.problem.ours(Reduce::Ordered);
        let mut report = ProblemReport {
            label: self.problem.label.clone(),
            shape: self.problem.shape,
            flops: problem.flops(),
            bytes: problem.bytes(),
            floor_us: floor_us(problem.flops(), problem.bytes(), self.gpu),
            precision: self.problem.precision,
            tolerance: tolerance(&problem),
            planned_by: None,
            ours: Vec::new(),
            cudnn: None,
        };
        report.ours = refusals.iter().map(ours::refused_row).collect();
        let before = report.ours.len();
        report.ours.extend(self.ours(candidates, compiler)?);
        report.planned_by = report.picked("plan").and(self.problem.planned_by);
        let shown: Vec<usize> = {
            let best = report.best();
            let planned = report.planned();
            let is_shown = |row: &OursTime| {
                [best, planned]
                    .into_iter()
                    .flatten()
                    .any(|shown| std::ptr::eq(shown, row))
            };
            (before..report.ours.len())
                .filter(|&index| is_shown(&report.ours[index]))
                .collect()
        };
        for index in shown {
            let unit = &candidates[index - before].unit;
            let cold = ours::cold_us(self.device, unit, &self.data, self.l2_bytes);
            let cold = self.unless_unusable(cold)?;
            if let Outcome::Timed(timed) = &mut report.ours[index].outcome {
                timed.cold_us = cold.ok().flatten();
            }
        }
        let rival =
            rival.map(|rival| rival.measure(self.device, self.problem, &self.data, self.stop));
        report.cudnn = rival.transpose()?;
        Ok(report)
    }

    /// Compiles, checks and times our candidates.
    fn ours(
        &mut self,
        candidates: &[Candidate],
        compiler: &impl Compiler,
    ) -> Result<Vec<OursTime>, Cut> {
        let units: Vec<PlannedUnit> = candidates
            .iter()
            .map(|candidate| candidate.unit.clone())
            .collect();
        let loaded = self.device.load_each(&units, compiler);
        let loaded = loaded.map_err(|error| DeviceError(error.to_string()))?;
        candidates
            .iter()
            .zip(loaded)
            .map(|(candidate, loaded)| {
                if (self.stop)() {
                    return Err(Cut::Asked);
                }
                let timed = match loaded {
                    Ok(()) => ours::timed(self.device, candidate, &self.data)
                        .map_err(|failure| failure.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                Ok(ours::row(
                    candidate,
                    match self.unless_unusable(timed)? {
                        Ok(timed) => Outcome::Timed(timed),
                        Err(refused) => Outcome::Refused { refused },
                    },
                ))
            })
            .collect()
    }

    /// The same result, unless what failed has left the device unusable.
    fn unless_unusable<T, E: std::fmt::Display>(
        &mut self,
        result: Result<T, E>,
    ) -> Result<Result<T, E>, DeviceError> {
        if let Err(error) = &result {
            self.device.survives(error)?;
        }
        Ok(result)
    }
}
