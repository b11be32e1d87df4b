//! `tiles: paper`: TDC's analytical choice of a tile for its core convolution (sections 5.3 to 5.5).
//!
//! All tiles are sorted by compute latency (eqs. 14 and 15). The best few percent are kept: 5 % on an A100, 15 % on an RTX 2080 Ti, and 5 %
//! on the others, for which the paper has no number. Among these the tile with the least memory traffic (eqs. 16 to 19) is chosen.
//!
//! The equations are exactly those of the text: `H/TH` in the number of blocks is a quotient, not rounded up; R*S multiply-adds are
//! counted for every value of an input tile, halo included; eq. 16 lacks R*S. The slides and the published scripts differ from the text:
//!
//! - The slides count a block's FLOPs as `2 TH TW TC N`, without filter and halo, and invert the ratio of the waves.
//! - The scripts compute the compute latency but do not sort by it: they keep the first 5 % in the order of their loops (TH, TW, TC)
//!   and choose the least `0.9 volume_x + 0.1 volume_y` of those, without the weights.
//! - The scripts read occupancy from a table measured beforehand. Here it follows from registers (the compiler's if the resource table
//!   has them, else estimated), shared memory and threads.
//! - The text counts H x W x C tiles; the scripts try TH and TW up to 12 and five TC, and so do the schemes here.
//!
//! The text assumes stride 1 and an output as large as the input. For others, H and W are those of the output, and `TH + R - 1` is
//! the number of input rows under a tile.

use crate::gpu::Gpu;
use tdc_runtime::ConvShape;

/// The results of the equations for one tile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaperPrediction {
    /// Waves of threads (eq. 14).
    pub waves: f64,
    /// Compute latency, microseconds (eq. 15).
    pub compute_us: f64,
    /// Elements moved between global memory and the chip (eq. 19).
    pub volume: f64,
}

impl PaperPrediction {
    /// For a tile TH x TW x TC of a convolution whose kernel has this occupancy (0 to 1).
    pub fn new(shape: &ConvShape, tile: [u32; 3], occupancy: f64, gpu: &Gpu) -> Self {
        let [th, tw, tc] = tile.map(f64::from);
        let [c, n] = [shape.c, shape.n].map(f64::from);
        let [h, w] = [shape.out_h(), shape.out_w()].map(f64::from);
        let [r, s] = [shape.r, shape.s].map(f64::from);
        let [rows, columns] = shape.input_window([tile[0], tile[1]]).map(f64::from);
        let gpu_threads = f64::from(gpu.sms) * f64::from(gpu.threads_per_sm);
        let gpu_peak = gpu.sm_flops_per_us() * f64::from(gpu.sms);

        let blocks = h / th * (w / tw) * (c / tc);
        let waves = (blocks * n / (gpu_threads * occupancy)).ceil();
        let block_us = 2.0 * rows * columns * tc * gpu_threads * r * s / gpu_peak;
        let tiles = (h / th).ceil() * (w / tw).ceil();
        let volume_k = tiles * c * n;
        let volume_x = tiles * c * rows * columns;
        let volume_y = h * w * n * c / tc;
        Self {
            waves,
            compute_us: waves * block_us,
            volume: volume_x + volume_k + volume_y,
        }
    }
}

