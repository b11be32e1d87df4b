//! Properties of GPUs.
//!
//! The data file of each GPU names the source of each number: documents of the vendor, or the attributes that the CUDA driver reports for
//! the device (`deviceQuery`) if a document rounds. Properties of a compute capability are written once for it. The launch time, the
//! sustained rates and the resident clusters of the H200 were measured (docs/how-it-works.md); the launch times of all other GPUs are
//! estimates, scaled from it by generation and clock.

use super::capability::CC_90;
use super::{CostModel, GPUS};
use crate::suggest::nearest;
use serde::Serialize;
use tdc_runtime::{Arch, is_gpu_name};

/// One GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gpu {
    /// Name in configs and on the command line.
    pub name: &'static str,
    /// Product name.
    pub title: &'static str,
    /// The words of the CUDA driver's device name (`cudaDeviceProp::name`) that identify this GPU: `H200` of
    /// `NVIDIA H200`, `A100` of `NVIDIA A100-SXM4-80GB`. They are matched as complete words: `L4` is not in
    /// `NVIDIA L40S`, `H200` is not in `NVIDIA GH200 480GB`. They identify the product line, not the board:
    /// an `H100 PCIe` matches too, with fewer SMs.
    pub device_name: &'static str,
    /// Architecture.
    pub arch: Arch,
    /// Number of streaming multiprocessors (SMs).
    pub sms: u32,
    /// fp32 lanes of an SM.
    pub fp32_lanes: u32,
    /// fp16 FLOP per clock of the tensor cores of an SM, with fp32 accumulation and without sparsity; 0 if
    /// there are none. GeForce GPUs have half the rate of other products with the same chip.
    pub tensor_flops: u32,
    /// Boost clock, MHz.
    pub clock_mhz: u32,
    /// Base clock in MHz, if published results are given in its cycles (stride-fixed paper, table 1);
    /// otherwise the boost clock is used.
    pub base_clock_mhz: Option<u32>,
    /// Latency of global memory in cycles. Measured for 6.1 (stride-fixed paper, table 1), 8.0, 8.9 and 9.0
    /// (Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", 2024, arXiv
    /// 2402.13499); the others are estimates, with the value of a similar architecture.
    pub memory_latency: u32,
    /// Resident threads of an SM.
    pub threads_per_sm: u32,
    /// Resident blocks of an SM.
    pub blocks_per_sm: u32,
    /// 32-bit registers of an SM.
    pub registers_per_sm: u32,
    /// Shared memory of an SM, bytes.
    pub shared_per_sm: u32,
    /// Largest shared memory of a block, bytes (more than 48 KiB only as dynamic memory).
    pub shared_per_block: u32,
    /// Shared memory that the system reserves in each block, bytes.
    pub shared_reserved: u32,
    /// Number of clusters of 2, 3, ... 8 blocks that run at once if an SM holds one block (`cudaOccupancyMaxActiveClusters`). It is less
    /// than the number of SMs over the cluster size, because a cluster runs within one group of SMs (GPC). `None` without a measurement.
    pub resident_clusters: Option<[f64; 7]>,
    /// L2 cache, bytes.
    pub l2_bytes: u64,
    /// Peak memory bandwidth, GB/s (1e9 bytes).
    pub dram_gbs: u32,
    /// Measured rates; `None` if there are none.
    pub sustained: Option<Sustained>,
    /// Time of an empty kernel in a CUDA graph, microseconds.
    pub launch_us: f64,
    /// Peak rates that the vendor publishes; a test compares the product of lanes, clock and SMs with them.
    pub published: Published,
    /// Fraction, from 0 to 1, of the candidate tiles, sorted by compute latency, that the planner of the TDC
    /// paper keeps before it chooses the one with the least memory traffic. The paper uses 5 % on the A100
    /// and 15 % on the RTX 2080 Ti (section 5.5); 5 % for other GPUs is this project's choice.
    pub paper_candidate_fraction: f64,
    /// Constants of the cost model other than the committed ones, for calibration.
    #[serde(skip)]
    pub calibrated: Option<CostModel>,
}

/// Peak rates as the vendor publishes them, TFLOP/s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Published {
    /// fp32, without tensor cores.
    pub fp32_tflops: f64,
    /// fp16 on the tensor cores with fp32 accumulation and without sparsity; 0 if there are none.
    pub tensor_tflops: f64,
}

