//! A network for another batch.

use super::{Network, OpKind};
use crate::ir::Batches;

impl Network {
    /// The network for batches of `images`, at most as many as those that it was checked for. Only the batch of every shape differs.
    #[must_use]
    pub fn with_batch(&self, images: u32) -> Self {
        let mut network = self.clone();
        network.batches = Batches::one(images);
        for op in &mut network.ops {
            op.y.batch = images;
            match &mut op.kind {
                OpKind::Conv(conv) => conv.shape.batch = images,
                OpKind::ConvTranspose(layer) => layer.problem.shape.batch = images,
                OpKind::Pool(pool) => pool.x.batch = images,
                OpKind::Pad(pad) => pad.x.batch = images,
                OpKind::Resize(resize) => resize.x.batch = images,
                // Their shapes are those of their inputs and output.
                OpKind::Input(_)
                | OpKind::ChannelNorm(_)
                | OpKind::Lrn(_)
                | OpKind::GlobalPool { .. }
                | OpKind::Linear(_)
                | OpKind::Binary(..)
                | OpKind::Activation(_)
                | OpKind::ScaleShift(_)
                | OpKind::PRelu
                | OpKind::Concat
                | OpKind::Slice { .. }
                | OpKind::Shuffle { .. }
                | OpKind::Flatten => {}
            }
        }
        network
    }

    /// The number of images that the shapes are for: the largest of the batches.
    pub fn batch(&self) -> u32 {
        self.input().batch
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Overrides, yaml};
    use crate::ir::Network;

    /// The network of a config with every op whose shapes have a batch.
    fn network(batch: u32) -> Network {
        let text = format!(
            "{{name: net, input: {batch}x6x9x11, ops: [{{op: conv, name: a, n: 8, stride: 2}}, {{op: conv_transpose, name: b, n: 4, kernel: 3}}, \
             {{op: max_pool, name: c, kernel: 2}}, {{op: pad, name: d, pad: 1}}, {{op: resize, name: e, scale: 2}}, {{op: flatten, name: f}}, {{op: linear, name: g, n: 5}}]}}"
        );
        match yaml::parse(&text, "net.yaml", &Overrides::default()) {
            Ok(Config::Network(network)) => network,
            Ok(Config::LayerSet(_)) => unreachable!("the config has ops"),
            Err(errors) => panic!("{errors}"),
        }
    }

    #[test]
    fn another_batch_is_as_if_the_config_had_it() {
        assert_eq!(network(7).with_batch(3), network(3));
        assert_eq!(network(7).batch(), 7);
    }
}
