//! The convolutions that are measured.

use crate::ir::{
    ConvOptions, ConvProblem, CpProblem, DType, LayerSpec, Layout, Precision, Problem, Reduce,
    TensorShape, Tolerance,
};
use crate::plan::{ChosenBy, PlannedUnit, Planner};
use std::collections::HashMap;
use std::str::FromStr;
use tdc_runtime::{ConvShape, Padding};
use thiserror::Error;

/// A tile to measure because it was chosen by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedTile {
    /// Label of who chose it, one word for tables: `plan` for the tile of the config's plan.
    pub label: String,
    /// Name of the scheme.
    pub scheme: String,
    /// The tile's numbers.
    pub tile: Vec<u32>,
    /// How partial sums are added.
    pub reduce: Reduce,
}

/// One convolution or CP layer, without prologue and epilogue.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchProblem {
    /// Label of its row, see [`shape_label`].
    pub label: String,
    /// Sizes.
    pub shape: ConvShape,
    /// The rank of a CP layer: generated kernels compute its factors, cuDNN a dense convolution of the same
    /// shape.
    pub cp_rank: Option<u32>,
    /// The precision of generated kernels; cuDNN's algorithms are grouped by their error instead.
    pub precision: Precision,
    /// The tolerance of generated kernels.
    pub tolerance: Tolerance,
    /// Layout of the activations of generated kernels; cuDNN uses its best layout.
    pub layout: Layout,
    /// Tiles to measure in addition to those of the cost model, the most important first.
    pub named: Vec<NamedTile>,
    /// Who chose the first tile of the config's plan.
    pub plan_chosen_by: Option<ChosenBy>,
}

impl BenchProblem {
    /// The problem of the generated kernels, with the given mode of reduction.
    pub fn to_problem(&self, reduce: Reduce) -> Problem {
        let conv = self.conv(reduce);
        match self.cp_rank {
            Some(rank) => Problem::Cp(CpProblem { conv, rank }),
            None => Problem::Conv(conv.in_layout(self.layout)),
        }
    }

    /// cuDNN's problem: the dense convolution, regardless of decomposition and layout.
    pub fn dense_conv(&self) -> ConvProblem {
        self.conv(Reduce::Ordered)
    }

    fn conv(&self, reduce: Reduce) -> ConvProblem {
        ConvProblem {
            reduce,
            precision: self.precision,
            tolerance: self.tolerance,
            ..ConvProblem::new(self.shape)
        }
    }
}

/// `C,N,H,W`, followed by every attribute that differs from a single image and a 3x3 filter with stride 1 and
/// "same" padding: `3,64,224,224 7x7 s2 p3 b4`.
pub fn shape_label(shape: &ConvShape) -> String {
    let mut label = format!("{},{},{},{}", shape.c, shape.n, shape.h, shape.w);
    // The padding that preserves height and width.
    let [v, h] = [
        shape.dilation[0] * (shape.r.max(1) - 1) / 2,
        shape.dilation[1] * (shape.s.max(1) - 1) / 2,
    ];
    let same = Padding {
        top: v,
        left: h,
        bottom: v,
        right: h,
    };
    let pair = |[v, h]: [u32; 2]| match v == h {
        true => v.to_string(),
        false => format!("{v}x{h}"),
    };
    if (shape.r, shape.s) != (3, 3) {
        label += &format!(" {}x{}", shape.r, shape.s);
    }
    if shape.stride != [1, 1] {
        label += &format!(" s{}", pair(shape.stride));
    }
    let p = shape.padding;
    if p != same {
        label += &match p == Padding::all(p.top) {
            true => format!(" p{}", p.top),
            false => format!(" p{}x{}x{}x{}", p.top, p.left, p.bottom, p.right),
        };
    }
    if shape.dilation != [1, 1] {
        label += &format!(" d{}", pair(shape.dilation));
    }
    if shape.groups > 1 {
        label += &format!(" g{}", shape.groups);
    }
    if shape.batch > 1 {
        label += &format!(" b{}", shape.batch);
    }
    label
}

