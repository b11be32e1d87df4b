//! The keys of configs and of `kernel!`: one table for reading, command-line overrides, messages and the
//! reference.
//!
//! [`ROWS`] says which mappings take a key, and what its value is. All lists of keys follow from it, in its
//! order. The functions that read values are in [`yaml`](super::yaml) and [`text`](super::text); a test
//! checks that they read every key of every mapping.

mod keys;
mod mapping;
#[cfg(test)]
mod tests;

pub use keys::{Key, ROWS};
pub use mapping::{CallOp, CallOpRow, FromChannels, Mapping, NetworkOp, NetworkOpRow};
use std::fmt;

/// Declares an enum with a row of data for each variant.
macro_rules! enum_with_rows {
    ($(#[$meta:meta])* $name:ident: $row:ty { $($variant:ident = $value:expr,)+ }) => {
        $(#[$meta])*
        // The rows say what the variants are.
        #[allow(missing_docs)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($variant),+ }

        impl $name {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The row of the table.
            pub const fn row(self) -> $row {
                match self { $(Self::$variant => $value),+ }
            }
        }
    };
}
use enum_with_rows;

impl Key {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        self.row()
    }

    /// The command-line option that replaces its value, if there is one.
    pub fn flag(self) -> Option<&'static Flag> {
        let mut rows = ROWS.iter().filter(|row| row.key == self);
        rows.find_map(|row| row.flag.as_ref())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        self.name()
    }
}

/// What a key is in some mappings. All texts are Markdown with links relative to `docs/reference`.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The key.
    pub key: Key,
    /// Whether a mapping has it.
    pub is_of: fn(Mapping) -> bool,
    /// The forms of its value.
    pub value: &'static str,
    /// The value if the key is missing.
    pub default: &'static str,
    /// What it determines.
    pub meaning: &'static str,
    /// Whether a network or layer set has it as the default of its convolutions.
    pub is_inherited: bool,
    /// The command-line option that replaces the value.
    pub flag: Option<Flag>,
}

impl Row {
    const fn new(
        key: Key,
        is_of: fn(Mapping) -> bool,
        value: &'static str,
        default: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self {
            key,
            is_of,
            value,
            default,
            meaning,
            is_inherited: false,
            flag: None,
        }
    }

    const fn inherited(self) -> Self {
        Self {
            is_inherited: true,
            ..self
        }
    }

    const fn overridden_by(
        self,
        name: &'static str,
        value: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self {
            flag: Some(Flag {
                name,
                value,
                meaning,
            }),
            ..self
        }
    }
}

/// A command-line option that replaces what a config says.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Its name, without `--`.
    pub name: &'static str,
    /// The name of its value; empty if it has none.
    pub value: &'static str,
    /// What it does, in Markdown without links.
    pub meaning: &'static str,
}

impl Flag {
    /// What it does, as a sentence for `--help`.
    pub fn help(&self) -> String {
        let (first, rest) = self.meaning.split_at(1);
        first.to_uppercase() + rest
    }
}

/// The keys that a network or layer set has as defaults of its convolutions.
pub(super) fn inherited_keys() -> impl Iterator<Item = Key> {
    let rows = ROWS.iter().filter(|row| row.is_inherited);
    rows.map(|row| row.key)
}
