//! The report of a run.

use super::{Failure, Row, Subject, TorchVersions};
use serde::Serialize;
use std::time::Duration;

/// Where and how times were measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// The command line.
    pub command: String,
    /// The generator's version.
    pub generator: String,
    /// The driver's name of the GPU.
    pub device: String,
    /// The GPU in configs for which the network was planned.
    pub gpu: String,
    /// The driver's version.
    pub driver: String,
    /// nvcc's version.
    pub nvcc: String,
    /// The versions of PyTorch and cuDNN; `None` without PyTorch.
    pub torch: Option<TorchVersions>,
    /// Why PyTorch was not measured, if it was not.
    pub without_torch: Option<String>,
}

/// Times of a network over the batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The network.
    pub network: String,
    /// The shapes of its inputs with one image.
    pub input: String,
    /// Where and how it was measured.
    pub environment: Environment,
    /// How times were measured, one sentence each.
    pub method: Vec<String>,
    /// The times, by batch and subject.
    pub rows: Vec<Row>,
    /// What was not measured.
    pub failures: Vec<Failure>,
    /// Whether the run was stopped before its end.
    pub is_stopped: bool,
}

/// The line of one title in a chart.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line<'a> {
    pub title: String,
    /// The fastest row of each batch, in ascending order of batches.
    pub rows: Vec<&'a Row>,
}

impl Report {
    /// The method, for readers of the report.
    pub fn method(rounds: usize, start_limit: Duration) -> Vec<String> {
        [
            format!("Microseconds of a run: the median over {rounds} rounds, in which all subjects run in turn."),
            "A round is the median of 20 samples, each of many replays of a CUDA graph (in mode reduce-overhead: of calls). Inputs and outputs are on the GPU.".to_owned(),
            "Generated code: input and output in fp32 NCHW, conversions included; its results are checked before its time counts.".to_owned(),
            "PyTorch: the same network as a module made from the config, with the same random parameters, in inference; fp32 and TF32 in NCHW, fp16 in channels_last, each in a CUDA graph; input and output in that format.".to_owned(),
            "torch.compile: channels_last and frozen parameters; compile is mode reduce-overhead, compile-max is mode max-autotune-no-cudagraphs in a CUDA graph. The charts have the faster one.".to_owned(),
            format!("What is not ready within {} seconds is ended, and not tried with larger batches.", start_limit.as_secs_f64()),
        ]
        .to_vec()
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// None is known.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The batches with a time, in ascending order.
    pub(super) fn batches(&self) -> Vec<u32> {
        let mut batches: Vec<u32> = self.rows.iter().map(|row| row.batch).collect();
        batches.sort_unstable();
        batches.dedup();
        batches
    }

    /// The lines of the charts, in the order of [`Subject::ALL`]. A title without times has none.
    pub(super) fn lines(&self) -> Vec<Line<'_>> {
        let mut titles: Vec<String> = Subject::ALL.iter().map(|subject| subject.title()).collect();
        titles.dedup();
        let lines = titles.into_iter().map(|title| {
            let rows = self.batches().into_iter().filter_map(|batch| {
                let rows = self.rows.iter();
                rows.filter(|row| row.batch == batch && row.subject.title() == title)
                    .min_by(|a, b| a.us.total_cmp(&b.us))
            });
            let rows = rows.collect();
            Line { title, rows }
        });
        lines.filter(|line| !line.rows.is_empty()).collect()
    }

    /// The report as a text table: a line for each title, with the time in microseconds and the images per second of each batch.
    pub fn table(&self) -> String {
        let lines = self.lines();
        let width = lines.iter().map(|line| line.title.len()).max().unwrap_or(0);
        let mut text = format!(
            "{}, input {}, {}\n",
            self.network, self.input, self.environment.device
        );
        text += &format!("{:width$}", "");
        for batch in self.batches() {
            text += &format!("  {:>22}", format!("batch {batch}: us, images/s"));
        }
        for line in &lines {
            text += &format!("\n{:width$}", line.title);
            for batch in self.batches() {
                let row = line.rows.iter().find(|row| row.batch == batch);
                let cell = row.map(|row| format!("{:.2} {:>9.0}", row.us, row.images_per_second));
                text += &format!("  {:>22}", cell.as_deref().unwrap_or("-"));
            }
        }
        text += "\n";
        for failure in &self.failures {
            text += &format!(
                "not measured: batch {}, {}: {}\n",
                failure.batch, failure.subject, failure.reason
            );
        }
        text
    }
}
