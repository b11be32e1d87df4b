//! A kernel embedded in a program.

use crate::{Arch, Conv, Launch, Op, Step, Variant};
use std::fmt;

/// One op, planned and compiled when the program was: launches, machine code, the layout of the weights.
///
/// `kernel!` of the crate `tdc` makes them, with an example. With the feature `cuda` a kernel is loaded into a context and launched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kernel<O: Op = Conv> {
    /// The problem's name by the naming grammar.
    pub name: &'static str,
    /// What is computed.
    pub op: O,
    /// Ways to carry it out, each planned for a GPU; none in a stub.
    pub variants: &'static [KernelVariant],
    /// Machine code; none in a stub.
    pub images: &'static [Image],
}

/// One way to carry a kernel out.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelVariant {
    /// What a device's name has in it that is the GPU planned for.
    pub device_name: &'static str,
    /// Launches, their parameters, and how the weights are packed.
    pub variant: Variant,
    /// The algorithms, in the order of the launches: one for each unit.
    pub choices: &'static [UnitChoice],
    /// Estimated time of all launches on the GPU planned for, microseconds.
    pub predicted_us: f64,
    /// The CUDA C++ text of all kernels that are launched; it includes nothing.
    pub source: &'static str,
}

/// An algorithm with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitChoice {
    /// The algorithm's name.
    pub scheme: &'static str,
    /// Its tile, such as `h2w8n2p4g2k3z1c8s1`.
    pub tile: &'static str,
}

/// Compiled code of one variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// What it was compiled for.
    pub arch: Arch,
    /// What it is.
    pub format: ImageFormat,
    /// Index of the variant.
    pub variant: usize,
    /// The code, as the driver loads it.
    pub bytes: &'static [u8],
    /// What each kernel uses; empty for PTX, which the driver has yet to compile.
    pub kernels: &'static [KernelUsage],
}

/// Machine code, or what a driver makes it of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// An ELF file with machine code. It runs on GPUs of the same major version, from its own minor version on.
    Cubin,
    /// Text that the driver compiles for any GPU from its version on. It ends with a NUL.
    Ptx,
}

/// What one kernel uses of a multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelUsage {
    /// The kernel's symbol.
    pub kernel: &'static str,
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block, bytes; [`Launch::shared_bytes`] come on top.
    pub shared_bytes: u32,
    /// Bytes of registers that had to go to memory, stores and loads.
    pub spilled_bytes: u32,
}

impl Image {
    /// Whether a device runs it.
    pub const fn runs_on(&self, device: Arch) -> bool {
        let same_major = self.arch.sm / 10 == device.sm / 10;
        self.arch.sm <= device.sm && (same_major || matches!(self.format, ImageFormat::Ptx))
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.format {
            ImageFormat::Cubin => write!(f, "machine code for {}", self.arch),
            ImageFormat::Ptx => write!(f, "PTX for {} and newer", self.arch),
        }
    }
}

/// A kernel has no code for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoImage {
    /// The program was built without kernels.
    Stub {
        /// The kernel's name.
        kernel: &'static str,
    },
    /// None of the images runs on the device.
    Device {
        /// The kernel's name.
        kernel: &'static str,
        /// The device's name.
        device: String,
        /// Its architecture.
        arch: Arch,
        /// What the images are.
        images: String,
    },
}

impl fmt::Display for NoImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stub { kernel } => write!(
                f,
                "{kernel}: the program was built without kernels (TDC_KERNELS=stub or DOCS_RS); build it with TDC_KERNELS=auto"
            ),
            Self::Device {
                kernel,
                device,
                arch,
                images,
            } => write!(
                f,
                "{kernel}: nothing in it runs on {device} ({arch}): it has {images}; add the device's architecture to `arch` in \
                 the call, or to TDC_ARCH, and build again"
            ),
        }
    }
}

impl std::error::Error for NoImage {}

impl<O: Op> Kernel<O> {
    /// A kernel without code, for builds that only check types: [`Kernel::image_for`] and loading fail.
    pub const fn stub(name: &'static str, op: O) -> Self {
        Self {
            name,
            op,
            variants: &[],
            images: &[],
        }
    }

    /// Floating-point operations, a multiply-add counted as two.
    pub fn flops(&self) -> u64 {
        self.op.flops()
    }

