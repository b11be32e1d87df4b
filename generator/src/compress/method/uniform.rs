//! The same fraction of the channels in all layers.

use super::{Compression, Form, Forms};

impl Compression {
    /// Of each layer, the form whose ranks are nearest to `1 - reduction` of its channels, from below where there is one; dense without a
    /// reduction.
    pub(super) fn uniform_forms(&self, reduction: f64) -> Forms {
        if reduction == 0.0 {
            return Vec::new();
        }
        let layers = self.structure.layers.iter();
        let chosen = layers.filter_map(|layer| {
            let shape = &layer.contexts[0].problem.shape;
            let nearest = |channels: u32, ranks: &[u32]| {
                let wanted = (1.0 - reduction) * f64::from(channels);
                let below = ranks.iter().filter(|&&rank| f64::from(rank) <= wanted);
                below.max().or(ranks.iter().min()).copied()
            };
            let tucker = || {
                layer.forms.iter().filter_map(|form| match form {
                    Form::Tucker(ranks) => Some(*ranks),
                    Form::Dense => None,
                })
            };
            let d1s: Vec<u32> = tucker().map(|[d1, _]| d1).collect();
            let d1 = nearest(shape.c, &d1s)?;
            let d2s: Vec<u32> = tucker()
                .filter(|ranks| ranks[0] == d1)
                .map(|r| r[1])
                .collect();
            Some((layer.op, Form::Tucker([d1, nearest(shape.n, &d2s)?])))
        });
        chosen.collect()
    }
}
