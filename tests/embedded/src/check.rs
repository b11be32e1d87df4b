//! Checks kernels on a GPU against a plain float64 convolution, and calls that must be rejected.

use crate::calls::*;
use convolutions::cuda::{LaunchError, LoadedKernel};
use convolutions::cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use convolutions::{Activation, ConvShape, Kernel, LowRank, Op, Tucker};
use std::error::Error;
use std::sync::Arc;

type Outcome = Result<(), Box<dyn Error>>;

/// Pseudo-random numbers in [-1, 1), never zero.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 40) as f32 + 0.5) / (1 << 23) as f32 - 1.0
    }

    pub fn vec(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.next()).collect()
    }
}

/// Runs all checks and reports them.
pub fn all() -> Outcome {
    let context = CudaContext::new(0)?;
    println!("{}", context.name()?);
    conv(&context, &PLAIN, 1e-6)?;
    conv(&context, &RELU, 1e-6)?;
    conv(&context, &ODD, 1e-6)?;
    conv(&context, &POINTWISE, 1e-6)?;
    conv(&context, &DEPTHWISE, 1e-6)?;
    conv(&context, &TF32, 1e-3)?;
    conv(&context, &BF16, 8e-3)?;
    conv(&context, &WINOGRAD, 5e-6)?;
    conv(&context, &square(), 1e-6)?;
    // Planned for other devices: one has machine code of an older architecture and no PTX that is too new.
    conv(&context, &set::_1X1, 1e-6)?;
    conv(&context, &network::BLOCK_CONV, 1e-6)?;
    for kernel in [&ONE_LAUNCH, &SEPARATE, &SYMMETRIC, &network::TUCKER] {
        tucker(&context, kernel, 1.8e-6)?;
    }
    for kernel in [&LOW_RANK, &LINEAR_LOW_RANK, &network::LOW, &network::FEATURES] {
        low_rank(&context, kernel, 1.4e-6)?;
    }
    conv(&context, &network::HEAD, 1e-6)?;
    invalid_launches(&context)?;
    captured(&context)?;
    println!("all right");
    Ok(())
}

/// The tensors of a launch.
struct Case {
    x: Vec<f32>,
    bias: Vec<f32>,
    residual: Vec<f32>,
    scale: Vec<f32>,
    shift: Vec<f32>,
    random: Random,
}

impl Case {
    fn new(op: &impl Op) -> Self {
        let (shape, fused) = (op.shape(), op.fused());
        let mut random = Random(7);
        let mut tensor = |len: usize, needed: bool| random.vec(if needed { len } else { 0 });
        let [channels, outputs] = [shape.c as usize, shape.n as usize];
        Self {
            x: tensor(shape.input_len() as usize, true),
            bias: tensor(outputs, fused.bias),
            residual: tensor(shape.output_len() as usize, fused.residual),
            scale: tensor(channels, fused.prologue),
            shift: tensor(channels, fused.prologue),
            random: Random(11),
        }
    }

    /// The input after the prologue, in float64.
    fn prologue(&self, shape: &ConvShape, activated: impl Fn(f64) -> f64) -> Vec<f64> {
        let pixels = (shape.h * shape.w) as usize;
        let value = |(index, &x): (usize, &f32)| {
            let Some(scale) = self.scale.get(index / pixels % shape.c as usize) else {
                return f64::from(x);
            };
            let shift = self.shift[index / pixels % shape.c as usize];
            activated(f64::from(*scale) * f64::from(x) + f64::from(shift))
        };
        self.x.iter().enumerate().map(value).collect()
    }

    /// Bias, residual and activation.
    fn epilogue(&self, y: &mut [f64], shape: &ConvShape, activation: Activation) {
        let pixels = (shape.out_h() * shape.out_w()) as usize;
        for (index, y) in y.iter_mut().enumerate() {
            let channel = index / pixels % shape.n as usize;
            *y += self.bias.get(channel).copied().map_or(0.0, f64::from);
            *y += self.residual.get(index).copied().map_or(0.0, f64::from);
            *y = match activation {
                Activation::Relu => y.max(0.0),
                Activation::LeakyRelu { slope } if *y < 0.0 => f64::from(slope.get()) * *y,
                _ => *y,
            };
        }
    }
}

