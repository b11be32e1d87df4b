//! Groups must divide both numbers of channels.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,32,56,56, groups = 5);

fn main() {
    println!("{}", CONV.flops());
}
