//! Tiles: the numbers that a scheme's template is specialised with, their names and labels.

use crate::suggest::nearest;
use serde::Serialize;
use std::fmt;

/// The numbers that a scheme's template is specialised with, in the order of [`Scheme::tile_fields`](super::Scheme::tile_fields).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Tile(pub Vec<u32>);

/// One number of a scheme's tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileField {
    /// Its name: in configs (`tile: {th: 4, tw: 16}`), templates and code. A name means the same in every scheme.
    pub name: &'static str,
    /// One or two letters before the number in file names, kernel symbols and measured tables.
    pub label: &'static str,
    /// Its meaning, one sentence for the reference.
    pub meaning: &'static str,
}

impl Tile {
    /// The tile as text, such as `p64rn8xn4sk1`.
    pub fn label<'a>(&'a self, fields: &'a [TileField]) -> impl fmt::Display + 'a {
        struct Label<'a>(&'a [u32], &'a [TileField]);
        impl fmt::Display for Label<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                for (value, field) in self.0.iter().zip(self.1) {
                    write!(f, "{}{value}", field.label)?;
                }
                Ok(())
            }
        }
        Label(&self.0, fields)
    }

    /// The tile of a [label](Self::label); `None` if the text is not a label of these fields.
    pub fn from_label(label: &str, fields: &[TileField]) -> Option<Self> {
        let mut rest = label;
        let mut values = Vec::new();
        for field in fields {
            let numbers = rest.strip_prefix(field.label)?;
            let end = numbers.find(|c: char| !c.is_ascii_digit());
            let (number, tail) = numbers.split_at(end.unwrap_or(numbers.len()));
            values.push(number.parse().ok()?);
            rest = tail;
        }
        let tile = Self(values);
        // Neither a remainder nor leading zeros: one tile has one label.
        let same = tile.label(fields).to_string() == label;
        same.then_some(tile)
    }

    /// The tile whose numbers are given by name, in any order.
    ///
    /// # Errors
    /// Every name that is unknown, repeated or missing.
    pub fn from_named<'a>(
        numbers: impl IntoIterator<Item = (&'a str, u32)>,
        fields: &[TileField],
    ) -> Result<Self, Vec<TileNameError>> {
        let mut values = vec![None; fields.len()];
        let mut errors = Vec::new();
        for (name, value) in numbers {
            match fields.iter().position(|field| field.name == name) {
                Some(index) if values[index].is_some() => {
                    errors.push(TileNameError::Duplicate(name.to_owned()));
                }
                Some(index) => values[index] = Some(value),
                None => errors.push(TileNameError::Unknown {
                    name: name.to_owned(),
                    nearest: nearest(name, fields.iter().map(|field| field.name)),
                    names: names(fields),
                }),
            }
        }
        let missing = fields.iter().zip(&values);
        let missing: Vec<_> = missing
            .filter(|(_, value)| value.is_none())
            .map(|(field, _)| field.name)
            .collect();
        if !missing.is_empty() {
            errors.push(TileNameError::Missing {
                missing: missing.join(", "),
                names: names(fields),
            });
        }
        match errors.is_empty() {
            true => Ok(Self(values.into_iter().flatten().collect())),
            false => Err(errors),
        }
    }
}

/// The names of a tile's numbers, for messages.
pub fn names(fields: &[TileField]) -> String {
    let names: Vec<_> = fields.iter().map(|field| field.name).collect();
    names.join(", ")
}

/// An error in the names of a tile's numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TileNameError {
    /// Not a name of the scheme.
    #[error("a tile has no number `{name}`; {}its numbers are {names}", .nearest.map(|known| format!("did you mean `{known}`? ")).unwrap_or_default())]
    Unknown {
        /// The name.
        name: String,
        /// A similar one.
        nearest: Option<&'static str>,
        /// All names.
        names: String,
    },
    /// A name that occurs twice.
    #[error("duplicate number `{0}`; remove one of the two")]
    Duplicate(String),
    /// Names that do not occur.
    #[error("the tile lacks {missing}; its numbers are {names}")]
    Missing {
        /// Missing names.
        missing: String,
        /// All names.
        names: String,
    },
}

impl TileNameError {
    /// The name that the error is about; `None` for missing ones.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Unknown { name, .. } | Self::Duplicate(name) => Some(name),
            Self::Missing { .. } => None,
        }
    }
}

