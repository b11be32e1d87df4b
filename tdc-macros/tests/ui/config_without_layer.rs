//! A config alone is no layer.

static CONV: tdc::Kernel = tdc::kernel!("tests/embedded/layers.yaml");

fn main() {}
