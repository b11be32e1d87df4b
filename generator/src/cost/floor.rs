//! Floors: the physical limits of a launch.

use crate::gpu::Gpu;
use crate::ir::{Precision, Problem};

/// The physical limit of one launch for a problem, microseconds: the empty launch, then arithmetic or memory, whichever takes longer.
/// The arithmetic is that of the op's definition, at the best rate that the GPU has for products in its precision. Each tensor is moved
/// once. The rates are the measured ones of the GPU, or its peak rates if there are none.
pub fn floor_us(problem: &Problem, gpu: &Gpu) -> f64 {
    let rate = match problem.weights().is_empty() {
        true => gpu.sustained_flops_per_us(),
        false => gpu.product_flops_per_us(problem.precision()),
    };
    let compute = problem.flops() as f64 / rate;
    let memory = problem.bytes() as f64 / gpu.best_bytes_per_us();
    gpu.launch_us + compute.max(memory)
}

impl Gpu {
    /// The best rate of products in a precision, on tensor cores or fp32 lanes, FLOP per microsecond: measured, or else the peak.
    ///
    /// One fp16 number per operand, scaled if needed, keeps the error bounds of tf32, fp16 and bf16. The bound of fp32 needs a hi/lo
    /// split and three products.
    pub fn product_flops_per_us(&self, precision: Precision) -> f64 {
        let peak = f64::from(self.tensor_flops) * f64::from(self.clock_mhz) * f64::from(self.sms);
        let tensor_cores = match (precision, self.sustained) {
            (Precision::Fp32, Some(rates)) => rates.split_tflops * 1e6,
            (Precision::Fp32, None) => peak / 3.0,
            (_, Some(rates)) => rates.half_tflops * 1e6,
            (_, None) => peak,
        };
        tensor_cores.max(self.sustained_flops_per_us())
    }
}

/// The time of one launch that computes on the fp32 lanes only and moves bytes as fast as a copy, microseconds. Kernels on the tensor
/// cores can be faster.
pub fn fp32_lanes_floor_us(flops: u64, bytes: u64, gpu: &Gpu) -> f64 {
    let compute = flops as f64 / gpu.sustained_flops_per_us();
    let memory = bytes as f64 / gpu.sustained_bytes_per_us();
    gpu.launch_us + compute.max(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::ConvProblem;
    use tdc_runtime::{ConvShape, Padding};

    #[test]
    fn the_lanes_floor_is_the_longer_of_arithmetic_and_memory() {
        // It has no measured rates.
        let h100 = gpu("h100").unwrap();
        let peak = 2.0 * 128.0 * 1980.0 * 132.0;
        let floor_us = fp32_lanes_floor_us;
        assert!((floor_us(peak as u64 * 3, 0, h100) - 3.55).abs() < 1e-6);
        assert!((floor_us(0, 3_350_000, h100) - 1.55).abs() < 1e-6);
        let h200 = gpu("h200").unwrap();
        assert!((floor_us(51_000_000, 0, h200) - 1.55).abs() < 1e-9);
        assert!((floor_us(51_000_000, 8_600_000, h200) - 2.55).abs() < 1e-9);
    }

    #[test]
    fn floors_of_convolutions_are_those_of_the_measured_rates() {
        let memory = |rate: f64| 0.55 + 2.0 * 4.0 * 16.777_216 / rate;
        for (sizes, precision, expected, by_lanes) in [
            // 1849.7 and 14.45 million operations at 252 and 51 million a microsecond.
            ([64, 32, 224, 224], Precision::Fp32, 7.890, 36.82),
            ([32, 32, 28, 28], Precision::Fp32, 0.6074, 0.833),
            // 3699.4 million at 858; where that takes less, 19.34 MB at 4.66 TB/s.
            ([256, 256, 56, 56], Precision::Tf32, 4.862, 73.09),
            ([64, 32, 224, 224], Precision::Fp16, 4.700, 36.82),
            // Four bytes an operation: memory.
            (
                [1, 1, 4096, 4096],
                Precision::Fp32,
                memory(4.66),
                memory(4.3),
            ),
        ] {
            let [c, n, h, w] = sizes;
            let kernel = if c == 1 { 1 } else { 3 };
            let problem = Problem::Conv(ConvProblem {
                precision,
                ..ConvProblem::new(ConvShape {
                    padding: Padding::all(kernel / 2),
                    ..ConvShape::new(c, n, h, w, kernel, kernel)
                })
            });
            let h200 = gpu("h200").unwrap();
            let floor = floor_us(&problem, h200);
            assert!((floor / expected - 1.0).abs() < 1e-3, "{sizes:?}: {floor}");
            let floor = fp32_lanes_floor_us(problem.flops(), problem.bytes(), h200);
            assert!((floor / by_lanes - 1.0).abs() < 1e-3, "{sizes:?}: {floor}");
        }
    }
}