/// The convolution by its definition.
fn convolved(x: &[f64], weights: &[f32], s: &ConvShape) -> Vec<f64> {
    let [c_group, n_group] = [s.c / s.groups, s.n / s.groups];
    let [out_h, out_w] = [s.out_h(), s.out_w()];
    let mut y = Vec::with_capacity(s.output_len() as usize);
    for image in 0..s.batch {
        for n in 0..s.n {
            for pixel in 0..out_h * out_w {
                let mut sum = 0.0;
                for c in 0..c_group {
                    for tap in 0..s.r * s.s {
                        let h = pixel / out_w * s.stride[0] + tap / s.s * s.dilation[0];
                        let w = pixel % out_w * s.stride[1] + tap % s.s * s.dilation[1];
                        let (Some(h), Some(w)) = (h.checked_sub(s.padding.top), w.checked_sub(s.padding.left)) else {
                            continue;
                        };
                        if h >= s.h || w >= s.w {
                            continue;
                        }
                        let channel = n / n_group * c_group + c;
                        let x = x[(((image * s.c + channel) * s.h + h) * s.w + w) as usize];
                        sum += x * f64::from(weights[((n * c_group + c) * s.r * s.s + tap) as usize]);
                    }
                }
                y.push(sum);
            }
        }
    }
    y
}

fn conv(context: &Arc<CudaContext>, kernel: &Kernel, bound: f64) -> Outcome {
    let loaded = kernel.load(context)?;
    let mut case = Case::new(&kernel.op);
    let shape = &kernel.op.shape;
    let weights = case.random.vec(shape.weight_len() as usize);
    let packed = loaded.pack_weights_with_prologue(&weights, &case.scale, &case.shift)?;
    let stream = context.new_stream()?;
    let on_device = stream.clone_htod(&weights)?;
    let on_device = match kernel.op.fused.prologue {
        true => {
            let (scale, shift) = (stream.clone_htod(&case.scale)?, stream.clone_htod(&case.shift)?);
            loaded.pack_weights_with_prologue_on_device(&stream, &on_device, &scale, &shift)?
        }
        false => loaded.pack_weights_on_device(&stream, &on_device)?,
    };
    same_bits(loaded.name(), &packed, &stream.clone_dtoh(&on_device)?)?;
    // Only ODD has a prologue.
    let x = case.prologue(shape, |x| x.clamp(-0.5, 2.0));
    let mut expected = convolved(&x, &weights, shape);
    case.epilogue(&mut expected, shape, kernel.op.fused.activation);
    compare(context, &loaded, &case, &packed, &expected, bound)
}

fn tucker(context: &Arc<CudaContext>, kernel: &Kernel<Tucker>, bound: f64) -> Outcome {
    let loaded = kernel.load(context)?;
    let mut case = Case::new(&kernel.op);
    let shapes = kernel.op.factors();
    let factors = shapes.map(|shape| case.random.vec(shape.weight_len() as usize));
    let [first, core, last] = factors.each_ref().map(|factor| &factor[..]);
    let factors = [first, core, last];
    let packed = loaded.pack_weights_with_prologue(factors, &case.scale, &case.shift)?;
    let stream = context.new_stream()?;
    let [first, core, last] = factors.map(|factor| stream.clone_htod(factor));
    let on_device = [&first?, &core?, &last?];
    let on_device = match kernel.op.fused.prologue {
        true => {
            let (scale, shift) = (stream.clone_htod(&case.scale)?, stream.clone_htod(&case.shift)?);
            loaded.pack_weights_with_prologue_on_device(&stream, on_device, &scale, &shift)?
        }
        false => loaded.pack_weights_on_device(&stream, on_device)?,
    };
    same_bits(loaded.name(), &packed, &stream.clone_dtoh(&on_device)?)?;
    let mut expected = case.prologue(&kernel.op.shape, |x| x);
    for (shape, factor) in shapes.iter().zip(factors) {
        expected = convolved(&expected, factor, shape);
    }
    case.epilogue(&mut expected, &kernel.op.shape, kernel.op.fused.activation);
    compare(context, &loaded, &case, &packed, &expected, bound)
}

