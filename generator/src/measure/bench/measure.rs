//! Measures one problem on the GPU: the generated candidates, then cuDNN.

use super::cudnn_bench::CudnnBench;
use super::{
    BenchProblem, Candidate, CandidateResult, Measurement, ProblemReport, RejectedTile, unit_times,
};
use crate::compile::Compiler;
use crate::cost::{floor_us, fp32_lanes_floor_us};
use crate::gpu::Gpu;
use crate::ir::Reduce;
use crate::plan::PlannedUnit;
use crate::verify::{DeviceError, GpuDevice, ProblemData};

/// Why a problem has no report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interruption {
    /// The user interrupted the run.
    Requested,
    /// The device is unusable.
    Device(DeviceError),
}

impl From<DeviceError> for Interruption {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// The measurement of one problem.
pub struct ProblemBench<'a> {
    /// The device to measure on.
    pub device: &'a mut GpuDevice,
    /// The GPU for which kernels are planned and the floor is computed.
    pub gpu: &'static Gpu,
    /// The problem.
    pub problem: &'a BenchProblem,
    /// Its operands and the expected result.
    pub data: ProblemData,
    /// Size of the GPU's L2 in bytes.
    pub l2_bytes: u64,
    /// Polled frequently; true ends the run.
    pub stop: &'a dyn Fn() -> bool,
}

impl ProblemBench<'_> {
    /// Checks and times candidates and cuDNN's algorithms; failures become rows too.
    ///
    /// # Errors
    /// [`Interruption`].
    pub fn measure(
        &mut self,
        candidates: &[Candidate],
        rejected_tiles: &[RejectedTile],
        compiler: &impl Compiler,
        cudnn_bench: Option<&mut CudnnBench>,
    ) -> Result<ProblemReport, Interruption> {
        let problem = self.problem.to_problem(Reduce::Ordered);
        let mut report = ProblemReport {
            label: self.problem.label.clone(),
            shape: self.problem.shape,
            flops: problem.flops(),
            bytes: problem.bytes(),
            floor_us: floor_us(&problem, self.gpu),
            fp32_lanes_floor_us: fp32_lanes_floor_us(problem.flops(), problem.bytes(), self.gpu),
            precision: self.problem.precision,
            tolerance: problem.kind().tolerance(),
            plan_chosen_by: None,
            candidates: Vec::new(),
            cudnn: None,
        };
        report.candidates = rejected_tiles
            .iter()
            .map(unit_times::rejected_row)
            .collect();
        let before = report.candidates.len();
        report
            .candidates
            .extend(self.measure_candidates(candidates, compiler)?);
        report.plan_chosen_by = report
            .first_selected_by("plan")
            .and(self.problem.plan_chosen_by);
        let shown: Vec<usize> = {
            let best = report.best();
            let planned = report.planned();
            let is_shown = |row: &CandidateResult| {
                [best, planned]
                    .into_iter()
                    .flatten()
                    .any(|shown| std::ptr::eq(shown, row))
            };
            (before..report.candidates.len())
                .filter(|&index| is_shown(&report.candidates[index]))
                .collect()
        };
        for index in shown {
            let unit = &candidates[index - before].unit;
            let cold = unit_times::cold_us(self.device, unit, &self.data, self.l2_bytes);
            let cold = self.check_device(cold)?;
            if let Measurement::Timed(timed) = &mut report.candidates[index].outcome {
                timed.cold_us = cold.ok().flatten();
            }
        }
        let cudnn_bench = cudnn_bench.map(|cudnn_bench| {
            cudnn_bench.measure(self.device, self.problem, &self.data, self.stop)
        });
        report.cudnn = cudnn_bench.transpose()?;
        Ok(report)
    }

    /// Compiles, checks and times the generated candidates.
    fn measure_candidates(
        &mut self,
        candidates: &[Candidate],
        compiler: &impl Compiler,
    ) -> Result<Vec<CandidateResult>, Interruption> {
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
                    return Err(Interruption::Requested);
                }
                let timed = match loaded {
                    Ok(()) => unit_times::timed(self.device, candidate, &self.data)
                        .map_err(|failure| failure.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                Ok(unit_times::row(
                    candidate,
                    match self.check_device(timed)? {
                        Ok(timed) => Measurement::Timed(timed),
                        Err(failure) => Measurement::Failed { failure },
                    },
                ))
            })
            .collect()
    }

    /// Returns the result unchanged, unless the failure has left the device unusable.
    fn check_device<T, E: std::fmt::Display>(
        &mut self,
        result: Result<T, E>,
    ) -> Result<Result<T, E>, DeviceError> {
        if let Err(error) = &result {
            self.device.ensure_usable(error)?;
        }
        Ok(result)
    }
}
