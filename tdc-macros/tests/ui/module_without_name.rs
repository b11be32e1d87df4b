//! A module needs a name and a path.

tdc::kernels! { pub mod = "configs/resnet18.yaml"; }

fn main() {}
