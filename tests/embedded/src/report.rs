//! A kernel as lines of text.

use convolutions::{Checksum, ImageFormat, Kernel, Op};

/// Prints everything that a kernel contains, source and machine code as checksums.
pub fn kernel<O: Op>(call: &str, kernel: &Kernel<O>) {
    println!("{call} {}", kernel.name);
    println!("  op {:?}", kernel.op);
    for variant in kernel.variants {
        println!("  variant {} {:?}", variant.device_name, variant.variant);
        for choice in variant.choices {
            println!("    {} {}", choice.scheme, choice.tile);
        }
        println!("    estimate {:?}", variant.predicted_us);
        let text = Checksum::of(variant.source.as_bytes());
        println!("    text {text:016x}");
    }
    for image in kernel.images {
        let is_whole = match image.format {
            ImageFormat::Cubin => image.bytes.starts_with(b"\x7fELF"),
            ImageFormat::Ptx => {
                let target = format!(".target {}", image.arch);
                let text = String::from_utf8_lossy(image.bytes);
                text.contains(&target) && text.ends_with('\0')
            }
        };
        println!("  {image} of {}, whole: {is_whole}", image.variant);
        for used in image.kernels {
            println!("    {} has registers: {}", used.kernel, used.registers > 0);
        }
    }
}
