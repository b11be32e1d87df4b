//! Times cuDNN's algorithms by the same method as generated kernels.

use super::buffers::{Buffers, bytes_of};
use super::cudnn::{Algorithm, Arithmetic, Cudnn, Layout, Request, RunAddresses};
use super::measure::Interruption;
use super::{BenchProblem, CudnnBest, CudnnCandidate, CudnnReport, Timed};
use crate::ir::{ConvProblem, Problem, TensorShape};
use crate::verify::{Deviation, Device, DeviceError, GpuDevice, ProblemData, Repeats};
use half::f16;
use std::time::Instant;

/// Upper limit of cuDNN's workspace in bytes, if the GPU has that much memory.
const MAX_WORKSPACE_BYTES: usize = 1 << 30;

/// Relative error up to which a result counts as computed in fp32 throughout: far above the rounding errors
/// of Winograd and FFT, far below those of TF32.
const FP32_ARITHMETIC_TOLERANCE: f64 = 2e-5;
/// Largest relative error of TF32.
const TF32_TOLERANCE: f64 = 1e-3;
/// Largest relative error of fp16.
const FP16_TOLERANCE: f64 = 5e-3;

/// Number of fastest algorithms that are timed in full.
const FULLY_TIMED: usize = 3;

/// The operands of all algorithms with one data type and layout.
struct OperandSet {
    arithmetic: Arithmetic,
    layout: Layout,
    x: Vec<u8>,
    weight: Vec<u8>,
    y_bytes: usize,
    buffers: Buffers,
}

/// An algorithm that has run, with its quick time.
struct TimedAlgorithm<'a> {
    algorithm: Box<dyn Algorithm + 'a>,
    /// Index of its operand set.
    operands: usize,
    candidate: CudnnCandidate,
    /// Its full time, if measured.
    us: Option<f64>,
    cold_us: Option<Option<f64>>,
}

/// State for measuring one problem.
struct AlgorithmBench<'a> {
    device: &'a mut GpuDevice,
    problem: &'a Problem,
    data: &'a ProblemData,
    workspace: u64,
    l2_bytes: u64,
    operands: Vec<OperandSet>,
}

/// cuDNN and how it is measured.
pub struct CudnnBench {
    /// The library.
    pub cudnn: Cudnn,
    /// Size of the GPU's L2 in bytes.
    pub l2_bytes: u64,
    /// See [`Request::runtime_compiled_engines`].
    pub runtime_compiled_engines: bool,
    /// Whether to include fp16 algorithms.
    pub fp16: bool,
    /// Problems measured already: CP layers of several ranks and both layouts of a generated kernel have the
    /// same dense convolution.
    pub known: Vec<(ConvProblem, CudnnReport)>,
}

impl CudnnBench {
    /// Times every cuDNN algorithm for the problem's convolution quickly and the best ones in full, unless
    /// that was done before. `data` is the problem's.
    ///
    /// # Errors
    /// [`Interruption`]; algorithms that fail are counted.
    pub fn measure(
        &mut self,
        device: &mut GpuDevice,
        problem: &BenchProblem,
        data: &ProblemData,
        stop: &dyn Fn() -> bool,
    ) -> Result<CudnnReport, Interruption> {
        let conv = problem.dense_conv();
        if let Some((_, times)) = self.known.iter().find(|(known, _)| *known == conv) {
            return Ok(times.clone());
        }
        // The factors of a CP layer are not weights of a convolution.
        let dense = problem.cp_rank;
        let dense = dense.map(|_| ProblemData::with_repeated_images(&Problem::Conv(conv), 1));
        let times = self.measure_all(device, &conv, dense.as_ref().unwrap_or(data), stop);
        device.free_all();
        let times = times?;
        self.known.push((conv, times.clone()));
        Ok(times)
    }

