//! The predicted time of a launch.

use super::untiled::UntiledCosts;
use super::{CostTerms, KernelWork, Occupancy, occupancy, tiled_terms};
use crate::gpu::Gpu;

/// The predicted time of setting bytes to zero in a CUDA graph, microseconds: a launch that only writes.
pub fn memset_us(bytes: u64, gpu: &Gpu) -> f64 {
    gpu.launch_us + bytes as f64 / (f64::from(gpu.dram_gbs) * 1e3)
}

/// The predicted time of copying `bytes` within device memory, microseconds: they are read and written.
pub fn copy_us(bytes: u64, gpu: &Gpu) -> f64 {
    memset_us(2 * bytes, gpu)
}

/// The predicted time of one launch in a CUDA graph, microseconds; infinite if a block does not fit.
///
/// It follows the SM with the most blocks. For a kernel that is not tiled it adds the launch, the dependent L2 round trips of each wave,
/// and the longest of arithmetic (slower with too few warps to hide latency), L2 traffic and device memory.
pub fn kernel_us(work: &KernelWork, gpu: &Gpu) -> f64 {
    let Some(occupancy) = supported_occupancy(work, gpu) else {
        return f64::INFINITY;
    };
    match &work.tiled {
        Some(tiled) => tiled_terms(work, tiled, gpu, gpu.cost_model().tiled(work.products)).us(),
        None => UntiledCosts::new(work, &occupancy, gpu).us(),
    }
}

/// The terms of the [predicted time](kernel_us) of a launch; `None` if a block does not fit.
pub fn kernel_terms(work: &KernelWork, gpu: &Gpu) -> Option<CostTerms> {
    let occupancy = supported_occupancy(work, gpu)?;
    Some(match &work.tiled {
        Some(tiled) => tiled_terms(work, tiled, gpu, gpu.cost_model().tiled(work.products)),
        None => UntiledCosts::new(work, &occupancy, gpu).terms(),
    })
}

