//! A config that is not there.

static CONV: tdc::Kernel = tdc::kernel!("configs/none.yaml", layer = "conv1");

fn main() {}
