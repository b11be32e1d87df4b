//! Two layers that would be the same constant.

tdc::kernels! { mod layers = "../../../../tdc-macros/tests/ui/two.yaml"; }

fn main() {}
