//! Facts about schemes, for the planner, messages and the reference.

use crate::ir::{Layout, Precision};

/// What a scheme is and supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemeInfo {
    /// Where the algorithm is from.
    pub source: Source,
    /// Whether the planner chooses it by itself. An opt-in scheme is published and slower nearly everywhere: it is used if a config
    /// names it, with `tiles: paper`, or for problems that no default scheme supports.
    pub is_default: bool,
    /// Whether it computes all factors of a factorised layer in one launch.
    pub fuses_factors: bool,
    /// The problems that it supports, for the reference.
    pub problems: &'static str,
    /// Precisions that change its arithmetic; in the others it computes in fp32.
    pub precisions: &'static [Precision],
    /// Layout of its activations; `convert` has both.
    pub layout: Layout,
    /// Whether it supports `reduce: atomic`.
    pub atomic: bool,
    /// How `tiles: paper` chooses its tile.
    pub published_tiles: Option<PublishedTiles>,
}

/// Where an algorithm is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// This project, or common knowledge.
    Own,
    /// A publication.
    Published(&'static str),
}

/// A published rule for tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishedTiles {
    /// TDC paper, sections 5.3 to 5.5.
    Tdc,
    /// Stride-fixed paper, section 3.1.
    SingleChannel,
    /// Stride-fixed paper, section 3.2.
    StrideFixed,
}

impl SchemeInfo {
    /// A default scheme of our own for some problems, in fp32 and NCHW.
    pub const fn own(problems: &'static str) -> Self {
        Self {
            source: Source::Own,
            is_default: true,
            fuses_factors: false,
            problems,
            precisions: &[Precision::Fp32],
            layout: Layout::Nchw,
            atomic: false,
            published_tiles: None,
        }
    }

    /// An opt-in scheme from a publication.
    pub const fn published(source: &'static str, problems: &'static str) -> Self {
        Self {
            source: Source::Published(source),
            is_default: false,
            ..Self::own(problems)
        }
    }
}
