//! No output channels.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,0,56,56);

fn main() {
    println!("{}", CONV.flops());
}
