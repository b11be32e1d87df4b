//! Computes the values of slots from recipes and a checkpoint.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem;
use std::rc::Rc;

use crate::checkpoint::FloatTensor;
use crate::recipe::transposed_shape;
use crate::{
    Checkpoint, CpFactors, FactorizedLayer, LowRankFactors, ScaleShiftSource, SlotRecipe,
    TuckerFactors, WeightError, WeightErrors, WeightSource,
};
use tdc_runtime::{Decomposition, FactorRole};

/// Values of one slot in fp32, before packing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SlotValues {
    /// OIHW, of the layout's source length.
    pub weight: Vec<f32>,
    /// One per output channel, or none.
    pub bias: Vec<f32>,
    /// The prologue's scales, one per input channel.
    pub scale: Vec<f32>,
    /// The prologue's shifts, one per input channel.
    pub shift: Vec<f32>,
}

/// Report on the factorisation of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Factorization {
    /// Name of the layer: that of its dense weight without `.weight`.
    pub layer: String,
    /// Decomposition and ranks.
    pub decomposition: Decomposition,
    /// Relative error of the factors' product against the dense weight in the Frobenius norm, before rounding
    /// to fp32; `None` if the checkpoint has trained factors and no dense weight.
    pub relative_error: Option<f64>,
    /// Ratio of the outer products of a CP decomposition to their sum, see [`CpFactors::cancellation`].
    pub cancellation: Option<f64>,
    /// Whether the factors were taken from the checkpoint.
    pub trained: bool,
}

/// The values of all slots, with reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// In the order of the recipes.
    pub values: Vec<SlotValues>,
    /// One for each factorised layer, in the order of the recipes.
    pub factorizations: Vec<Factorization>,
    /// Tensors of the checkpoint that no recipe uses, sorted, without `num_batches_tracked`.
    pub unused: Vec<String>,
}

/// Computes the values of every slot.
///
/// All arithmetic is in f64; values are rounded to fp32 once, at the end. A layer is factorised once for all
/// its slots.
///
/// # Errors
/// [`WeightErrors`] with all errors: missing tensors, wrong shapes, unsupported element types, values that
/// are not finite, variances that are not positive, incomplete trained factors, results beyond fp32,
/// contradictory recipes. An error that several slots have in common is listed once.
pub fn resolve(recipes: &[SlotRecipe], checkpoint: &Checkpoint) -> Result<Resolved, WeightErrors> {
    let mut resolver = Resolver {
        checkpoint,
        requested: BTreeSet::new(),
        factors: HashMap::new(),
        factorizations: Vec::new(),
        errors: Vec::new(),
        reported: HashSet::new(),
    };
    let values: Vec<_> = recipes
        .iter()
        .filter_map(|recipe| resolver.slot(recipe))
        .collect();
    if !resolver.errors.is_empty() {
        return Err(WeightErrors(resolver.errors));
    }
    let unused = checkpoint
        .names()
        .filter(|&name| {
            !resolver.requested.contains(name) && !name.ends_with("num_batches_tracked")
        })
        .map(str::to_owned)
        .collect();
    Ok(Resolved {
        values,
        factorizations: resolver.factorizations,
        unused,
    })
}

/// The state of [`resolve`]. Its methods record errors and return `None` after one.
struct Resolver<'a> {
    checkpoint: &'a Checkpoint,
    requested: BTreeSet<String>,
    factors: HashMap<FactorizedLayer, Option<Rc<LayerFactors>>>,
    factorizations: Vec<Factorization>,
    errors: Vec<WeightError>,
    reported: HashSet<(String, mem::Discriminant<WeightError>)>,
}

/// A layer's factors.
enum LayerFactors {
    Tucker(TuckerFactors),
    Cp(CpFactors),
    LowRank(LowRankFactors),
}

