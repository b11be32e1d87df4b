//! Values of the wrong type, all in one call.

static CONV: tdc::Kernel = tdc::kernel!(conv 64u32,-32,56,"56", kernel = 1.5, stride = two, activation = 1, pad = [1, 2, 3]);

fn main() {
    println!("{}", CONV.flops());
}