/// Sustained rates, in contrast to the vendor's peak rates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sustained {
    /// fp32 rate of the lanes in a large matrix product, TFLOP/s.
    pub tflops: f64,
    /// Rate of tensor-core products with the error bound of fp32 (hi/lo split into two fp16 numbers, three
    /// products), in useful TFLOP/s.
    pub split_tflops: f64,
    /// Rate of fp16 products on the tensor cores, TFLOP/s.
    pub half_tflops: f64,
    /// Bytes read and written by a large copy on the device, GB/s (1e9 bytes).
    pub dram_gbs: u32,
    /// Highest measured memory bandwidth, that of writing only, GB/s.
    pub best_dram_gbs: u32,
}

impl Gpu {
    /// Rate of the fp32 lanes of the GPU, FLOP per microsecond: measured, else the peak.
    pub fn sustained_flops_per_us(&self) -> f64 {
        match self.sustained {
            Some(rates) => rates.tflops * 1e6,
            None => self.sm_flops_per_us() * f64::from(self.sms),
        }
    }

    /// Memory bandwidth, bytes per microsecond: measured, else the peak.
    pub fn sustained_bytes_per_us(&self) -> f64 {
        let gbs = self.sustained.map_or(self.dram_gbs, |rates| rates.dram_gbs);
        f64::from(gbs) * 1e3
    }

    /// The highest memory bandwidth, bytes per microsecond: measured, else the peak.
    pub fn best_bytes_per_us(&self) -> f64 {
        let gbs = self
            .sustained
            .map_or(self.dram_gbs, |rates| rates.best_dram_gbs);
        f64::from(gbs) * 1e3
    }

    /// The constants of its cost model: those being calibrated, else the committed ones, else those of [`DEFAULT_GPU`].
    pub fn cost_model(&self) -> &CostModel {
        match &self.calibrated {
            Some(model) => model,
            None => CostModel::committed(self).1,
        }
    }

    /// The name of the GPU that these constants were fitted on.
    pub fn cost_model_name(&self) -> &'static str {
        match &self.calibrated {
            Some(_) => self.name,
            None => CostModel::committed(self).0,
        }
    }

    /// Peak fp32 rate of one SM, FLOP per microsecond.
    pub fn sm_flops_per_us(&self) -> f64 {
        2.0 * f64::from(self.fp32_lanes) * f64::from(self.clock_mhz)
    }

    /// Maximum number of blocks of a cluster: the portable size from sm_90 on, 1 on older GPUs.
    pub fn max_cluster(&self) -> u32 {
        if self.arch >= CLUSTER_ARCH {
            PORTABLE_CLUSTER
        } else {
            1
        }
    }

    /// Whether the GPU supports programmatic dependent launch.
    pub fn has_pdl(&self) -> bool {
        self.arch >= CLUSTER_ARCH
    }

    /// Whether its tensor cores have the instructions that the kernels use (`mma.m16n8k16`). On older ones the kernels exchange operands by
    /// shuffles.
    pub fn has_mma(&self) -> bool {
        self.arch >= MMA_ARCH
    }

    /// Whether its tensor cores have asynchronous products of a warpgroup (`wgmma`), which only Hopper has.
    pub fn has_wgmma(&self) -> bool {
        self.arch == WGMMA_ARCH
    }

    /// Number of clusters of `size` blocks (2 to 8) that run at once if an SM holds `blocks_per_sm`. Without a measurement it is that of
    /// [`DEFAULT_GPU`], scaled by the number of SMs.
    pub fn resident_clusters(&self, size: u32, blocks_per_sm: f64) -> f64 {
        let default = || GPUS.iter().find(|gpu| gpu.name == DEFAULT_GPU);
        let measured = match self.resident_clusters {
            Some(clusters) => Some((clusters, self.sms)),
            None => default().and_then(|gpu| Some((gpu.resident_clusters?, gpu.sms))),
        };
        let sms = f64::from(self.sms);
        let resident = match measured {
            Some((clusters, measured_sms)) => {
                let index = (size as usize).saturating_sub(2).min(clusters.len() - 1);
                clusters[index] * blocks_per_sm * sms / f64::from(measured_sms)
            }
            None => blocks_per_sm * sms / f64::from(size),
        };
        resident.floor().max(1.0)
    }

    /// Whether the GPU is older than every architecture that kernels are compiled for. It can be planned for, to compare with published
    /// results, but no code is generated for it.
    pub fn planning_only(&self) -> bool {
        self.arch < OLDEST_ARCH
    }

    /// This GPU, checked for generating, packing, verifying or compiling code, which everything except
    /// planning needs.
    ///
    /// # Errors
    /// [`PlanningOnly`] if no code can be generated for it.
    pub fn code_target(&'static self) -> Result<&'static Self, PlanningOnly> {
        match self.planning_only() {
            true => Err(PlanningOnly { gpu: self }),
            false => Ok(self),
        }
    }
}

