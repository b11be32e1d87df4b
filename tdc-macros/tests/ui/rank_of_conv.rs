//! Ranks are keys of a Tucker layer.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,64,56,56, ranks = [32, 32]);

fn main() {}
