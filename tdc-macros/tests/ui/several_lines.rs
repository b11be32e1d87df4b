//! Each mistake is shown at its own word, also over several lines and behind a renamed crate.

extern crate tdc as convolutions;

fn main() {
    let kernel = convolutions::kernel!(conv 64,32,56,56,
        kernel = 90,
        gpu = h300,
        batch = 0);
    println!("{}", kernel.flops());
}
