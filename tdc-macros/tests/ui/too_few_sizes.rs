//! Three sizes.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,32,56, activation = relu);

fn main() {
    println!("{}", CONV.flops());
}
