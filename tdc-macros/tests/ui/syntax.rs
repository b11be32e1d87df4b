//! Missing commas and values.

static CONV: tdc::Kernel = tdc::kernel!(conv 64 32,56,56, relu, stride =);

fn main() {
    println!("{}", CONV.flops());
}