impl LayerFactors {
    /// Factorises a dense weight; `None` if that fails.
    fn new(weight: &[f64], layer: &FactorizedLayer) -> Option<Self> {
        let shape = layer.shape.map(|size| size as usize);
        match layer.decomposition {
            Decomposition::Tucker(ranks) => {
                let ranks = ranks.map(|rank| rank as usize);
                TuckerFactors::hosvd(weight, shape, ranks)
                    .map(Self::Tucker)
                    .ok()
            }
            Decomposition::Cp(rank) => CpFactors::als(weight, shape, rank as usize)
                .map(Self::Cp)
                .ok(),
            Decomposition::LowRank(rank) => {
                let [o, i, ..] = shape;
                LowRankFactors::svd(weight, [o, i], rank as usize)
                    .map(Self::LowRank)
                    .ok()
            }
        }
    }

    /// The trained factors of a layer, in the order of its roles.
    fn trained(layer: &FactorizedLayer, values: Vec<Vec<f64>>) -> Option<Self> {
        let shape = layer.shape.map(|size| size as usize);
        Some(match layer.decomposition {
            Decomposition::Tucker(ranks) => {
                let [first, core, last] = values.try_into().ok()?;
                Self::Tucker(TuckerFactors {
                    shape,
                    ranks: ranks.map(|rank| rank as usize),
                    first,
                    core,
                    last,
                })
            }
            Decomposition::Cp(rank) => {
                let [first, vertical, horizontal, last] = values.try_into().ok()?;
                Self::Cp(CpFactors {
                    shape,
                    rank: rank as usize,
                    first,
                    vertical,
                    horizontal,
                    last,
                })
            }
            Decomposition::LowRank(rank) => {
                let [first, last] = values.try_into().ok()?;
                let [o, i, ..] = shape;
                Self::LowRank(LowRankFactors {
                    shape: [o, i],
                    rank: rank as usize,
                    first,
                    last,
                })
            }
        })
    }

    /// The values of a factor; empty for a role that the decomposition does not have.
    fn role(&self, role: FactorRole) -> &[f64] {
        match (self, role) {
            (Self::Tucker(factors), FactorRole::First) => &factors.first,
            (Self::Tucker(factors), FactorRole::Core) => &factors.core,
            (Self::Tucker(factors), FactorRole::Last) => &factors.last,
            (Self::Cp(factors), FactorRole::First) => &factors.first,
            (Self::Cp(factors), FactorRole::Vertical) => &factors.vertical,
            (Self::Cp(factors), FactorRole::Horizontal) => &factors.horizontal,
            (Self::Cp(factors), FactorRole::Last) => &factors.last,
            (Self::LowRank(factors), FactorRole::First) => &factors.first,
            (Self::LowRank(factors), FactorRole::Last) => &factors.last,
            (Self::Tucker(_), FactorRole::Vertical | FactorRole::Horizontal)
            | (Self::Cp(_), FactorRole::Core)
            | (
                Self::LowRank(_),
                FactorRole::Core | FactorRole::Vertical | FactorRole::Horizontal,
            ) => &[],
        }
    }

    fn relative_error(&self, weight: &[f64]) -> f64 {
        match self {
            Self::Tucker(factors) => factors.relative_error(weight),
            Self::Cp(factors) => factors.relative_error(weight),
            Self::LowRank(factors) => factors.relative_error(weight),
        }
    }

    fn cancellation(&self) -> Option<f64> {
        match self {
            Self::Tucker(_) | Self::LowRank(_) => None,
            Self::Cp(factors) => Some(factors.cancellation()),
        }
    }
}

/// `scale * x + shift` for each channel.
struct ScaleShift {
    scale: Vec<f64>,
    shift: Vec<f64>,
}

/// The shapes that a tensor may have.
enum Expected {
    /// OIHW, or the same flattened to [O, I * R * S].
    Weight([u32; 4]),
    /// One value for each channel; further dimensions of size 1 are allowed.
    Channels(u32),
}

