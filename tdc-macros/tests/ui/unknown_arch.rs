//! An architecture that no kernel is compiled for.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,32,56,56, arch = [sm_80, sm_61, hopper]);

fn main() {}
