//! Each error is reported at its own word, also over several lines and with a renamed crate.

extern crate tdc as convolutions;

fn main() {
    let kernel = convolutions::kernel!(conv 64,32,56,56,
        kernel = wide,
        gpu = h300,
        activation = 3);
    println!("{}", kernel.flops());
}