/// The occupancy of a launch; `None` if a block does not fit, or if the GPU would run the kernel's fallback, which no plan should contain.
fn supported_occupancy(work: &KernelWork, gpu: &Gpu) -> Option<Occupancy> {
    let occupancy = occupancy(work, gpu);
    let uses_mma = work.mma > 0.0 || work.tiled.is_some_and(|tiled| tiled.mma_per_step > 0.0);
    let falls_back = uses_mma && !gpu.has_mma() || work.cluster > 1 && gpu.max_cluster() == 1;
    (occupancy.blocks_per_sm > 0 && !falls_back).then_some(occupancy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::TiledWork;
    use crate::gpu::gpu;

    fn work() -> KernelWork {
        KernelWork {
            blocks: 1000,
            threads: 256,
            registers: 64,
            shared_bytes: 0,
            flops: 1e6,
            fma_fraction: 0.5,
            l2_bytes: 1e6,
            dram_bytes: 1e6,
            l2_round_trips: 1.0,
            ..KernelWork::default()
        }
    }

    /// The terms add up to the predicted time, whatever a kernel is bound by.
    #[test]
    fn every_launch_has_terms() {
        let h200 = gpu("h200").unwrap();
        let staged = KernelWork {
            latency_clocks: 20_000.0,
            mma: 1e5,
            cluster: 4,
            pdl: true,
            ..work()
        };
        let arithmetic = KernelWork {
            flops: 1e9,
            ..work()
        };
        let cached = KernelWork {
            l2_bytes: 1e8,
            ..work()
        };
        let works = [
            ("latency", staged),
            (
                "load",
                KernelWork {
                    last_round_trips: 20.0,
                    ..work()
                },
            ),
            ("compute", arithmetic),
            ("load", cached),
            (
                "load",
                KernelWork {
                    unpipelined: true,
                    ..cached
                },
            ),
            (
                "memory",
                KernelWork {
                    dram_bytes: 1e9,
                    ..work()
                },
            ),
            (
                "waves",
                KernelWork {
                    blocks: 100_000,
                    ..work()
                },
            ),
            (
                "launch",
                KernelWork {
                    blocks: 1,
                    l2_round_trips: 0.0,
                    flops: 0.0,
                    l2_bytes: 0.0,
                    dram_bytes: 0.0,
                    ..work()
                },
            ),
        ];
        for (bound, work) in works {
            let terms = kernel_terms(&work, h200).unwrap();
            let us = kernel_us(&work, h200);
            assert!(
                (terms.us() / us - 1.0).abs() < 1e-12,
                "{bound}: {terms:?}, {us}"
            );
            let named = [
                ("launch", terms.launch),
                ("load", terms.load),
                ("latency", terms.latency),
                ("compute", terms.compute),
                ("exchange", terms.exchange),
                ("waves", terms.waves),
                ("memory", terms.memory),
            ];
            assert!(named.iter().all(|(_, us)| *us >= 0.0), "{terms:?}");
            let most = named
                .into_iter()
                .max_by(|a, b| a.1.total_cmp(&b.1))
                .unwrap();
            assert_eq!(most.0, bound, "{terms:?}");
        }
        let large = KernelWork {
            shared_bytes: 1 << 20,
            ..work()
        };
        assert_eq!(kernel_terms(&large, h200), None);
    }

    /// A kernel for the tensor cores has a fallback for GPUs without them, which is not predicted.
    #[test]
    fn fallbacks_have_no_predicted_time() {
        let tiled = KernelWork {
            tiled: Some(TiledWork {
                chunks: 1.0,
                k_steps: 4.0,
                mma_per_step: 3.0,
                ..TiledWork::default()
            }),
            ..work()
        };
        let untiled = KernelWork { mma: 8.0, ..work() };
        for work in [tiled, untiled] {
            assert!(kernel_us(&work, gpu("a100").unwrap()).is_finite());
            assert!(kernel_us(&work, gpu("v100").unwrap()).is_infinite());
            assert_eq!(kernel_terms(&work, gpu("v100").unwrap()), None);
        }
    }

    /// An H200 runs 15 clusters of eight blocks at once if an SM holds one block, although its 132 SMs would suffice for 16.
    #[test]
    fn clusters_that_do_not_fit_take_another_wave() {
        let h200 = gpu("h200").unwrap();
        let of_blocks = |blocks: u64, cluster: u32, shared_kib: u32| {
            let work = KernelWork {
                blocks,
                cluster,
                shared_bytes: shared_kib * 1024,
                flops: 0.0,
                l2_bytes: 0.0,
                dram_bytes: 0.0,
                l2_round_trips: 0.0,
                latency_clocks: 19_800.0,
                ..work()
            };
            kernel_us(&work, h200)
        };
        let one_wave = of_blocks(120, 8, 200);
        assert!((of_blocks(128, 8, 200) - one_wave - 10.0).abs() < 0.1);
        // Without clusters they all run at once, and so do clusters if an SM holds two blocks.
        assert!((of_blocks(128, 1, 200) - of_blocks(120, 1, 200)).abs() < 0.1);
        assert!((of_blocks(128, 8, 100) - one_wave).abs() < 0.1);
    }

    /// 64x224x224 to 64x112x112 by maximum pooling, one output per thread: 15.7 us in blocks of 64 threads, 4.3 us in blocks of 256.
    #[test]
    fn many_small_blocks_take_longer_to_start_than_to_compute() {
        let h200 = gpu("h200").unwrap();
        let of_threads = |threads: u32| KernelWork {
            blocks: 802_816 / u64::from(threads),
            threads,
            registers: 32,
            flops: 3.2e6,
            fma_fraction: 0.1,
            l2_bytes: 16e6,
            dram_bytes: 16e6,
            l2_round_trips: 2.0,
            pdl: true,
            ..KernelWork::default()
        };
        let [small, large] = [64, 256].map(|threads| kernel_us(&of_threads(threads), h200));
        assert!((small / 15.7 - 1.0).abs() < 0.05, "{small}");
        assert!((large / 4.3 - 1.0).abs() < 0.15, "{large}");
    }
}
