//! The same fraction of the channels in all layers.

use super::{Compression, Form, Forms};

impl Compression<'_> {
    /// Of each layer, the form whose ranks are nearest to `1 - reduction` of its channels, from below where there is one; dense without a
    /// reduction.
    pub(super) fn uniform_forms(&self, reduction: f64) -> Forms {
        if reduction == 0.0 {
            return Vec::new();
        }
        let nearest = |channels: u32, ranks: &[u32]| {
            let wanted = (1.0 - reduction) * f64::from(channels);
            let below = ranks.iter().filter(|&&rank| f64::from(rank) <= wanted);
            below.max().or(ranks.iter().min()).copied()
        };
        let layers = self.layers().iter();
        let chosen = layers.filter_map(|layer| {
            let [c, n] = layer.contexts[0].problem.channels();
            let low_ranks = layer.forms.iter().filter_map(|form| match form {
                Form::LowRank(rank) => Some(*rank),
                _ => None,
            });
            let low_ranks: Vec<u32> = low_ranks.collect();
            if !low_ranks.is_empty() {
                let rank = nearest(c.min(n), &low_ranks)?;
                return Some((layer.op, Form::LowRank(rank)));
            }
            let tucker = || {
                layer.forms.iter().filter_map(|form| match form {
                    Form::Tucker(ranks) => Some(*ranks),
                    _ => None,
                })
            };
            let d1s: Vec<u32> = tucker().map(|[d1, _]| d1).collect();
            if d1s.is_empty() {
                let cp_ranks = layer.forms.iter().filter_map(|form| match form {
                    Form::Cp(rank) => Some(*rank),
                    _ => None,
                });
                let rank = nearest(c.max(n), &cp_ranks.collect::<Vec<_>>())?;
                return Some((layer.op, Form::Cp(rank)));
            }
            let d1 = nearest(c, &d1s)?;
            let of_d1 = tucker().filter(|ranks| ranks[0] == d1);
            let d2s: Vec<u32> = of_d1.map(|ranks| ranks[1]).collect();
            Some((layer.op, Form::Tucker([d1, nearest(n, &d2s)?])))
        });
        chosen.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::{Decomposition, Scope};
    use crate::gpu::gpu;
    use crate::ir::{
        ConvOptions, LinearOptions, Network, NetworkBuilder, OpId, OpOptions, TensorShape,
    };

    /// A filter, a 1x1 convolution and a linear layer.
    fn network() -> Network {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 24, 9, 9));
        builder.op("filter", None, OpOptions::Conv(ConvOptions::new(80)));
        let pointwise = ConvOptions {
            kernel: [1, 1],
            ..ConvOptions::new(48)
        };
        builder.op("pointwise", None, OpOptions::Conv(pointwise));
        builder.op("pool", None, OpOptions::GlobalAvgPool);
        builder.op("flat", None, OpOptions::Flatten);
        builder.op("fc", None, OpOptions::Linear(LinearOptions::new(40)));
        builder.finish().unwrap()
    }

    /// The forms of the layers at a reduction, with ranks that are multiples of 8.
    fn forms(decompositions: &[Decomposition], reduction: f64) -> Vec<Form> {
        let losses = |_: OpId, form: Form| if form == Form::Dense { 0.0 } else { 1.0 };
        let scope = Scope {
            decompositions: decompositions.to_vec(),
            ..Scope::default()
        };
        let network = network();
        let gpu = gpu("h200").unwrap();
        let compression = Compression::new(&network, gpu, &scope, false, &losses).unwrap();
        let forms = compression.uniform_forms(reduction);
        forms.into_iter().map(|(_, form)| form).collect()
    }

    #[test]
    fn all_layers_keep_the_same_fraction_of_their_channels() {
        let all = &Decomposition::DEFAULT[..];
        // Half of 24, 80, 48 and 40 channels, rounded down to multiples of 8.
        let half = [Form::Tucker([8, 40]), Form::LowRank(24), Form::LowRank(16)];
        assert_eq!(forms(all, 0.5), half);
        // Ranks that need as many operations as the dense layer are no forms, so the next smaller ones are taken.
        let tenth = [Form::Tucker([16, 72]), Form::LowRank(24), Form::LowRank(16)];
        assert_eq!(forms(all, 0.1), tenth);
        // Below the least rank it is taken.
        let least = [Form::Tucker([8, 8]), Form::LowRank(8), Form::LowRank(8)];
        assert_eq!(forms(all, 0.95), least);
        assert_eq!(forms(all, 0.0), []);
        // Of CP ranks the larger number of channels counts; other layers have no form.
        assert_eq!(forms(&[Decomposition::Cp], 0.5), [Form::Cp(40)]);
        // Tucker ranks are taken where both are possible.
        assert_eq!(
            forms(&[Decomposition::Cp, Decomposition::Tucker], 0.5),
            [Form::Tucker([8, 40])]
        );
    }
}
