//! A scheme that does not exist.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,32,56,56, scheme = dierct);

fn main() {
    println!("{}", CONV.flops());
}
