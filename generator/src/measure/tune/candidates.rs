//! Which schemes and tiles are measured for a problem.

use crate::gpu::Gpu;
use crate::ir::Problem;
use crate::plan::{Planner, problem_label};
use crate::scheme::{SCHEMES, Scheme, Tile};
use crate::verify::Random;
use std::fmt;
use tdc_runtime::Checksum;

/// A candidate: a scheme with a tile.
#[derive(Clone)]
pub struct Candidate {
    /// The scheme.
    pub scheme: &'static dyn Scheme,
    /// The tile.
    pub tile: Tile,
}

impl Candidate {
    /// The tile's label.
    pub fn label(&self) -> String {
        self.tile.label(self.scheme.tile_fields()).to_string()
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.scheme.name(), self.label())
    }
}

/// Number of tiles of a scheme to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// All that fit the GPU.
    All,
    /// Only the scheme and tile that the cost model chooses.
    Chosen,
    /// Some; the choice depends on the problem, the scheme and these numbers only.
    Some {
        /// Tiles with the least predicted times.
        top: usize,
        /// Further tiles at random.
        random: usize,
    },
}

/// The candidates of a problem, scheme by scheme unless only the chosen one is selected: those of `schemes`, or the default schemes if it is empty,
/// or all others if no default scheme supports the problem. The tiles of a scheme are sorted by predicted
/// time, random ones last: fast tiles are measured early, so that a quick time is enough for most of the
/// others.
pub fn candidates(
    problem: &Problem,
    gpu: &'static Gpu,
    schemes: &[&'static dyn Scheme],
    selection: Selection,
) -> Vec<Candidate> {
    if selection == Selection::Chosen {
        let choice = Planner::new(gpu).choose("", problem, None, None).ok();
        let candidate = choice.map(|choice| Candidate {
            scheme: choice.scheme,
            tile: choice.tile,
        });
        return candidate.into_iter().collect();
    }
    if !schemes.is_empty() {
        return of_schemes(problem, gpu, schemes, selection);
    }
    let (default, others): (Vec<_>, Vec<_>) =
        SCHEMES.iter().partition(|scheme| scheme.is_default());
    match of_schemes(problem, gpu, &default, selection) {
        none if none.is_empty() => of_schemes(problem, gpu, &others, selection),
        found => found,
    }
}

fn of_schemes(
    problem: &Problem,
    gpu: &'static Gpu,
    schemes: &[&'static dyn Scheme],
    selection: Selection,
) -> Vec<Candidate> {
    let planner = Planner::new(gpu);
    let mut found = Vec::new();
    for &scheme in schemes {
        let tiles = scheme.tiles(problem, gpu).into_iter();
        let mut tiles: Vec<_> = tiles
            .map(|tile| (planner.predicted_us(problem, scheme, &tile), tile))
            .filter(|(us, _)| us.is_finite())
            .collect();
        tiles.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        if let Selection::Some { top, random } = selection {
            let name = format!("{} {}", problem_label(problem), scheme.name());
            let mut numbers = Random::new(Checksum::of(name.as_bytes()));
            let top = top.min(tiles.len());
            let end = top.saturating_add(random).min(tiles.len());
            for index in top..end {
                let other = index + numbers.below((tiles.len() - index) as u64) as usize;
                tiles.swap(index, other);
            }
            tiles.truncate(end);
        }
        found.extend(
            tiles
                .into_iter()
                .map(|(_, tile)| Candidate { scheme, tile }),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{ConvProblem, Reduce};
    use crate::scheme::scheme;
    use tdc_runtime::ConvShape;

    fn problem(reduce: Reduce) -> Problem {
        Problem::Conv(ConvProblem {
            reduce,
            ..ConvProblem::new(ConvShape::new(13, 17, 9, 11, 3, 3))
        })
    }

    fn names(selection: Selection, schemes: &[&'static dyn Scheme]) -> Vec<String> {
        let h200 = gpu("h200").unwrap();
        let found = candidates(&problem(Reduce::Ordered), h200, schemes, selection);
        found.iter().map(|found| format!("{found:?}")).collect()
    }

    #[test]
    fn top_by_predicted_time_then_random() {
        let h200 = gpu("h200").unwrap();
        let direct = scheme("direct").unwrap();
        let all = names(Selection::All, &[direct]);
        assert_eq!(
            all.len(),
            direct.tiles(&problem(Reduce::Ordered), h200).len()
        );
        let some = Selection::Some { top: 5, random: 7 };
        let found = names(some, &[direct]);
        let chosen = names(Selection::Chosen, &[]);
        assert_eq!(chosen.len(), 1);
        assert!(names(Selection::Some { top: 1, random: 0 }, &[]).contains(&chosen[0]));
        assert_eq!(found.len(), 12);
        assert_eq!(found[..5], all[..5]);
        assert!(found[5..].iter().all(|name| all[5..].contains(name)));
        let mut distinct = found.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), found.len());
        // The same choice every time, a separate one for each scheme, and never more tiles than exist.
        assert_eq!(names(some, &[direct]), found);
        let both = names(some, &[scheme("tdc").unwrap(), direct]);
        assert_eq!(both.len(), 24);
        assert_eq!(both[12..], found);
        let random = Selection::Some { top: 0, random: 6 };
        assert!(names(random, &[direct]) != all[..6]);
        let most = Selection::Some {
            top: 3,
            random: usize::MAX,
        };
        assert_eq!(names(most, &[direct]).len(), all.len());
        assert!(names(Selection::Some { top: 0, random: 0 }, &[]).is_empty());
    }

    #[test]
    fn opt_in_schemes_are_used_where_no_default_supports_the_problem() {
        let h200 = gpu("h200").unwrap();
        let found = candidates(&problem(Reduce::Atomic), h200, &[], Selection::All);
        assert!(!found.is_empty());
        assert!(found.iter().all(|found| !found.scheme.is_default()));
        let pointwise = [scheme("pointwise").unwrap()];
        let none = candidates(&problem(Reduce::Ordered), h200, &pointwise, Selection::All);
        assert!(none.is_empty());
    }
}
