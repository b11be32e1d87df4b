//! The same key twice.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,32,56,56, stride = 2, activation = relu, stride = 1);

fn main() {
    println!("{}", CONV.flops());
}
