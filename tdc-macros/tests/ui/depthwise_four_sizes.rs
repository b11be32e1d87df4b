//! A depthwise convolution has as many outputs as inputs.

static CONV: tdc::Kernel = tdc::kernel!(depthwise 64,64,56,56);

fn main() {}
