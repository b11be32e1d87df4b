//! Values of the caller, such as those of the command line, that replace those of a config.

use crate::gpu::Targets;
use crate::ir::{
    Batches, ConvOptions, DType, LinearOptions, ParseShapeError, Precision, TensorShape,
    TilePolicy, Tolerance,
};
use std::collections::BTreeMap;
use std::str::FromStr;

/// The shape of an input on the command line: `1x3x224x224`, or `left=1x3x224x224` for one of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputShape {
    /// Name of the input; without it the only one is meant.
    pub name: Option<String>,
    /// Its shape.
    pub shape: TensorShape,
}

impl FromStr for InputShape {
    type Err = ParseShapeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A shape has no `=`, a name may have one.
        let (name, shape) = match text.rsplit_once('=') {
            Some((name, shape)) => (Some(name.to_owned()), shape),
            None => (None, text),
        };
        Ok(Self {
            name,
            shape: shape.parse()?,
        })
    }
}

/// Overrides by the caller.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides {
    /// Shape of the only input of a network; all other sizes are inferred from it.
    pub input: Option<TensorShape>,
    /// Shapes of inputs by their names.
    pub inputs: BTreeMap<String, TensorShape>,
    /// Batches: of a network, or one for all layers of a layer set.
    pub batches: Option<Batches>,
    /// Ignore ranks and factors. `_dense` is appended to the name of a network or layer set that has any, so
    /// that both variants can be used in one program.
    pub dense: bool,
    /// Precision of all convolutions.
    pub precision: Option<Precision>,
    /// Tolerance of all convolutions.
    pub tolerance: Option<Tolerance>,
    /// Tile policy.
    pub tiles: Option<TilePolicy>,
    /// How activation tensors of a network may be stored.
    pub activations: Option<DType>,
    /// GPUs to plan for.
    pub gpus: Option<Targets>,
}

/// Each function takes what a config says and returns what applies.
impl Overrides {
    /// The shape of the input with the given name.
    pub(crate) fn input(&self, name: &str, config: Option<TensorShape>) -> Option<TensorShape> {
        let shape = self.given_input(name).or(config)?;
        Some(TensorShape {
            batch: self.largest_batch(shape.batch),
            ..shape
        })
    }

    /// The caller's shape of the input with the given name.
    pub(crate) fn given_input(&self, name: &str) -> Option<TensorShape> {
        self.inputs.get(name).copied().or(self.input)
    }

    /// Checks that the caller's shapes are for inputs of these names.
    ///
    /// # Errors
    /// What is wrong, and the remedy.
    pub(crate) fn check_inputs(&self, names: &[&str]) -> Result<(), String> {
        let quoted = names
            .iter()
            .map(|name| format!("`{}`", name.escape_debug()));
        let quoted = quoted.collect::<Vec<_>>().join(", ");
        if self.input.is_some() && names.len() > 1 {
            return Err(format!(
                "`--input` names no input, there are {quoted}; write `--input {}=1x3x224x224`",
                names[0].escape_debug()
            ));
        }
        match self.inputs.keys().find(|name| !names.contains(&&name[..])) {
            Some(unknown) => Err(format!(
                "`--input {}=...`: there is no such input; there is {quoted}",
                unknown.escape_debug()
            )),
            None => Ok(()),
        }
    }

    /// With shapes of the command line.
    ///
    /// # Errors
    /// The shape that an input has twice.
    pub fn with_input_shapes(mut self, shapes: &[InputShape]) -> Result<Self, String> {
        for InputShape { name, shape } in shapes {
            let earlier = match name {
                Some(name) => self.inputs.insert(name.clone(), *shape),
                None => self.input.replace(*shape),
            };
            if let Some(earlier) = earlier {
                return Err(format!(
                    "`--input` gives an input the shapes {earlier} and {shape}; give each input once, by its name"
                ));
            }
        }
        if let (Some(input), false) = (self.input, self.inputs.is_empty()) {
            return Err(format!(
                "`--input {input}` names no input, others do; write NAME={input}"
            ));
        }
        Ok(self)
    }

    /// These overrides, completed by others.
    pub(crate) fn or(&self, others: &Self) -> Self {
        let has_input = self.input.is_some() || !self.inputs.is_empty();
        let inputs = if has_input { self } else { others };
        Self {
            input: inputs.input,
            inputs: inputs.inputs.clone(),
            batches: self.batches.clone().or_else(|| others.batches.clone()),
            dense: self.dense || others.dense,
            precision: self.precision.or(others.precision),
            tolerance: self.tolerance.or(others.tolerance),
            tiles: self.tiles.or(others.tiles),
            activations: self.activations.or(others.activations),
            gpus: self.gpus.clone().or_else(|| others.gpus.clone()),
        }
    }

    /// The batches of a network whose inputs have the batch `config`.
    pub(crate) fn batches(&self, config: u32) -> Batches {
        let own = self.batches.clone();
        own.unwrap_or_else(|| Batches::one(config))
    }

    pub(crate) fn largest_batch(&self, config: u32) -> u32 {
        self.batches.as_ref().map_or(config, Batches::largest)
    }

    pub(crate) fn tiles(&self, config: Option<TilePolicy>) -> TilePolicy {
        self.tiles.or(config).unwrap_or_default()
    }

    pub(crate) fn activations(&self, config: Option<DType>) -> DType {
        self.activations.or(config).unwrap_or_default()
    }

    pub(crate) fn gpus(&self, config: Option<Targets>) -> Targets {
        self.gpus.clone().or(config).unwrap_or_default()
    }