    fn measure_all(
        &self,
        device: &mut GpuDevice,
        conv: &ConvProblem,
        data: &ProblemData,
        stop: &dyn Fn() -> bool,
    ) -> Result<CudnnReport, Interruption> {
        let (workspace, workspace_limit) = workspace(device)?;
        let problem = Problem::Conv(*conv);
        let mut bench = AlgorithmBench {
            device,
            problem: &problem,
            data,
            workspace,
            l2_bytes: self.l2_bytes,
            operands: Vec::new(),
        };
        let (mut fp32_entries, mut fp16_entries) = (Vec::new(), Vec::new());
        let (mut failed, mut notes) = (0, Vec::new());
        let arithmetics = match self.fp16 {
            true => &Arithmetic::ALL[..],
            false => &[Arithmetic::Float],
        };
        for &arithmetic in arithmetics {
            let mut least_us = f64::INFINITY;
            let entries = match arithmetic {
                Arithmetic::Float => &mut fp32_entries,
                Arithmetic::Half | Arithmetic::HalfAccumulate => &mut fp16_entries,
            };
            for layout in Layout::ALL {
                let request = Request {
                    shape: &conv.shape,
                    arithmetic,
                    layout,
                    workspace_limit,
                    runtime_compiled_engines: self.runtime_compiled_engines,
                };
                let (algorithms, errors) = self.cudnn.algorithms(&request);
                let errors = errors.iter();
                notes.extend(errors.map(|error| format!("{arithmetic} {layout}: {error}")));
                let operands = match bench.upload(arithmetic, layout) {
                    Ok(operands) => operands,
                    // Most likely not enough memory for the operands.
                    Err(error) => {
                        let note = format!("{arithmetic} {layout}: {error}");
                        bench.device.ensure_usable(&note)?;
                        notes.push(note);
                        continue;
                    }
                };
                for algorithm in algorithms {
                    if stop() {
                        return Err(Interruption::Requested);
                    }
                    match bench.time_quickly(algorithm, operands, least_us)? {
                        Some(entry) => {
                            least_us = least_us.min(entry.candidate.quick_us);
                            entries.push(entry);
                        }
                        None => failed += 1,
                    }
                }
            }
            entries.sort_by(|a, b| a.candidate.quick_us.total_cmp(&b.candidate.quick_us));
        }
        Ok(CudnnReport {
            same_bound: bench.best(&mut fp32_entries, problem.kind().tolerance())?,
            fp32_arithmetic: bench.best(&mut fp32_entries, FP32_ARITHMETIC_TOLERANCE)?,
            fp32_data: bench.best(&mut fp32_entries, TF32_TOLERANCE)?,
            fp16: bench.best(&mut fp16_entries, FP16_TOLERANCE)?,
            candidates: fp32_entries
                .into_iter()
                .chain(fp16_entries)
                .map(|entry| entry.candidate)
                .collect(),
            failed,
            notes,
        })
    }
}

/// Address and size of the largest workspace, up to the limit, that can be allocated.
fn workspace(device: &mut GpuDevice) -> Result<(u64, usize), DeviceError> {
    /// With less not even small algorithms run.
    const MIN_BYTES: usize = 1 << 26;
    let mut bytes = MAX_WORKSPACE_BYTES;
    loop {
        match device.alloc(bytes / 4) {
            Ok(address) => return Ok((address, bytes)),
            Err(error) if bytes <= MIN_BYTES => return Err(error),
            Err(_) => bytes /= 2,
        }
    }
}