/// Every distinct convolution and CP layer of a plan, in order of first use, without Tucker layers in a
/// single launch, for tensors in fp32. The tile of the plan is named `plan`; if the plan has several because of different
/// epilogues, the first has that name and the others follow it. Of a unit of several convolutions, or for tensors of other types, no tile is
/// named.
pub fn bench_problems(units: &[PlannedUnit]) -> Vec<BenchProblem> {
    let mut found: Vec<BenchProblem> = Vec::new();
    let mut known = HashMap::new();
    let convolutions = units.iter().flat_map(|unit| {
        let of_unit = match unit.problem {
            Problem::Conv(conv) => vec![(conv, None)],
            Problem::Cp(CpProblem { conv, rank }) => vec![(conv, Some(rank))],
            Problem::Projected(projected) => {
                projected.convolutions().map(|conv| (conv, None)).to_vec()
            }
            Problem::DenseStep(step) => step.convolutions().map(|conv| (conv, None)).to_vec(),
            Problem::InvertedResidual(block) => {
                block.convolutions().map(|conv| (conv, None)).to_vec()
            }
            _ => Vec::new(),
        };
        of_unit.into_iter().map(move |of_unit| (unit, of_unit))
    });
    for (unit, (conv, cp_rank)) in convolutions {
        let layout = match conv.input.layout {
            Layout::Hwcn => Layout::Hwcn,
            Layout::Nchw | Layout::Nhwc => Layout::Nchw,
        };
        let mut label = shape_label(&conv.shape);
        if let Some(rank) = cp_rank {
            label += &format!(" rank {rank}");
        }
        if layout == Layout::Hwcn {
            label += " hwcn";
        }
        let key = (conv.shape, cp_rank, conv.precision, conv.tolerance, layout);
        let index = *known.entry(key).or_insert_with(|| {
            found.push(BenchProblem {
                label,
                shape: conv.shape,
                cp_rank,
                precision: conv.precision,
                tolerance: conv.tolerance,
                layout,
                named: Vec::new(),
                plan_chosen_by: Some(unit.chosen_by),
            });
            found.len() - 1
        });
        let named = NamedTile {
            label: "plan".to_owned(),
            scheme: unit.scheme.to_owned(),
            tile: unit.tile.0.clone(),
            reduce: conv.reduce,
        };
        let kind = unit.problem.kind();
        let is_fp32 =
            [kind.input(), kind.output()].map(|tensor| tensor.format.dtype) == [DType::Fp32; 2];
        let is_one = matches!(unit.problem, Problem::Conv(_) | Problem::Cp(_));
        if is_one && is_fp32 && !found[index].named.contains(&named) {
            found[index].named.push(named);
        }
    }
    found
}

/// A series of convolutions that differ in N only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    /// Input channels.
    pub c: u32,
    /// Input height.
    pub h: u32,
    /// Input width.
    pub w: u32,
    /// Filter height and width.
    pub r: u32,
}

/// An invalid sweep.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SweepError {
    /// Not a list of sizes.
    #[error(
        "`{0}` is not a sweep; write C,H,W such as 64,56,56, or C,H,W,R for a filter other than 3x3"
    )]
    Text(String),
    /// The sizes are not valid for a convolution, or no scheme supports them.
    #[error("{0}")]
    Sizes(String),
}

impl FromStr for Sweep {
    type Err = SweepError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let size = |size: &str| match size.bytes().all(|byte| byte.is_ascii_digit()) {
            true => size.parse::<u32>().ok(),
            false => None,
        };
        let sizes: Option<Vec<u32>> = text.trim().split(',').map(size).collect();
        match sizes.as_deref() {
            Some(&[c, h, w]) => Ok(Self { c, h, w, r: 3 }),
            Some(&[c, h, w, r]) => Ok(Self { c, h, w, r }),
            _ => Err(SweepError::Text(text.chars().take(60).collect())),
        }
    }
}