impl<'a> Resolver<'a> {
    fn slot(&mut self, recipe: &SlotRecipe) -> Option<SlotValues> {
        let slot = recipe.slot.name.as_str();
        let inconsistencies = recipe.inconsistencies();
        if !inconsistencies.is_empty() {
            for problem in inconsistencies {
                self.report(WeightError::Recipe {
                    slot: slot.to_owned(),
                    problem,
                });
            }
            return None;
        }
        // Everything is read before the first `?`, so that all errors are found.
        let fold: Vec<_> = recipe
            .fold
            .iter()
            .map(|source| self.scale_shift(source, slot))
            .collect();
        let bias = recipe.bias.as_ref().map(|name| {
            let expected = Expected::Channels(recipe.slot.bias_len);
            Some(self.tensor(name, expected, slot)?.values().collect())
        });
        let prologue = recipe
            .prologue
            .as_ref()
            .map(|source| self.scale_shift(source, slot));
        let output = ScaleShift::fold(recipe.slot.layout.source[0] as usize, bias, fold);
        let (weight, bias) = match &recipe.weight {
            Some(WeightSource::Merged(layers)) => self.merged(layers, recipe.slot.bias_len),
            Some(WeightSource::Added(layers)) => self.added(layers, recipe),
            Some(WeightSource::WeightOf(layer)) => {
                let values = self.slot(layer);
                (values.map(|values| values.weight), Some(Vec::new()))
            }
            Some(WeightSource::BiasOf(layer)) => {
                let values = self.slot(layer);
                (values.map(|values| values.bias), Some(Vec::new()))
            }
            _ => self.weight_and_bias(recipe, output),
        };
        let (scale, shift) = match prologue {
            None => (Some(Vec::new()), Some(Vec::new())),
            Some(scale_shift) => {
                let scale_shift = scale_shift?;
                (
                    self.round(slot, "scale", scale_shift.scale.iter().copied()),
                    self.round(slot, "shift", scale_shift.shift.iter().copied()),
                )
            }
        };
        Some(SlotValues {
            weight: weight?,
            bias: bias?,
            scale: scale?,
            shift: shift?,
        })
    }

    /// Weight and bias of a slot of one layer, or of an op without weights.
    fn weight_and_bias(
        &mut self,
        recipe: &SlotRecipe,
        output: Option<ScaleShift>,
    ) -> (Option<Vec<f32>>, Option<Vec<f32>>) {
        let weight = match &recipe.weight {
            None => Some(Vec::new()),
            Some(source) => self.weight(source, recipe, output.as_ref()),
        };
        let bias = output.and_then(|output| match recipe.slot.bias_len {
            0 => Some(Vec::new()),
            _ => self.round(&recipe.slot.name, "bias", output.shift.iter().copied()),
        });
        (weight, bias)
    }

    /// Weights and biases of several layers, one after the other.
    fn merged(
        &mut self,
        layers: &[SlotRecipe],
        bias_len: u32,
    ) -> (Option<Vec<f32>>, Option<Vec<f32>>) {
        let Some(values) = self.slots(layers) else {
            return (None, None);
        };
        let (mut weight, mut bias) = (Vec::new(), Vec::new());
        for (layer, values) in layers.iter().zip(values) {
            weight.extend(values.weight);
            match values.bias.is_empty() {
                true if bias_len == 0 => {}
                true => bias.extend(vec![0.0; layer.slot.layout.source[0] as usize]),
                false => bias.extend(values.bias),
            }
        }
        (Some(weight), Some(bias))
    }

    /// Weights of several layers side by side along I, and the sum of their biases.
    fn added(
        &mut self,
        layers: &[SlotRecipe],
        recipe: &SlotRecipe,
    ) -> (Option<Vec<f32>>, Option<Vec<f32>>) {
        let Some(values) = self.slots(layers) else {
            return (None, None);
        };
        let outputs = recipe.slot.layout.source[0] as usize;
        let row = |weight: &[f32], output: usize| {
            let len = weight.len() / outputs;
            weight[output * len..][..len].to_vec()
        };
        let rows = (0..outputs).flat_map(|output| {
            let of_layers = values.iter();
            of_layers.flat_map(move |values| row(&values.weight, output))
        });
        let mut bias = vec![0.0; recipe.slot.bias_len as usize];
        for values in &values {
            let sums = bias.iter_mut().zip(&values.bias);
            sums.for_each(|(sum, bias)| *sum += f64::from(*bias));
        }
        let weight = rows.collect();
        (
            Some(weight),
            self.round(&recipe.slot.name, "bias", bias.into_iter()),
        )
    }

