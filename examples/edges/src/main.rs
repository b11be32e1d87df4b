//! Reads an image, computes its edges on the GPU, shows them in the terminal and writes them to a file.
//!
//!     cargo run --release -- photo.jpg edges.png

use image::imageops::FilterType;
use image::{GrayImage, ImageReader};
use std::error::Error;
use tdc::Kernel;
use tdc::cudarc::driver::CudaContext;

const SIZE: u32 = 512;

/// One grey channel to two: horizontal and vertical differences.
static SOBEL: Kernel = tdc::kernel!(conv 1,2,512,512);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(from), Some(to)) = (args.next(), args.next()) else {
        return Err("usage: edges IMAGE OUTPUT.png".into());
    };
    let picture = ImageReader::open(from)?.decode()?;
    let grey = picture.resize_exact(SIZE, SIZE, FilterType::Triangle).to_luma32f();

    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let sobel = SOBEL.load(&context)?;
    let weights = [
        [-1.0, 0.0, 1.0, -2.0, 0.0, 2.0, -1.0, 0.0, 1.0],
        [-1.0, -2.0, -1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 1.0],
    ];
    let w = stream.clone_htod(&sobel.pack_weights(weights.as_flattened())?)?;
    let x = stream.clone_htod(grey.as_raw())?;
    let mut y = stream.alloc_zeros::<f32>(sobel.y_len())?;
    sobel.launch(&stream, &x, &w, None, None, &mut y)?;
    let y = stream.clone_dtoh(&y)?;

    let (across, down) = y.split_at(y.len() / 2);
    let strength = across.iter().zip(down).map(|(a, d)| (a.hypot(*d) * 128.0).min(255.0) as u8);
    let edges = GrayImage::from_raw(SIZE, SIZE, strength.collect()).ok_or("too few pixels")?;
    show(&edges);
    edges.save(to)?;
    Ok(())
}

/// Prints one character for each 8 x 16 pixels.
fn show(picture: &GrayImage) {
    let small = image::imageops::resize(picture, SIZE / 8, SIZE / 16, FilterType::Triangle);
    for row in small.rows() {
        let shade = |pixel: &image::Luma<u8>| b" .:-=+*#%@"[(usize::from(pixel.0[0]) * 10 / 128).min(9)];
        let line: Vec<u8> = row.map(shade).collect();
        println!("{}", String::from_utf8_lossy(&line));
    }
}
