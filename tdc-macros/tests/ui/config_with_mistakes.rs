//! Errors in the config are reported with their lines.

static CONV: tdc::Kernel = tdc::kernel!("../../../../tdc-macros/tests/ui/wrong.yaml", layer = "conv1");

fn main() {}