fn low_rank(context: &Arc<CudaContext>, kernel: &Kernel<LowRank>, bound: f64) -> Outcome {
    let loaded = kernel.load(context)?;
    let mut case = Case::new(&kernel.op);
    let shapes = kernel.op.factors();
    let factors = shapes.map(|shape| case.random.vec(shape.weight_len() as usize));
    let [first, last] = &factors;
    let packed = loaded.pack_weights_with_prologue([first, last], &case.scale, &case.shift)?;
    let stream = context.new_stream()?;
    let (first, last) = (stream.clone_htod(first)?, stream.clone_htod(last)?);
    let on_device = match kernel.op.fused.prologue {
        true => {
            let (scale, shift) = (stream.clone_htod(&case.scale)?, stream.clone_htod(&case.shift)?);
            loaded.pack_weights_with_prologue_on_device(&stream, [&first, &last], &scale, &shift)?
        }
        false => loaded.pack_weights_on_device(&stream, [&first, &last])?,
    };
    same_bits(loaded.name(), &packed, &stream.clone_dtoh(&on_device)?)?;
    let mut expected = case.prologue(&kernel.op.shape, |x| x);
    for (shape, factor) in shapes.iter().zip(&factors) {
        expected = convolved(&expected, factor, shape);
    }
    case.epilogue(&mut expected, &kernel.op.shape, kernel.op.fused.activation);
    compare(context, &loaded, &case, &packed, &expected, bound)
}

fn uploaded(stream: &Arc<CudaStream>, values: &[f32]) -> Result<Option<CudaSlice<f32>>, Box<dyn Error>> {
    Ok(match values.is_empty() {
        true => None,
        false => Some(stream.clone_htod(values)?),
    })
}

/// Weights packed on the host and on the device.
fn same_bits(name: &str, host: &[f32], device: &[f32]) -> Outcome {
    let differ = host.iter().zip(device).position(|(host, device)| host.to_bits() != device.to_bits());
    match differ {
        None if host.len() == device.len() => Ok(()),
        _ => Err(format!("{name}: packed on the device other weights than on the host, from {differ:?}").into()),
    }
}

/// Launches twice on a poisoned output: results must be correct and have the same bits.
fn compare<O: Op>(
    context: &Arc<CudaContext>,
    loaded: &LoadedKernel<O>,
    case: &Case,
    packed: &[f32],
    expected: &[f64],
    bound: f64,
) -> Outcome {
    let stream = context.new_stream()?;
    let x = stream.clone_htod(&case.x)?;
    let weights = stream.clone_htod(packed)?;
    let bias = uploaded(&stream, &case.bias)?;
    let residual = uploaded(&stream, &case.residual)?;
    let mut runs = Vec::new();
    let mut session = loaded.session(&stream)?;
    for _ in 0..2 {
        let mut y = stream.clone_htod(&vec![f32::NAN; loaded.y_len()])?;
        session.launch(&x, &weights, bias.as_ref(), residual.as_ref(), &mut y)?;
        runs.push(stream.clone_dtoh(&y)?);
    }
    let mut y = stream.clone_htod(&vec![f32::NAN; loaded.y_len()])?;
    loaded.launch(&stream, &x, &weights, bias.as_ref(), residual.as_ref(), &mut y)?;
    runs.push(stream.clone_dtoh(&y)?);
    let (mut error, mut norm) = (0.0, 0.0);
    for (found, expected) in runs[0].iter().zip(expected) {
        error += (f64::from(*found) - expected).powi(2);
        norm += expected.powi(2);
    }
    let relative = (error / norm).sqrt();
    println!("{loaded:?}: relative error {relative:.2e}");
    if relative.is_nan() || relative > bound {
        return Err(format!("{}: {relative:.2e} is more than {bound:.1e}", loaded.name()).into());
    }
    let bits = |run: &[f32]| run.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
    if runs.iter().any(|run| bits(run) != bits(&runs[0])) {
        return Err(format!("{}: another run gave other bits", loaded.name()).into());
    }
    Ok(())
}