/// The convolutions of a sweep with N = 32, 64, ... up to `last`, at the given batch size, planned for the
/// planner's GPU.
///
/// # Errors
/// [`SweepError::Sizes`] with the first invalid size.
pub fn sweep_problems(
    sweep: Sweep,
    last: u32,
    batch: u32,
    planner: &mut Planner,
) -> Result<Vec<BenchProblem>, SweepError> {
    /// Step from one N to the next, as in figure 4 of the TDC paper.
    const STEP: u32 = 32;
    if last < STEP {
        return Err(SweepError::Sizes(format!(
            "a sweep up to N = {last} is empty; it starts at {STEP}"
        )));
    }
    let Sweep { c, h, w, r } = sweep;
    (STEP..=last)
        .step_by(STEP as usize)
        .map(|n| {
            let options = ConvOptions {
                kernel: [r, r],
                ..ConvOptions::new(n)
            };
            let x = TensorShape::new(batch, c, h, w);
            let layer = LayerSpec::new("sweep", x, options, None, false).map_err(|errors| {
                let first = errors.first().map(ToString::to_string);
                SweepError::Sizes(
                    first.unwrap_or_else(|| format!("no convolution has the sizes {sweep:?}")),
                )
            })?;
            let problem = Problem::Conv(layer.problem.in_layout(layer.layout));
            let choice = planner
                .choose("sweep", &problem, None, None)
                .map_err(|error| SweepError::Sizes(error.to_string()))?;
            let shape = layer.problem.shape;
            Ok(BenchProblem {
                label: shape_label(&shape),
                shape,
                cp_rank: None,
                precision: layer.problem.precision,
                tolerance: layer.problem.tolerance,
                layout: layer.layout,
                named: vec![NamedTile {
                    label: "plan".to_owned(),
                    scheme: choice.scheme.name().to_owned(),
                    tile: choice.tile.0,
                    reduce: Reduce::Ordered,
                }],
                plan_chosen_by: Some(choice.chosen_by),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;

    #[test]
    fn labels_show_non_default_attributes() {
        let mut shape = ConvShape::new(64, 32, 56, 56, 3, 3);
        shape.padding = Padding::all(1);
        assert_eq!(shape_label(&shape), "64,32,56,56");
        shape.padding = Padding::all(0);
        shape.batch = 2;
        assert_eq!(shape_label(&shape), "64,32,56,56 p0 b2");
        let mut shape = ConvShape::new(8, 16, 9, 7, 1, 5);
        shape.stride = [2, 1];
        shape.groups = 4;
        shape.padding = Padding {
            left: 2,
            ..Padding::default()
        };
        assert_eq!(shape_label(&shape), "8,16,9,7 1x5 s2x1 p0x2x0x0 g4");
        assert_eq!(
            shape_label(&ConvShape::new(4, 4, 5, 5, 1, 1)),
            "4,4,5,5 1x1"
        );
    }

    #[test]
    fn sweeps_are_parsed_and_errors_reported() {
        let sweep: Sweep = "64,56,28".parse().unwrap();
        assert_eq!((sweep.c, sweep.h, sweep.w, sweep.r), (64, 56, 28, 3));
        assert_eq!("64,56,28,1".parse::<Sweep>().unwrap().r, 1);
        for bad in ["", "64", "64,56", "64,56,+28", "a,b,c", "1,2,3,4,5"] {
            let error = bad.parse::<Sweep>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{bad}`")), "{error}");
            assert!(error.contains("write C,H,W"), "{error}");
        }
    }

    #[test]
    fn cp_layers_and_layouts_share_one_dense_convolution() {
        let config = "name: t\nlayers:\n  - {conv: [8, 6, 5, 7], kernel: [3, 5], cp_rank: 2}\n  \
                      - {conv: [8, 6, 5, 7], kernel: [3, 5], cp_rank: 3, bias: true}\n  \
                      - {conv: [8, 6, 5, 7], kernel: [3, 5], cp_rank: 3}\n  \
                      - {conv: [8, 6, 5, 7], kernel: [3, 5], layout: hwcn}\n";
        let read =
            crate::config::yaml::parse(config, "t.yaml", &crate::config::Overrides::default());
        let Ok(crate::config::Config::LayerSet(set)) = read else {
            panic!("a layer set");
        };
        let plan = crate::plan::plan_layer_set(&set, gpu("h200").unwrap()).unwrap();
        let problems = bench_problems(&plan.units);
        let labels: Vec<_> = problems.iter().map(|p| &p.label[..]).collect();
        assert_eq!(
            labels,
            [
                "8,6,5,7 3x5 rank 2",
                "8,6,5,7 3x5 rank 3",
                "8,6,5,7 3x5 hwcn"
            ]
        );
        let [two, three, hwcn] = &problems[..] else {
            panic!("three problems");
        };
        assert!(matches!(
            three.to_problem(Reduce::Ordered),
            Problem::Cp(CpProblem { rank: 3, .. })
        ));
        assert_eq!(two.dense_conv(), hwcn.dense_conv());
        let hwcn = hwcn.to_problem(Reduce::Ordered);
        assert_eq!(
            (hwcn.x_layout(), hwcn.y_layout()),
            (Layout::Hwcn, Layout::Hwcn)
        );
        assert_eq!(two.dense_conv(), three.dense_conv());

        assert_eq!(three.named[0].scheme, "cp_chain");
    }

    /// A tile of both convolutions together is none of either.
    #[test]
    fn a_unit_of_several_convolutions_names_no_tile() {
        let mut planner = Planner::new(gpu("h200").unwrap());
        let label = "densestep_c16_grow8_before16_n16_h9_w9_k3x3_p1_concat";
        let problem = crate::plan::problem_of_label(label).unwrap();
        let unit = crate::plan::plan_problem(&mut planner, "t", "layer", &problem, None, None);
        let problems = bench_problems(&[unit.unwrap()]);
        let labels: Vec<_> = problems.iter().map(|problem| &problem.label[..]).collect();
        assert_eq!(labels, ["16,8,9,9", "24,16,9,9 1x1"]);
        assert!(problems.iter().all(|problem| problem.named.is_empty()));
    }

    #[test]
    fn a_sweep_steps_by_32() {
        let mut planner = Planner::new(gpu("h200").unwrap());
        let sweep = "16,7,7".parse().unwrap();
        let problems = sweep_problems(sweep, 100, 2, &mut planner).unwrap();
        let n: Vec<_> = problems.iter().map(|problem| problem.shape.n).collect();
        assert_eq!(n, [32, 64, 96]);
        assert!(problems.iter().all(|problem| problem.shape.batch == 2));
        for (text, last) in [("16,7,7", 31), ("0,7,7", 32), ("16,4294967295,7", 32)] {
            let sweep = text.parse().unwrap();
            let error = sweep_problems(sweep, last, 1, &mut planner).unwrap_err();
            assert!(!error.to_string().is_empty());
        }
    }
}