    /// The values of several slots. Everything is read before the first error ends it.
    fn slots(&mut self, layers: &[SlotRecipe]) -> Option<Vec<SlotValues>> {
        let values: Vec<_> = layers.iter().map(|layer| self.slot(layer)).collect();
        values.into_iter().collect()
    }

    /// The weight of a slot, scaled by its folded scales. Without any the source is only checked.
    fn weight(
        &mut self,
        source: &WeightSource,
        recipe: &SlotRecipe,
        output: Option<&ScaleShift>,
    ) -> Option<Vec<f32>> {
        let slot = recipe.slot.name.as_str();
        let shape = recipe.slot.layout.source;
        match source {
            WeightSource::Tensor(name) | WeightSource::Linear(name) => {
                let tensor = self.tensor(name, Expected::Weight(shape), slot)?;
                let scaled = scale_rows(tensor.values(), shape, &output?.scale);
                self.round(slot, "weight", scaled)
            }
            WeightSource::Transposed { name, groups } => {
                let stored = transposed_shape(shape, *groups);
                let tensor = self.tensor(name, Expected::Weight(stored), slot)?;
                let values: Vec<f64> = tensor.values().collect();
                let values = with_outputs_first(&values, shape, *groups);
                let scaled = scale_rows(values.into_iter(), shape, &output?.scale);
                self.round(slot, "weight", scaled)
            }
            WeightSource::Channels(name) => {
                let values = self.channels(name, shape[0], slot)?;
                self.round(slot, "weight", values.into_iter())
            }
            WeightSource::Factor { layer, role } => {
                let factors = self.factors(layer, slot)?;
                let values = factors.role(*role).iter().copied();
                let scaled = scale_rows(values, shape, &output?.scale);
                self.round(slot, "weight", scaled)
            }
            WeightSource::Merged(_)
            | WeightSource::Added(_)
            | WeightSource::WeightOf(_)
            | WeightSource::BiasOf(_) => {
                unreachable!("weight and bias of other recipes are resolved together")
            }
        }
    }

    /// The factors of a layer, computed on first use.
    fn factors(&mut self, layer: &FactorizedLayer, slot: &str) -> Option<Rc<LayerFactors>> {
        if let Some(known) = self.factors.get(layer) {
            return known.clone();
        }
        let factors = self.new_factors(layer, slot).map(Rc::new);
        self.factors.insert(layer.clone(), factors.clone());
        factors
    }

    fn new_factors(&mut self, layer: &FactorizedLayer, slot: &str) -> Option<LayerFactors> {
        let (found, missing): (Vec<_>, Vec<_>) = layer
            .factors
            .iter()
            .cloned()
            .partition(|name| self.checkpoint.shape(name).is_some());
        self.requested.extend(found.iter().cloned());
        let trained = missing.is_empty();
        let has_dense = self.checkpoint.shape(&layer.weight).is_some();
        let dense = if has_dense || found.is_empty() {
            let tensor = self.tensor(&layer.weight, Expected::Weight(layer.shape), slot);
            tensor.map(|tensor| tensor.values().collect::<Vec<_>>())
        } else {
            None
        };
        if !trained && !found.is_empty() {
            self.report(WeightError::PartialFactors {
                layer: layer.name().to_owned(),
                found,
                missing,
            });
            return None;
        }
        let mut factors = if trained {
            self.trained_factors(layer, slot)?
        } else {
            match LayerFactors::new(dense.as_ref()?, layer) {
                Some(factors) => factors,
                None => {
                    self.report(WeightError::NoConvergence {
                        layer: layer.name().to_owned(),
                    });
                    return None;
                }
            }
        };
        self.factorizations.push(Factorization {
            layer: layer.name().to_owned(),
            decomposition: layer.decomposition,
            relative_error: dense.map(|dense| factors.relative_error(&dense)),
            cancellation: factors.cancellation(),
            trained,
        });
        if let LayerFactors::Tucker(tucker) = factors {
            factors = LayerFactors::Tucker(tucker.with_identities());
        }
        Some(factors)
    }