/// The index of the chosen tile (section 5.5), `None` if there are none; ties go to the first.
pub fn choose(predictions: &[PaperPrediction], keep_fraction: f64) -> Option<usize> {
    let mut order: Vec<usize> = (0..predictions.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (predictions[a].compute_us, predictions[b].compute_us);
        a.total_cmp(&b)
    });
    let kept = (keep_fraction * predictions.len() as f64).ceil().max(1.0) as usize;
    order.truncate(kept);
    order.into_iter().min_by(|&a, &b| {
        let (a, b) = (predictions[a].volume, predictions[b].volume);
        a.total_cmp(&b)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use tdc_runtime::Padding;

    fn core(c: u32, n: u32, h: u32, w: u32) -> ConvShape {
        ConvShape {
            padding: Padding::all(1),
            ..ConvShape::new(c, n, h, w, 3, 3)
        }
    }

    /// By hand, for 64,32,56,56 on an A100: 108 x 2048 = 221,184 threads, 2 x 64 x 1410 x 108 = 19,491,840 FLOP/us.
    #[test]
    fn a_worked_example() {
        let a100 = gpu("a100").unwrap();
        let shape = core(64, 32, 56, 56);

        // One output a thread, one channel a block, all threads resident: 56 x 56 x 64 x 32 = 6,422,528 threads are 29.04 times
        // those of the GPU. A block: 2 x 3 x 3 x 1 x 9 = 162 FLOP a thread, 162 x 221,184 / 19,491,840 = 1.8383 us.
        let smallest = PaperPrediction::new(&shape, [1, 1, 1], 1.0, a100);
        assert_eq!(smallest.waves, 30.0);
        assert!((smallest.compute_us - 30.0 * 1.838_297).abs() < 1e-4);
        // 3136 x 64 x 32 weights, 3136 x 64 x 9 inputs, 3136 x 32 x 64 outputs.
        assert_eq!(smallest.volume, 6_422_528.0 + 1_806_336.0 + 6_422_528.0);

        // 7 x 7 x 8 at half occupancy: 8 x 8 x 8 blocks of 32 threads fit into one wave.
        // A block: 2 x 9 x 9 x 8 x 9 = 11,664 FLOP a thread, 132.357 us.
        let large = PaperPrediction::new(&shape, [7, 7, 8], 0.5, a100);
        assert_eq!(large.waves, 1.0);
        assert!((large.compute_us - 132.357_3).abs() < 1e-3);
        // 64 tiles x 64 x 32, 64 x 64 x 81, 3136 x 32 x 8.
        assert_eq!(large.volume, 131_072.0 + 331_776.0 + 802_816.0);

        // Waves are counted by quotients (56/5 = 11.2), volumes by complete tiles (12 x 12).
        let tail = PaperPrediction::new(&shape, [5, 5, 16], 0.001, a100);
        assert_eq!(tail.waves, (11.2_f64 * 11.2 * 4.0 * 32.0 / 221.184).ceil());
        assert_eq!(
            tail.volume,
            144.0 * 64.0 * 32.0 + 144.0 * 64.0 * 49.0 + 3136.0 * 32.0 * 4.0
        );
    }

    #[test]
    fn beyond_the_text_a_tile_covers_the_inputs_under_it() {
        let a100 = gpu("a100").unwrap();
        let shape = ConvShape {
            stride: [2, 1],
            dilation: [1, 3],
            padding: Padding::all(3),
            ..ConvShape::new(4, 8, 11, 9, 3, 3)
        };
        assert_eq!((shape.out_h(), shape.out_w()), (8, 9));
        // 4 rows of outputs with stride 2 read 9 input rows; 3 columns with dilation 3 read 9 columns.
        let estimate = PaperPrediction::new(&shape, [4, 3, 4], 1.0, a100);
        assert_eq!(
            estimate.volume,
            6.0 * 4.0 * 81.0 + 6.0 * 4.0 * 8.0 + 8.0 * 9.0 * 8.0
        );
    }

    #[test]
    fn the_least_volume_of_the_best_few_percent() {
        let tile = |compute_us: f64, volume: f64| PaperPrediction {
            waves: 1.0,
            compute_us,
            volume,
        };
        // 5 % of 40 tiles are the two fastest, at 1 and 2 us; the second has less traffic. The third has the least of all.
        let mut tiles: Vec<_> = (0..40).map(|i| tile(40.0 - f64::from(i), 50.0)).collect();
        tiles[38].volume = 20.0;
        tiles[37].volume = 10.0;
        assert_eq!(choose(&tiles, 0.05), Some(38));
        assert_eq!(choose(&tiles, 0.15), Some(37));
        // At least one is kept; ties go to the first in the tile space.
        assert_eq!(choose(&tiles, 0.001), Some(39));
        assert_eq!(choose(&[tile(1.0, 1.0), tile(1.0, 1.0)], 1.0), Some(0));
        assert_eq!(choose(&[], 0.05), None);
    }
}
