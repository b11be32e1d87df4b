//! A config that does not exist.

static CONV: tdc::Kernel = tdc::kernel!("configs/none.yaml", layer = "conv1");

fn main() {}
