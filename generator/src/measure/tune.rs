//! The oracle: measures schemes and tiles on a GPU and writes the table that planning reads.
//!
//! Problems of configs -> candidates (scheme and tile) -> compiled on all cores while the GPU measures earlier ones -> a line of
//! the journal for each -> the table. A run that ends early goes on where its journal ends. Journals -> the constants of the estimate.

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
pub use calibrate::{Fit, Samples};
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
