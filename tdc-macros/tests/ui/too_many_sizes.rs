//! A filter size among the sizes.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,32,56,56,5);

fn main() {
    println!("{}", CONV.flops());
}
