//! Tuning: measures schemes and tiles on a GPU and writes the table that the planner reads.
//!
//! The problems of configs give candidates (scheme and tile). These are compiled on all cores while the GPU
//! measures earlier ones; each result is a line of the journal; the journal gives the table. An interrupted
//! run resumes from its journal. Calibration fits the constants of the cost model to journals.

mod calibrate;
mod candidates;
#[cfg(feature = "gpu")]
mod gpu;
mod journal;
mod measure;
mod ordered_results;
mod problems;
mod progress;
mod run;
mod shard;
mod text;

pub use crate::measure::journal::{JournalError, journal_path};
pub use calibrate::{Fit, GROUPS, Group, Samples};
pub use candidates::{Candidate, Selection, candidates};
#[cfg(feature = "gpu")]
pub use gpu::LocalGpu;
pub use journal::{Journal, Outcome, Row, read_journal};
pub use measure::{Measure, MeasureError, Timing};
pub use problems::Problems;
pub use progress::Progress;
pub use run::{Event, Options, RunEnd, Summary, TuneError, tune};
pub use shard::{ParseShardError, Shard};
pub use text::present_text;
