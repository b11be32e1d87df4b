//! The generated units that are measured for a problem: the planner's choices and further tiles.

use super::{BenchProblem, NamedTile};
use crate::gpu::Gpu;
use crate::ir::{Problem, Reduce, TilePolicy};
use crate::measure::tune::{Selection, candidates as ranked_tiles};
use crate::plan::{
    ChosenBy, KERNEL_PREFIX, PlanError, PlannedUnit, Planner, TuningTable, plan_problem,
};
use crate::scheme::SCHEMES;

/// A unit to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The unit, with the source that `kernel!` would embed.
    pub unit: PlannedUnit,
    /// What selected it: the labels of named tiles; `tuned` for the fastest row of the tuning table and
    /// `model` for the least predicted time, both among default schemes; `scheme_tuned`, `scheme_model` and
    /// `scheme_paper` for the choice of the tuning table, the cost model and the TDC paper within its scheme.
    /// Empty for any other tile.
    pub selected_by: Vec<String>,
}

/// A named tile that the planner rejects.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectedTile {
    /// The named tile.
    pub named: NamedTile,
    /// The planner's reason.
    pub reason: PlanError,
}

/// The units to measure for a problem, without duplicates. First come the named tiles, then the choices of
/// the tuning table and of the cost model among all schemes, then for each scheme and each of its `reduce`
/// modes the choices of the table, the cost model and, if there is one, the paper. Of each scheme `tiles`
/// tiles are added: three quarters those with the least predicted times, the rest at random, so that the cost
/// model is tested too.
///
/// `schemes` restricts the schemes; empty means all. `table` replaces the committed table of the GPU.
pub fn candidates(
    gpu: &'static Gpu,
    problem: &BenchProblem,
    schemes: &[String],
    tiles: usize,
    table: Option<&TuningTable>,
) -> (Vec<Candidate>, Vec<RejectedTile>) {
    let counts = |name: &str| schemes.is_empty() || schemes.iter().any(|scheme| scheme == name);
    let by = |tiles| {
        let planner = Planner::new(gpu).with_tile_policy(tiles);
        match table {
            Some(table) => planner.with_table(table.clone()),
            None => planner,
        }
    };
    let (mut model, mut paper, mut tuned) = (
        by(TilePolicy::Model),
        by(TilePolicy::Paper),
        by(TilePolicy::Tuned),
    );
    let mut found = Candidates(Vec::new());
    let mut rejected = Vec::new();
    for named in problem.named.iter().filter(|named| counts(&named.scheme)) {
        let conv = problem.to_problem(named.reduce);
        match planned(&mut model, &conv, Some(&named.scheme), Some(&named.tile)) {
            Ok(unit) => found.add(unit, Some(&named.label)),
            Err(reason) => rejected.push(RejectedTile {
                named: named.clone(),
                reason,
            }),
        }
    }
    let conv = problem.to_problem(Reduce::Ordered);
    for (planner, chooser) in [(&mut tuned, ChosenBy::Tuned), (&mut model, ChosenBy::Model)] {
        if let Ok(unit) = planned(planner, &conv, None, None)
            && unit.chosen_by == chooser
            && counts(unit.scheme)
        {
            found.add(unit, Some(chooser.as_str()));
        }
    }
    let tiles = tiles.max(1);
    let selection = Selection::Some {
        top: tiles - tiles / 4,
        random: tiles / 4,
    };
    for &scheme in SCHEMES.iter().filter(|scheme| counts(scheme.name())) {
        for (_, reduce) in Reduce::NAMES {
            let conv = problem.to_problem(reduce);
            let ranked = ranked_tiles(&conv, gpu, &[scheme], selection);
            for (index, candidate) in ranked.iter().enumerate() {
                let tile = Some(&candidate.tile.0[..]);
                if let Ok(unit) = planned(&mut model, &conv, Some(scheme.name()), tile) {
                    found.add(unit, (index == 0).then_some("scheme_model"));
                }
            }
            for (planner, chooser, pick) in [
                (&mut tuned, ChosenBy::Tuned, "scheme_tuned"),
                (&mut paper, ChosenBy::Paper, "scheme_paper"),
            ] {
                if let Ok(unit) = planned(planner, &conv, Some(scheme.name()), None)
                    && unit.chosen_by == chooser
                {
                    found.add(unit, Some(pick));
                }
            }
        }
    }
    (found.0, rejected)
}

/// Candidates without duplicates.
struct Candidates(Vec<Candidate>);

impl Candidates {
    fn add(&mut self, unit: PlannedUnit, pick: Option<&str>) {
        let known = self
            .0
            .iter_mut()
            .find(|known| known.unit.unit.name == unit.unit.name);
        let selected_by = match known {
            Some(known) => &mut known.selected_by,
            None => {
                self.0.push(Candidate {
                    unit,
                    selected_by: Vec::new(),
                });
                let last = self.0.len() - 1;
                &mut self.0[last].selected_by
            }
        };
        if let Some(pick) = pick
            && !selected_by.iter().any(|known| known == pick)
        {
            selected_by.push(pick.to_owned());
        }
    }
}

