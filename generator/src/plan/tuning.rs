//! Measured times of schemes and tiles: the tables that the planner reads and `tdc-gen tune` writes.

mod environment;
mod error;
mod key;
mod table;

pub use environment::Environment;
pub use error::TuningError;
pub use key::{tuning_key, tuning_keys};
pub use table::{Conflict, MeasuredTile, Stale, TuningTable};
#[cfg(feature = "tune")]
pub(crate) use table::{parse_microseconds, text_checksum};

use crate::gpu::Gpu;
use std::sync::OnceLock;

/// The committed table of a GPU; `None` if there is none.
pub fn committed_tuning(gpu: &Gpu) -> Option<&'static TuningTable> {
    static TABLES: OnceLock<Vec<TuningTable>> = OnceLock::new();
    let tables = TABLES.get_or_init(|| {
        let texts = tdc_generated::TUNING.iter();
        texts
            .map(|(_, text)| {
                text.parse()
                    .expect("committed tables are checked by a test")
            })
            .collect()
    });
    tables
        .iter()
        .find(|table| table.environment().gpu == gpu.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;

    #[test]
    fn committed_tables_can_be_read_and_are_what_would_be_written() {
        for &(name, text) in tdc_generated::TUNING {
            let table: TuningTable = text
                .parse()
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(table.environment().gpu, name);
            assert_eq!(table.to_string(), text, "{name}");
            assert!(committed_tuning(gpu(name).unwrap()).is_some());
        }
        assert_eq!(committed_tuning(gpu("v100").unwrap()), None);
    }
}
