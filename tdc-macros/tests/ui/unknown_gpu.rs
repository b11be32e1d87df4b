//! A GPU that the table does not have.

static CONV: tdc::Kernel = tdc::kernel!(conv 64,32,56,56, gpu = h20);

fn main() {
    println!("{}", CONV.flops());
}
