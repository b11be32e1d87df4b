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
