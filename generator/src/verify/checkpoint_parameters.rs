//! The parameters of a checkpoint in float64, without folding, for the reference.

use super::reference::NetworkParameters;
use crate::ir::{Network, OpId};
use crate::plan::{NetworkPlan, WeightPart, factorized_layer, scale_shift_source};
use std::borrow::Cow;
use std::collections::HashMap;
use tdc_runtime::{Decomposition, FactorRole};
use tdc_weights::{Checkpoint, Resolved, ScaleShiftSource, WeightError};

/// A factor of a layer with its values.
type Part<'a> = (FactorRole, Cow<'a, [f32]>);

/// Reads a checkpoint for one network.
pub struct CheckpointParameters {
    weights: HashMap<OpId, Vec<f64>>,
    biases: HashMap<OpId, Vec<f64>>,
    scale_shifts: HashMap<OpId, (Vec<f64>, Vec<f64>)>,
}

impl CheckpointParameters {
    /// Dense weights are read from the checkpoint. Those of factorised layers are the product of the
    /// factors in the plan's slots, so that the error of the factorisation is not counted.
    ///
    /// # Errors
    /// [`WeightError`] for a tensor that cannot be read.
    pub fn new(
        network: &Network,
        plan: &NetworkPlan,
        checkpoint: &Checkpoint,
        resolved: &Resolved,
    ) -> Result<Self, WeightError> {
        let mut parameters = Self {
            weights: HashMap::new(),
            biases: HashMap::new(),
            scale_shifts: HashMap::new(),
        };
        let read = |name: &str| checkpoint.tensor(name).transpose();
        for (index, op) in network.ops.iter().enumerate() {
            let id = OpId(index);
            if factorized_layer(network, id).is_none()
                && let Some(weight) = read(&format!("{}.weight", op.name))?
            {
                parameters.weights.insert(id, weight);
            }
            if let Some(bias) = read(&format!("{}.bias", op.name))? {
                parameters.biases.insert(id, bias);
            }
            let map = match scale_shift_source(network, id) {
                None => continue,
                Some(ScaleShiftSource::Constants { scale, shift, .. }) => Some((scale, shift)),
                Some(ScaleShiftSource::Tensors { scale, shift, .. }) => {
                    read(&scale)?.zip(read(&shift)?)
                }
                Some(ScaleShiftSource::BatchNorm {
                    name,
                    eps,
                    channels,
                }) => {
                    let part = |part: &str| read(&format!("{name}.{part}"));
                    let gamma = part("weight")?.unwrap_or_else(|| vec![1.0; channels as usize]);
                    let beta = part("bias")?.unwrap_or_else(|| vec![0.0; channels as usize]);
                    part("running_mean")?
                        .zip(part("running_var")?)
                        .map(|(mean, var)| {
                            let scale: Vec<f64> = gamma
                                .iter()
                                .zip(&var)
                                .map(|(gamma, var)| gamma / (var + eps).sqrt())
                                .collect();
                            let shift = beta
                                .iter()
                                .zip(&mean)
                                .zip(&scale)
                                .map(|((beta, mean), scale)| beta - mean * scale)
                                .collect();
                            (scale, shift)
                        })
                }
            };
            if let Some(map) = map {
                parameters.scale_shifts.insert(id, map);
            }
        }
        parameters.expand_factors(network, plan, resolved);
        Ok(parameters)
    }

    /// Multiplies the factors. The BatchNorm was folded into the rows of the last factor; it is removed
    /// again.
    fn expand_factors(&mut self, network: &Network, plan: &NetworkPlan, resolved: &Resolved) {
        let mut factors: HashMap<OpId, Vec<Part>> = HashMap::new();
        for layer in &plan.layers {
            for ((op, part), &slot) in layer.parameters.weights().into_iter().zip(&layer.slots) {
                if let WeightPart::Factor(part) = part {
                    let weight = &resolved.values[slot].weight[..];
                    factors.entry(op).or_default().push((part, weight.into()));
                }
            }
        }
        for (id, mut parts) in factors {
            let Some(layer) = factorized_layer(network, id) else {
                continue;
            };
            let shape = layer.shape.map(|size| size as usize);
            let [_, i, r, s] = shape;
            if let Decomposition::Tucker(ranks) = layer.decomposition {
                // A factor that the plan does not have is an identity.
                for (role, rank) in [FactorRole::First, FactorRole::Last].into_iter().zip(ranks) {
                    if parts.iter().all(|(known, _)| *known != role) {
                        parts.push((role, identity(rank as usize)));
                    }
                }
            }
            // The filters of a CP layer may be applied in either order.
            parts.sort_by_key(|(part, _)| *part);
            let parts: Vec<&[f32]> = parts.iter().map(|(_, weight)| &weight[..]).collect();
            let mut weight = match (layer.decomposition, &parts[..]) {
                (Decomposition::Tucker(ranks), &[first, core, last]) => {
                    tucker_weight(shape, ranks.map(|rank| rank as usize), [first, core, last])
                }
                (Decomposition::Cp(rank), &[first, vertical, horizontal, last]) => {
                    cp_weight(shape, rank as usize, [first, vertical, horizontal, last])
                }
                (Decomposition::LowRank(rank), &[first, last]) => {
                    let [o, i, ..] = shape;
                    low_rank_weight([o, i], rank as usize, [first, last])
                }
                _ => continue,
            };
            let folded = plan
                .layers
                .iter()
                .filter(|layer| layer.parameters.layer == Some(id))
                .flat_map(|layer| &layer.parameters.fold);
            for op in folded {
                if let Some((scale, _)) = self.scale_shifts.get(op) {
                    for (row, scale) in weight.chunks_mut(i * r * s).zip(scale) {
                        for value in row {
                            // A channel scaled by zero is zero for any weights.
                            *value = if *scale == 0.0 { 0.0 } else { *value / scale };
                        }
                    }
                }
            }
            self.weights.insert(id, weight);
        }
    }
}