    fn trained_factors(&mut self, layer: &FactorizedLayer, slot: &str) -> Option<LayerFactors> {
        let roles = layer.decomposition.factors().iter().zip(&layer.factors);
        // Everything is read before the first `?`.
        let values: Vec<_> = roles
            .map(|(&role, name)| {
                let expected = Expected::Weight(layer.factor_shape(role));
                let tensor = self.tensor(name, expected, slot)?;
                Some(tensor.values().collect())
            })
            .collect();
        LayerFactors::trained(layer, values.into_iter().collect::<Option<_>>()?)
    }

    fn scale_shift(&mut self, source: &ScaleShiftSource, slot: &str) -> Option<ScaleShift> {
        match source {
            ScaleShiftSource::Tensors {
                scale,
                shift,
                channels,
            } => {
                let scale = self.channels(scale, *channels, slot);
                let shift = self.channels(shift, *channels, slot);
                Some(ScaleShift {
                    scale: scale?,
                    shift: shift?,
                })
            }
            ScaleShiftSource::BatchNorm {
                name,
                eps,
                channels,
            } => self.batch_norm(name, *eps, *channels, slot),
            ScaleShiftSource::Constants { scale, shift, .. } => Some(ScaleShift {
                scale: scale.clone(),
                shift: shift.clone(),
            }),
        }
    }

    /// `weight * (x - mean) / sqrt(variance + eps) + bias` as scale and shift.
    fn batch_norm(
        &mut self,
        name: &str,
        eps: f64,
        channels: u32,
        slot: &str,
    ) -> Option<ScaleShift> {
        let mean = self.channels(&format!("{name}.running_mean"), channels, slot);
        let variance_name = format!("{name}.running_var");
        let variance = self.channels(&variance_name, channels, slot);
        let mut optional = |suffix: &str, default: f64| {
            let name = format!("{name}.{suffix}");
            match self.checkpoint.shape(&name) {
                Some(_) => self.channels(&name, channels, slot),
                None => Some(vec![default; channels as usize]),
            }
        };
        let weight = optional("weight", 1.0);
        let bias = optional("bias", 0.0);
        let variance = variance?;
        // NaN is not positive either.
        let positive = |v: &f64| v + eps > 0.0;
        if let Some(channel) = variance.iter().position(|v| !positive(v)) {
            self.report(WeightError::Variance {
                tensor: variance_name,
                channel,
                value: variance[channel],
                eps,
            });
            return None;
        }
        let scale: Vec<_> = weight?
            .iter()
            .zip(&variance)
            .map(|(weight, variance)| weight / (variance + eps).sqrt())
            .collect();
        let shift = bias?
            .iter()
            .zip(&mean?)
            .zip(&scale)
            .map(|((bias, mean), scale)| bias - mean * scale)
            .collect();
        Some(ScaleShift { scale, shift })
    }

    fn channels(&mut self, name: &str, channels: u32, slot: &str) -> Option<Vec<f64>> {
        let tensor = self.tensor(name, Expected::Channels(channels), slot)?;
        Some(tensor.values().collect())
    }

    fn tensor(&mut self, name: &str, expected: Expected, slot: &str) -> Option<FloatTensor<'a>> {
        self.requested.insert(name.to_owned());
        let checkpoint = self.checkpoint;
        let error = match checkpoint.shape(name) {
            None => WeightError::Missing {
                tensor: name.to_owned(),
                slot: slot.to_owned(),
                suggestion: most_similar(name, checkpoint),
            },
            Some(found) if !expected.accepts(found) => WeightError::Shape {
                tensor: name.to_owned(),
                slot: slot.to_owned(),
                expected: expected.preferred(),
                found: found.to_owned(),
            },
            Some(_) => match checkpoint.float(name)? {
                Ok(tensor) => return Some(tensor),
                Err(error) => error,
            },
        };
        self.report(error);
        None
    }

    /// Rounds to fp32 and checks that no value becomes infinite.
    fn round(
        &mut self,
        slot: &str,
        part: &'static str,
        values: impl Iterator<Item = f64>,
    ) -> Option<Vec<f32>> {
        let mut overflow = None;
        let rounded = values
            .enumerate()
            .map(|(index, value)| {
                let rounded = value as f32;
                if !rounded.is_finite() && overflow.is_none() {
                    overflow = Some((index, value));
                }
                rounded
            })
            .collect();
        match overflow {
            None => Some(rounded),
            Some((index, value)) => {
                self.report(WeightError::Overflow {
                    slot: slot.to_owned(),
                    part,
                    index,
                    value,
                });
                None
            }
        }
    }

    /// Records an error, unless there is one of the same kind with the same subject.
    fn report(&mut self, error: WeightError) {
        let key = (error.subject(), mem::discriminant(&error));
        if self.reported.insert(key) {
            self.errors.push(error);
        }
    }
}

