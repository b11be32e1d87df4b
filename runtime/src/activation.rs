//! Activation functions.

/// An activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Activation {
    /// x.
    #[default]
    None,
    /// max(0, x).
    Relu,
}

impl Activation {
    /// All activation functions by their names in configs.
    pub const NAMES: [(&'static str, Self); 2] = [("none", Self::None), ("relu", Self::Relu)];

    /// Its name in configs.
    pub fn as_str(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(_, known)| *known == self);
        named.map_or("", |(name, _)| name)
    }

    /// Its name in sentences.
    pub const fn title(self) -> &'static str {
        match self {
            Self::None => "identity",
            Self::Relu => "ReLU",
        }
    }

    /// This activation followed by another one, if one activation computes both.
    pub const fn then(self, next: Self) -> Option<Self> {
        match (self, next) {
            (first, Self::None) => Some(first),
            (Self::None | Self::Relu, Self::Relu) => Some(Self::Relu),
        }
    }
}
