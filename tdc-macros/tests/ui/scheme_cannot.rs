//! A scheme that cannot compute the layer.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,64,56,56, kernel = 5, gpu = h200, scheme = winograd);

fn main() {}