/// Declares the tile of a scheme: each number with its meaning, name and label, in the order of its list form. From this one declaration
/// come the struct, its [`FIELDS`](TileField) (label, parser, names in configs, table of the reference) and the conversions.
macro_rules! tile_numbers {
    ($(#[$doc:meta])* $vis:vis struct $tile:ident { $($(#[doc = $meaning:literal])+ $name:ident: $label:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        $vis struct $tile {
            $($(#[doc = $meaning])+ $vis $name: u32,)+
        }

        #[allow(dead_code, reason = "not every scheme checks its numbers one by one")]
        impl $tile {
            /// Its numbers, in order.
            $vis const FIELDS: &'static [$crate::scheme::TileField] = &[$($crate::scheme::TileField {
                name: stringify!($name),
                label: $label,
                meaning: concat!($($meaning),+).trim_ascii(),
            },)+];

            /// The numbers of a tile; `None` if it has a different count of them.
            $vis fn from_tile(tile: &$crate::scheme::Tile) -> Option<Self> {
                let &[$($name),+] = tile.0.as_slice() else {
                    return None;
                };
                Some(Self { $($name),+ })
            }

            /// The numbers in order.
            $vis fn numbers(self) -> [u32; Self::FIELDS.len()] {
                [$(self.$name),+]
            }
        }

        impl From<$tile> for $crate::scheme::Tile {
            fn from(tile: $tile) -> Self {
                Self(tile.numbers().to_vec())
            }
        }
    };
}
pub(super) use tile_numbers;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::SCHEMES;

    tile_numbers! {
        /// Some tile.
        struct SomeTile {
            /// Output channels
            /// of a block.
            tn: "n",
            /// Output pixels of a block.
            tp: "p",
            /// Output channels of a thread.
            rn: "rn",
        }
    }

    #[test]
    fn labels_are_read_back() {
        let tile = SomeTile {
            tn: 16,
            tp: 64,
            rn: 4,
        };
        let fields = SomeTile::FIELDS;
        assert_eq!(fields[0].meaning, "Output channels of a block.");
        assert_eq!(SomeTile::from_tile(&tile.into()), Some(tile));
        assert_eq!(SomeTile::from_tile(&Tile(vec![1, 2])), None);
        let tile = Tile::from(tile);
        let label = tile.label(fields).to_string();
        assert_eq!(label, "n16p64rn4");
        assert_eq!(Tile::from_label(&label, fields), Some(tile));
        for wrong in [
            "",
            "n16p64",
            "n16p64rn",
            "n16p64rn4x",
            "n016p64rn4",
            "n16p64r4",
            "n16p64rn99999999999",
            "n16p64rn-1",
        ] {
            assert_eq!(Tile::from_label(wrong, fields), None, "{wrong}");
        }
    }

    #[test]
    fn numbers_are_given_by_name_in_any_order() {
        let of = |numbers: &[(&'static str, u32)]| {
            Tile::from_named(numbers.iter().copied(), SomeTile::FIELDS)
        };
        assert_eq!(
            of(&[("rn", 4), ("tn", 16), ("tp", 64)]),
            Ok(Tile(vec![16, 64, 4]))
        );
        let errors = of(&[("tn", 1), ("tn", 2), ("tq", 3)]).unwrap_err();
        let messages: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "duplicate number `tn`; remove one of the two",
                "a tile has no number `tq`; did you mean `tn`? its numbers are tn, tp, rn",
                "the tile lacks tp, rn; its numbers are tn, tp, rn",
            ]
        );
    }

    /// A name has one label in all schemes, a scheme has a name and a label once.
    #[test]
    fn names_and_labels_mean_the_same_everywhere() {
        let mut known: Vec<(&str, &str)> = Vec::new();
        for scheme in SCHEMES {
            let fields = scheme.tile_fields();
            for (index, field) in fields.iter().enumerate() {
                assert!(field.meaning.ends_with('.'), "{}", field.name);
                let label = (field.name, field.label);
                match known.iter().find(|(name, _)| *name == field.name) {
                    Some(found) => assert_eq!(*found, label, "{}", scheme.name()),
                    None => known.push(label),
                }
                for other in &fields[..index] {
                    assert_ne!(other.name, field.name, "{}", scheme.name());
                    assert_ne!(other.label, field.label, "{}", scheme.name());
                }
            }
        }
    }
}
