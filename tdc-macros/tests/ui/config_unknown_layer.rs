//! A layer that the config does not have.

static CONV: tdc::Kernel = tdc::kernel!("../../../../tdc-macros/tests/ui/two.yaml", layer = "block.con");

fn main() {}
