//! A rank above the channels.

static LAYER: tdc::Kernel<tdc::Tucker> = tdc::kernel!(tucker 64,32,56,56, ranks = [65, 32]);

fn main() {}