/// An identity matrix.
fn identity(size: usize) -> Cow<'static, [f32]> {
    let row_and_column = |at: usize| (at / size, at % size);
    (0..size * size)
        .map(row_and_column)
        .map(|(row, column)| if row == column { 1.0 } else { 0.0 })
        .collect()
}

/// `W[o,i,r,s] = sum over d1, d2 of last[o,d2] core[d2,d1,r,s] first[d1,i]` (TDC paper, eq. 1).
fn tucker_weight(
    [o, i, r, s]: [usize; 4],
    [d1, d2]: [usize; 2],
    [first, core, last]: [&[f32]; 3],
) -> Vec<f64> {
    let taps = r * s;
    // core x first: [d2][i][taps]
    let mut core_times_first = vec![0.0; d2 * i * taps];
    for a in 0..d2 {
        for b in 0..d1 {
            for c in 0..i {
                let factor = f64::from(first[b * i + c]);
                for t in 0..taps {
                    core_times_first[(a * i + c) * taps + t] +=
                        factor * f64::from(core[(a * d1 + b) * taps + t]);
                }
            }
        }
    }
    let mut weight = vec![0.0; o * i * taps];
    for n in 0..o {
        let row = &mut weight[n * i * taps..][..i * taps];
        for a in 0..d2 {
            let factor = f64::from(last[n * d2 + a]);
            for (value, core_times_first) in row.iter_mut().zip(&core_times_first[a * i * taps..]) {
                *value += factor * core_times_first;
            }
        }
    }
    weight
}

/// `W[o,i,r,s] = sum over k of last[o,k] first[k,i] vertical[k,r] horizontal[k,s]` (CP paper, eq. 2).
fn cp_weight(
    [o, i, r, s]: [usize; 4],
    rank: usize,
    [first, vertical, horizontal, last]: [&[f32]; 4],
) -> Vec<f64> {
    let mut weight = vec![0.0; o * i * r * s];
    for (at, value) in weight.iter_mut().enumerate() {
        let (n, c, a, b) = (at / (i * r * s), at / (r * s) % i, at / s % r, at % s);
        for k in 0..rank {
            let of_channels = f64::from(last[n * rank + k]) * f64::from(first[k * i + c]);
            let of_filter = f64::from(vertical[k * r + a]) * f64::from(horizontal[k * s + b]);
            *value += of_channels * of_filter;
        }
    }
    weight
}

/// `W[o,i] = sum over k of last[o,k] first[k,i]`.
fn low_rank_weight([o, i]: [usize; 2], rank: usize, [first, last]: [&[f32]; 2]) -> Vec<f64> {
    let mut weight = vec![0.0; o * i];
    for (row, factors) in weight.chunks_mut(i).zip(last.chunks(rank)) {
        for (factor, first) in factors.iter().zip(first.chunks(i)) {
            for (value, first) in row.iter_mut().zip(first) {
                *value += f64::from(*factor) * f64::from(*first);
            }
        }
    }
    weight
}

impl NetworkParameters for CheckpointParameters {
    fn weight(&self, op: OpId) -> Vec<f64> {
        self.weights.get(&op).cloned().unwrap_or_default()
    }

    fn bias(&self, op: OpId) -> Vec<f64> {
        self.biases.get(&op).cloned().unwrap_or_default()
    }

    fn scale_shift(&self, op: OpId) -> Option<(Vec<f64>, Vec<f64>)> {
        self.scale_shifts.get(&op).cloned()
    }
}
