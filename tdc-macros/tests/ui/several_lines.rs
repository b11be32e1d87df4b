//! Each mistake is shown at its own word, also over several lines and behind a renamed crate.

extern crate tdc as convolutions;

fn main() {
    let kernel = convolutions::kernel!(conv 64,32,56,56,
        kernel = wide,
        gpu = h300,
        relu = 3);
    println!("{}", kernel.flops());
}
