//! Compares generated kernels with cuDNN, in one process and by one method (`tdc-gen bench`).
//!
//! A problem is a convolution without prologue and epilogue. Both sides read the same random numbers, each in
//! its own layout. Every result is checked against float64 before its time counts. Times are those of a CUDA
//! graph of many runs, with every kernel and memset that a result needs. The times of each problem are
//! appended to a journal as soon as they are measured, so that an interrupted run can be resumed.

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
