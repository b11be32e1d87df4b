//! Our units for one problem: what planners pick, and tiles beside that.

use super::{BenchProblem, NamedTile};
use crate::check::Random;
use crate::gpu::Gpu;
use crate::plan::{ChosenBy, PlanError, PlannedUnit, Planner, plan_problem};
use crate::scheme::SCHEMES;
use crate::spec::{Problem, Reduce, Tiles};

/// A unit to be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// What will run; its symbols begin with `bench`.
    pub unit: PlannedUnit,
    /// Who chose it: labels of named tiles, `model` for the scheme's smallest estimate, `paper` for the TDC paper's choice. Empty
    /// for a tile that is only tried.
    pub picks: Vec<String>,
}

/// A named tile that the planner refuses.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// What was named.
    pub named: NamedTile,
    /// The planner's reason.
    pub reason: PlanError,
}

/// The units for a problem, without repetitions: the named tiles first, then for each scheme and each way to add partial sums that
/// it knows the tile with the smallest estimate and the paper's, where the scheme is one of the paper. Of each scheme `tiles` tiles
/// are taken: three quarters those with the smallest estimates, the others at random, so that the estimate is judged too.
///
/// `schemes` names the schemes that count; all do when it is empty.
pub fn candidates(
    gpu: &'static Gpu,
    problem: &BenchProblem,
    schemes: &[String],
    tiles: usize,
) -> (Vec<Candidate>, Vec<Refusal>) {
    let counts = |name: &str| schemes.is_empty() || schemes.iter().any(|scheme| scheme == name);
    let mut by_model = Planner::new(gpu);
    let mut by_paper = Planner::new(gpu).with_tiles(Tiles::Paper);
    let mut found = Candidates(Vec::new());
    let mut refused = Vec::new();
    for named in problem.named.iter().filter(|named| counts(&named.scheme)) {
        let conv = problem.conv(named.reduce);
        match planned(&mut by_model, &conv, &named.scheme, Some(&named.tile)) {
            Ok(unit) => found.add(unit, Some(&named.label)),
            Err(reason) => refused.push(Refusal {
                named: named.clone(),
                reason,
            }),
        }
    }
    let mut random = Random::new(1);
    for scheme in SCHEMES.iter().filter(|scheme| counts(scheme.name())) {
        for (_, reduce) in Reduce::WORDS {
            let conv = problem.conv(reduce);
            let ranked = ranked_tiles(&mut by_model, &conv, scheme.name());
            let picked = mixed(ranked, tiles.max(1), &mut random);
            for (index, tile) in picked.iter().enumerate() {
                if let Ok(unit) = planned(&mut by_model, &conv, scheme.name(), Some(tile)) {
                    found.add(unit, (index == 0).then_some("model"));
                }
            }
            if let Ok(unit) = planned(&mut by_paper, &conv, scheme.name(), None)
                && unit.chosen_by == ChosenBy::Paper
            {
                found.add(unit, Some("paper"));
            }
        }
    }
    (found.0, refused)
}

/// Candidates without repetitions.
struct Candidates(Vec<Candidate>);

impl Candidates {
    fn add(&mut self, unit: PlannedUnit, pick: Option<&str>) {
        let known = self
            .0
            .iter_mut()
            .find(|known| known.unit.unit.name == unit.unit.name);
        let picks = match known {
            Some(known) => &mut known.picks,
            None => {
                self.0.push(Candidate {
                    unit,
                    picks: Vec::new(),
                });
                let last = self.0.len() - 1;
                &mut self.0[last].picks
            }
        };
        if let Some(pick) = pick
            && !picks.iter().any(|known| known == pick)
        {
            picks.push(pick.to_owned());
        }
    }
}

fn planned(
    planner: &mut Planner,
    problem: &Problem,
    scheme: &str,
    tile: Option<&[u32]>,
) -> Result<PlannedUnit, PlanError> {
    plan_problem(planner, "bench", "convolution", problem, Some(scheme), tile)
}

/// Every tile of a scheme that fits the GPU, by its estimate.
fn ranked_tiles(planner: &mut Planner, problem: &Problem, name: &str) -> Vec<Vec<u32>> {
    let Some(scheme) = SCHEMES.iter().find(|scheme| scheme.name() == name) else {
        return Vec::new();
    };
    let mut ranked: Vec<(f64, Vec<u32>)> = scheme
        .tiles(problem)
        .into_iter()
        .filter_map(|tile| {
            let choice = planner.choose("convolution", problem, Some(name), Some(&tile.0));
            Some((choice.ok()?.estimate_us, tile.0))
        })
        .filter(|(us, _)| us.is_finite())
        .collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    ranked.into_iter().map(|(_, tile)| tile).collect()
}