    /// The image for a device: its own architecture's machine code (of several, that planned for the GPU that `device` tells),
    /// else the newest machine code that runs on it, else PTX.
    ///
    /// # Errors
    /// [`NoImage`], with what there is.
    pub fn image_for(&self, device: &str, arch: Arch) -> Result<&Image, NoImage> {
        let is_device = |image: &Image| {
            let variant = self.variants.get(image.variant);
            variant.is_some_and(|variant| is_gpu_name(device, variant.device_name))
        };
        let runnable = self.images.iter().filter(|image| image.runs_on(arch));
        // Of equal ones `max_by_key` takes the last; what stands first is preferred.
        let best = runnable.rev().max_by_key(|image| {
            let machine_code = image.format == ImageFormat::Cubin;
            (machine_code, image.arch, is_device(image))
        });
        best.ok_or_else(|| match self.images {
            [] => NoImage::Stub { kernel: self.name },
            images => NoImage::Device {
                kernel: self.name,
                device: device.to_owned(),
                arch,
                images: images
                    .iter()
                    .map(Image::to_string)
                    .collect::<Vec<_>>()
                    .join(", "),
            },
        })
    }

    /// The variant of an image.
    pub fn variant_of(&self, image: &Image) -> Option<&'static KernelVariant> {
        self.variants.get(image.variant)
    }
}

impl KernelVariant {
    /// The launches, in order.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.variant.steps.iter().filter_map(|step| match step {
            Step::Launch(launch) => Some(launch),
            Step::Memset { .. } => None,
        })
    }
}

/// Whether a device's name, as the driver tells it, has a GPU's in it, as whole words: an `L4` is no `L40S`.
pub fn is_gpu_name(device: &str, gpu: &str) -> bool {
    device.match_indices(gpu).any(|(start, found)| {
        let is_boundary = |c: Option<char>| !c.is_some_and(char::is_alphanumeric);
        is_boundary(device[..start].chars().next_back())
            && is_boundary(device[start + found.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConvShape, FusedOps, WeightLayout};
    use std::borrow::Cow;

    const fn variant(device_name: &'static str) -> KernelVariant {
        KernelVariant {
            device_name,
            variant: Variant {
                gpu: Cow::Borrowed(device_name),
                min_arch: Arch::new(70),
                steps: Cow::Borrowed(&[]),
                workspace_bytes: 0,
                weights: WeightLayout::NONE,
                extra_weight_layouts: Cow::Borrowed(&[]),
                bias_len: 0,
            },
            choices: &[],
            predicted_us: 1.0,
            source: "",
        }
    }

    const fn image(sm: u16, format: ImageFormat, variant: usize) -> Image {
        Image {
            arch: Arch::new(sm),
            format,
            variant,
            bytes: &[],
            kernels: &[],
        }
    }

    static KERNEL: Kernel = Kernel {
        name: "conv",
        op: Conv {
            shape: ConvShape::new(1, 1, 1, 1, 1, 1),
            fused: FusedOps {
                prologue: false,
                bias: false,
                residual: false,
                activation: Activation::None,
            },
        },
        variants: &[variant("A100"), variant("H100"), variant("H200")],
        images: &[
            image(80, ImageFormat::Cubin, 0),
            image(86, ImageFormat::Cubin, 0),
            image(90, ImageFormat::Cubin, 1),
            image(90, ImageFormat::Cubin, 2),
            image(90, ImageFormat::Ptx, 2),
        ],
    };

    #[test]
    fn a_device_gets_its_own_code_then_compatible_then_ptx() {
        let index = |device, sm| {
            let image = KERNEL.image_for(device, Arch::new(sm)).unwrap();
            KERNEL.images.iter().position(|other| other == image)
        };
        assert_eq!(index("NVIDIA A100-SXM4-80GB", 80), Some(0));
        assert_eq!(index("NVIDIA H200", 90), Some(3));
        assert_eq!(index("NVIDIA H100 80GB HBM3", 90), Some(2));
        // Neither is named: the first.
        assert_eq!(index("NVIDIA GH200 480GB", 90), Some(2));
        assert_eq!(index("NVIDIA L40S", 89), Some(1));
        assert_eq!(index("NVIDIA B200", 100), Some(4));
        assert_eq!(index("NVIDIA GeForce RTX 5090", 120), Some(4));
    }

    #[test]
    fn what_does_not_run_is_told_with_what_there_is() {
        let error = KERNEL.image_for("Tesla T4", Arch::new(75)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "conv: nothing in it runs on Tesla T4 (sm_75): it has machine code for sm_80, machine code for sm_86, machine code \
             for sm_90, machine code for sm_90, PTX for sm_90 and newer; add the device's architecture to `arch` in the call, or \
             to TDC_ARCH, and build again"
        );
        let stub = Kernel::stub("conv", KERNEL.op);
        let error = stub.image_for("NVIDIA H200", Arch::new(90)).unwrap_err();
        assert_eq!(error, NoImage::Stub { kernel: "conv" });
    }

    #[test]
    fn names_are_whole_words() {
        assert!(is_gpu_name("NVIDIA L4", "L4"));
        assert!(!is_gpu_name("NVIDIA L40S", "L4"));
        assert!(!is_gpu_name("NVIDIA GH200", "H200"));
        assert!(is_gpu_name("NVIDIA A100-SXM4", "A100"));
    }
}
