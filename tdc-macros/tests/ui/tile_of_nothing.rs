//! A tile that the scheme does not have.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,32,56,56, scheme = direct, tile = [7]);

fn main() {
    println!("{}", CONV.flops());
}
