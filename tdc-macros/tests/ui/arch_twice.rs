//! An architecture that is listed twice.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,32,56,56, arch = [sm_90, sm_80, sm_90]);

fn main() {}
