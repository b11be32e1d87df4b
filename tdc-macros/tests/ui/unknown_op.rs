//! A misspelt op.

static CONV: tdc::Kernel = tdc::kernel!(covn 64,32,56,56);

fn main() {
    println!("{}", CONV.flops());
}