impl AlgorithmBench<'_> {
    /// Uploads the operands for a data type and layout; returns their index.
    fn upload(&mut self, arithmetic: Arithmetic, layout: Layout) -> Result<usize, DeviceError> {
        let [n, c, r, s] = self.problem.weights().first().copied().unwrap_or_default();
        let x = to_device_layout(self.data.x(), self.problem.x(), arithmetic, layout);
        let weight_shape = TensorShape::new(n, c, r, s);
        let weight = to_device_layout(
            self.data.weights().first().map_or(&[][..], |w| w),
            weight_shape,
            arithmetic,
            layout,
        );
        let y_bytes = element_bytes(arithmetic) * self.problem.y().len() as usize;
        let buffers = Buffers::new(self.device, &x, &weight, y_bytes, 1)?;
        self.operands.push(OperandSet {
            arithmetic,
            layout,
            x,
            weight,
            y_bytes,
            buffers,
        });
        Ok(self.operands.len() - 1)
    }

    /// An algorithm with its quick time, where `least_us` is the least so far; `None` if it fails.
    fn time_quickly<'b>(
        &mut self,
        algorithm: Box<dyn Algorithm + 'b>,
        operands: usize,
        least_us: f64,
    ) -> Result<Option<TimedAlgorithm<'b>>, DeviceError> {
        let OperandSet {
            arithmetic,
            layout,
            buffers,
            ..
        } = self.operands[operands];
        let name = format!("{arithmetic} {layout} {}", algorithm.name());
        match self.quick_us(algorithm.as_ref(), &buffers, least_us) {
            Ok(quick_us) => Ok(Some(TimedAlgorithm {
                algorithm,
                operands,
                candidate: CudnnCandidate {
                    algorithm: name,
                    quick_us,
                    relative_error: None,
                },
                us: None,
                cold_us: None,
            })),
            Err(error) => {
                self.device
                    .ensure_usable(format!("cuDNN {name}: {error}"))?;
                Ok(None)
            }
        }
    }

    /// The time by which an algorithm is ranked, where `least_us` is the least so far.
    ///
    /// A long run is timed alone, without a graph of many. A run that is far too slow is measured once: some
    /// algorithms launch a kernel for each group of channels, and capturing a graph of their runs takes
    /// seconds.
    fn quick_us(
        &mut self,
        algorithm: &dyn Algorithm,
        buffers: &Buffers,
        least_us: f64,
    ) -> Result<f64, DeviceError> {
        /// Longest replay in microseconds, if one run is not longer.
        const REPLAY_US: f64 = 1e3;
        /// Upper limit of the overhead of a single run, in microseconds.
        const LAUNCH_OVERHEAD_US: f64 = 100.0;
        // cuDNN loads its kernels in the first run.
        self.run(algorithm, buffers, 0)?;
        self.device.synchronize()?;
        let begin = Instant::now();
        self.run(algorithm, buffers, 0)?;
        self.device.synchronize()?;
        let first_run_us = begin.elapsed().as_secs_f64() * 1e6;
        if first_run_us > 10.0 * least_us + LAUNCH_OVERHEAD_US {
            return Ok(first_run_us);
        }
        let runs = ((REPLAY_US / first_run_us) as usize).clamp(1, Repeats::QUICK.runs);
        let repeats = Repeats {
            runs,
            ..Repeats::QUICK
        };
        self.graph_us(algorithm, buffers, repeats)
    }

    /// The relative error of an algorithm's result, checked once; infinite if it has no result.
    fn error_of(&mut self, entry: &mut TimedAlgorithm) -> Result<f64, DeviceError> {
        if let Some(known) = entry.candidate.relative_error {
            return Ok(known);
        }
        let error = match self.result_of(entry) {
            Ok(found) => {
                Deviation::between(self.problem.y(), &found, self.data.expected()).relative
            }
            Err(error) => {
                self.device
                    .ensure_usable(with_algorithm_name(entry, error))?;
                f64::INFINITY
            }
        };
        entry.candidate.relative_error = Some(error);
        Ok(error)
    }

    /// The result of an algorithm, as NCHW.
    fn result_of(&mut self, entry: &TimedAlgorithm) -> Result<Vec<f32>, DeviceError> {
        let OperandSet {
            arithmetic,
            layout,
            y_bytes,
            buffers,
            ..
        } = self.operands[entry.operands];
        let y = buffers.for_run(0).y;
        let mut bytes = vec![0; y_bytes];
        self.device.poison(y, bytes.len())?;
        self.run(entry.algorithm.as_ref(), &buffers, 0)?;
        self.device.read_bytes(y, &mut bytes)?;
        Ok(from_device_layout(
            &bytes,
            self.problem.y(),
            arithmetic,
            layout,
        ))
    }

    /// The fastest algorithm within a tolerance, by full time; candidates for a full time are the fastest by
    /// quick time. `entries` is sorted by quick time.
    fn best(
        &mut self,
        entries: &mut [TimedAlgorithm],
        tolerance: f64,
    ) -> Result<Option<CudnnBest>, DeviceError> {
        let mut fully_timed = 0;
        for entry in entries.iter_mut() {
            if fully_timed == FULLY_TIMED {
                break;
            }
            // NaN is not within any tolerance.
            let within = self.error_of(entry)? <= tolerance;
            if !within {
                continue;
            }
            fully_timed += 1;
            if entry.us.is_none() {
                let buffers = self.operands[entry.operands].buffers;
                let algorithm = entry.algorithm.as_ref();
                match self.graph_us(algorithm, &buffers, buffers.repeats()) {
                    Ok(us) => entry.us = Some(us),
                    Err(error) => self
                        .device
                        .ensure_usable(with_algorithm_name(entry, error))?,
                }
            }
        }
        let timed = entries.iter_mut().filter_map(|entry| {
            let error = entry.candidate.relative_error?;
            (error <= tolerance).then_some((entry.us?, error, entry))
        });
        let Some((us, relative_error, entry)) = timed.min_by(|a, b| a.0.total_cmp(&b.0)) else {
            return Ok(None);
        };
        let cold_us = match entry.cold_us {
            Some(known) => known,
            None => self.cold_us(entry)?,
        };
        entry.cold_us = Some(cold_us);
        Ok(Some(CudnnBest {
            algorithm: entry.candidate.algorithm.clone(),
            timed: Timed {
                us,
                cold_us,
                relative_error,
            },
        }))
    }

    fn cold_us(&mut self, entry: &TimedAlgorithm) -> Result<Option<f64>, DeviceError> {
        let OperandSet {
            x, weight, y_bytes, ..
        } = &self.operands[entry.operands];
        let bytes = x.len() + weight.len() + y_bytes;
        let Some(copies) = Buffers::copies_exceeding_cache(bytes, self.l2_bytes) else {
            return Ok(None);
        };
        let buffers = Buffers::new(self.device, x, weight, *y_bytes, copies);
        let timed = buffers.and_then(|buffers| {
            self.graph_us(entry.algorithm.as_ref(), &buffers, buffers.repeats())
        });
        match timed {
            Ok(us) => Ok(Some(us)),
            Err(error) => self
                .device
                .ensure_usable(with_algorithm_name(entry, error))
                .map(|()| None),
        }
    }

    fn graph_us(
        &mut self,
        algorithm: &dyn Algorithm,
        buffers: &Buffers,
        repeats: Repeats,
    ) -> Result<f64, DeviceError> {
        let workspace = self.workspace;
        self.device.graph_us(repeats, &mut |_, run| {
            enqueue(algorithm, buffers, run, workspace)
        })
    }

    fn run(
        &mut self,
        algorithm: &dyn Algorithm,
        buffers: &Buffers,
        run: usize,
    ) -> Result<(), DeviceError> {
        enqueue(algorithm, buffers, run, self.workspace)
    }
}

