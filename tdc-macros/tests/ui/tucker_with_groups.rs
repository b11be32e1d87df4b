//! A key of another op.

static LAYER: tdc::Kernel<tdc::Tucker> = tdc::kernel!(tucker 64,32,56,56, ranks = [8, 8], groups = 2);

fn main() {}