    /// The options of a convolution of a network or layer set.
    pub(crate) fn convolution(&self, config: ConvOptions) -> ConvOptions {
        let all = ConvOptions {
            precision: self.precision.unwrap_or(config.precision),
            tolerance: self.tolerance.unwrap_or(config.tolerance),
            ..config
        };
        match self.dense {
            false => all,
            true => ConvOptions {
                ranks: None,
                cp_rank: None,
                rank: None,
                factors: None,
                ..all
            },
        }
    }

    /// The options of a fully connected layer of a network.
    pub(crate) fn linear(&self, config: LinearOptions) -> LinearOptions {
        let all = LinearOptions {
            precision: self.precision.unwrap_or(config.precision),
            ..config
        };
        match self.dense {
            false => all,
            true => LinearOptions {
                rank: None,
                factors: None,
                ..all
            },
        }
    }

    /// The name of a network or layer set; `has_ranks` says whether the config has ranks.
    pub(super) fn name(&self, config: &str, has_ranks: bool) -> String {
        match self.dense && has_ranks {
            true => format!("{config}_dense"),
            false => config.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, yaml};
    use crate::ir::OpKind;

    /// A network with a convolution, and a layer set with the same.
    fn configs(keys: &str) -> [String; 2] {
        [
            format!("{{name: a, input: 3x8x9x9, ops: [{{op: conv, name: c, n: 16, {keys}}}]}}"),
            format!("{{name: a, layers: [{{conv: [8, 16, 9, 9], batch: 3, {keys}}}]}}"),
        ]
    }

    /// Its name, batch size, precision, tolerance, tile policy, GPUs and CP rank.
    fn read(config: &str, overrides: &Overrides) -> String {
        match yaml::parse(config, "a.yaml", overrides) {
            Ok(Config::Network(network)) => {
                let conv = network.op(network.last_op());
                let OpKind::Conv(found) = &conv.kind else {
                    return format!("{conv:?}");
                };
                let options = &found.options;
                format!(
                    "{} {} {:?} {:?} {:?} {} {:?}",
                    network.name,
                    found.shape.batch,
                    options.precision,
                    options.tolerance,
                    network.tiles,
                    network.gpus.gpus()[0].name,
                    options.cp_rank,
                )
            }
            Ok(Config::LayerSet(set)) => {
                let layer = &set.layers[0];
                format!(
                    "{} {} {:?} {:?} {:?} {} {:?}",
                    set.name,
                    layer.problem.shape.batch,
                    layer.problem.precision,
                    layer.problem.tolerance,
                    set.tiles,
                    set.gpu.name,
                    layer.cp_rank,
                )
            }
            Err(errors) => errors.to_string(),
        }
    }

    #[test]
    fn overrides_mean_the_same_in_networks_and_layer_sets() {
        let all = Overrides {
            input: None,
            inputs: BTreeMap::new(),
            batches: Some(Batches::one(5)),
            dense: true,
            precision: Some(Precision::Fp16),
            tolerance: Tolerance::new(0.05),
            tiles: Some(TilePolicy::Model),
            activations: Some(DType::Fp16),
            gpus: Targets::named(&["l4"]).ok(),
        };
        for (keys, overrides, name) in [
            ("cp_rank: 4, precision: tf32", Overrides::default(), "a"),
            (
                "cp_rank: 4, precision: tf32, tolerance: 0.01",
                all.clone(),
                "a_dense",
            ),
            ("precision: tf32", all.clone(), "a"),
            // Ranks that are ignored may be any.
            ("cp_rank: 0", all, "a_dense"),
        ] {
            let [network, set] = configs(keys).map(|config| read(&config, &overrides));
            assert_eq!(network, set, "{keys}");
            assert!(network.starts_with(&format!("{name} ")), "{network}");
            let overridden = network.contains(" 5 Fp16 ") && network.ends_with(" l4 None");
            assert_eq!(overridden, overrides.dense, "{network}");
        }
    }

    #[test]
    fn dense_networks_have_no_rank() {
        let config = "{name: a, input: 3x8x1x1, ops: [{op: conv, name: c, n: 16, kernel: 1, RANK}, \
                      {op: linear, name: l, n: 5, RANK}]}";
        let dense = Overrides {
            dense: true,
            ..Overrides::default()
        };
        for (keys, overrides, expected) in [
            ("rank: 3", Overrides::default(), Ok("a [Some(3), Some(3)]")),
            (
                "rank: 3, factors: [f, g]",
                dense.clone(),
                Ok("a_dense [None, None]"),
            ),
            ("rank: 99", dense.clone(), Ok("a_dense [None, None]")),
            ("bias: true", dense, Ok("a [None, None]")),
            ("rank: 99", Overrides::default(), Err(())),
        ] {
            let found = yaml::parse(&config.replace("RANK", keys), "a.yaml", &overrides);
            let found = found.map_err(|_| ()).map(|config| match config {
                Config::Network(network) => {
                    let ranks = network.ops.iter().filter_map(|op| match &op.kind {
                        OpKind::Conv(conv) => Some((conv.options.rank, &conv.options.factors)),
                        OpKind::Linear(linear) => {
                            Some((linear.options.rank, &linear.options.factors))
                        }
                        _ => None,
                    });
                    let ranks = ranks.map(|(rank, factors)| {
                        assert!(rank.is_some() || factors.is_none());
                        rank
                    });
                    format!("{} {:?}", network.name, ranks.collect::<Vec<_>>())
                }
                Config::LayerSet(set) => set.name,
            });
            assert_eq!(found, expected.map(str::to_owned), "{keys}");
        }
    }
}
