//! Times complete networks over the batch, and PyTorch on the same networks (`tdc-gen bench --network`).
//!
//! For each batch the network is generated, compiled with nvcc and checked, and PyTorch gets the same network as a module made from the
//! config. All of them run in turn, several times. A time is printed and appended to a journal as soon as it is measured, so that an
//! interrupted run can be resumed.

mod build;
mod chart;
mod journal;
mod local;
mod page;
mod parameters;
mod python;
mod report;
mod results;
mod run;
mod subject;
mod torch_module;

pub use journal::Journal;
pub use local::{LocalRunner, Machine, MachineError, NetworkOfBatch};
pub use page::page;
pub use parameters::random_checkpoint;
pub use python::{Python, TorchVersions};
pub use report::{Environment, Report};
pub use results::{Check, Failure, Row};
pub use run::{Case, Measured, Runner, Running, StartError, measure};
pub use subject::{
    Arithmetic, CompileMode, ParseSubjectsError, Subject, default_torch_subjects, torch_subjects,
};
pub use torch_module::torch_module;
