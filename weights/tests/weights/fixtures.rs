//! Checkpoints and recipes to test with.

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tdc_runtime::{Decomposition, WeightLayout, WeightSlot};
use tdc_weights::{Checkpoint, FactorizedLayer, ScaleShiftSource, SlotRecipe, WeightSource};

/// Tensors to be stored in a safetensors file.
#[derive(Default, Clone)]
pub struct Tensors(Vec<(String, Dtype, Vec<usize>, Vec<u8>)>);

impl Tensors {
    pub fn raw(mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Self {
        self.0.retain(|(known, ..)| known != name);
        self.0.push((name.to_owned(), dtype, shape.to_vec(), bytes));
        self
    }

    pub fn f64(self, name: &str, shape: &[usize], values: &[f64]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.raw(name, Dtype::F64, shape, bytes)
    }

    pub fn f32(self, name: &str, shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.raw(name, Dtype::F32, shape, bytes)
    }

    /// Zero-mean values in -1..1 that depend on the name.
    pub fn noise(self, name: &str, shape: &[usize]) -> Self {
        let values = noise(name, shape.iter().product());
        self.f64(name, shape, &values)
    }

    /// `{name}.weight`, `.bias`, `.running_mean`, `.running_var` and `.num_batches_tracked`.
    pub fn batch_norm(self, name: &str, channels: usize) -> Self {
        let variance: Vec<_> = noise(name, channels).iter().map(|v| v + 1.5).collect();
        self.noise(&format!("{name}.weight"), &[channels])
            .noise(&format!("{name}.bias"), &[channels])
            .noise(&format!("{name}.running_mean"), &[channels])
            .f64(&format!("{name}.running_var"), &[channels], &variance)
            .raw(
                &format!("{name}.num_batches_tracked"),
                Dtype::I64,
                &[],
                vec![0; 8],
            )
    }

    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|(known, ..)| known != name);
        self
    }

    /// The values of a tensor of f64.
    pub fn values(&self, name: &str) -> Vec<f64> {
        let (.., bytes) = self.0.iter().find(|(known, ..)| known == name).unwrap();
        bytes
            .chunks_exact(8)
            .map(|v| f64::from_le_bytes(v.try_into().unwrap()))
            .collect()
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let views = self.0.iter().map(|(name, dtype, shape, bytes)| {
            let view = TensorView::new(*dtype, shape.clone(), bytes).unwrap();
            (name, view)
        });
        safetensors::serialize(views, None).unwrap()
    }

    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::from_bytes(self.to_bytes()).unwrap()
    }
}

/// `count` values in -1..1.
pub fn noise(seed: &str, count: usize) -> Vec<f64> {
    let mut state = tdc_runtime::Checksum::of(seed.as_bytes());
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 30) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A slot that stores its weight in OIHW order, with a bias for each output channel.
pub fn slot(name: &str, source: [u32; 4]) -> WeightSlot {
    WeightSlot {
        name: name.to_owned(),
        layout: WeightLayout::oihw(source),
        bias_len: source[0],
    }
}

/// A convolution named `name` with the weight `{name}.weight`, without a bias.
pub fn conv(name: &str, source: [u32; 4]) -> SlotRecipe {
    SlotRecipe {
        slot: slot(name, source),
        weight: Some(WeightSource::Tensor(format!("{name}.weight"))),
        bias: None,
        fold: Vec::new(),
        prologue: None,
    }
}

pub fn batch_norm(name: &str, channels: u32) -> ScaleShiftSource {
    ScaleShiftSource::BatchNorm {
        name: name.to_owned(),
        eps: 1e-5,
        channels,
    }
}

pub fn tucker_layer(name: &str, shape: [u32; 4], ranks: [u32; 2]) -> FactorizedLayer {
    FactorizedLayer {
        weight: format!("{name}.weight"),
        shape,
        decomposition: Decomposition::Tucker(ranks),
        factors: ["first", "core", "last"]
            .map(|part| format!("{name}.{part}.weight"))
            .to_vec(),
    }
}

pub fn cp_layer(name: &str, shape: [u32; 4], rank: u32) -> FactorizedLayer {
    FactorizedLayer {
        weight: format!("{name}.weight"),
        shape,
        decomposition: Decomposition::Cp(rank),
        factors: ["first", "vertical", "horizontal", "last"]
            .map(|part| format!("{name}.{part}.weight"))
            .to_vec(),
    }
}

/// A low-rank 1x1 convolution or linear layer.
pub fn low_rank_layer(name: &str, [o, i]: [u32; 2], rank: u32) -> FactorizedLayer {
    FactorizedLayer {
        weight: format!("{name}.weight"),
        shape: [o, i, 1, 1],
        decomposition: Decomposition::LowRank(rank),
        factors: ["first", "last"]
            .map(|part| format!("{name}.{part}.weight"))
            .to_vec(),
    }
}

/// The slots of a factorised layer.
pub fn factored(layer: &FactorizedLayer) -> Vec<SlotRecipe> {
    let roles = layer.decomposition.factors().iter();
    roles
        .map(|&role| SlotRecipe {
            weight: Some(WeightSource::Factor {
                layer: layer.clone(),
                role,
            }),
            ..conv(
                &format!("{}/{role:?}", layer.name()),
                layer.factor_shape(role),
            )
        })
        .collect()
}
