//! The factors of Tucker, CP and low-rank layers: their roles, names and shapes.

use std::fmt;

/// A factor of a convolution in Tucker form (TDC paper, eqs. 2-4) or in CP form (Reustle et al., eq. 7), or of a low-rank 1x1
/// convolution or linear layer, with the shape of its weight in OIHW.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FactorRole {
    /// [D1, I, 1, 1]: U1 transposed, eq. 2; or [K, I, 1, 1] of CP rank K or rank K.
    First,
    /// [D2, D1, R, S]: the core, eq. 3.
    Core,
    /// [K, 1, R, 1]: a vertical filter for each of the K channels.
    Vertical,
    /// [K, 1, 1, S]: a horizontal filter for each of the K channels.
    Horizontal,
    /// [O, D2, 1, 1]: U2, eq. 4; or [O, K, 1, 1] of CP rank K or rank K.
    Last,
}

impl FactorRole {
    /// The factors of a Tucker layer, in order.
    pub const TUCKER: [Self; 3] = [Self::First, Self::Core, Self::Last];

    /// The factors of a CP layer, in the order of its weights.
    pub const CP: [Self; 4] = [Self::First, Self::Vertical, Self::Horizontal, Self::Last];

    /// The factors of a CP layer whose horizontal filter is applied before the vertical one.
    pub const CP_HORIZONTAL_FIRST: [Self; 4] =
        [Self::First, Self::Horizontal, Self::Vertical, Self::Last];

    /// The factors of a low-rank layer, in order.
    pub const LOW_RANK: [Self; 2] = [Self::First, Self::Last];

    /// Its name: `<layer>.<name>` is the factor's task, `<layer>.<name>.weight` its tensor in a checkpoint.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Core => "core",
            Self::Vertical => "vertical",
            Self::Horizontal => "horizontal",
            Self::Last => "last",
        }
    }
}

/// The kind of decomposition, with its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decomposition {
    /// Tucker ranks [D1, D2]: D1 of the input channels (weight dimension 1), D2 of the output channels (dimension 0).
    Tucker([u32; 2]),
    /// CP rank K: the weight is a sum of K outer products of four vectors.
    Cp(u32),
    /// Rank K: the weight, a matrix [O, I], is the product of a matrix [O, K] and a matrix [K, I].
    LowRank(u32),
}

impl Decomposition {
    /// Its factors in order.
    pub const fn factors(self) -> &'static [FactorRole] {
        match self {
            Self::Tucker(_) => &FactorRole::TUCKER,
            Self::Cp(_) => &FactorRole::CP,
            Self::LowRank(_) => &FactorRole::LOW_RANK,
        }
    }
}

impl fmt::Display for Decomposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tucker([d1, d2]) => write!(f, "ranks [{d1}, {d2}]"),
            Self::Cp(rank) => write!(f, "CP rank {rank}"),
            Self::LowRank(rank) => write!(f, "rank {rank}"),
        }
    }
}
