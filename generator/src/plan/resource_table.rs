//! The resource table: registers, shared memory and spills of kernels, as a compiler reported them.

use crate::wording::counted;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use tdc_runtime::Arch;

/// Resources of one kernel on one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Bytes of registers spilled to local memory.
    pub spill_stores: u32,
    /// Bytes of spilled registers that are loaded back.
    pub spill_loads: u32,
}

/// Resources by a key that does not depend on a kernel's symbol (scheme, shape and tile) and by architecture.
///
/// As text it has one line per entry, sorted by key and then by architecture; lines that start with `#` are
/// comments:
///
/// ```text
/// # key arch registers shared spill_stores spill_loads
/// direct/c64n32/tile8x8 sm_80 64 4096 0 0
/// direct/c64n32/tile8x8 sm_90 62 4096 0 0
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceTable {
    entries: BTreeMap<(String, Arch), Resources>,
}

/// Error of reading a table, or of adding an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceTableError {
    /// A line has too few or too many fields.
    #[error("line {line}: {} where `{COLUMNS}` are needed", counted(*found, "field"))]
    Fields {
        /// Line of the text, from 1.
        line: usize,
        /// Fields found.
        found: usize,
    },
    /// A field is invalid.
    #[error("line {line}: {column} cannot be `{text}`; it is {expected}")]
    Field {
        /// Line of the text, from 1.
        line: usize,
        /// The column's name.
        column: &'static str,
        /// The field's text.
        text: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A line has the key and architecture of an earlier one.
    #[error("line {line}: `{key} {arch}` has a line already; remove one of the two")]
    Duplicate {
        /// Line of the text, from 1.
        line: usize,
        /// The key.
        key: String,
        /// The architecture.
        arch: Arch,
    },
    /// A key that could not be parsed again.
    #[error("`{0}` cannot be a key: it must not be empty, hold white space or start with `#`")]
    Key(String),
}

const COLUMNS: &str = "key arch registers shared spill_stores spill_loads";

impl ResourceTable {
    /// The resources of the kernel of `key` on `arch`, if the table has them.
    pub fn get(&self, key: &str, arch: Arch) -> Option<Resources> {
        self.entries.get(&(key.to_owned(), arch)).copied()
    }

    /// Adds or replaces an entry.
    ///
    /// # Errors
    /// [`ResourceTableError::Key`] for a key with white space, an empty one or one that starts with `#`.
    pub fn insert(
        &mut self,
        key: &str,
        arch: Arch,
        resources: Resources,
    ) -> Result<(), ResourceTableError> {
        if key.is_empty() || key.starts_with('#') || key.contains(char::is_whitespace) {
            return Err(ResourceTableError::Key(key.to_owned()));
        }
        self.entries.insert((key.to_owned(), arch), resources);
        Ok(())
    }

    /// Adds all entries of `newer`, which replace existing entries of the same key and architecture.
    pub fn merge(&mut self, newer: Self) {
        self.entries.extend(newer.entries);
    }

    /// The entries, sorted by key and then by architecture.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Arch, Resources)> {
        self.entries
            .iter()
            .map(|((key, arch), resources)| (&key[..], *arch, *resources))
    }

    /// The entries whose keys start with `prefix`, in the order of [`iter`](Self::iter).
    pub fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = (&str, Arch, Resources)> {
        let first = (prefix.to_owned(), Arch::new(0));
        self.entries
            .range(first..)
            .map(|((key, arch), resources)| (&key[..], *arch, *resources))
            .take_while(move |(key, ..)| key.starts_with(prefix))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl fmt::Display for ResourceTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {COLUMNS}")?;
        for (key, arch, resources) in self.iter() {
            let Resources {
                registers,
                shared_bytes,
                spill_stores,
                spill_loads,
            } = resources;
            writeln!(
                f,
                "{key} {arch} {registers} {shared_bytes} {spill_stores} {spill_loads}"
            )?;
        }
        Ok(())
    }
}

