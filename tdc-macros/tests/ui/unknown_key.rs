//! A misspelt key, and one that means nothing.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,32,56,56, strid = 2, colour = 3);

fn main() {
    println!("{}", CONV.flops());
}
