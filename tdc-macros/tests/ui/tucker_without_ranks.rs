//! A Tucker layer needs ranks; the type of the static gives no second error.

static LAYER: tdc::Kernel<tdc::Tucker> = tdc::kernel!(tucker 64,64,56,56, bias = true);

fn main() {}
