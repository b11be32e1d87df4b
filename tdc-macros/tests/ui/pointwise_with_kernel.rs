//! The filter of a pointwise convolution is 1x1.

static CONV: tdc::Kernel = tdc::kernel!(pointwise 64,32,56,56, kernel = 3);

fn main() {}