impl FromStr for ResourceTable {
    type Err = ResourceTableError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut table = Self::default();
        for (index, row) in text.lines().enumerate() {
            let line = index + 1;
            if row.starts_with('#') || row.trim().is_empty() {
                continue;
            }
            let fields: Vec<_> = row.split_whitespace().collect();
            let [key, arch, registers, shared, stores, loads] = fields[..] else {
                return Err(ResourceTableError::Fields {
                    line,
                    found: fields.len(),
                });
            };
            let arch = arch.parse().map_err(|_| ResourceTableError::Field {
                line,
                column: "arch",
                text: arch.to_owned(),
                expected: "an architecture such as sm_90",
            })?;
            let number = |column, text: &str| {
                text.parse().map_err(|_| ResourceTableError::Field {
                    line,
                    column,
                    text: text.to_owned(),
                    expected: "a whole number below 2^32",
                })
            };
            let resources = Resources {
                registers: number("registers", registers)?,
                shared_bytes: number("shared", shared)?,
                spill_stores: number("spill_stores", stores)?,
                spill_loads: number("spill_loads", loads)?,
            };
            if table.get(key, arch).is_some() {
                return Err(ResourceTableError::Duplicate {
                    line,
                    key: key.to_owned(),
                    arch,
                });
            }
            table.insert(key, arch, resources)?;
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# key arch registers shared spill_stores spill_loads
direct/a sm_75 64 4096 0 0
direct/a sm_100 62 4096 8 12
tdc/b sm_90 255 0 0 0
";

    fn resources(registers: u32) -> Resources {
        Resources {
            registers,
            shared_bytes: 0,
            spill_stores: 0,
            spill_loads: 0,
        }
    }

    #[test]
    fn reads_what_it_writes_sorted() {
        let table: ResourceTable = TEXT.parse().unwrap();
        assert_eq!(table.to_string(), TEXT);
        let mut lines: Vec<_> = TEXT.lines().collect();
        lines.reverse();
        let shuffled = format!("\n{}\r\n\n", lines.join("\r\n"));
        assert_eq!(shuffled.parse(), Ok(table.clone()));
        assert_eq!(table.len(), 3);
        assert_eq!(
            table.get("direct/a", Arch::new(100)).unwrap().spill_loads,
            12
        );
        assert_eq!(table.get("direct/a", Arch::new(90)), None);
        assert_eq!(ResourceTable::default().to_string().lines().count(), 1);
    }

    #[test]
    fn merging_takes_the_newer_entry() {
        let mut table: ResourceTable = TEXT.parse().unwrap();
        let mut newer = ResourceTable::default();
        newer.insert("tdc/b", Arch::new(90), resources(40)).unwrap();
        newer.insert("tdc/c", Arch::new(90), resources(50)).unwrap();
        table.merge(newer);
        assert_eq!(table.len(), 4);
        assert_eq!(table.get("tdc/b", Arch::new(90)), Some(resources(40)));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            (
                "a sm_90 1 2 3",
                "line 1: 5 fields where `key arch registers shared spill_stores spill_loads` are needed",
            ),
            (
                "# remark\na 9.0 1 2 3 4",
                "line 2: arch cannot be `9.0`; it is an architecture such as sm_90",
            ),
            (
                "a sm_90 1 -2 3 4",
                "line 1: shared cannot be `-2`; it is a whole number below 2^32",
            ),
            (
                "a sm_90 1 2 3 4\na sm_90 1 2 3 4",
                "line 2: `a sm_90` has a line already; remove one of the two",
            ),
        ] {
            let error = text.parse::<ResourceTable>().unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn keys_that_could_not_be_read_again_are_rejected() {
        let mut table = ResourceTable::default();
        for key in ["", "a b", "#a", "a\n"] {
            let error = table.insert(key, Arch::new(90), resources(1)).unwrap_err();
            assert_eq!(error, ResourceTableError::Key(key.to_owned()));
        }
        assert!(table.is_empty());
    }
}
