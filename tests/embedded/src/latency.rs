//! Host time of a launch, compared with a raw launch through the driver.

use crate::calls::PLAIN;
use convolutions::cuda::RawTensors;
use convolutions::cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut, result, sys};
use std::error::Error;
use std::ffi::{CString, c_void};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// Launches between waits: fewer than the capacity of a stream's queue, so that no launch waits for another.
const QUEUE: usize = 100;

/// Prints the median of a million launches of each kind, interleaved, for each mode of tensor tracking in
/// `cudarc`.
pub fn measure() -> Result<(), Box<dyn Error>> {
    let context = CudaContext::new(0)?;
    println!("{}, launches of {}, host ns: median, 99 of 100 below", context.name()?, PLAIN.name);
    // With a second stream in the context, `cudarc` records and waits for events of every tensor.
    measure_on(&context, &context.default_stream(), 1_000_000, "one stream")?;
    measure_on(&context, &context.new_stream()?, 100_000, "tensors tracked over streams")?;
    // SAFETY: all further work is on one stream.
    unsafe { context.disable_event_tracking() };
    measure_on(&context, &context.new_stream()?, 100_000, "tracking disabled")
}

fn measure_on(context: &Arc<CudaContext>, stream: &Arc<CudaStream>, launches: usize, name: &str) -> Result<(), Box<dyn Error>> {
    let kernel = PLAIN.load(context)?;
    let x = stream.alloc_zeros::<f32>(kernel.x_len())?;
    let w = stream.alloc_zeros::<f32>(kernel.weights_len())?;
    let mut y = stream.alloc_zeros::<f32>(kernel.y_len())?;
    let tensors = RawTensors {
        x: x.device_ptr(stream).0,
        weights: w.device_ptr(stream).0,
        y: y.device_ptr_mut(stream).0,
        ..RawTensors::default()
    };
    // The same launch with the driver's own call only.
    let launch = kernel.variant().launches().next().ok_or("no launch")?.clone();
    let symbol = CString::new(launch.kernel.as_bytes())?;
    // SAFETY: the image is complete; the module lives until the process ends.
    let function = unsafe {
        let module = result::module::load_data(kernel.image().bytes.as_ptr().cast())?;
        result::module::get_function(module, symbol)?
    };
    let shared = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: the driver has just returned the function.
    unsafe { sys::cuFuncSetAttribute(function, shared, launch.shared_bytes as i32) }.result()?;
    let mut attribute = sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    };
    let [gx, gy, gz] = launch.grid;
    let [bx, by, bz] = launch.block;
    let config = sys::CUlaunchConfig {
        gridDimX: gx,
        gridDimY: gy,
        gridDimZ: gz,
        blockDimX: bx,
        blockDimY: by,
        blockDimZ: bz,
        sharedMemBytes: launch.shared_bytes,
        hStream: stream.cu_stream(),
        attrs: &raw mut attribute,
        numAttrs: u32::from(launch.pdl),
    };
    let values = [tensors.x, tensors.weights, tensors.y];
    let raw = || {
        let mut pointers = values.each_ref().map(|value| std::ptr::from_ref(value).cast_mut().cast::<c_void>());
        // SAFETY: the kernel takes input, weights and output; the tensors live until the end.
        unsafe { sys::cuLaunchKernelEx(&raw const config, function, pointers.as_mut_ptr(), std::ptr::null_mut()) }.result()
    };
    let mut session = kernel.session(stream)?;
    let mut times = [const { Vec::<u32>::new() }; 3];
    for round in 0..launches / QUEUE {
        for kind in [0, 1, 2] {
            let kind = (kind + round) % 3;
            for _ in 0..QUEUE {
                let start = Instant::now();
                match kind {
                    0 => raw()?,
                    1 => session.launch(black_box(&x), black_box(&w), None, None, black_box(&mut y))?,
                    // SAFETY: the addresses are those of the tensors above.
                    _ => unsafe { kernel.launch_raw(stream.cu_stream(), black_box(&tensors)) }?,
                }
                times[kind].push(start.elapsed().as_nanos() as u32);
            }
            stream.synchronize()?;
        }
    }
    println!("{name}, {launches} of each");
    for (name, times) in ["driver", "session", "launch_raw"].iter().zip(&mut times) {
        times.sort_unstable();
        println!("{name:<10} {:>6} {:>6}", times[times.len() / 2], times[times.len() * 99 / 100]);
    }
    Ok(())
}
