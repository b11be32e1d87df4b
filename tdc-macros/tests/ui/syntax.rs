//! Missing commas and values.

static CONV: tdc::Kernel = tdc::kernel!(conv 64 32,56,56, bias, stride =);

fn main() {
    println!("{}", CONV.flops());
}