/// Invalid tensors and contexts: errors, and nothing is launched.
fn invalid_launches(context: &Arc<CudaContext>) -> Outcome {
    let loaded = ODD.load(context)?;
    let stream = context.new_stream()?;
    let zeros = |len: usize| stream.alloc_zeros::<f32>(len);
    let (x, w) = (zeros(loaded.x_len())?, zeros(loaded.weights_len())?);
    let (b, r) = (zeros(loaded.bias_len())?, zeros(loaded.y_len())?);
    let mut y = zeros(loaded.y_len())?;
    let short = zeros(3)?;
    let empty = x.slice(0..0);
    let mut session = loaded.session(&stream)?;
    let expect_error = |found: Result<(), LaunchError>, expected: LaunchError| match found {
        Err(error) if error == expected => {
            println!("rejected: {error}");
            Ok(())
        }
        other => Err(format!("{other:?} instead of {expected:?}")),
    };
    let length = |what, expected, found| LaunchError::Length { what, expected, found };
    let [b, r] = [Some(&b), Some(&r)];
    expect_error(session.launch(&short, &w, b, r, &mut y), length("x", loaded.x_len(), 3))?;
    expect_error(session.launch(&empty, &w, b, r, &mut y), length("x", loaded.x_len(), 0))?;
    expect_error(session.launch(&x, &short, b, r, &mut y), length("weights", loaded.weights_len(), 3))?;
    expect_error(session.launch(&x, &w, Some(&short), r, &mut y), length("bias", loaded.bias_len(), 3))?;
    expect_error(session.launch(&x, &w, b, Some(&short), &mut y), length("residual", loaded.y_len(), 3))?;
    let mut small = zeros(3)?;
    expect_error(session.launch(&x, &w, b, r, &mut small), length("y", loaded.y_len(), 3))?;
    expect_error(session.launch(&x, &w, None, r, &mut y), LaunchError::Missing("bias"))?;
    expect_error(session.launch(&x, &w, b, None, &mut y), LaunchError::Missing("residual"))?;
    let source = zeros(ODD.op.shape.weight_len() as usize)?;
    let channels = zeros(ODD.op.shape.c as usize)?;
    let packed = loaded.pack_weights_with_prologue_on_device(&stream, &short, &channels, &channels);
    expect_error(packed.map(|_| ()), length("weights", source.len(), 3))?;
    let packed = loaded.pack_weights_with_prologue_on_device(&stream, &source, &channels, &short);
    expect_error(packed.map(|_| ()), length("shift", channels.len(), 3))?;
    expect_error(loaded.pack_weights_on_device(&stream, &source).map(|_| ()), LaunchError::Missing("prologue"))?;
    let plain = PLAIN.load(context)?;
    let (px, pw) = (zeros(plain.x_len() + 1)?, zeros(plain.weights_len())?);
    let mut py = zeros(plain.y_len())?;
    let aligned = px.slice(..plain.x_len());
    expect_error(plain.launch(&stream, &aligned, &pw, b, None, &mut py), LaunchError::Unexpected("bias"))?;
    let shifted = px.slice(1..);
    expect_error(plain.launch(&stream, &shifted, &pw, None, None, &mut py), LaunchError::Misaligned("x"))?;
    // Loaded code outlives the handle that loaded it, and is unloaded with the last owner.
    let y_len = plain.y_len();
    drop(plain);
    let again = PLAIN.load(context)?;
    again.launch(&stream, &aligned, &pw, None, None, &mut py)?;
    if stream.clone_dtoh(&py)? != vec![0.0; y_len] {
        return Err("zeros convolved are not zeros".into());
    }
    if CudaContext::device_count()? > 1 {
        let other = CudaContext::new(1)?;
        let elsewhere = other.new_stream()?;
        expect_error(again.session(&elsewhere).map(|_| ()), LaunchError::Context("stream"))?;
        let foreign = elsewhere.alloc_zeros::<f32>(again.x_len())?;
        expect_error(again.launch(&stream, &foreign, &pw, None, None, &mut py), LaunchError::Context("x"))?;
    }
    Ok(())
}

/// A launch in a CUDA graph: replayed on new input it gives the same result as a launch.
fn captured(context: &Arc<CudaContext>) -> Outcome {
    use convolutions::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
    // A capture cannot wait for the events of tensor tracking.
    // SAFETY: all further work is on one stream.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream()?;
    let loaded = SEPARATE.load(context)?;
    let mut random = Random(3);
    let mut tensor = |len| stream.clone_htod(&random.vec(len));
    let (mut x, w) = (tensor(loaded.x_len())?, tensor(loaded.weights_len())?);
    let (b, r) = (tensor(loaded.bias_len())?, tensor(loaded.y_len())?);
    let mut y = stream.alloc_zeros(loaded.y_len())?;
    let mut session = loaded.session(&stream)?;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    session.launch(&x, &w, Some(&b), Some(&r), &mut y)?;
    let graph = stream
        .end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)?
        .ok_or("nothing was captured")?;
    let input = Random(5).vec(loaded.x_len());
    stream.memcpy_htod(&input, &mut x)?;
    graph.launch()?;
    let replayed = stream.clone_dtoh(&y)?;
    session.launch(&x, &w, Some(&b), Some(&r), &mut y)?;
    let launched = stream.clone_dtoh(&y)?;
    match replayed == launched {
        true => Ok(()),
        false => Err("a graph's replay gave other values than a launch".into()),
    }
}
