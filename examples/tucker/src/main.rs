//! A residual block of two Tucker layers on a GPU: y = relu(second(relu(first(x))) + x), captured into a CUDA graph.
//!
//!     cargo run --release

use std::error::Error;
use tdc::cudarc::driver::CudaContext;
use tdc::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use tdc::{Kernel, Tucker};

static FIRST: Kernel<Tucker> = tdc::kernel!(tucker 64,64,56,56, ranks = [32, 32], bias = true, activation = relu);
static SECOND: Kernel<Tucker> =
    tdc::kernel!(tucker 64,64,56,56, ranks = [32, 32], bias = true, residual = true, activation = relu);

const REPLAYS: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let context = CudaContext::new(0)?;
    // All work is on one stream, which orders it; events cannot be waited for during a capture.
    // SAFETY: no other stream is used.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream()?;
    let (first, second) = (FIRST.load(&context)?, SECOND.load(&context)?);
    println!("{}: {first:?}", context.name()?);

    let mut random = Random(1);
    // In a trained network these are the factors of the weight, in PyTorch's order.
    let factors = FIRST.op.factors().map(|shape| random.values(shape.weight_len() as usize));
    let [u1, core, u2] = factors.each_ref().map(|factor| &factor[..]);
    let w1 = stream.clone_htod(&first.pack_weights([u1, core, u2])?)?;
    let w2 = stream.clone_htod(&second.pack_weights([u1, core, u2])?)?;
    let bias = stream.clone_htod(&random.values(64))?;
    let x = stream.clone_htod(&random.values(first.x_len()))?;
    let mut between = stream.alloc_zeros::<f32>(first.y_len())?;
    let mut y = stream.alloc_zeros::<f32>(second.y_len())?;

    let (mut one, mut two) = (first.session(&stream)?, second.session(&stream)?);
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    one.launch(&x, &w1, Some(&bias), None, &mut between)?;
    two.launch(&between, &w2, Some(&bias), Some(&x), &mut y)?;
    let graph = stream
        .end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)?
        .ok_or("nothing was captured")?;
    graph.launch()?;
    stream.synchronize()?;
    let start = std::time::Instant::now();
    for _ in 0..REPLAYS {
        graph.launch()?;
    }
    stream.synchronize()?;
    let us = start.elapsed().as_secs_f64() * 1e6 / REPLAYS as f64;
    let y = stream.clone_dtoh(&y)?;
    println!("{us:.1} us per block, {} of {} outputs above zero", y.iter().filter(|y| **y > 0.0).count(), y.len());
    Ok(())
}

/// Numbers in [-0.1, 0.1).
struct Random(u64);

impl Random {
    fn values(&mut self, len: usize) -> Vec<f32> {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((self.0 >> 40) as f32 / (1 << 24) as f32 - 0.5) * 0.2
        };
        (0..len).map(|_| next()).collect()
    }
}