/// Blocks of a cluster on every GPU that has clusters.
pub const PORTABLE_CLUSTER: u32 = 8;

/// The limits of the oldest compute capability with clusters and programmatic dependent launch. Properties of single products are not set.
pub const FIRST_CLUSTER_GPU: Gpu = CC_90;

/// The oldest architecture with clusters and programmatic dependent launch.
const CLUSTER_ARCH: Arch = FIRST_CLUSTER_GPU.arch;

/// Maximum number of registers of a thread.
pub const MAX_REGISTERS: u32 = 255;

/// Registers of a block on every GPU that code is generated for.
pub const REGISTERS_PER_BLOCK: u32 = 65536;

/// Maximum number of threads of a block.
pub const MAX_THREADS: u32 = 1024;

/// The oldest architecture with the tensor-core instructions of the kernels.
const MMA_ARCH: Arch = Arch::new(80);

/// The architecture with `wgmma`.
const WGMMA_ARCH: Arch = Arch::new(90);

/// The oldest architecture that kernels are written and compiled for.
pub const OLDEST_ARCH: Arch = Arch::new(70);

/// The default GPU.
pub const DEFAULT_GPU: &str = "h200";

/// The architectures that kernels are compiled for, ascending: those of the table's GPUs.
pub fn archs() -> Vec<Arch> {
    let targets = GPUS.iter().filter(|gpu| !gpu.planning_only());
    let mut archs: Vec<_> = targets.map(|gpu| gpu.arch).collect();
    archs.sort_unstable();
    archs.dedup();
    archs
}

/// The representative GPU of an architecture, the first one of the table; `None` if kernels are not compiled for it.
pub fn gpu_for_arch(arch: Arch) -> Option<&'static Gpu> {
    let mut targets = GPUS.iter().filter(|gpu| !gpu.planning_only());
    targets.find(|gpu| gpu.arch == arch)
}

/// The name is not that of a GPU in the table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no GPU named `{name}`; {}known are {}", .nearest.map(|known| format!("did you mean `{known}`? ")).unwrap_or_default(), names())]
pub struct UnknownGpu {
    name: String,
    nearest: Option<&'static str>,
}

/// The names of all GPUs, as error messages list them.
fn names() -> String {
    let names: Vec<_> = GPUS.iter().map(|gpu| gpu.name).collect();
    names.join(", ")
}

/// A GPU that is too old for generated code.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("no code can be generated for `{}`, which is {}; kernels need {OLDEST_ARCH} or newer: use `tdc-gen plan` to see its plan, or choose a newer GPU", .gpu.name, .gpu.arch)]
pub struct PlanningOnly {
    gpu: &'static Gpu,
}

/// The GPU with the given CUDA device name, matched by [`Gpu::device_name`] as complete words; `None` if it
/// is not in the table.
pub fn gpu_for_device(name: &str) -> Option<&'static Gpu> {
    GPUS.iter().find(|gpu| is_gpu_name(name, gpu.device_name))
}

