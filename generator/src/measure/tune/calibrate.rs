//! Fits the constants of the cost model to measured times, one group after the other.

mod objective;
mod pattern_search;
mod samples;

pub use objective::Fit;
pub use samples::Samples;

use crate::gpu::Products;

/// Constants that are fitted together, and the kernels whose times determine them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// The group's name in [`CostModel`](crate::gpu::CostModel).
    pub name: &'static str,
    /// The schemes of the kernels.
    schemes: &'static [&'static str],
    /// The products of the kernels; `None` for all.
    products: Option<&'static [Products]>,
    /// Whether [`Scheme::work`](crate::scheme::Scheme::work) depends on the constants. Otherwise only the time of that work does.
    in_work: bool,
}

/// The schemes around the kernel of `wgmma_nhwc`.
const NHWC_SCHEMES: &[&str] = &[
    "wgmma_nhwc",
    "wgmma_projected",
    "wgmma_converted",
    "wgmma_stem",
];

/// The groups in the order in which they are fitted: times of kernels that are not tiled depend on `untiled` as well. `rough` is
/// not fitted: it prunes tile spaces, and its times are not compared with measured ones. `network` is fitted to times of whole networks.
pub const GROUPS: &[Group] = &[
    Group {
        name: "untiled",
        schemes: &[
            "direct",
            "linear",
            "conv_transpose",
            "pool",
            "resize",
            "channel_norm",
            "lrn",
            "pad",
            "global_pool",
            "squeeze_excite",
            "elementwise",
            "normalize",
        ],
        products: None,
        in_work: false,
    },
    Group {
        name: "tiled",
        schemes: TILED,
        products: Some(&[Products::Fp32]),
        in_work: false,
    },
    Group {
        name: "tiled_tf32",
        schemes: TILED,
        products: Some(&[Products::Tf32]),
        in_work: false,
    },
    Group {
        name: "tiled_half",
        schemes: TILED,
        products: Some(&[Products::Half]),
        in_work: false,
    },
    Group {
        products: Some(&[Products::Fp32]),
        ..Group::of_schemes("tucker_fused", &["tucker_fused"])
    },
    Group {
        products: Some(&[Products::Tf32, Products::Half]),
        ..Group::of_schemes("tucker_fused_half", &["tucker_fused"])
    },
    Group {
        products: Some(&[Products::Fp32]),
        ..Group::of_schemes("dense_step", &["dense_step"])
    },
    Group {
        products: Some(&[Products::Tf32, Products::Half]),
        ..Group::of_schemes("dense_step_half", &["dense_step"])
    },
    Group {
        products: Some(&[Products::Fp32]),
        ..Group::of_schemes("inverted_residual", &["inverted_residual"])
    },
    Group {
        products: Some(&[Products::Tf32, Products::Half]),
        ..Group::of_schemes("inverted_residual_half", &["inverted_residual"])
    },
    Group::of_schemes("cp_chain", &["cp_chain"]),
    Group {
        products: Some(&[Products::Fp32, Products::Tf32]),
        ..Group::of_schemes("wgmma", &["wgmma"])
    },
    Group {
        products: Some(&[Products::Half]),
        ..Group::of_schemes("wgmma_half", &["wgmma"])
    },
    Group {
        products: Some(&[Products::Half]),
        ..Group::of_schemes("wgmma_nhwc", NHWC_SCHEMES)
    },
    Group {
        products: Some(&[Products::Fp32, Products::Tf32]),
        ..Group::of_schemes("wgmma_split", NHWC_SCHEMES)
    },
    Group::of_schemes("winograd", &["winograd"]),
    Group::of_schemes("input_stationary", &["input_stationary"]),
    Group::of_schemes("depthwise_nhwc", &["depthwise_nhwc"]),
    Group::of_schemes("mma_nhwc", &["mma_nhwc"]),
    Group::of_schemes(
        "other",
        &["depthwise", "pointwise", "tvm", "tdc", "tdc_rows"],
    ),
];

const TILED: &[&str] = &["implicit_gemm", "direct_tiled"];

impl Group {
    /// Constants that schemes use to compute the work of their kernels.
    const fn of_schemes(name: &'static str, schemes: &'static [&'static str]) -> Self {
        Self {
            name,
            schemes,
            products: None,
            in_work: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::CostModel;
    use crate::scheme::SCHEMES;

    /// `convert` has no constants of its own and is measured with no config.
    #[test]
    fn every_default_scheme_and_every_constant_belongs_to_a_group() {
        for scheme in SCHEMES.iter().filter(|scheme| scheme.is_default()) {
            let groups = GROUPS.iter();
            let found = groups.filter(|group| group.schemes.contains(&scheme.name()));
            let expected = match scheme.name() {
                "convert" => 0,
                "implicit_gemm" | "direct_tiled" => 3,
                "tucker_fused" | "dense_step" | "inverted_residual" | "wgmma" => 2,
                nhwc if NHWC_SCHEMES.contains(&nhwc) => 2,
                _ => 1,
            };
            assert_eq!(found.count(), expected, "{}", scheme.name());
        }
        for line in CostModel::INITIAL.to_string().lines() {
            let group = line.split('.').next().unwrap();
            let known = GROUPS.iter().any(|known| known.name == group);
            let is_fitted_otherwise = ["rough", "network"].contains(&group);
            assert!(known || is_fitted_otherwise, "{line}");
        }
        for group in GROUPS {
            assert!(!CostModel::INITIAL.group(group.name).is_empty());
            for name in group.schemes {
                assert!(crate::scheme::scheme(name).is_some(), "{name}");
            }
        }
    }
}
