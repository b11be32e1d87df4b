//! The choice of scheme and tile for one problem.

#[cfg(feature = "compress")]
use super::correction::Correction;
use super::error::PlanError;
use super::launch::LaunchPrediction;
use super::name::{problem_label, unit_name};
use super::paper::{self, PaperPrediction};
use super::prefetch;
use super::resources::known_registers;
use super::tuning::{TuningTable, committed_tuning, tuning_keys};
use crate::cost::memset_us;
use crate::gpu::Gpu;
use crate::ir::{Layout, Problem, TilePolicy};
use crate::scheme::{
    PublishedTiles, SCHEMES, Scheme, SchemeInfo, Tile, TileSearch, scheme, tile_names,
};
use crate::suggest::nearest;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
#[cfg(feature = "compress")]
use std::sync::Arc;
use tdc_runtime::WeightLayout;

/// How scheme and tile were chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChosenBy {
    /// By the cost model.
    Model,
    /// By the equations of the paper that the scheme is from: TDC, or stride-fixed blocks.
    Paper,
    /// By the table of measured times.
    Tuned,
    /// By the config, which requests scheme and tile.
    User,
}

impl ChosenBy {
    /// Name in `plan.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Paper => "paper",
            Self::Tuned => "tuned",
            Self::User => "user",
        }
    }
}

/// Scheme and tile for a problem.
#[derive(Clone)]
pub struct Choice {
    /// The algorithm.
    pub scheme: &'static dyn Scheme,
    /// The tile.
    pub tile: Tile,
    /// How the tile was chosen.
    pub chosen_by: ChosenBy,
    /// Predicted time, microseconds.
    pub predicted_us: f64,
    /// Measured time, microseconds, if tiles are tuned and the table has it.
    pub measured_us: Option<f64>,
}

/// A problem with the scheme and tile that the config requests.
type ChoiceKey = (Problem, Option<String>, Option<Vec<u32>>);

/// Chooses scheme and tile for problems, and remembers the choices.
pub struct Planner {
    gpu: &'static Gpu,
    tiles: TilePolicy,
    /// Replaces the committed table of its GPU.
    table: Option<TuningTable>,
    /// Errors name the layer that had the problem first.
    choices: HashMap<ChoiceKey, Result<Choice, PlanError>>,
    /// Applied to predicted times of chosen tiles.
    #[cfg(feature = "compress")]
    correction: Arc<Correction>,
}

impl Planner {
    /// A planner for one GPU that chooses by the cost model.
    pub fn new(gpu: &'static Gpu) -> Self {
        Self {
            gpu,
            tiles: TilePolicy::Model,
            table: None,
            choices: HashMap::new(),
            #[cfg(feature = "compress")]
            correction: Arc::default(),
        }
    }

    /// The same with another tile policy.
    pub fn with_tile_policy(self, tiles: TilePolicy) -> Self {
        Self { tiles, ..self }
    }

    /// The same with this table instead of the committed one. It is used if tiles are tuned and it is a table of the planner's GPU.
    pub fn with_table(self, table: TuningTable) -> Self {
        Self {
            table: Some(table),
            ..self
        }
    }

    /// The same with corrected times of the tiles that it chooses.
    #[cfg(feature = "compress")]
    pub(crate) fn with_correction(self, correction: Arc<Correction>) -> Self {
        Self { correction, ..self }
    }

    /// The tuning table of this GPU; `None` if tiles are not tuned or there is none.
    fn table(&self) -> Option<&TuningTable> {
        if self.tiles != TilePolicy::Tuned {
            return None;
        }
        let own = self.table.as_ref();
        own.filter(|table| table.environment().gpu == self.gpu.name)
            .or_else(|| committed_tuning(self.gpu))
    }

    /// The tile policy.
    pub fn tile_policy(&self) -> TilePolicy {
        self.tiles
    }

    /// The GPU planned for.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Scheme and tile for a problem. Errors name `layer`; `scheme` and `tile` are those that the config requests.
    ///
    /// # Errors
    /// [`PlanError`] if the requested scheme and tile are not valid for the problem or no scheme supports it.
    pub fn choose(
        &mut self,
        layer: &str,
        problem: &Problem,
        scheme: Option<&str>,
        tile: Option<&[u32]>,
    ) -> Result<Choice, PlanError> {
        let key = (
            *problem,
            scheme.map(str::to_owned),
            tile.map(<[u32]>::to_vec),
        );
        if let Some(choice) = self.choices.get(&key) {
            return choice.clone().map_err(|error| PlanError {
                layer: layer.to_owned(),
                ..error
            });
        }
        let mut choice = self.choose_uncached(layer, problem, scheme, tile);
        if let Ok(choice) = &mut choice {
            choice.measured_us = self.measured_us(problem, choice);
            #[cfg(feature = "compress")]
            {
                choice.predicted_us = self.correction.us(problem, choice.predicted_us);
            }
        }
        self.choices.insert(key, choice.clone());
        choice
    }