fn with_algorithm_name(entry: &TimedAlgorithm, error: DeviceError) -> String {
    format!("cuDNN {}: {error}", entry.candidate.algorithm)
}

/// Enqueues one run on the stream.
fn enqueue(
    algorithm: &dyn Algorithm,
    buffers: &Buffers,
    run: usize,
    workspace: u64,
) -> Result<(), DeviceError> {
    let operands = buffers.for_run(run);
    let addresses = RunAddresses {
        x: operands.x,
        weight: operands.weight,
        y: operands.y,
        workspace,
    };
    algorithm
        .run(&addresses)
        .map_err(|error| DeviceError(error.to_string()))
}

fn element_bytes(arithmetic: Arithmetic) -> usize {
    match arithmetic {
        Arithmetic::Float => 4,
        Arithmetic::Half | Arithmetic::HalfAccumulate => 2,
    }
}

/// Memory index of each element of a dense NCHW tensor.
fn memory_index(shape: TensorShape, layout: Layout) -> Box<dyn Fn(usize) -> usize> {
    let (c, pixels) = (shape.c as usize, shape.pixels() as usize);
    match layout {
        Layout::Nchw => Box::new(|index| index),
        Layout::Nhwc => Box::new(move |index| {
            let (plane, pixel) = (index / pixels, index % pixels);
            (plane / c * pixels + pixel) * c + plane % c
        }),
    }
}

/// Converts NCHW values to the device's layout and type.
fn to_device_layout(
    values: &[f32],
    shape: TensorShape,
    arithmetic: Arithmetic,
    layout: Layout,
) -> Vec<u8> {
    let place = memory_index(shape, layout);
    let mut ordered = vec![0.0; values.len()];
    for (index, &value) in values.iter().enumerate() {
        ordered[place(index)] = value;
    }
    match arithmetic {
        Arithmetic::Float => bytes_of(&ordered),
        Arithmetic::Half | Arithmetic::HalfAccumulate => ordered
            .iter()
            .flat_map(|&value| f16::from_f32(value).to_le_bytes())
            .collect(),
    }
}

/// Converts device values to NCHW.
fn from_device_layout(
    bytes: &[u8],
    shape: TensorShape,
    arithmetic: Arithmetic,
    layout: Layout,
) -> Vec<f32> {
    let values: Vec<f32> = match arithmetic {
        Arithmetic::Float => bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect(),
        Arithmetic::Half | Arithmetic::HalfAccumulate => bytes
            .chunks_exact(2)
            .map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32())
            .collect(),
    };
    let place = memory_index(shape, layout);
    (0..values.len())
        .map(|index| values[place(index)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_cudnn() {
        // Two images of three channels of 1x2 pixels.
        let shape = TensorShape::new(2, 3, 1, 2);
        let values: Vec<f32> = (0..12).map(|index| index as f32).collect();
        let bytes = to_device_layout(&values, shape, Arithmetic::Float, Layout::Nhwc);
        let plain = from_device_layout(&bytes, shape, Arithmetic::Float, Layout::Nchw);
        let expected = [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11].map(|index| index as f32);
        assert_eq!(plain, expected);
    }

    #[test]
    fn to_device_layout_round_trips() {
        let shape = TensorShape::new(2, 5, 3, 7);
        let values: Vec<f32> = (0..210).map(|index| index as f32 - 100.5).collect();
        for arithmetic in Arithmetic::ALL {
            for layout in Layout::ALL {
                let bytes = to_device_layout(&values, shape, arithmetic, layout);
                assert_eq!(bytes.len(), 210 * element_bytes(arithmetic));
                assert_eq!(
                    from_device_layout(&bytes, shape, arithmetic, layout),
                    values
                );
            }
        }
    }

    #[test]
    fn poison_is_not_a_number_in_both_types() {
        let shape = TensorShape::new(1, 1, 1, 1);
        for (arithmetic, bytes) in [(Arithmetic::Float, 4), (Arithmetic::Half, 2)] {
            let values = from_device_layout(&vec![0xff; bytes], shape, arithmetic, Layout::Nchw);
            assert!(values[0].is_nan());
        }
    }
}