/// The GPU with the given name. [`Gpu::code_target`] checks whether code can be generated for it.
///
/// # Errors
/// [`UnknownGpu`], with the nearest name and all names.
pub fn gpu(name: &str) -> Result<&'static Gpu, UnknownGpu> {
    GPUS.iter()
        .find(|gpu| gpu.name == name)
        .ok_or_else(|| UnknownGpu {
            name: name.to_owned(),
            nearest: nearest(&name.to_lowercase(), GPUS.iter().map(|gpu| gpu.name)),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::capability::{KIB, MIB};
    use crate::ir::Precision;
    use std::collections::HashSet;

    #[test]
    fn each_architecture_has_a_gpu_of_its_own() {
        let archs = archs();
        assert_eq!(archs.first(), Some(&OLDEST_ARCH));
        assert!(archs.is_sorted());
        for gpu in GPUS.iter().filter(|gpu| !gpu.planning_only()) {
            assert!(archs.contains(&gpu.arch), "{}", gpu.name);
            assert_eq!(gpu_for_arch(gpu.arch).unwrap().arch, gpu.arch);
        }
        assert_eq!(gpu_for_arch(Arch::new(90)), gpu(DEFAULT_GPU).ok());
        assert_eq!(gpu_for_arch(Arch::new(61)), None);
    }

    #[test]
    fn gpus_of_an_architecture_have_its_limits() {
        for gpu in GPUS {
            let limits = |gpu: &Gpu| {
                [
                    gpu.fp32_lanes,
                    gpu.threads_per_sm,
                    gpu.blocks_per_sm,
                    gpu.registers_per_sm,
                    gpu.shared_per_sm,
                    gpu.shared_per_block,
                    gpu.shared_reserved,
                ]
            };
            for other in GPUS.iter().filter(|other| other.arch == gpu.arch) {
                assert_eq!(limits(gpu), limits(other), "{} {}", gpu.name, other.name);
            }
        }
    }

    #[test]
    fn a_mistyped_gpu_is_guessed() {
        let error = gpu("h20").unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "there is no GPU named `h20`; did you mean `h200`? known are {}",
                names()
            )
        );
        assert!(names().starts_with("h200, h100, "), "{}", names());
        assert_eq!(gpu(DEFAULT_GPU).unwrap().sms, 132);
    }

    #[test]
    fn peak_rates_are_the_published_ones() {
        for gpu in GPUS {
            let (name, published) = (gpu.name, gpu.published.fp32_tflops);
            let tflops = gpu.sm_flops_per_us() * f64::from(gpu.sms) / 1e6;
            if let Some(rates) = gpu.sustained {
                assert!(rates.tflops < tflops && rates.dram_gbs < rates.best_dram_gbs);
                assert!(rates.best_dram_gbs < gpu.dram_gbs);
            }
            assert!(
                (tflops / published - 1.0).abs() < 0.02,
                "{name}: {tflops} TFLOP/s, published are {published}"
            );
        }
    }

    /// The published rates of data-centre GPUs since sm_90 are for clocks below the maximum.
    #[test]
    fn peak_rates_of_tensor_cores_are_the_published_ones() {
        for gpu in GPUS {
            let (name, published) = (gpu.name, gpu.published.tensor_tflops);
            assert_eq!(gpu.tensor_flops > 0, published > 0.0, "{name}");
            if published == 0.0 {
                continue;
            }
            let peak = f64::from(gpu.tensor_flops) * f64::from(gpu.clock_mhz * gpu.sms) / 1e6;
            let allowed = if gpu.arch == Arch::new(90) || gpu.arch == Arch::new(100) {
                0.09
            } else {
                0.02
            };
            assert!(
                (peak / published - 1.0).abs() < allowed,
                "{name}: {peak} TFLOP/s, published are {published}"
            );
            if let Some(rates) = gpu.sustained {
                assert!(rates.half_tflops < published && 3.0 * rates.split_tflops < published);
            }
        }
    }

    #[test]
    fn products_are_made_where_that_is_fastest() {
        let rate = |name: &str, precision| gpu(name).unwrap().product_flops_per_us(precision);
        assert_eq!(rate("h200", Precision::Fp32), 252e6);
        assert_eq!(rate("h200", Precision::Bf16), 858e6);
        assert_eq!(rate("a100", Precision::Tf32), 2048.0 * 1410.0 * 108.0);
        assert_eq!(rate("a100", Precision::Fp32), 2048.0 * 1410.0 * 108.0 / 3.0);
        // The fp32 lanes of the first are faster than three tensor-core products; the second has no tensor cores.
        for name in ["rtx3090", "gtx1080ti"] {
            let lanes = gpu(name).unwrap().sustained_flops_per_us();
            assert_eq!(rate(name, Precision::Fp32), lanes);
        }
        assert_eq!(
            rate("gtx1080ti", Precision::Fp16),
            rate("gtx1080ti", Precision::Fp32)
        );
    }

    #[test]
    fn figures_fit_together() {
        for gpu in GPUS {
            let name = gpu.name;
            let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            assert!(!name.is_empty() && name.chars().all(is_lower), "{name}");
            assert!(gpu.title.contains(gpu.device_name), "{name}");
            assert!(!gpu.device_name.is_empty(), "{name}");
            assert!((8..=200).contains(&gpu.sms), "{name}");
            assert!((1000..=3000).contains(&gpu.clock_mhz), "{name}");
            assert!((200..=1000).contains(&gpu.memory_latency), "{name}");
            assert!((100..=10_000).contains(&gpu.dram_gbs), "{name}");
            assert!((2 * MIB..=256 * MIB).contains(&gpu.l2_bytes), "{name}");
            assert!((0.3..=3.0).contains(&gpu.launch_us), "{name}");
            assert!(
                gpu.paper_candidate_fraction > 0.0 && gpu.paper_candidate_fraction <= 1.0,
                "{name}"
            );
            assert!([64, 128].contains(&gpu.fp32_lanes), "{name}");
            assert_eq!(gpu.threads_per_sm % 512, 0, "{name}");
            assert!(gpu.blocks_per_sm * 32 <= gpu.threads_per_sm, "{name}");
            let reserved = gpu.shared_reserved;
            assert_eq!(reserved > 0, gpu.arch >= Arch::new(80), "{name}");
            assert!(gpu.shared_per_block >= 48 * KIB, "{name}");
            assert!(
                gpu.shared_per_block + reserved <= gpu.shared_per_sm,
                "{name}"
            );
        }
    }

    #[test]
    fn no_two_gpus_are_taken_for_each_other() {
        let names: HashSet<_> = GPUS.iter().map(|gpu| gpu.name).collect();
        let titles: HashSet<_> = GPUS.iter().map(|gpu| gpu.title).collect();
        let devices: HashSet<_> = GPUS.iter().map(|gpu| gpu.device_name).collect();
        assert_eq!(names.len(), GPUS.len());
        assert_eq!(titles.len(), GPUS.len());
        assert_eq!(devices.len(), GPUS.len());
        // The words of one GPU are never among those of another.
        for a in GPUS {
            for b in GPUS.iter().filter(|b| b.name != a.name) {
                let padded = format!(" {} ", b.device_name);
                assert!(!padded.contains(&format!(" {} ", a.device_name)));
            }
        }
    }

    #[test]
    fn devices_are_told_by_whole_words() {
        let name = |device| gpu_for_device(device).map(|gpu| gpu.name);
        assert_eq!(name("NVIDIA H200"), Some("h200"));
        assert_eq!(name("NVIDIA A100-SXM4-80GB"), Some("a100"));
        assert_eq!(name("NVIDIA L40S"), Some("l40s"));
        assert_eq!(name("NVIDIA GeForce RTX 2080 Ti"), Some("rtx2080ti"));
        assert_eq!(name("NVIDIA GH200 480GB"), Some("gh200"));
        assert_eq!(name("NVIDIA RTX 6000 Ada Generation"), Some("rtx6000ada"));
        assert_eq!(name("Quadro RTX 6000"), None);
        assert_eq!(name("Orin"), Some("agxorin"));
        assert_eq!(name("NVIDIA GB200"), None);
        assert_eq!(name("NVIDIA GeForce RTX 2080"), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn no_code_is_generated_for_old_gpus() {
        let old: Vec<_> = GPUS.iter().filter(|gpu| gpu.planning_only()).collect();
        assert_eq!(old.len(), 1);
        assert_eq!(
            old[0].code_target().unwrap_err().to_string(),
            "no code can be generated for `gtx1080ti`, which is sm_61; kernels need sm_70 or newer: use `tdc-gen plan` to see its \
             plan, or choose a newer GPU"
        );
        let v100 = gpu("v100").unwrap();
        assert_eq!(v100.code_target(), Ok(v100));
    }
}
