//! Our kernels beside cuDNN, in one process and by one method: what `tdc-gen bench` does.
//!
//! A problem is the convolution alone, without prologue and epilogue. Both sides read the same random numbers, each in its own
//! layout; each result is checked against float64 before its time counts; times are those of a CUDA graph of many launches, with
//! everything in it that a result needs. A journal has each problem's times as soon as they are known, so that a run that was cut off
//! goes on.

mod buffers;
mod candidates;
mod chart;
mod cudnn;
mod cudnn_bench;
mod environment;
mod journal;
mod measure;
mod problems;
mod published;
mod report;
mod resume;
mod run;
mod summary;
mod table;
mod unit_times;

pub use candidates::{Candidate, RejectedTile, candidates};
pub use chart::{ChartError, charts};
pub use environment::Environment;
pub use problems::{
    BenchProblem, NamedTile, Sweep, SweepError, bench_problems, shape_label, sweep_problems,
};
pub use published::{Published, PublishedError};
pub use report::{
    CandidateResult, CudnnBest, CudnnCandidate, CudnnReport, Measurement, ProblemReport, Report,
    Timed,
};
pub use run::{BenchError, CudnnSource, Options, run};
pub use summary::{FasterThanPlan, Mean, NearFp32LanesFloor};
pub use table::report_table;
