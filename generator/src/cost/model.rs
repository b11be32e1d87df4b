//! The constants of the estimate of tiled kernels, measured by `tdc-gen calibrate`.

use crate::gpu::{DEFAULT_GPU, Gpu};
use std::fmt;
use std::sync::LazyLock;
use thiserror::Error;

/// Declares the constants once: fields, names in files, and their order as numbers.
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident = $start:literal,)*) => {
        /// What the parts of a tiled kernel take; clocks of a multiprocessor where nothing else is said.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct CostModel {
            $($(#[$doc])* pub $name: f64,)*
        }

        impl CostModel {
            /// Names of the constants, in order.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// What the constants are before anything was measured, and are drawn to where measurements say little.
            pub const INITIAL: Self = Self { $($name: $start,)* };

            /// The constants in order.
            pub fn values(&self) -> Vec<f64> {
                vec![$(self.$name),*]
            }

            /// The constants of a list in order; what it lacks is as at the start.
            pub fn from_values(values: &[f64]) -> Self {
                let mut values = values.iter().copied();
                Self { $($name: values.next().unwrap_or($start),)* }
            }
        }
    };
}

constants! {
    /// Until the first chunk's input has come from the level-2 cache.
    first_chunk_latency = 47.0,
    /// Until a later chunk's has, which is asked for while the one before is computed.
    later_chunk_latency = 730.0,
    /// What a block loses that finds no room before one of the launch ahead has left.
    pdl_no_room = 250.0,
    /// What a block loses that shares its multiprocessor with one of the launch ahead.
    pdl_shared_sm = 85.0,
    /// A product of matrices on a quarter of a multiprocessor.
    mma_issue = 7.5,
    /// Until a product can be added to.
    mma_latency = 55.0,
    /// Until a warp's run of steps has its first operands, and has added up its last.
    loop_drain = 15.0,
    /// Share of the reads of a run's first step, by all warps of the multiprocessor, that nothing hides.
    loop_start_reads = 0.5,
    /// A warp's instruction on a quarter of a multiprocessor that has warps enough.
    instruction_issue = 1.1,
    /// One of a warp that is alone there.
    instruction_latency = 2.7,
    /// 128 bytes of shared memory.
    shared_wavefront = 1.2,
    /// Instructions for each value that is staged.
    staging_per_value = 9.6,
    /// Instructions for each load of them.
    staging_per_load = 5.5,
    /// Instructions for each division that finds the place of a load.
    load_index_division = 13.0,
    /// A line of 128 bytes that a warp's load touches.
    cache_line = 1.2,
    /// Barriers of a chunk.
    chunk_barriers = 110.0,
    /// What each warp adds to them.
    chunk_barriers_per_warp = 51.0,
    /// What a chunk takes longer whose weights could not be asked for ahead.
    stage_refill = 240.0,
    /// Instructions for each share of a sum.
    partial_add = 3.0,
    /// Instructions for each round in which all threads store.
    store_round = 21.0,
    /// Instructions for each division that finds the place of what is stored.
    store_index_division = 4.6,
    /// 32 bytes that are stored, or read of a residual.
    stored_sector = 1.5,
    /// Until a residual has come.
    residual_latency = 550.0,
    /// Until the blocks of a cluster have begun to send each other their sums, and have all of them.
    cluster_exchange_latency = 520.0,
    /// Bytes a clock that a multiprocessor sends to others.
    cluster_bytes_per_clock = 12.0,
    /// Times as long as others clusters of three take: multiprocessors come in pairs.
    cluster_of_3 = 1.1,
    /// Bytes a clock that one multiprocessor gets of the level-2 cache.
    l2_bytes_per_clock = 130.0,
    /// Bytes a clock for each multiprocessor when all of them ask.
    l2_bytes_per_clock_all_sms = 29.0,
    /// How sharply the longest of what happens at the same time counts: the exponent of a norm.
    norm_exponent = 3.9,
}

impl CostModel {
    /// The constants for a GPU: as they were measured on one, else those of an H200, in clocks.
    pub fn for_gpu(gpu: &Gpu) -> &'static Self {
        static MEASURED: LazyLock<Vec<(&str, CostModel)>> = LazyLock::new(|| {
            let models = tdc_generated::MODELS.iter();
            models
                .map(|&(name, text)| {
                    let model = CostModel::parse(text);
                    (
                        name,
                        model.expect("the committed constants are well formed"),
                    )
                })
                .collect()
        });
        static INITIAL: CostModel = CostModel::INITIAL;
        let of = |name: &str| MEASURED.iter().find(|(measured, _)| *measured == name);
        of(gpu.name)
            .or_else(|| of(DEFAULT_GPU))
            .map_or(&INITIAL, |(_, model)| model)
    }

    /// Reads what [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    /// [`CostModelError`] on anything else.
    pub fn parse(text: &str) -> Result<Self, CostModelError> {
        let mut values: Vec<Option<f64>> = vec![None; Self::NAMES.len()];
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let error = |expected| CostModelError::Line {
                line: index + 1,
                text: line.to_owned(),
                expected,
            };
            let (name, value) = line
                .split_once(' ')
                .ok_or_else(|| error("a name and a number"))?;
            let place = Self::NAMES
                .iter()
                .position(|known| *known == name)
                .ok_or_else(|| error("the name of a constant"))?;
            let value = value.parse::<f64>().ok();
            let value = value.filter(|value| value.is_finite() && *value > 0.0);
            values[place] = Some(value.ok_or_else(|| error("a number above 0"))?);
        }
        match values.iter().position(Option::is_none) {
            Some(missing) => Err(CostModelError::Missing(Self::NAMES[missing])),
            None => Ok(Self::from_values(
                &values.into_iter().flatten().collect::<Vec<_>>(),
            )),
        }
    }
}

impl fmt::Display for CostModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in Self::NAMES.iter().zip(self.values()) {
            writeln!(f, "{name} {value:.4}")?;
        }
        Ok(())
    }
}

/// A text that is not a list of constants.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CostModelError {
    /// A line of it.
    #[error("line {line}: `{text}`: expected {expected}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// Its text.
        text: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A constant without a line.
    #[error("`{0}` is missing")]
    Missing(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;

    #[test]
    fn constants_are_read_back() {
        let model = CostModel {
            cache_line: 123.4567,
            ..CostModel::INITIAL
        };
        let text = format!("# a comment\n\n{model}");
        assert_eq!(CostModel::parse(&text), Ok(model));
        assert_eq!(CostModel::from_values(&model.values()), model);
        assert!(CostModel::NAMES.len() <= 30);
    }

    #[test]
    fn what_is_no_constant_is_told() {
        let text = CostModel::INITIAL.to_string();
        let cases = [
            (
                text.replace("cache_line 1.2", "cache_line -1.2"),
                "a number above 0",
            ),
            (
                text.replace("cache_line 1.2", "cache_line x"),
                "a number above 0",
            ),
            (
                text.replace("\ncache_line ", "\ncache_lines "),
                "the name of a constant",
            ),
            (
                text.replace("cache_line 1.2000", "cache_line"),
                "a name and a number",
            ),
            (
                text.replace("cache_line 1.2000\n", ""),
                "`cache_line` is missing",
            ),
        ];
        for (text, expected) in cases {
            let error = CostModel::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn gpus_that_nobody_measured_have_the_constants_of_the_h200() {
        let of = |name| CostModel::for_gpu(gpu(name).unwrap());
        assert_eq!(of("a100"), of("h200"));
    }
}
