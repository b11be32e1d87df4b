//! A module of a config, not of a layer.

tdc::kernels! { mod layers = conv 64,32,56,56; }
tdc::kernels! {}
tdc::kernels! { mod layers "a.yaml"; }

fn main() {}
