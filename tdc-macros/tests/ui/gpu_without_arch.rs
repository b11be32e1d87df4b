//! A GPU whose architecture is not compiled for.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,32,56,56, arch = sm_90, gpu = [h200, a100]);

fn main() {}
