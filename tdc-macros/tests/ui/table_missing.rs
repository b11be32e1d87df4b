//! A table of measured times that does not exist.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,64,56,56, table = "none.txt");

fn main() {}