    /// The least measured time of a problem, microseconds; `None` if tiles are not tuned or the table has none.
    pub fn best_measured_us(&self, problem: &Problem) -> Option<f64> {
        self.measured_us(problem, &self.by_tuning_table(problem, None)?)
    }

    /// Predicted time of all steps, microseconds; infinite if a block does not fit the GPU.
    pub fn predicted_us(&self, problem: &Problem, scheme: &dyn Scheme, tile: &Tile) -> f64 {
        let unit = unit_name(problem, scheme, tile);
        let work = scheme.work(problem, tile, self.gpu);
        let memset = work
            .zeroed_bytes
            .map_or(0.0, |bytes| memset_us(bytes, self.gpu));
        let launches = work.launches.iter();
        let launches = launches.map(|launch| LaunchPrediction::new(&unit, launch, self.gpu).us);
        memset + launches.sum::<f64>()
    }

    /// The choice of the tile that the config requests; `None` if the scheme has no tile for the problem.
    fn by_user(
        &self,
        layer: &str,
        problem: &Problem,
        scheme: &'static dyn Scheme,
        requested: &[u32],
    ) -> Result<Option<Choice>, PlanError> {
        let tile = Tile(requested.to_vec());
        if !scheme.supports(problem, &tile, self.gpu) {
            let tiles = scheme.tiles(problem, self.gpu);
            let Some(example) = tiles.first() else {
                return Ok(None);
            };
            return Err(PlanError::new(
                layer,
                Some("tile"),
                format!(
                    "tile {:?} is not one of scheme `{}` for {}",
                    tile.0,
                    scheme.name(),
                    problem_label(problem)
                ),
                format!(
                    "its numbers are [{}], for example {:?}",
                    tile_names(scheme.tile_fields()),
                    example.0
                ),
            ));
        }
        Ok(Some(Choice {
            predicted_us: self.predicted_us(problem, scheme, &tile),
            scheme,
            tile,
            chosen_by: ChosenBy::User,
            measured_us: None,
        }))
    }

    /// The choice by the equations of a scheme's paper; `None` without `tiles: paper` or if the paper does not cover the problem. If no
    /// scheme is requested, it is TDC's, for filters larger than 1x1: the paper leaves 1x1 convolutions to other libraries.
    fn by_paper(
        &self,
        problem: &Problem,
        requested: Option<&'static dyn Scheme>,
    ) -> Option<Choice> {
        let Problem::Conv(conv) = problem else {
            return None;
        };
        let shape = &conv.shape;
        let scheme = match requested {
            Some(scheme) => scheme,
            None if (shape.r, shape.s) == (1, 1) => return None,
            None => *published_by_tdc()?,
        };
        if self.tiles != TilePolicy::Paper {
            return None;
        }
        if let Some(tile) = prefetch::published_tile(scheme.info().published_tiles, shape, self.gpu)
        {
            if !scheme.supports(problem, &tile, self.gpu) {
                return None;
            }
            let predicted_us = self.predicted_us(problem, scheme, &tile);
            return predicted_us.is_finite().then_some(Choice {
                predicted_us,
                scheme,
                tile,
                chosen_by: ChosenBy::Paper,
                measured_us: None,
            });
        }
        if scheme.info().published_tiles != Some(PublishedTiles::Tdc) {
            return None;
        }
        let (mut tiles, mut predictions) = (Vec::new(), Vec::new());
        for tile in scheme.tiles(problem, self.gpu) {
            let unit = unit_name(problem, scheme, &tile);
            let work = scheme.work(problem, &tile, self.gpu);
            let launch = LaunchPrediction::new(&unit, work.launches.first()?, self.gpu);
            let &[h, w, c] = &tile.0[..] else {
                return None;
            };
            if launch.us.is_finite() {
                let occupancy = launch.occupancy.fraction;
                predictions.push(PaperPrediction::new(shape, [h, w, c], occupancy, self.gpu));
                tiles.push(tile);
            }
        }
        let chosen = paper::choose(&predictions, self.gpu.paper_candidate_fraction)?;
        let tile = tiles.swap_remove(chosen);
        Some(Choice {
            predicted_us: self.predicted_us(problem, scheme, &tile),
            scheme,
            tile,
            chosen_by: ChosenBy::Paper,
            measured_us: None,
        })
    }

