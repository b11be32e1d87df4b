//! A kernel embedded in a program.

use crate::{Arch, Conv, Launch, Op, Step, Variant};
use std::fmt;

/// An op that was planned and compiled together with the program: launches, machine code, weight layout.
///
/// The macro `kernel!` of the crate `tdc` creates kernels; its documentation has an example. With the feature
/// `cuda` a kernel can be loaded into a context and launched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kernel<O: Op = Conv> {
    /// Canonical name of the problem.
    pub name: &'static str,
    /// The op.
    pub op: O,
    /// Variants, each planned for one GPU; none in a stub.
    pub variants: &'static [KernelVariant],
    /// Images with code; none in a stub.
    pub images: &'static [Image],
}

/// A variant of a kernel, planned for one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelVariant {
    /// The part of CUDA's device name that identifies the GPU.
    pub device_name: &'static str,
    /// Launches, their parameters, and the weight layouts.
    pub variant: Variant,
    /// Scheme and tile of each unit, in the order of the launches.
    pub choices: &'static [UnitChoice],
    /// Predicted time of all launches on that GPU, in microseconds.
    pub predicted_us: f64,
    /// The CUDA C++ source of all its kernels; self-contained.
    pub source: &'static str,
}

/// A scheme with its tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitChoice {
    /// The scheme's name.
    pub scheme: &'static str,
    /// The tile's label, such as `h2w8rn2rp4xn2xk3cl1c8s1`.
    pub tile: &'static str,
}

/// Compiled code of one variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// The architecture that it was compiled for.
    pub arch: Arch,
    /// Its format.
    pub format: ImageFormat,
    /// Index of the variant.
    pub variant: usize,
    /// The code, in the form that the driver loads.
    pub bytes: &'static [u8],
    /// Resources of each kernel; empty for PTX, which is compiled by the driver.
    pub kernels: &'static [KernelUsage],
}

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// An ELF file with machine code. It runs on GPUs of the same major version with the same or a higher
    /// minor version.
    Cubin,
    /// Text that the driver compiles for any GPU of the same or a higher version. It ends with a NUL.
    Ptx,
}

/// Resources of one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelUsage {
    /// The kernel's symbol.
    pub kernel: &'static str,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block, bytes; [`Launch::shared_bytes`] is dynamic and adds to it.
    pub shared_bytes: u32,
    /// Bytes of register spills, stores and loads.
    pub spilled_bytes: u32,
}

impl Image {
    /// Whether it runs on a device of the given architecture.
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

/// Why a kernel has no code for a device.
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
        /// The available images.
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
                "{kernel}: no image runs on {device} ({arch}), only {images} available; add the device's architecture to `arch` in \
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

    /// The image for a device: machine code of its architecture (if there are several, the one planned for
    /// the GPU named in `device`), else the newest machine code that runs on it, else PTX.
    ///
    /// # Errors
    /// [`NoImage`], with the available images.
    pub fn image_for(&self, device: &str, arch: Arch) -> Result<&Image, NoImage> {
        let is_device = |image: &Image| {
            let variant = self.variants.get(image.variant);
            variant.is_some_and(|variant| is_gpu_name(device, variant.device_name))
        };
        let runnable = self.images.iter().filter(|image| image.runs_on(arch));
        // `max_by_key` returns the last of equal elements; the first image is preferred.
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

/// Whether a device name of the driver contains the name of a GPU as complete words: `NVIDIA L40S` does not
/// contain `L4`.
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
                activation: crate::Activation::None,
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
        // Neither GPU is named in the device name: the first image is used.
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
            "conv: no image runs on Tesla T4 (sm_75), only machine code for sm_80, machine code for sm_86, machine code \
             for sm_90, machine code for sm_90, PTX for sm_90 and newer available; add the device's architecture to `arch` in the call, or \
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
