//! A config without a layer.

static CONV: tdc::Kernel = tdc::kernel!("tests/embedded/layers.yaml");

fn main() {}
