//! Prints what `kernel!` embeds in a program; needs no GPU.
//!
//!     cargo run

use tdc::{Kernel, Op, Tucker};

static CONV: Kernel = tdc::kernel!(conv 64,32,56,56, bias = true, activation = relu);
static LAYER: Kernel<Tucker> = tdc::kernel!(tucker 64,64,56,56, ranks = [32, 32], activation = relu, gpu = h200);

fn main() {
    print_kernel(&CONV);
    print_kernel(&LAYER);
}

fn print_kernel<O: Op>(kernel: &Kernel<O>) {
    println!("{}: {:.1} MFLOP", kernel.name, kernel.flops() as f64 / 1e6);
    for variant in kernel.variants {
        println!("  for {}: {:.1} us predicted", variant.device_name, variant.predicted_us);
        for choice in variant.choices {
            println!("    {} with tile {}", choice.scheme, choice.tile);
        }
        for launch in variant.launches() {
            println!("    {:?} blocks of {:?} threads, {} bytes of shared memory", launch.grid, launch.block, launch.shared_bytes);
        }
        println!("    {} lines of CUDA", variant.source.lines().count());
    }
    for image in kernel.images {
        println!("  {image}: {} bytes", image.bytes.len());
        for used in image.kernels {
            println!("    {} registers, {} bytes spilled", used.registers, used.spilled_bytes);
        }
    }
}