fn planned(
    planner: &mut Planner,
    problem: &Problem,
    scheme: Option<&str>,
    tile: Option<&[u32]>,
) -> Result<PlannedUnit, PlanError> {
    plan_problem(planner, KERNEL_PREFIX, "convolution", problem, scheme, tile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{Layout, Precision, Tolerance};
    use crate::measure::bench::shape_label;
    use tdc_runtime::{ConvShape, Padding};

    fn problem(shape: ConvShape, named: Vec<NamedTile>) -> BenchProblem {
        BenchProblem {
            label: shape_label(&shape),
            shape,
            cp_rank: None,
            precision: Precision::default(),
            tolerance: Tolerance::default(),
            layout: Layout::default(),
            named,
            plan_chosen_by: None,
        }
    }

    fn core_shape() -> ConvShape {
        ConvShape {
            padding: Padding::all(1),
            ..ConvShape::new(13, 20, 9, 7, 3, 3)
        }
    }

    #[test]
    fn every_supporting_scheme_has_the_model_tile() {
        let h200 = gpu("h200").unwrap();
        let (found, rejected) = candidates(h200, &problem(core_shape(), vec![]), &[], 1, None);
        assert!(rejected.is_empty());
        for (scheme, reduce) in [
            ("direct", Reduce::Ordered),
            ("tdc", Reduce::Ordered),
            ("tdc", Reduce::Atomic),
            ("tdc_rows", Reduce::Atomic),
        ] {
            let conv = problem(core_shape(), vec![]).to_problem(reduce);
            let choice = Planner::new(h200).choose("layer", &conv, Some(scheme), None);
            let tile = choice.unwrap().tile;
            let same = |candidate: &&Candidate| {
                candidate.unit.scheme == scheme && candidate.unit.problem == conv
            };
            let mut of_scheme = found.iter().filter(same);
            let selected = of_scheme
                .find(|candidate| candidate.selected_by.contains(&"scheme_model".to_owned()));
            assert_eq!(selected.unwrap().unit.tile, tile, "{scheme} {reduce:?}");
        }
        let pointwise = found.iter().any(|found| found.unit.scheme == "pointwise");
        assert!(!pointwise, "a 3x3 filter is not pointwise");
        let by_paper =
            |candidate: &&Candidate| candidate.selected_by.contains(&"scheme_paper".to_owned());
        assert!(found.iter().filter(by_paper).count() >= 2);
    }

    #[test]
    fn named_tiles_come_first_and_once() {
        let h200 = gpu("h200").unwrap();
        let conv = problem(core_shape(), vec![]).to_problem(Reduce::Ordered);
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
            named("mine", choice.tile.0.clone()),
            named("mine", vec![1, 2, 3]),
        ];
        let schemes = ["direct".to_owned()];
        let (found, rejected) = candidates(h200, &problem(core_shape(), tiles), &schemes, 5, None);
        assert_eq!(found[0].selected_by, ["plan", "mine", "scheme_model"]);
        assert_eq!(found.len(), 5);
        assert_eq!(rejected.len(), 1);
        assert!(rejected[0].reason.to_string().contains("[1, 2, 3]"));
        let names: std::collections::HashSet<_> =
            found.iter().map(|found| &found.unit.unit.name).collect();
        assert_eq!(names.len(), found.len());
    }

    #[test]
    fn a_quarter_is_taken_at_random() {
        let h200 = gpu("h200").unwrap();
        let schemes = ["direct".to_owned()];
        let names = |tiles| -> Vec<String> {
            let (found, _) =
                candidates(h200, &problem(core_shape(), vec![]), &schemes, tiles, None);
            found
                .into_iter()
                .map(|found| found.unit.unit.name.into_owned())
                .collect()
        };
        let ranked = names(usize::MAX);
        let selected = names(8);
        assert!(ranked.len() > 20 && selected.len() == 8);
        let mut best = ranked.iter().take(6);
        assert!(best.all(|name| selected[..6].contains(name)));
        assert!(selected[6..].iter().all(|name| !ranked[..6].contains(name)));
        assert_eq!(selected, names(8));
    }

    #[test]
    fn table_and_model_both_add_candidates() {
        let h200 = gpu("h200").unwrap();
        let conv = problem(core_shape(), vec![]).to_problem(Reduce::Ordered);
        // The tile with the greatest predicted time.
        let tile_of = |scheme: &str| {
            let scheme = crate::scheme::scheme(scheme).unwrap();
            let ranked = ranked_tiles(&conv, h200, &[scheme], Selection::All);
            ranked.last().unwrap().label()
        };
        let table = format!(
            "gpu: h200\ndevice: NVIDIA H200\ndriver: 1\nnvrtc: 13.0\ngenerator: 1\n\
             {key} direct {} 2.5 {text}\n{key} tdc {} 1.5 {text}\n",
            tile_of("direct"),
            tile_of("tdc"),
            key = crate::plan::tuning_key(&conv),
            text = "0123456789abcdef",
        );
        let table: TuningTable = table.parse().unwrap();
        let selected_by = |schemes: &[String]| -> Vec<(&str, Vec<String>)> {
            let bench = problem(core_shape(), vec![]);
            let (found, _) = candidates(h200, &bench, schemes, 1, Some(&table));
            let of_unit = |found: Candidate| (found.unit.scheme, found.selected_by);
            found.into_iter().map(of_unit).collect()
        };
        let all = selected_by(&[]);
        assert_eq!(all[0].0, "tdc", "{all:?}");
        assert_eq!(all[0].1, ["tuned", "scheme_tuned"]);
        assert_eq!(all[1].1, ["model", "scheme_model"]);
        let direct = selected_by(&["direct".to_owned()]);
        assert!(direct.contains(&("direct", vec!["scheme_tuned".to_owned()])));
        assert!(
            !direct
                .iter()
                .any(|(_, selected_by)| selected_by.contains(&"tuned".to_owned()))
        );
    }
}