impl ScaleShift {
    /// A layer's bias and the scales and shifts after it, combined.
    fn fold(
        channels: usize,
        bias: Option<Option<Vec<f64>>>,
        scale_shifts: Vec<Option<ScaleShift>>,
    ) -> Option<Self> {
        let mut folded = Self {
            scale: vec![1.0; channels],
            shift: match bias {
                None => vec![0.0; channels],
                Some(bias) => bias?,
            },
        };
        for scale_shift in scale_shifts {
            let scale_shift = scale_shift?;
            for channel in 0..channels {
                folded.scale[channel] *= scale_shift.scale[channel];
                folded.shift[channel] =
                    scale_shift.scale[channel] * folded.shift[channel] + scale_shift.shift[channel];
            }
        }
        Some(folded)
    }
}

/// The weight [O, I / groups, R, S] of a transposed convolution, from [I, O / groups, R, S].
fn with_outputs_first(values: &[f64], [o, i, r, s]: [u32; 4], groups: u32) -> Vec<f64> {
    let [o, i, taps] = [o, i, r * s].map(|size| size as usize);
    let o_per_group = o / groups as usize;
    let mut found = Vec::with_capacity(values.len());
    for output in 0..o {
        let group = output / o_per_group;
        for input in group * i..(group + 1) * i {
            let filter = input * o_per_group + output % o_per_group;
            found.extend(&values[filter * taps..][..taps]);
        }
    }
    found
}

/// Multiplies each output channel of an OIHW weight by its scale.
fn scale_rows(
    weight: impl Iterator<Item = f64>,
    [_, i, r, s]: [u32; 4],
    scale: &[f64],
) -> impl Iterator<Item = f64> {
    let row = i as usize * r as usize * s as usize;
    weight
        .enumerate()
        .map(move |(index, value)| value * scale[index / row])
}

impl Expected {
    fn accepts(&self, found: &[usize]) -> bool {
        match self {
            Self::Weight([o, i, r, s]) => {
                let inner = u128::from(*i) * u128::from(*r) * u128::from(*s);
                found == self.preferred()
                    || matches!(found, [rows, columns] if *rows == *o as usize && *columns as u128 == inner)
            }
            Self::Channels(channels) => {
                let mut long = found.iter().filter(|&&size| size != 1);
                let size = *long.next().unwrap_or(&1);
                !found.is_empty() && size == *channels as usize && long.next().is_none()
            }
        }
    }

    fn preferred(&self) -> Vec<usize> {
        match self {
            Self::Weight(shape) => shape.iter().map(|&size| size as usize).collect(),
            Self::Channels(channels) => vec![*channels as usize],
        }
    }
}

/// The most similar name in the checkpoint: with a different prefix, or else with few edits.
fn most_similar(missing: &str, checkpoint: &Checkpoint) -> Option<String> {
    let with_prefix = |long: &str, short: &str| {
        long.strip_suffix(short)
            .is_some_and(|prefix| prefix.ends_with('.'))
    };
    let prefixed = checkpoint
        .names()
        .find(|name| with_prefix(name, missing) || with_prefix(missing, name));
    let edited = || {
        checkpoint
            .names()
            .map(|name| (strsim::osa_distance(missing, name), name))
            .min()
            .filter(|(edits, _)| 3 * edits <= missing.chars().count())
            .map(|(_, name)| name)
    };
    prefixed.or_else(edited).map(str::to_owned)
}
