//! An input without rows.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,32,0,56);

fn main() {
    println!("{}", CONV.flops());
}
