//! The choice of scheme and tile for one problem.

use super::name::{problem_label, unit_name};
use super::{LaunchEstimate, PlanError};
use crate::gpu::Gpu;
use crate::scheme::{SCHEMES, Scheme, Tile, scheme};
use crate::spec::{Problem, nearest};
use serde::Serialize;
use std::collections::HashMap;

/// Who chose scheme and tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChosenBy {
    /// The estimate of this crate.
    Model,
    /// The config named scheme and tile.
    User,
}

/// What was asked for and what came out.
#[derive(Clone)]
pub struct Choice {
    /// The algorithm.
    pub scheme: &'static dyn Scheme,
    /// Its numbers.
    pub tile: Tile,
    /// Who chose the tile.
    pub chosen_by: ChosenBy,
    /// Estimated time, microseconds.
    pub estimate_us: f64,
}

/// A request for one problem: the layer that makes it (for messages), and what the config fixes.
type Key = (Problem, Option<String>, Option<Vec<u32>>);

/// Chooses by the estimate; equal requests are answered from memory.
pub struct Planner {
    gpu: &'static Gpu,
    known: HashMap<Key, Choice>,
}

impl Planner {
    /// A planner for one GPU.
    pub fn new(gpu: &'static Gpu) -> Self {
        Self {
            gpu,
            known: HashMap::new(),
        }
    }

    /// The GPU planned for.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Scheme and tile for a problem; `layer` is named in errors, `scheme` and `tile` are the config's wishes.
    ///
    /// # Errors
    /// [`PlanError`] when a wish does not fit or nothing does.
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
        if let Some(choice) = self.known.get(&key) {
            return Ok(choice.clone());
        }
        let choice = self.choose_anew(layer, problem, scheme, tile)?;
        self.known.insert(key, choice.clone());
        Ok(choice)
    }

    /// Estimated time of all launches, microseconds.
    fn estimate_us(&self, problem: &Problem, scheme: &dyn Scheme, tile: &Tile) -> f64 {
        let unit = unit_name(problem, scheme, tile);
        scheme
            .blueprint(problem, tile)
            .kernels
            .iter()
            .map(|kernel| LaunchEstimate::new(&unit, kernel, self.gpu).us)
            .sum()
    }

    fn choose_anew(
        &self,
        layer: &str,
        problem: &Problem,
        wanted_scheme: Option<&str>,
        wanted_tile: Option<&[u32]>,
    ) -> Result<Choice, PlanError> {
        let schemes: Vec<&'static dyn Scheme> = match wanted_scheme {
            Some(name) => vec![scheme(name).ok_or_else(|| unknown_scheme(layer, name))?],
            None => SCHEMES.to_vec(),
        };
        if wanted_tile.is_some() && wanted_scheme.is_none() {
            return Err(PlanError::new(
                layer,
                Some("tile"),
                "`tile` is given without `scheme`",
                "name the scheme that the tile belongs to",
            ));
        }
        let mut best: Option<Choice> = None;
        for scheme in schemes {
            let tiles = scheme.tiles(problem);
            if let (Some(wanted), Some(example)) = (wanted_tile, tiles.first()) {
                let tile = Tile(wanted.to_vec());
                if !tiles.contains(&tile) {
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
                            scheme.tile_names().join(", "),
                            example.0
                        ),
                    ));
                }
                return Ok(Choice {
                    estimate_us: self.estimate_us(problem, scheme, &tile),
                    scheme,
                    tile,
                    chosen_by: ChosenBy::User,
                });
            }
            for tile in tiles {
                let estimate_us = self.estimate_us(problem, scheme, &tile);
                let better = match &best {
                    Some(best) => estimate_us < best.estimate_us,
                    None => estimate_us.is_finite(),
                };
                if better {
                    best = Some(Choice {
                        scheme,
                        tile,
                        chosen_by: ChosenBy::Model,
                        estimate_us,
                    });
                }
            }
        }
        best.ok_or_else(|| match wanted_scheme {
            Some(scheme) => PlanError::new(
                layer,
                Some("scheme"),
                format!(
                    "scheme `{scheme}` cannot compute {}",
                    problem_label(problem)
                ),
                "leave `scheme` out and the planner takes one that can",
            ),
            None => PlanError::new(
                layer,
                None,
                format!(
                    "no scheme can compute {} on {}",
                    problem_label(problem),
                    self.gpu.name
                ),
                "its sizes exceed what one launch can hold: use a smaller image or batch",
            ),
        })
    }
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