    /// The choice with the least measured time, of the requested scheme or of all. A row is ignored if its scheme does not exist any more
    /// or does not support its tile, or if the tile does not fit the GPU.
    fn by_tuning_table(
        &self,
        problem: &Problem,
        requested: Option<&'static dyn Scheme>,
    ) -> Option<Choice> {
        let table = self.table()?;
        tuning_keys(problem)
            .iter()
            .find_map(|key| self.fastest_row(table, key, problem, requested))
    }

    /// The fastest row of one key.
    fn fastest_row(
        &self,
        table: &TuningTable,
        key: &str,
        problem: &Problem,
        requested: Option<&'static dyn Scheme>,
    ) -> Option<Choice> {
        let mut rows: Vec<_> = table
            .rows_for(key)
            .filter_map(|(name, measured)| Some((scheme(name)?, measured)))
            .filter(|(scheme, _)| {
                requested.is_none_or(|requested| requested.name() == scheme.name())
            })
            .collect();
        rows.sort_by(|(_, a), (_, b)| a.us.total_cmp(&b.us));
        rows.into_iter().find_map(|(scheme, measured)| {
            let tile = Tile::from_label(&measured.tile, scheme.tile_fields())?;
            // The tile need not be in the scheme's tile space, which is pruned by rough times: a measured time is more reliable.
            if !scheme.supports(problem, &tile, self.gpu) {
                return None;
            }
            let predicted_us = self.predicted_us(problem, scheme, &tile);
            predicted_us.is_finite().then_some(Choice {
                scheme,
                tile,
                chosen_by: ChosenBy::Tuned,
                predicted_us,
                measured_us: None,
            })
        })
    }

    /// The measured time of a choice, regardless of how it was chosen.
    fn measured_us(&self, problem: &Problem, choice: &Choice) -> Option<f64> {
        let tile = choice.tile.label(choice.scheme.tile_fields()).to_string();
        let table = self.table()?;
        tuning_keys(problem).iter().find_map(|key| {
            let mut rows = table.rows_for(key);
            let row =
                rows.find(|(scheme, row)| *scheme == choice.scheme.name() && row.tile == tile);
            row.map(|(_, measured)| measured.us)
        })
    }