/// `count` of the ranked: the first three quarters of them from the front, the others at random out of the rest.
fn mixed(mut ranked: Vec<Vec<u32>>, count: usize, random: &mut Random) -> Vec<Vec<u32>> {
    let count = count.min(ranked.len());
    for index in count - count / 4..count {
        let other = index + random.below((ranked.len() - index) as u64) as usize;
        ranked.swap(index, other);
    }
    ranked.truncate(count);
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::shape_label;
    use crate::gpu::gpu;
    use tdc_runtime::{ConvShape, Padding};

    fn problem(shape: ConvShape, named: Vec<NamedTile>) -> BenchProblem {
        BenchProblem {
            label: shape_label(&shape),
            shape,
            named,
        }
    }

    fn core_shape() -> ConvShape {
        ConvShape {
            padding: Padding::all(1),
            ..ConvShape::new(13, 20, 9, 7, 3, 3)
        }
    }

    #[test]
    fn every_scheme_that_can_has_the_tile_of_the_model() {
        let h200 = gpu("h200").unwrap();
        let (found, refused) = candidates(h200, &problem(core_shape(), vec![]), &[], 1);
        assert!(refused.is_empty());
        for (scheme, reduce) in [
            ("direct", Reduce::Ordered),
            ("tdc", Reduce::Ordered),
            ("tdc", Reduce::Atomic),
            ("tdc_rows", Reduce::Atomic),
        ] {
            let conv = problem(core_shape(), vec![]).conv(reduce);
            let choice = Planner::new(h200).choose("layer", &conv, Some(scheme), None);
            let tile = choice.unwrap().tile;
            let same = |candidate: &&Candidate| {
                candidate.unit.scheme == scheme && candidate.unit.problem == conv
            };
            let mut of_scheme = found.iter().filter(same);
            let picked = of_scheme.find(|candidate| candidate.picks.contains(&"model".to_owned()));
            assert_eq!(picked.unwrap().unit.tile, tile, "{scheme} {reduce:?}");
        }
        let pointwise = found.iter().any(|found| found.unit.scheme == "pointwise");
        assert!(!pointwise, "a 3x3 filter is not pointwise");
        let by_paper = |candidate: &&Candidate| candidate.picks.contains(&"paper".to_owned());
        assert!(found.iter().filter(by_paper).count() >= 2);
    }

    #[test]
    fn named_tiles_come_first_and_once() {
        let h200 = gpu("h200").unwrap();
        let conv = problem(core_shape(), vec![]).conv(Reduce::Ordered);
        let choice = Planner::new(h200)
            .choose("layer", &conv, Some("direct"), None)
            .unwrap();
        let named = |label: &str, tile: Vec<u32>| NamedTile {
            label: label.to_owned(),
            scheme: "direct".to_owned(),
            tile,
            reduce: Reduce::Ordered,
        };
        let tiles = vec![
            named("plan", choice.tile.0.clone()),
            named("tuned", choice.tile.0.clone()),
            named("tuned", vec![1, 2, 3]),
        ];
        let schemes = ["direct".to_owned()];
        let (found, refused) = candidates(h200, &problem(core_shape(), tiles), &schemes, 5);
        assert_eq!(found[0].picks, ["plan", "tuned", "model"]);
        assert_eq!(found.len(), 5);
        assert_eq!(refused.len(), 1);
        assert!(refused[0].reason.to_string().contains("[1, 2, 3]"));
        let names: std::collections::HashSet<_> =
            found.iter().map(|found| &found.unit.unit.name).collect();
        assert_eq!(names.len(), found.len());
    }

    #[test]
    fn a_quarter_is_taken_at_random() {
        let ranked: Vec<Vec<u32>> = (0..100).map(|index| vec![index]).collect();
        let picked = mixed(ranked.clone(), 8, &mut Random::new(1));
        assert_eq!(picked[..6], ranked[..6]);
        assert_eq!(picked.len(), 8);
        assert!(picked[6..].iter().all(|tile| tile[0] >= 6));
        assert_ne!(picked[6], picked[7]);
        assert_eq!(mixed(ranked[..3].to_vec(), 8, &mut Random::new(1)).len(), 3);
        assert!(mixed(vec![], 8, &mut Random::new(1)).is_empty());
    }
}