    /// The tile with the least predicted time. Of schemes with equal times the first one is chosen.
    fn by_model(&self, problem: &Problem, schemes: &[&'static dyn Scheme]) -> Option<Choice> {
        let label = problem_label(problem);
        let mut best: Option<Choice> = None;
        for &scheme in schemes {
            let limit_us = best
                .as_ref()
                .map_or(f64::INFINITY, |best| best.predicted_us);
            let known = known_registers(&label, scheme, self.gpu.arch);
            let mut search = TileSearch::new(self.gpu, &known, limit_us);
            scheme.search(problem, &mut search);
            if let Some((predicted_us, tile)) = search.best() {
                best = Some(Choice {
                    scheme,
                    tile,
                    chosen_by: ChosenBy::Model,
                    predicted_us,
                    measured_us: None,
                });
            }
        }
        best
    }

    /// The default scheme and tile with the least predicted time, at most `limit_us`, whose weights have the given layouts.
    pub(super) fn choose_with_layouts(
        &self,
        problem: &Problem,
        layouts: &[WeightLayout],
        limit_us: f64,
    ) -> Option<Choice> {
        let default = SCHEMES
            .iter()
            .filter(|scheme| scheme.is_considered(problem, self.gpu));
        let tiles = default.flat_map(|&scheme| {
            let tiles = scheme.tiles(problem, self.gpu).into_iter();
            tiles.map(move |tile| (self.predicted_us(problem, scheme, &tile), scheme, tile))
        });
        let mut tiles: Vec<_> = tiles.filter(|(us, ..)| *us <= limit_us).collect();
        tiles.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
        let (predicted_us, scheme, tile) = tiles.into_iter().find(|(_, scheme, tile)| {
            let blueprint = scheme.blueprint(problem, tile, self.gpu);
            std::iter::once(&blueprint.weights)
                .chain(&blueprint.extra_weight_layouts)
                .eq(layouts)
        })?;
        let mut choice = Choice {
            scheme,
            tile,
            chosen_by: ChosenBy::Model,
            predicted_us,
            measured_us: None,
        };
        choice.measured_us = self.measured_us(problem, &choice);
        Some(choice)
    }

    fn choose_uncached(
        &self,
        layer: &str,
        problem: &Problem,
        requested_scheme: Option<&str>,
        requested_tile: Option<&[u32]>,
    ) -> Result<Choice, PlanError> {
        let requested = match requested_scheme {
            Some(name) => Some(scheme(name).ok_or_else(|| unknown_scheme(layer, name))?),
            None => None,
        };
        let choice = match (requested, requested_tile) {
            (None, Some(_)) => {
                return Err(PlanError::new(
                    layer,
                    Some("tile"),
                    "`tile` is given without `scheme`",
                    "add the scheme that the tile belongs to",
                ));
            }
            (Some(scheme), Some(tile)) => self.by_user(layer, problem, scheme, tile)?,
            (Some(scheme), None) => self
                .by_paper(problem, Some(scheme))
                .or_else(|| self.by_tuning_table(problem, Some(scheme)))
                .or_else(|| self.by_model(problem, &[scheme])),
            (None, None) => {
                let (default, others): (Vec<_>, Vec<_>) = SCHEMES
                    .iter()
                    .partition(|scheme| scheme.is_considered(problem, self.gpu));
                self.by_paper(problem, None)
                    .or_else(|| self.by_tuning_table(problem, None))
                    .or_else(|| self.by_model(problem, &default))
                    .or_else(|| self.by_model(problem, &others))
            }
        };
        choice.ok_or_else(|| self.unsupported(layer, problem, requested_scheme))
    }

    /// The error for a problem that no scheme, or not the requested one, supports.
    fn unsupported(
        &self,
        layer: &str,
        problem: &Problem,
        requested_scheme: Option<&str>,
    ) -> PlanError {
        let label = problem_label(problem);
        let by_scheme =
            requested_scheme.map_or(String::new(), |name| format!(" by scheme `{name}`"));
        if !problem.is_deterministic() {
            return PlanError::new(
                layer,
                Some("reduce"),
                format!("`reduce: atomic` is not supported for {label}{by_scheme}"),
                format!(
                    "only schemes {} support it, for convolutions of one group with filters of moderate size",
                    names_of_schemes(|info| info.atomic)
                ),
            );
        }
        if problem.x_layout() == Layout::Hwcn {
            return PlanError::new(
                layer,
                Some("layout"),
                format!("`layout: hwcn` is not supported for {label}{by_scheme}"),
                format!(
                    "only scheme {} supports it, for convolutions of one group with up to 65535 output pixels",
                    names_of_schemes(|info| info.layout == Layout::Hwcn)
                ),
            );
        }
        match requested_scheme {
            Some(scheme) => PlanError::new(
                layer,
                Some("scheme"),
                format!("scheme `{scheme}` cannot compute {label}"),
                match is_hwcn(scheme) {
                    true => "its activations are HWCN: add `layout: hwcn`",
                    false => "remove `scheme` to let the planner choose one that can",
                },
            ),
            None => PlanError::new(
                layer,
                None,
                format!("no scheme can compute {label} on {}", self.gpu.name),
                "its sizes exceed the limits of a launch: use a smaller image or batch",
            ),
        }
    }
}

/// The first scheme of the TDC paper.
fn published_by_tdc() -> Option<&'static &'static dyn Scheme> {
    let mut schemes = SCHEMES.iter();
    schemes.find(|scheme| scheme.info().published_tiles == Some(PublishedTiles::Tdc))
}

/// Names of the schemes that satisfy a predicate, for messages.
fn names_of_schemes(holds: impl Fn(&SchemeInfo) -> bool) -> String {
    let schemes = SCHEMES.iter().filter(|scheme| holds(&scheme.info()));
    let names: Vec<_> = schemes
        .map(|scheme| format!("`{}`", scheme.name()))
        .collect();
    names.join(" and ")
}

/// Whether a scheme of this name has HWCN activation tensors.
fn is_hwcn(name: &str) -> bool {
    scheme(name).is_some_and(|scheme| scheme.info().layout == Layout::Hwcn)
}

fn unknown_scheme(layer: &str, name: &str) -> PlanError {
    let names = SCHEMES.iter().map(|scheme| scheme.name());
    let help = match nearest(name, names.clone()) {
        Some(known) => format!("did you mean `{known}`?"),
        None => format!("known are {}", names.collect::<Vec<_>>().join(", ")),
    };
    PlanError::new(
        layer,
        Some("scheme"),
        format!("there is no scheme named `{name}`"),
        help,
    )
}
