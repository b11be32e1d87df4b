//! Compares the generated code of every scheme with float64, on shapes that are error-prone: on the CPU (a
//! few units of each scheme in the quick tier, more in the deep one), and on a GPU if there is one
//! (`tests/gpu/run.sh` runs those tests).

mod device;
mod toolkit;

use device::{cpu, gpu_here};
use tdc_generator::compile::Compiler;
use tdc_generator::compile::nvrtc::{Effort, Options};
use tdc_generator::gpu::gpu;
use tdc_generator::ir::{
    Activation, ActivationParameter, BinaryOp, ChannelNorm, ChannelNormProblem, ConvProblem,
    ConvTransposeProblem, ConvertProblem, Coordinates, CpProblem, DType, DenseStepProblem,
    Elementwise, ElementwiseProblem, Epilogue, Format, GlobalPoolProblem, Interpolation,
    InvertedResidualProblem, Layout, LinearProblem, Lrn, LrnProblem, NextFactor, NormalizeProblem,
    PadMode, PadProblem, PoolKind, PoolProblem, Precision, Problem, ProjectedProblem, Prologue,
    Reduce, ReferenceInputs, ResizeProblem, Rounding, Shortcut, SqueezeExciteProblem, TensorShape,
    Tolerance, TuckerProblem, activate,
};
use tdc_generator::plan::{PlannedUnit, Planner, plan_problem, problem_of_label};
use tdc_generator::render::unit_text;
use tdc_generator::scheme::Tile;
use tdc_generator::verify::{
    Bindings, CpuDevice, Device, ProblemData, Random, check_unit, check_unit_on, run_variant,
};
use tdc_runtime::{Arch, ConvShape, Padding, fp16_value};

/// Plans problems with the given tiles, one unit each, all with distinct symbols.
fn units(requests: &[(Problem, &str, Option<Vec<u32>>)]) -> Vec<PlannedUnit> {
    let mut planner = Planner::new(gpu("h200").unwrap());
    let mut units: Vec<PlannedUnit> = Vec::new();
    for (problem, scheme, tile) in requests {
        let unit = plan_problem(
            &mut planner,
            "test",
            "layer",
            problem,
            Some(scheme),
            tile.as_deref(),
        )
        .unwrap();
        if units.iter().all(|known| known.unit.name != unit.unit.name) {
            units.push(unit);
        }
    }
    units
}

/// The output of a unit without bias or residual, as `y_words` words of four bytes. `weight` is in the order of checkpoints.
fn run_unit(
    device: &mut dyn Device,
    unit: &PlannedUnit,
    x: &[f32],
    weight: &[f32],
    y_words: usize,
) -> Vec<f32> {
    let variant = unit.variant();
    let mut packed = vec![0.0; variant.weights.len()];
    variant.weights.pack(weight, &[], &[], &mut packed).unwrap();
    let mut place = |values: &[f32]| {
        let address = device.alloc(values.len().max(4)).unwrap();
        device.write(address, values).unwrap();
        address
    };
    let bindings = Bindings {
        x: place(x),
        packed: place(&packed),
        workspace: place(&vec![f32::NAN; variant.workspace_bytes as usize / 4]),
        y: place(&vec![f32::NAN; y_words]),
        ..Bindings::default()
    };
    run_variant(device, variant, &bindings).unwrap();
    let mut y = vec![0.0; y_words];
    device.read(bindings.y, &mut y).unwrap();
    y
}

/// The bits of one of the 16-bit numbers of which each word has two.
fn half_at(words: &[f32], index: usize) -> u16 {
    (words[index / 2].to_bits() >> (16 * (index % 2))) as u16
}

/// Runs every unit and lists all failures.
fn assert_right(units: &[PlannedUnit], open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    assert_none(&failures(units, open), units.len());
}

/// The failures of units.
fn failures(units: &[PlannedUnit], open: fn(&[PlannedUnit]) -> Box<dyn Device>) -> Vec<String> {
    let mut device = open(units);
    units
        .iter()
        .enumerate()
        .filter_map(|(index, unit)| {
            let result = check_unit(device.as_mut(), unit, 17 + index as u64);
            let failure = result.err()?;
            Some(format!("{}: {failure}", unit.unit.name))
        })
        .collect()
}

fn assert_none(failures: &[String], units: usize) {
    assert!(
        failures.is_empty(),
        "{} of {units} units failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// A random convolution: odd sizes, prime channels, strides, dilations, uneven padding, groups, batches, all epilogues.
fn random_conv(random: &mut Random) -> ConvProblem {
    loop {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let groups = pick(&[1, 1, 1, 1, 2, 3, 7]);
        let depthwise = groups == 7;
        let (c, n) = if depthwise {
            (7, 7 * pick(&[1, 2]))
        } else {
            (
                groups * pick(&[1, 2, 3, 5, 13, 17, 32]),
                groups * pick(&[1, 2, 5, 8, 11, 19]),
            )
        };
        let kernel = [pick(&[1, 1, 2, 3, 3, 5, 7]), pick(&[1, 1, 2, 3, 3, 5])];
        let shape = ConvShape {
            batch: pick(&[1, 1, 2, 3]),
            c,
            n,
            h: pick(&[1, 2, 5, 7, 9, 14, 15]),
            w: pick(&[1, 3, 5, 7, 8, 13, 16]),
            r: kernel[0],
            s: kernel[1],
            stride: [pick(&[1, 1, 2, 3]), pick(&[1, 1, 2])],
            padding: Padding {
                top: pick(&[0, 1, 2]),
                left: pick(&[0, 0, 1, 3]),
                bottom: pick(&[0, 1]),
                right: pick(&[0, 0, 1, 2]),
            },
            dilation: [pick(&[1, 1, 2]), pick(&[1, 1, 1, 3])],
            groups,
        };
        let prologue = match pick(&[0, 0, 1, 2]) {
            0 => None,
            with_activation => Some(Prologue {
                activation: activation(pick(&INDICES) * (with_activation - 1)),
            }),
        };
        let epilogue = Epilogue {
            bias: pick(&[0, 1]) == 1,
            residual: pick(&[0, 1]) == 1,
            activation: activation(pick(&INDICES) * pick(&[0, 1])),
        };
        if shape.out_h() > 0 && shape.out_w() > 0 {
            return ConvProblem {
                prologue,
                epilogue,
                ..ConvProblem::new(shape)
            };
        }
    }
}

/// Random convolutions, changed by `adapt` to ones that a scheme supports, with random tiles of the scheme.
fn conv_units(
    scheme: &'static str,
    seed: u64,
    count: usize,
    adapt: fn(&mut Random, &mut ConvProblem),
) -> Vec<PlannedUnit> {
    random_units(scheme, seed, count, |random, mut conv| {
        adapt(random, &mut conv);
        (conv.shape.out_h() > 0 && conv.shape.out_w() > 0).then_some(Problem::Conv(conv))
    })
}

/// Problems from random convolutions, with random tiles of a scheme.
fn random_units(
    scheme: &'static str,
    seed: u64,
    count: usize,
    make: impl Fn(&mut Random, ConvProblem) -> Option<Problem>,
) -> Vec<PlannedUnit> {
    random_units_with_tiles(scheme, seed, count, |_| true, make)
}

/// The same, with tiles of one kind only.
fn random_units_with_tiles(
    scheme: &'static str,
    seed: u64,
    count: usize,
    is_wanted: fn(&Tile) -> bool,
    make: impl Fn(&mut Random, ConvProblem) -> Option<Problem>,
) -> Vec<PlannedUnit> {
    let mut random = Random::new(seed);
    let found = tdc_generator::scheme::scheme(scheme).unwrap();
    let mut requests = Vec::new();
    // Problems that the scheme does not support are skipped: outputs too small for a warp, tiles too large
    // for a block.
    for _ in 0..10 * count {
        let conv = random_conv(&mut random);
        let Some(problem) = make(&mut random, conv) else {
            continue;
        };
        let mut tiles = found.tiles(&problem, gpu("h200").unwrap());
        tiles.retain(is_wanted);
        if !tiles.is_empty() && requests.len() < count {
            let tile = tiles[random.below(tiles.len() as u64) as usize].clone();
            requests.push((problem, scheme, Some(tile.0)));
        }
    }
    assert_eq!(requests.len(), count, "{scheme} takes too few problems");
    units(&requests)
}

fn direct_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("direct", 1, count, |_, _| ())
}

fn pointwise_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("pointwise", 2, count, |_, conv| {
        (conv.shape.r, conv.shape.s, conv.shape.groups) = (1, 1, 1);
        conv.shape.padding = Padding::default();
    })
}

/// One to three output channels per input channel; half of the images have rows that can be read as vectors.
fn depthwise_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("depthwise", 7, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.c = pick(&[1, 2, 5, 7, 16, 37]);
        shape.n = shape.c * pick(&[1, 1, 2, 3]);
        shape.groups = shape.c;
        if pick(&[0, 1]) == 1 {
            shape.batch = 1;
            shape.w = pick(&[4, 6, 8, 10, 12, 28]);
        }
        if pick(&[0, 0, 0, 1]) == 1 {
            // Enough taps that their loop is not unrolled.
            (shape.r, shape.s) = (pick(&[1, 11, 19]), pick(&[7, 31]));
            shape.padding = Padding {
                top: 9,
                left: 13,
                bottom: 8,
                right: 17,
            };
        }
    })
}

/// Activations in fp16 or split NHWC; numbers of runs that are no multiples of a block's, filters that registers cannot hold.
fn depthwise_nhwc_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("depthwise_nhwc", 18, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.batch = pick(&[1, 2, 3, 5]);
        shape.c = pick(&[8, 24, 40, 64, 104, 144, 296]);
        (shape.n, shape.groups) = (shape.c, shape.c);
        if pick(&[0, 0, 1]) == 1 {
            (shape.r, shape.s) = (7, 7);
            (shape.padding.top, shape.padding.left) = (3, 3);
        }
        let format = [Format::FP16_NHWC, Format::SPLIT_NHWC][pick(&[0, 1]) as usize];
        conv.precision = match format {
            Format::FP16_NHWC => Precision::Fp16,
            _ => Precision::NAMES[pick(&[0, 0, 1, 2]) as usize].1,
        };
        (conv.input, conv.output) = (format, format);
        conv.prologue = None;
        conv.epilogue.residual = false;
    })
}

/// Both kernels of TDC, half of them with atomics, some with more channels than threads in a block.
fn tdc_units(count: usize) -> Vec<PlannedUnit> {
    let adapt = |random: &mut Random, conv: &mut ConvProblem| {
        conv.shape.groups = 1;
        if random.below(8) == 0 {
            conv.shape.n = 1031;
        }
        if random.below(2) == 0 {
            conv.reduce = Reduce::Atomic;
        }
    };
    let mut units = conv_units("tdc", 3, count, adapt);
    units.extend(conv_units("tdc_rows", 4, count, adapt));
    units
}

/// The schemes with split-K over thread groups and clusters, on channels with and without tails; half of the
/// images have rows that can be staged as vectors. All precisions, mostly fp32.
fn tiled_units(count: usize) -> Vec<PlannedUnit> {
    let adapt = |random: &mut Random, conv: &mut ConvProblem| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        conv.shape.groups = 1;
        conv.shape.c = pick(&[1, 5, 16, 32, 33, 64, 96, 177, 267]);
        conv.shape.n = pick(&[1, 7, 16, 19, 32, 70]);
        conv.precision = Precision::NAMES[pick(&[0, 0, 0, 1, 1, 2, 3, 3]) as usize].1;
        if pick(&[0, 1]) == 1 {
            conv.shape.batch = 1;
            conv.shape.w = pick(&[4, 8, 12, 28]);
        }
    };
    let mut units = conv_units("implicit_gemm", 5, count, adapt);
    units.extend(conv_units("direct_tiled", 6, count, adapt));
    units
}

/// Warp-specialised products on channels with and without tails, mostly in batches: tiles have rows of several images, and blocks several
/// tiles.
fn wgmma_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("wgmma", 10, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.groups = 1;
        shape.batch = pick(&[1, 2, 3, 5]);
        shape.c = pick(&[16, 17, 32, 48, 67]);
        shape.n = pick(&[8, 19, 32, 70, 131]);
        (shape.h, shape.w) = (pick(&[5, 7, 9, 14]), pick(&[7, 8, 13, 17]));
        conv.precision = Precision::NAMES[pick(&[0, 0, 0, 1, 1, 2, 3]) as usize].1;
    })
}

/// The same with outputs in fp16 NHWC.
fn wgmma_fp16_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("wgmma", 11, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.groups = 1;
        shape.batch = pick(&[1, 2, 3, 5]);
        shape.c = pick(&[16, 32, 51, 80]);
        shape.n = pick(&[8, 24, 32, 72, 136]);
        (shape.h, shape.w) = (pick(&[5, 7, 9, 14]), pick(&[7, 8, 13, 17]));
        (conv.precision, conv.output) = (Precision::Fp16, Format::FP16_NHWC);
    })
}

/// Inputs in fp16 NHWC, outputs in either format: images of a pixel or more, in tiles that begin and end anywhere.
fn wgmma_nhwc_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("wgmma_nhwc", 16, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.groups = 1;
        shape.batch = pick(&[1, 2, 3, 5]);
        shape.c = pick(&[16, 32, 48, 80, 128]);
        shape.n = pick(&[8, 24, 32, 72, 136]);
        (shape.h, shape.w) = (pick(&[1, 5, 7, 9, 14]), pick(&[1, 7, 8, 13, 17]));
        let [fp32, fp16] = [Format::default(), Format::FP16_NHWC];
        conv.precision = Precision::Fp16;
        conv.input = fp16;
        conv.output = [fp16, fp16, fp32][random.below(3) as usize];
        conv.prologue = None;
    })
}

/// Inputs in split NHWC, outputs in it or in fp32, of the precisions that read hi and lo and of those that read hi.
fn wgmma_split_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("wgmma_nhwc", 17, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.groups = 1;
        shape.batch = pick(&[1, 2, 3, 5]);
        shape.c = pick(&[16, 32, 48, 80, 128]);
        shape.n = pick(&[8, 24, 32, 72, 136]);
        (shape.h, shape.w) = (pick(&[1, 5, 7, 9, 14]), pick(&[1, 7, 8, 13, 17]));
        let [fp32, split] = [Format::default(), Format::SPLIT_NHWC];
        conv.precision = Precision::NAMES[pick(&[0, 0, 0, 1, 2]) as usize].1;
        conv.input = split;
        conv.output = [split, split, fp32][random.below(3) as usize];
        conv.prologue = None;
    })
}

/// Whether a tile of `wgmma_nhwc` has several blocks in a cluster.
fn has_cluster(tile: &Tile) -> bool {
    tile.0.last().is_some_and(|&cluster| cluster > 1)
}

/// Clusters of two to eight blocks, with all formats and precisions.
fn wgmma_cluster_units(count: usize) -> Vec<PlannedUnit> {
    random_units_with_tiles("wgmma_nhwc", 47, count, has_cluster, |random, mut conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.groups = 1;
        shape.batch = pick(&[1, 1, 2, 3]);
        shape.c = pick(&[32, 64, 96, 128, 192]);
        shape.n = pick(&[8, 24, 32, 72, 136]);
        (shape.h, shape.w) = (pick(&[1, 5, 7, 9, 14]), pick(&[1, 7, 8, 13, 17]));
        let [fp32, fp16] = [Format::default(), Format::FP16_NHWC];
        let [split, bf16] = [Format::SPLIT_NHWC, Format::BF16_NHWC];
        (conv.precision, conv.input) = [
            (Precision::Fp32, split),
            (Precision::Fp32, split),
            (Precision::Tf32, split),
            (Precision::Fp16, fp16),
            (Precision::Bf16, bf16),
        ][random.below(5) as usize];
        conv.output = [conv.input, conv.input, fp32][random.below(3) as usize];
        conv.prologue = None;
        Some(Problem::Conv(conv))
    })
}

/// Dilated filters in a grid of cells for each residue of rows, columns or both: several pixels of a residue, one, or none.
fn wgmma_dilated_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("wgmma_nhwc", 21, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        (shape.groups, shape.batch) = (1, pick(&[1, 2, 3]));
        (shape.c, shape.n) = (pick(&[16, 32, 48]), pick(&[8, 24, 72]));
        (shape.h, shape.w) = (pick(&[1, 5, 7, 12, 17]), pick(&[2, 7, 8, 13, 19]));
        (shape.r, shape.s) = (pick(&[1, 2, 3, 3, 5]), pick(&[1, 2, 3, 3]));
        shape.stride = [1, 1];
        shape.dilation = [pick(&[1, 2, 3, 5, 9]), pick(&[1, 2, 3, 4, 8])];
        let [down, right] = shape.dilation;
        shape.padding = Padding {
            top: down * pick(&[0, 1, 1, 2]),
            left: right * pick(&[0, 1, 1, 2]),
            bottom: pick(&[0, down, 2 * down, 1]),
            right: pick(&[0, right, right, 3]),
        };
        let [fp32, fp16, split] = [Format::default(), Format::FP16_NHWC, Format::SPLIT_NHWC];
        (conv.precision, conv.input) = match pick(&[0, 1]) {
            0 => (Precision::Fp16, fp16),
            _ => (Precision::Fp32, split),
        };
        conv.output = [conv.input, conv.input, fp32][random.below(3) as usize];
        conv.prologue = None;
    })
}

/// First layers, whose pixels are gathered, with outputs in every format.
fn wgmma_stem_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("wgmma_stem", 18, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.groups = 1;
        shape.batch = pick(&[1, 2, 3, 5]);
        (shape.c, shape.n) = (pick(&[1, 2, 3, 3, 4]), pick(&[8, 24, 32, 72, 136]));
        (shape.r, shape.s) = (pick(&[1, 3, 5, 7]), pick(&[1, 2, 3, 4, 7]));
        (shape.stride, shape.dilation) = ([pick(&[1, 2]); 2], [1, 1]);
        (shape.h, shape.w) = (pick(&[5, 9, 14, 23]), pick(&[7, 12, 17, 31]));
        conv.precision = Precision::NAMES[pick(&[0, 0, 0, 1, 2, 2]) as usize].1;
        let nhwc = match conv.precision {
            Precision::Fp16 => Format::FP16_NHWC,
            _ => Format::SPLIT_NHWC,
        };
        conv.output = [Format::SPLIT_NHWC, nhwc, Format::default()][random.below(3) as usize];
        conv.prologue = None;
    })
}

/// First layers that read bytes, which they normalise, with outputs in every format.
fn wgmma_stem_byte_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("wgmma_stem", 20, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.groups = 1;
        shape.batch = pick(&[1, 2, 3]);
        (shape.c, shape.n) = (pick(&[1, 3, 3, 4]), pick(&[8, 24, 72]));
        (shape.r, shape.s) = (pick(&[1, 3, 7]), pick(&[2, 3, 7]));
        (shape.stride, shape.dilation) = ([pick(&[1, 2]); 2], [1, 1]);
        (shape.h, shape.w) = (pick(&[5, 14, 23]), pick(&[7, 17, 31]));
        conv.precision = Precision::NAMES[pick(&[0, 0, 1, 2, 2]) as usize].1;
        conv.input = Format::new(
            DType::Uint8,
            [Layout::Nchw, Layout::Nhwc][pick(&[0, 1, 1]) as usize],
        );
        let nhwc = match conv.precision {
            Precision::Fp16 => Format::FP16_NHWC,
            _ => Format::SPLIT_NHWC,
        };
        conv.output = [Format::SPLIT_NHWC, nhwc, Format::default()][random.below(3) as usize];
        conv.prologue = Some(Prologue {
            activation: Activation::None,
        });
    })
}

/// Inputs of networks in each format, of one image and of several, with tails of blocks.
fn normalize_units() -> Vec<PlannedUnit> {
    let mut requests = Vec::new();
    for x in [
        TensorShape::new(1, 3, 7, 11),
        TensorShape::new(3, 5, 9, 13),
        TensorShape::new(2, 1, 16, 16),
    ] {
        for dtype in [DType::Fp32, DType::Uint8] {
            for layout in [Layout::Nchw, Layout::Nhwc] {
                let from = Format::new(dtype, layout);
                let problem = Problem::Normalize(NormalizeProblem { x, from });
                requests.push((problem, "normalize", None));
            }
        }
    }
    units(&requests)
}

/// The ends of residual blocks with projection shortcuts in both formats: with strides, and images that they do not divide.
fn wgmma_projected_units(count: usize) -> Vec<PlannedUnit> {
    let scheme = tdc_generator::scheme::scheme("wgmma_projected").unwrap();
    let mut random = Random::new(43);
    let mut requests = Vec::new();
    while requests.len() < count {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let x = TensorShape::new(
            pick(&[1, 2, 3, 5]),
            pick(&[16, 32, 48, 128]),
            pick(&[1, 4, 7, 9]),
            pick(&[1, 5, 8, 13]),
        );
        let stride = [pick(&[1, 2, 2, 3]), pick(&[1, 2, 2])];
        // Rows and columns behind the last ones that are read.
        let size =
            |outputs: u32, stride: u32, more: u32| (outputs - 1) * stride + 1 + more % stride;
        let (h, w) = (
            size(x.h, stride[0], pick(&[0, 1, 2])),
            size(x.w, stride[1], pick(&[0, 1])),
        );
        let image = [pick(&[16, 48, 64, 80]), h, w];
        let (precision, format) = match pick(&[0, 1]) {
            0 => (Precision::Fp32, Format::SPLIT_NHWC),
            _ => (Precision::Fp16, Format::FP16_NHWC),
        };
        let problem = Problem::Projected(ProjectedProblem {
            x,
            n: pick(&[8, 24, 32, 72, 136]),
            shortcut: Shortcut { image, stride },
            epilogue: Epilogue {
                bias: pick(&[0, 1, 1]) == 1,
                residual: false,
                activation: activation(pick(&[0, 1, 2])),
            },
            precision,
            format,
        });
        let mut tiles = scheme.unpruned_tiles(&problem, gpu("h200").unwrap());
        if requests.len() % 2 == 1 {
            tiles.retain(has_cluster);
        }
        // None for an activation that grows, in split NHWC.
        if !tiles.is_empty() {
            let tile = &tiles[random.below(tiles.len() as u64) as usize];
            requests.push((problem, "wgmma_projected", Some(tile.0.clone())));
        }
    }
    units(&requests)
}

/// The same problems as `wgmma`, whose inputs are converted first.
fn wgmma_converted_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("wgmma_converted", 19, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.groups = 1;
        shape.batch = pick(&[1, 2, 3, 5]);
        (shape.c, shape.n) = (pick(&[16, 48, 80, 128]), pick(&[8, 19, 32, 72, 131]));
        (shape.h, shape.w) = (pick(&[1, 5, 9, 14]), pick(&[1, 8, 13, 17]));
        conv.precision = Precision::NAMES[pick(&[0, 0, 0, 1, 2]) as usize].1;
        conv.output = match (conv.precision, shape.n % 8, pick(&[0, 1])) {
            (Precision::Fp16, 0, 0) => Format::FP16_NHWC,
            (_, 0, 1) => Format::SPLIT_NHWC,
            _ => Format::default(),
        };
        conv.prologue = None;
    })
}

/// The same of `implicit_gemm`, which writes the format only: first layers, more channels, and groups.
fn nhwc_output_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("implicit_gemm", 14, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.groups = pick(&[1, 1, 1, 3]);
        (shape.c, shape.n) = match shape.groups {
            1 => (pick(&[2, 3, 3, 4, 16, 37, 67]), pick(&[8, 24, 32, 72, 136])),
            groups => (groups * pick(&[5, 8, 16]), groups * pick(&[8, 16, 24])),
        };
        shape.s = pick(&[1, 3, 4, 5, 7]);
        shape.stride = [pick(&[1, 2, 4]), pick(&[1, 2, 2])];
        (shape.h, shape.w) = (pick(&[9, 14, 23]), pick(&[12, 13, 28, 31]));
        (conv.precision, conv.output) = (Precision::Fp16, Format::FP16_NHWC);
    })
}

/// Products by `mma.sync` of activations in fp16 NHWC: channels with tails of K steps and of blocks, groups that are merged, groups with tails,
/// strides, dilations, and images that tiles do not divide. [`bf16_units`] are made from them too.
fn mma_nhwc_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("mma_nhwc", 22, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.batch = pick(&[1, 2, 3, 5]);
        shape.groups = pick(&[1, 1, 1, 3, 5, 8]);
        (shape.c, shape.n) = match shape.groups {
            1 => (pick(&[8, 16, 24, 40, 64, 136]), pick(&[8, 24, 32, 72, 136])),
            8 => (8 * pick(&[2, 4, 8, 16]), 8 * pick(&[2, 4, 8, 16])),
            groups => (groups * pick(&[8, 16, 24, 40]), groups * pick(&[8, 16, 24])),
        };
        (shape.h, shape.w) = (pick(&[5, 7, 9, 14, 23]), pick(&[7, 8, 13, 17, 31]));
        conv.precision = Precision::Fp16;
        conv.input = Format::FP16_NHWC;
        conv.output = Format::FP16_NHWC;
        conv.prologue = None;
    })
}

/// A problem of fp16 activations with those of bf16; `None` for another.
fn in_bf16(problem: &Problem) -> Option<Problem> {
    let bf16 = |format: Format| match format.dtype {
        DType::Fp16 => Format {
            dtype: DType::Bf16,
            ..format
        },
        _ => format,
    };
    let changed = match *problem {
        Problem::Conv(conv) if conv.precision == Precision::Fp16 => Problem::Conv(ConvProblem {
            precision: Precision::Bf16,
            ..conv.in_formats(bf16(conv.input), bf16(conv.output))
        }),
        Problem::Projected(projected) => Problem::Projected(ProjectedProblem {
            precision: Precision::Bf16,
            format: bf16(projected.format),
            ..projected
        }),
        Problem::Pool(pool) => Problem::Pool(PoolProblem {
            input: bf16(pool.input),
            output: bf16(pool.output),
            ..pool
        }),
        Problem::GlobalPool(pool) => Problem::GlobalPool(GlobalPoolProblem {
            input: bf16(pool.input),
            ..pool
        }),
        Problem::Convert(convert) => Problem::Convert(ConvertProblem {
            from: bf16(convert.from),
            to: bf16(convert.to),
            ..convert
        }),
        _ => return None,
    };
    let kind = changed.kind();
    let formats = [kind.input(), kind.output()].map(|tensor| tensor.format.dtype);
    formats.contains(&DType::Bf16).then_some(changed)
}

/// The units of fp16 activations with those of bf16, and the same tiles.
fn bf16_units(count: usize) -> Vec<PlannedUnit> {
    let groups: [fn(usize) -> Vec<PlannedUnit>; 10] = [
        depthwise_nhwc_units,
        mma_nhwc_units,
        wgmma_fp16_units,
        wgmma_nhwc_units,
        wgmma_dilated_units,
        wgmma_stem_units,
        wgmma_stem_byte_units,
        wgmma_projected_units,
        wgmma_converted_units,
        nhwc_output_units,
    ];
    changed_units(groups.iter().flat_map(|units| units(count)), in_bf16)
}

/// Units with the same schemes and tiles as others, for changed problems.
fn changed_units(
    others: impl Iterator<Item = PlannedUnit>,
    change: fn(&Problem) -> Option<Problem>,
) -> Vec<PlannedUnit> {
    let requests = others.filter_map(|unit| {
        let problem = change(&unit.problem)?;
        Some((problem, unit.scheme, Some(unit.tile.0.clone())))
    });
    units(&requests.collect::<Vec<_>>())
}

/// A problem whose input and output are views, as far as they are 16-bit NHWC; `None` for one without.
fn in_views(problem: &Problem) -> Option<Problem> {
    let kind = problem.kind();
    let [input, output] = [kind.input(), kind.output()].map(|tensor| {
        let channels = tensor.shape.c;
        let has_views = tensor.format.is_16_bit_nhwc() && tensor.format.fits_channels(channels);
        match has_views {
            // Of an odd number of runs.
            true => tensor
                .format
                .view_of((channels + 8).next_multiple_of(16) + 8),
            false => tensor.format,
        }
    });
    if [input, output] == [kind.input().format, kind.output().format] {
        return None;
    }
    Some(match *problem {
        Problem::Conv(conv) if !conv.epilogue.residual => {
            Problem::Conv(conv.in_formats(input, output))
        }
        // A residual has the output's format.
        Problem::Conv(conv) if input != conv.input => {
            Problem::Conv(conv.in_formats(input, conv.output))
        }
        Problem::Pool(pool) => Problem::Pool(PoolProblem {
            input,
            output,
            ..pool
        }),
        Problem::Convert(convert) => {
            let (from, to) = (input, output);
            let changed = ConvertProblem {
                from,
                to,
                ..convert
            };
            return changed.is_possible().then_some(Problem::Convert(changed));
        }
        _ => return None,
    })
}

/// The convolutions that read or write 16-bit NHWC, with parts of concatenations.
fn view_units(count: usize) -> Vec<PlannedUnit> {
    let groups: [fn(usize) -> Vec<PlannedUnit>; 8] = [
        mma_nhwc_units,
        wgmma_fp16_units,
        wgmma_nhwc_units,
        wgmma_dilated_units,
        wgmma_cluster_units,
        wgmma_stem_byte_units,
        wgmma_converted_units,
        nhwc_output_units,
    ];
    changed_units(groups.iter().flat_map(|units| units(count)), in_views)
}

/// Pooling and conversions with input or output in an NHWC format, and the pairs of formats of pooling.
fn nhwc_problems(batch: u32, nhwc: Format, pools: &[(Format, Format)]) -> Vec<Problem> {
    let fp32 = Format::default();
    let mut problems = Vec::new();
    for (c, h, w) in [(8, 7, 9), (24, 1, 1), (72, 6, 11), (64, 8, 4)] {
        let x = TensorShape::new(batch, c, h, w);
        problems.push(Problem::Convert(ConvertProblem {
            x,
            from: fp32,
            to: nhwc,
        }));
        problems.push(Problem::Convert(ConvertProblem {
            x,
            from: nhwc,
            to: fp32,
        }));
        for max in [false, true] {
            let input = nhwc;
            problems.push(Problem::GlobalPool(GlobalPoolProblem { max, x, input }));
        }
        for kind in [
            PoolKind::Max,
            PoolKind::Avg {
                count_include_pad: true,
            },
            PoolKind::Avg {
                count_include_pad: false,
            },
        ] {
            for &(input, output) in pools {
                problems.push(Problem::Pool(PoolProblem {
                    kind,
                    x,
                    kernel: [3, 3],
                    stride: [2, 2],
                    padding: Padding::all(1),
                    dilation: [1, 1],
                    out: [(h - 1) / 2 + 1, (w - 1) / 2 + 1],
                    input,
                    output,
                }));
            }
        }
    }
    problems
}

/// Conversions to the formats of networks' outputs: tiles with tails of channels and pixels, and tensors whose elements keep their order.
fn output_conversions(batch: u32) -> Vec<Problem> {
    let [fp32, fp32_nhwc] = [Layout::Nchw, Layout::Nhwc].map(Format::fp32);
    let mut conversions = Vec::new();
    for (c, h, w) in [(1, 5, 7), (3, 11, 13), (21, 6, 9), (67, 5, 8), (13, 1, 1)] {
        for to in [fp32_nhwc, Format::FP16_NCHW, Format::FP16_NHWC] {
            conversions.push((TensorShape::new(batch, c, h, w), fp32, to));
        }
    }
    for from in [Format::FP16_NHWC, Format::SPLIT_NHWC] {
        for (c, h, w) in [(24, 5, 7), (64, 8, 4)] {
            conversions.push((TensorShape::new(batch, c, h, w), from, fp32_nhwc));
        }
    }
    let conversions = conversions.into_iter();
    conversions
        .map(|(x, from, to)| Problem::Convert(ConvertProblem { x, from, to }))
        .collect()
}

fn nhwc_format_units() -> Vec<PlannedUnit> {
    let scheme = |problem: &Problem| match problem {
        Problem::Convert(_) => "convert",
        Problem::Pool(_) => "pool",
        _ => "global_pool",
    };
    let [fp32, fp16, split] = [Format::default(), Format::FP16_NHWC, Format::SPLIT_NHWC];
    let problems = [1, 3].into_iter().flat_map(|batch| {
        let pools = [(fp16, fp16), (fp32, fp16)];
        let of_fp16 = nhwc_problems(batch, fp16, &pools);
        of_fp16
            .into_iter()
            .chain(nhwc_problems(batch, split, &[(split, split)]))
            .chain(output_conversions(batch))
    });
    // Averages of strips: there must be enough of them. Tails of rows, and windows that have three of five columns in common.
    let strips = [
        "avgpoolvalid_b2_c40_h61_w233_k3x3_p1_o61x233_nhwc16",
        "avgpool_c72_h67_w401_k3x5_s1x2_p1x2x1x2_o67x201_nhwcsplit",
    ];
    let strips = strips.map(|label| problem_of_label(label).expect(label));
    let problems: Vec<Problem> = problems.chain(strips).collect();
    let bf16 = problems.iter().filter_map(in_bf16);
    let dense: Vec<Problem> = problems.iter().copied().chain(bf16).collect();
    let views = dense.iter().filter_map(in_views);
    let all = dense.iter().copied().chain(views);
    let requests = all.map(|problem| (problem, scheme(&problem), None));
    units(&requests.collect::<Vec<_>>())
}

/// Grouped convolutions on the tensor cores: groups with few channels, several of which are merged, with a last merged group of fewer;
/// groups with tails, and with more channels than a block computes.
fn grouped_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("implicit_gemm", 13, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.groups = pick(&[2, 3, 5, 7, 13]);
        shape.c = shape.groups * pick(&[2, 4, 4, 5, 7, 8, 8, 16, 24, 33, 64]);
        shape.n = shape.groups * pick(&[4, 5, 8, 12, 16, 19, 24, 40]);
        (shape.h, shape.w) = (pick(&[5, 7, 9, 14]), pick(&[7, 8, 13, 17]));
        shape.stride = [pick(&[1, 1, 2]); 2];
        conv.precision = Precision::NAMES[pick(&[0, 0, 0, 1, 2, 3]) as usize].1;
        if pick(&[0, 1]) == 1 {
            shape.batch = 1;
            shape.w = pick(&[4, 8, 12, 28]);
        }
    })
}

/// First layers of networks, with so few channels that a K step is four columns of the filter. The length of a
/// filter row is a multiple of a step in some of them and not in others.
fn few_channel_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("implicit_gemm", 9, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        (shape.groups, shape.c) = (1, pick(&[2, 3, 3, 4]));
        shape.n = pick(&[8, 16, 19, 32, 70]);
        shape.s = pick(&[1, 3, 4, 5, 7, 11]);
        shape.stride = [pick(&[1, 2, 4]), pick(&[1, 2, 2, 4])];
        (shape.h, shape.w) = (pick(&[9, 23, 37]), pick(&[12, 13, 28, 31, 40]));
        if pick(&[0, 1]) == 1 {
            shape.batch = 1;
        }
        conv.precision = Precision::NAMES[pick(&[0, 0, 0, 1, 2, 3]) as usize].1;
    })
}

/// Channels that cannot be divided among the blocks of a cluster without padding: a last block with padding
/// after its channels, or with a chunk of padding only. Some of the twelve, in several precisions.
fn padded_units(count: usize) -> Vec<PlannedUnit> {
    let conv = |c, precision, r: u32, stride, batch| {
        Problem::Conv(ConvProblem {
            prologue: Some(Prologue {
                activation: Activation::Relu,
            }),
            epilogue: Epilogue {
                bias: true,
                ..Epilogue::default()
            },
            precision,
            ..ConvProblem::new(ConvShape {
                stride: [stride; 2],
                padding: Padding::all(r / 2),
                batch,
                ..ConvShape::new(c, 21, 5, 7, r, r)
            })
        })
    };
    let of_precision = |(_, precision)| {
        [
            // 11 groups of 16 channels, the last one of 13, on 4 blocks of 3 chunks.
            (
                conv(173, precision, 1, 1, 1),
                "implicit_gemm",
                Some(vec![2, 8, 1, 2, 1, 1, 4, 1, 2]),
            ),
            // 17 on 3 blocks of 2 chunks, each of 3 groups.
            (
                conv(272, precision, 3, 2, 2),
                "implicit_gemm",
                Some(vec![3, 4, 1, 1, 2, 3, 3, 3, 2]),
            ),
            // 31 on one block of 8 chunks, each of 4.
            (
                conv(496, precision, 1, 1, 1),
                "implicit_gemm",
                Some(vec![5, 7, 2, 1, 1, 2, 1, 4, 3]),
            ),
        ]
    };
    let requests: Vec<_> = Precision::NAMES
        .into_iter()
        .flat_map(of_precision)
        .collect();
    let step = requests.len() / count;
    units(&requests.into_iter().step_by(step).collect::<Vec<_>>())
}

/// 3x3 convolutions at stride 1 on channels with and without tails, with different paddings on each side, some on images that are
/// hardly larger than a window. Half of the images have rows that can be staged as vectors.
fn winograd_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("winograd", 8, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        (shape.r, shape.s, shape.groups) = (3, 3, 1);
        (shape.stride, shape.dilation) = ([1, 1], [1, 1]);
        shape.c = pick(&[8, 16, 17, 32, 33, 61, 96, 177]);
        shape.n = pick(&[8, 13, 16, 19, 32, 47, 70]);
        if pick(&[0, 1]) == 1 {
            shape.batch = 1;
            shape.w = pick(&[4, 8, 12, 28]);
        } else if pick(&[0, 0, 1]) == 1 {
            [shape.h, shape.w] = [[1, 1], [2, 3], [1, 7]][pick(&[0, 1, 2]) as usize];
            [shape.batch, shape.n] = [3, 131];
            shape.padding = Padding::all(pick(&[1, 2]));
        }
        conv.precision = Precision::NAMES[pick(&[0, 0, 0, 1, 2, 2, 3]) as usize].1;
        if pick(&[0, 0, 1]) == 1 {
            conv.tolerance = Tolerance::new(4e-6).unwrap();
        }
    })
}

/// Tucker layers, a third of them without the first factor, with channels and ranks with and without tails.
/// Half of the tiles have clusters.
fn tucker_units(count: usize) -> Vec<PlannedUnit> {
    random_units("tucker_fused", 8, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let first = [Some(pick(&[8, 13, 32, 64, 177])), None][pick(&[0, 0, 1]) as usize];
        let core = ConvShape {
            c: pick(&[8, 11, 16, 37, 96, 101]),
            n: pick(&[8, 13, 32, 67]),
            groups: 1,
            ..conv.shape
        };
        (core.out_h() > 0 && core.out_w() > 0).then_some(Problem::Tucker(TuckerProblem {
            core,
            first,
            n: pick(&[8, 31, 64, 109]),
            prologue: conv.prologue.filter(|_| first.is_some()),
            epilogue: conv.epilogue,
            next: [8, 13, 32, 70][..]
                .get(pick(&[0, 1, 2, 3, 4, 4, 4, 4]) as usize)
                .map(|&n| NextFactor {
                    n,
                    stores_layer_output: pick(&[0, 1]) == 1,
                }),
            precision: Precision::NAMES[pick(&[0, 0, 0, 1, 2]) as usize].1,
        }))
    })
}

/// Convolutions of HWCN tensors: batches with tails of tiles and of vectors, paddings larger than the image.
fn tvm_units(count: usize) -> Vec<PlannedUnit> {
    random_units("tvm", 9, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let mut conv = conv;
        conv.shape.groups = 1;
        conv.shape.batch = pick(&[1, 2, 4, 5, 12, 33, 72]);
        conv.shape.c = pick(&[1, 5, 8, 16, 19]);
        conv.shape.n = pick(&[1, 7, 16, 37, 70]);
        if pick(&[0, 0, 1]) == 1 {
            (conv.shape.r, conv.shape.s) = (7, 7);
            conv.shape.padding = Padding::all(5);
        }
        let fits = conv.shape.out_h() > 0 && conv.shape.out_w() > 0;
        fits.then_some(Problem::Conv(conv.in_layout(Layout::Hwcn)))
    })
}

/// One input channel; half of the images have rows that can be staged as vectors.
fn single_channel_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("single_channel", 10, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        conv.shape.groups = 1;
        conv.shape.c = 1;
        conv.shape.n = pick(&[1, 7, 16, 37, 70]);
        conv.shape.batch = pick(&[1, 1, 5]);
        conv.prologue = None;
        if pick(&[0, 1]) == 1 {
            conv.shape.w = pick(&[4, 8, 12, 28]);
            conv.shape.padding.left = 0;
        }
    })
}

/// One input channel, with output sizes that are multiples of a vector or not, with any row length.
fn input_stationary_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("input_stationary", 15, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        conv.shape.groups = 1;
        conv.shape.c = 1;
        conv.shape.n = pick(&[1, 7, 16, 37, 70]);
        conv.shape.batch = pick(&[1, 1, 5]);
        conv.prologue = None;
        match pick(&[0, 1, 2]) {
            0 => conv.shape.padding = Padding::all(0),
            1 => [conv.shape.h, conv.shape.w] = [pick(&[6, 10, 13]), pick(&[10, 12, 28])],
            _ => {}
        }
    })
}

/// Segments that end inside rows and channels, with filters of all sizes.
fn stride_fixed_units(count: usize) -> Vec<PlannedUnit> {
    conv_units("stride_fixed", 11, count, |random, conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        conv.shape.groups = 1;
        conv.shape.c = pick(&[1, 3, 8, 16, 17, 33]);
        conv.shape.n = pick(&[1, 7, 16, 37, 70]);
        conv.shape.batch = pick(&[1, 1, 5]);
        let side = pick(&[1, 3, 5, 7]);
        (conv.shape.r, conv.shape.s) = (side, side);
        conv.prologue = None;
        if pick(&[0, 1]) == 1 {
            conv.shape.w = pick(&[4, 8, 12, 28]);
            conv.shape.padding.left = 0;
        }
    })
}

/// Squeeze-and-excite of small and large images, with channels and squeezed features that are multiples of the tile or not, and any tile.
fn squeeze_excite_units(count: usize) -> Vec<PlannedUnit> {
    let scheme = tdc_generator::scheme::scheme("squeeze_excite").unwrap();
    let mut random = Random::new(41);
    let mut requests = Vec::new();
    for index in 0..count as u32 {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let epilogue = |bias: u32, index| Epilogue {
            bias: bias == 1,
            residual: false,
            activation: activation(index),
        };
        let x = TensorShape::new(
            pick(&[1, 1, 3]),
            pick(&[1, 5, 16, 37, 64, 131]),
            pick(&[1, 2, 7, 13, 29]),
            pick(&[1, 3, 7, 16, 31]),
        );
        let squeezed = pick(&[1, 6, 32, 61, 128, 259]);
        // All outputs are proportional to a single feature. Without a bias its sum may cancel, and its relative error has no bound.
        let squeeze_bias = pick(&[0, 1]) | u32::from(squeezed == 1);
        let problem = Problem::SqueezeExcite(SqueezeExciteProblem {
            x,
            squeezed,
            squeeze: epilogue(squeeze_bias, index),
            excite: epilogue(pick(&[0, 1]), index + 5),
            after: activation(pick(&[0, 0, 1, 2])),
        });
        let tiles = scheme.tiles(&problem, gpu("h200").unwrap());
        let tile = &tiles[random.below(tiles.len() as u64) as usize];
        requests.push((problem, "squeeze_excite", Some(tile.0.clone())));
    }
    units(&requests)
}

/// Inverted residuals: channels that are multiples of the MMA tiles or not, strides, dilation, uneven padding, images that tiles divide or
/// not, batches, and any tile.
fn inverted_residual_units(count: usize) -> Vec<PlannedUnit> {
    let scheme = tdc_generator::scheme::scheme("inverted_residual").unwrap();
    let mut random = Random::new(47);
    let mut requests = Vec::new();
    for index in 0..count as u32 {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let mut epilogue = |residual: u32, index| Epilogue {
            bias: pick(&[0, 1, 1]) == 1,
            residual: residual == 1,
            activation: activation(index),
        };
        let [expand, filter] = [epilogue(0, index), epilogue(0, index + 5)];
        let residual = index % 2;
        let project = epilogue(residual, index / 3);
        let expanded = pick(&[8, 19, 48, 96, 131, 160]);
        let (mut r, s) = (pick(&[1, 3, 3, 5]), pick(&[1, 3, 3, 5]));
        let mut uneven = || pick(&[0, 1, 1, 2]);
        let mut padding = Padding {
            top: uneven(),
            left: uneven(),
            bottom: uneven(),
            right: uneven(),
        };
        if index % 7 == 0 {
            // No position above or below the image.
            r = 1;
            (padding.top, padding.bottom) = (0, 0);
        }
        let depthwise = ConvShape {
            batch: pick(&[1, 1, 3]),
            groups: expanded,
            padding,
            stride: [pick(&[1, 1, 2, 3]), pick(&[1, 1, 2, 3])],
            dilation: [pick(&[1, 1, 2]), pick(&[1, 1, 2])],
            ..ConvShape::new(
                expanded,
                expanded,
                pick(&[9, 13, 14, 21]),
                pick(&[9, 11, 14, 28]),
                r,
                s,
            )
        };
        let problem = Problem::InvertedResidual(InvertedResidualProblem {
            depthwise,
            c: pick(&[8, 16, 19, 37, 64]),
            n: pick(&[8, 16, 23, 40, 97]),
            expand,
            filter,
            project,
            precision: match index % 5 {
                0 | 1 => Precision::Fp32,
                2 => Precision::Tf32,
                3 => Precision::Fp16,
                _ => Precision::Bf16,
            },
        });
        let tiles = scheme.unpruned_tiles(&problem, gpu("h200").unwrap());
        let tile = &tiles[random.below(tiles.len() as u64) as usize];
        requests.push((problem, "inverted_residual", Some(tile.0.clone())));
    }
    units(&requests)
}

/// Dense steps: channels that are multiples of the MMA tiles or not, strides, dilation, uneven padding, images that tiles divide or not,
/// batches, with and without prologue, and any tile.
fn dense_step_units(count: usize) -> Vec<PlannedUnit> {
    let scheme = tdc_generator::scheme::scheme("dense_step").unwrap();
    let mut random = Random::new(53);
    let mut requests = Vec::new();
    for index in 0..count as u32 {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let mut epilogue = |index| Epilogue {
            bias: pick(&[0, 1, 1]) == 1,
            residual: false,
            activation: activation(index),
        };
        let (grown, of_pointwise) = (epilogue(index), epilogue(index / 3 + 1));
        let mut uneven = || pick(&[0, 1, 1, 2]);
        let padding = Padding {
            top: uneven(),
            left: uneven(),
            bottom: uneven(),
            right: uneven(),
        };
        let growth = ConvShape {
            batch: pick(&[1, 1, 3]),
            padding,
            stride: [pick(&[1, 1, 2, 3]), pick(&[1, 1, 2, 3])],
            dilation: [pick(&[1, 1, 2]), pick(&[1, 1, 2])],
            ..ConvShape::new(
                pick(&[8, 19, 64, 128]),
                pick(&[1, 12, 16, 32, 37]),
                pick(&[9, 13, 14, 21]),
                pick(&[9, 11, 14, 28]),
                pick(&[1, 3, 3, 5]),
                pick(&[1, 3, 3, 5]),
            )
        };
        let problem = Problem::DenseStep(DenseStepProblem {
            growth,
            grown,
            before: pick(&[16, 48, 80, 112, 208]),
            n: pick(&[8, 23, 64, 97, 128]),
            prologue: (index % 4 != 0).then(|| Prologue {
                activation: activation(index / 2),
            }),
            epilogue: of_pointwise,
            precision: match index % 5 {
                0 | 1 => Precision::Fp32,
                2 => Precision::Tf32,
                3 => Precision::Fp16,
                _ => Precision::Bf16,
            },
        });
        let tiles = scheme.unpruned_tiles(&problem, gpu("h200").unwrap());
        let tile = &tiles[random.below(tiles.len() as u64) as usize];
        requests.push((problem, "dense_step", Some(tile.0.clone())));
    }
    units(&requests)
}

/// Numbers for [`activation`].
const INDICES: [u32; 14] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];

/// All activations in turn, `None` first; then bounds on one side, and a bound and a slope that are no powers of two.
fn activation(index: u32) -> Activation {
    let number = ActivationParameter::new;
    let mut all: Vec<_> = Activation::NAMES.iter().map(|known| known.1).collect();
    all.push(Activation::Clip {
        min: number(-6.0),
        max: number(7.0),
    });
    all.push(Activation::Clip {
        min: number(0.5),
        max: number(f32::INFINITY),
    });
    all.push(Activation::LeakyRelu {
        slope: number(-1.7),
    });
    all[index as usize % all.len()]
}

/// The published tile, on images and channels that are multiples of it and on others.
fn published_tvm_units() -> Vec<PlannedUnit> {
    let requests = [[8, 64, 64], [13, 70, 65], [8, 1, 5]].map(|[c, n, batch]| {
        let problem = Problem::Conv(ConvProblem {
            shape: ConvShape {
                batch,
                padding: Padding::all(1),
                ..ConvShape::new(c, n, 4, 3, 3, 3)
            },
            prologue: None,
            epilogue: Epilogue::default(),
            reduce: Reduce::default(),
            precision: Precision::default(),
            tolerance: Tolerance::default(),
            input: Format::fp32(Layout::Hwcn),
            output: Format::fp32(Layout::Hwcn),
        });
        (problem, "tvm", Some(vec![64, 64, 8, 8, 2, 8, 1]))
    });
    units(&requests)
}

/// CP layers in one launch, with all kinds of tiles: ranks that fill vectors or do not, filters from 1x1 to
/// 11x11 with strides and dilations, channels with tails.
fn cp_units(scheme: &'static str, count: usize) -> Vec<PlannedUnit> {
    random_units(scheme, 9, count, |random, mut conv| {
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let shape = &mut conv.shape;
        shape.groups = 1;
        shape.c = pick(&[1, 3, 5, 8, 13, 31, 48]);
        shape.n = pick(&[1, 4, 7, 16, 29, 70]);
        if pick(&[0, 0, 1]) == 1 {
            (shape.r, shape.s) = (pick(&[5, 11]), pick(&[1, 5, 11]));
            (shape.stride, shape.dilation) = ([1, 1], [1, 1]);
            shape.padding = Padding {
                top: shape.r / 2,
                left: shape.s / 2,
                bottom: shape.r / 2,
                right: shape.s / 2,
            };
        }
        let rank = pick(&[1, 2, 3, 4, 5, 8, 11, 16, 32]);
        let fits = conv.shape.out_h() > 0 && conv.shape.out_w() > 0;
        fits.then_some(Problem::Cp(CpProblem { conv, rank }))
    })
}

/// CP layers whose outer factors are computed on the tensor cores: channels that do not fill a K step, more
/// steps than a promotion interval, tails of pixels and of output channels, groups of warps, a single pixel.
fn cp_product_units() -> Vec<PlannedUnit> {
    let layer = |[c, n, h, w]: [u32; 4], [r, s]: [u32; 2], rank, stride, batch| {
        Problem::Cp(CpProblem {
            conv: ConvProblem {
                prologue: (stride > 1).then_some(Prologue {
                    activation: Activation::Sigmoid,
                }),
                epilogue: Epilogue {
                    bias: true,
                    residual: batch > 1,
                    activation: activation(n),
                },
                ..ConvProblem::new(ConvShape {
                    stride: [stride; 2],
                    padding: Padding {
                        top: r / 2,
                        left: s / 2,
                        bottom: r / 2,
                        right: s / 2,
                    },
                    batch,
                    ..ConvShape::new(c, n, h, w, r, s)
                })
            },
            rank,
        })
    };
    let requests = [
        (
            layer([13, 21, 9, 7], [3, 5], 8, 2, 3),
            vec![2, 3, 2, 128, 2, 1, 16],
        ),
        (
            layer([61, 19, 1, 1], [5, 5], 16, 1, 1),
            vec![1, 1, 1, 96, 1, 1, 16],
        ),
        (
            layer([5, 70, 7, 23], [1, 3], 32, 1, 1),
            vec![3, 11, 1, 256, 1, 2, 16],
        ),
        (
            layer([101, 37, 11, 13], [3, 3], 16, 1, 2),
            vec![4, 7, 3, 192, 3, 2, 16],
        ),
    ];
    units(&requests.map(|(problem, tile)| (problem, "cp_chain", Some(tile))))
}

/// Tucker layers with all variants of summation: core output channels in slices, with and without the first
/// factor; through shared memory or from registers, split over warps or not; chunks in a ring of stages.
/// Prime channels, tails of tiles, two images.
fn tucker_kinds() -> Vec<PlannedUnit> {
    let layer =
        |first, [d1, d2, n]: [u32; 3], [h, w]: [u32; 2], stride, next: Option<NextFactor>| {
            Problem::Tucker(TuckerProblem {
                core: ConvShape {
                    stride: [stride; 2],
                    padding: Padding::all(1),
                    batch: stride,
                    ..ConvShape::new(d1, d2, h, w, 3, 3)
                },
                first,
                n,
                prologue: first.is_some().then_some(Prologue {
                    activation: activation(n + 4),
                }),
                epilogue: Epilogue {
                    bias: true,
                    residual: n > 60,
                    activation: activation(n + next.map_or(0, |next| next.n)),
                },
                next,
                precision: Precision::default(),
            })
        };
    let whole = |n| layer(Some(37), [61, 59, n], [7, 13], 1, None);
    let rest = |n| layer(None, [83, 61, n], [9, 7], 2, None);
    let next = |n, stores_layer_output| {
        Some(NextFactor {
            n,
            stores_layer_output,
        })
    };
    let whole_and = |n, stores_layer_output| {
        layer(
            Some(37),
            [61, 59, 67],
            [7, 13],
            1,
            next(n, stores_layer_output),
        )
    };
    // Rows of complete pairs; a block that computes no channels of the next factor.
    let pairs_and = |n, precision| match layer(None, [77, 61, 61], [6, 8], 1, next(n, true)) {
        Problem::Tucker(problem) => Problem::Tucker(TuckerProblem {
            precision,
            ..problem
        }),
        other => other,
    };
    let rest_and = |n, stores_layer_output| {
        layer(None, [83, 61, 109], [9, 8], 2, next(n, stores_layer_output))
    };
    // More weights than fit in shared memory.
    let ring = || layer(Some(256), [128, 128, 256], [3, 5], 1, None);
    let requests = [
        (ring(), vec![2, 4, 1, 1, 1, 4, 16, 8, 64]),
        (ring(), vec![2, 4, 2, 2, 1, 8, 16, 8, 64]),
        (whole(67), vec![2, 7, 1, 1, 1, 8, 0, 3, 128]),
        (whole(67), vec![2, 7, 1, 1, 1, 8, 1, 3, 128]),
        (whole(31), vec![3, 5, 1, 1, 1, 4, 16, 3, 8]),
        (whole(67), vec![1, 13, 4, 2, 2, 6, 1, 3, 64]),
        (whole(31), vec![2, 7, 4, 4, 4, 12, 2, 1, 128]),
        (rest(67), vec![1, 4, 6, 3, 2, 6, 1, 1, 224]),
        (rest(109), vec![1, 4, 8, 8, 4, 8, 16, 1, 224]),
        (rest(31), vec![2, 4, 4, 1, 4, 4, 0, 1, 64]),
        (whole_and(53, true), vec![2, 7, 1, 1, 1, 8, 1, 3, 128]),
        (whole_and(131, false), vec![3, 5, 4, 2, 2, 6, 0, 3, 128]),
        (rest_and(19, true), vec![1, 4, 6, 3, 2, 6, 1, 1, 224]),
        (rest_and(8, false), vec![5, 4, 8, 8, 4, 8, 16, 1, 224]),
        (rest_and(83, true), vec![2, 4, 4, 1, 4, 4, 2, 1, 224]),
        (
            pairs_and(13, Precision::Fp32),
            vec![1, 8, 5, 5, 1, 4, 1, 1, 224],
        ),
        (
            pairs_and(24, Precision::Tf32),
            vec![2, 8, 2, 2, 1, 4, 1, 1, 224],
        ),
    ];
    let units = units(&requests.map(|(problem, tile)| (problem, "tucker_fused", Some(tile))));
    let has_ring = |unit: &&PlannedUnit| unit_text(unit).unwrap().contains("STAGES = ");
    assert_eq!(units.iter().filter(has_ring).count(), 2);
    units
}

/// Transposed convolutions with each option: prime channels, groups, strides with which some taps reach no pixel, dilations that share a
/// factor with them, uneven padding, output padding, one pixel.
fn conv_transposes(batch: u32) -> Vec<(Problem, &'static str, Option<Vec<u32>>)> {
    let shape = |c, n, h, w, r, s| ConvShape {
        batch,
        ..ConvShape::new(c, n, h, w, r, s)
    };
    let padding = Padding {
        top: 2,
        left: 0,
        bottom: 1,
        right: 3,
    };
    let shapes = [
        (shape(7, 13, 5, 6, 1, 1), [0, 0]),
        (
            ConvShape {
                stride: [2, 2],
                padding: Padding::all(1),
                ..shape(5, 7, 4, 5, 3, 3)
            },
            [1, 1],
        ),
        (
            ConvShape {
                stride: [2, 2],
                ..shape(16, 12, 7, 9, 2, 2)
            },
            [0, 0],
        ),
        (
            ConvShape {
                stride: [2, 3],
                padding,
                ..shape(11, 13, 5, 7, 4, 3)
            },
            [1, 2],
        ),
        (
            ConvShape {
                stride: [2, 1],
                dilation: [2, 3],
                padding,
                groups: 3,
                ..shape(6, 24, 6, 5, 3, 3)
            },
            [1, 2],
        ),
        (
            ConvShape {
                stride: [4, 4],
                padding: Padding::all(1),
                groups: 5,
                ..shape(5, 5, 3, 4, 3, 5)
            },
            [3, 0],
        ),
        (
            ConvShape {
                padding: Padding::all(1),
                ..shape(8, 4, 1, 1, 4, 4)
            },
            [0, 0],
        ),
    ];
    let scheme = tdc_generator::scheme::scheme("conv_transpose").unwrap();
    let mut requests = Vec::new();
    for (index, (shape, output_padding)) in (0..).zip(shapes) {
        let problem = Problem::ConvTranspose(ConvTransposeProblem {
            shape,
            output_padding,
            epilogue: Epilogue {
                bias: index % 2 == 0,
                residual: false,
                activation: activation(index),
            },
        });
        let tiles = scheme.tiles(&problem, gpu("h200").unwrap());
        requests.extend(
            tiles
                .into_iter()
                .map(|tile| (problem, "conv_transpose", Some(tile.0))),
        );
    }
    requests
}

/// All ops except convolutions, with one image and with three.
fn other_units() -> Vec<PlannedUnit> {
    let x = TensorShape::new(3, 5, 7, 9);
    let mut requests = Vec::new();
    for batch in [1, 3] {
        let x = TensorShape { batch, ..x };
        let activations: Vec<_> = INDICES.map(activation).into();
        let shuffle = |groups| Elementwise::Shuffle { groups };
        let mut functions = vec![
            Elementwise::Copy,
            Elementwise::PRelu,
            shuffle(1),
            shuffle(5),
        ];
        for (_, op) in BinaryOp::NAMES {
            let with = |&activation| Elementwise::Binary(op, activation);
            functions.extend(activations.iter().map(with));
        }
        functions.extend(
            activations[1..]
                .iter()
                .copied()
                .map(Elementwise::Activation),
        );
        functions.extend(activations.iter().copied().map(Elementwise::ScaleShift));
        for function in functions {
            let problem = Problem::Elementwise(ElementwiseProblem { function, x });
            requests.push((problem, "elementwise", None));
        }
        for (channels, groups) in [(12, 3), (14, 2), (21, 7)] {
            let problem = Problem::Elementwise(ElementwiseProblem {
                function: shuffle(groups),
                x: TensorShape { c: channels, ..x },
            });
            requests.push((problem, "elementwise", None));
        }
        for x in [x, TensorShape::new(batch, 64, 4, 8)] {
            let formats = [Layout::Nchw, Layout::Hwcn].map(Format::fp32);
            for (from, to) in [(formats[0], formats[1]), (formats[1], formats[0])] {
                let problem = Problem::Convert(ConvertProblem { x, from, to });
                requests.push((problem, "convert", None));
            }
        }
        for max in [false, true] {
            let input = Format::default();
            let problem = Problem::GlobalPool(GlobalPoolProblem { max, x, input });
            requests.push((problem, "global_pool", Some(vec![4])));
        }
        // Images of a group: all but one of the batch.
        let tb = if batch == 1 { 1 } else { 2 };
        for (c, n, bias, index, tile) in [
            (1, 1, false, 0, [4, 1, 1]),
            (37, 13, true, 1, [4, 1, tb]),
            (64, 8, true, 0, [8, 1, 1]),
            (37, 13, true, 6, [1, 1, 1]),
            (64, 8, false, 9, [16, 1, tb]),
            (128, 7, true, 0, [2, 1, tb]),
            (129, 5, false, 1, [2, 2, 1]),
            (389, 13, true, 6, [2, 2, tb]),
            (389, 6, true, 0, [4, 4, tb]),
            (2063, 3, true, 1, [1, 16, 1]),
            (2063, 9, false, 1, [1, 4, tb]),
        ] {
            let problem = Problem::Linear(LinearProblem {
                batch,
                c,
                n,
                epilogue: Epilogue {
                    bias,
                    residual: false,
                    activation: activation(index),
                },
            });
            requests.push((problem, "linear", Some(tile.to_vec())));
        }
        requests.extend(conv_transposes(batch));
        for kind in [
            PoolKind::Max,
            PoolKind::Avg {
                count_include_pad: true,
            },
            PoolKind::Avg {
                count_include_pad: false,
            },
        ] {
            // 3x2 windows, stride 2, padding: the last row of windows starts inside the image (ceil mode).
            let problem = Problem::Pool(PoolProblem {
                kind,
                x,
                kernel: [3, 2],
                stride: [2, 2],
                padding: Padding {
                    top: 1,
                    left: 0,
                    bottom: 1,
                    right: 1,
                },
                dilation: [1, 1],
                out: [4, 5],
                input: Format::default(),
                output: Format::default(),
            });
            requests.push((problem, "pool", None));
            // One window for each row, larger than a row.
            let problem = Problem::Pool(PoolProblem {
                kind,
                x,
                kernel: [1, 11],
                stride: [1, 3],
                padding: Padding::default(),
                dilation: [1, 1],
                out: [7, 1],
                input: Format::default(),
                output: Format::default(),
            });
            requests.push((problem, "pool", None));
            // Steps of two and three on 7x9, as much padding as the window allows, a last column of windows of which part is beyond it.
            let problem = Problem::Pool(PoolProblem {
                kind,
                x,
                kernel: [2, 3],
                stride: [1, 2],
                padding: Padding {
                    top: 2,
                    left: 6,
                    bottom: 1,
                    right: 1,
                },
                dilation: [2, 3],
                out: [8, 6],
                input: Format::default(),
                output: Format::default(),
            });
            requests.push((problem, "pool", None));
        }
        let eps = ActivationParameter::new(1e-6);
        let l2 = |eps| ChannelNorm::L2 {
            eps: ActivationParameter::new(eps),
        };
        // One that some pixels have less than, and one that none has.
        let norms = [
            ChannelNorm::Softmax,
            ChannelNorm::LayerNorm { eps },
            l2(1.0),
            l2(ChannelNorm::MIN_EPS),
        ];
        for norm in norms {
            // Values in registers and, with 32 threads for 1000 channels, read again.
            for (c, h, w) in [(5, 7, 9), (131, 1, 1), (1000, 1, 1), (96, 2, 5), (37, 3, 3)] {
                let x = TensorShape::new(batch, c, h, w);
                let problem = Problem::ChannelNorm(ChannelNormProblem { norm, x });
                for tile in [[1, 32], [4, 64], [8, 16], [32, 4]] {
                    requests.push((problem, "channel_norm", Some(tile.to_vec())));
                }
            }
        }
        let roundings = Rounding::NAMES.map(|(_, rounding)| Interpolation::Nearest(rounding));
        for interpolation in roundings.into_iter().chain([Interpolation::Bilinear]) {
            for (_, coordinates) in Coordinates::NAMES {
                // Those with cases of their own for a single pixel.
                let sizes = match coordinates {
                    Coordinates::AlignCorners | Coordinates::PytorchHalfPixel => {
                        &[[3, 27], [1, 13], [11, 1]][..]
                    }
                    Coordinates::HalfPixel | Coordinates::Asymmetric => &[[14, 4], [3, 18]],
                };
                for &out in sizes {
                    let problem = Problem::Resize(ResizeProblem {
                        x,
                        out,
                        coordinates,
                        interpolation,
                    });
                    requests.push((problem, "resize", None));
                }
            }
        }
        let constant = PadMode::Constant(ActivationParameter::new(-1.5));
        for mode in [constant, PadMode::Reflect, PadMode::Edge] {
            // Up to the limit of a reflection.
            let padding = Padding {
                top: 6,
                left: 1,
                bottom: 0,
                right: 8,
            };
            let problem = Problem::Pad(PadProblem { mode, x, padding });
            requests.push((problem, "pad", None));
        }
        for mode in [constant, PadMode::Edge] {
            let x = TensorShape::new(batch, 7, 1, 1);
            let padding = Padding::all(5);
            let problem = Problem::Pad(PadProblem { mode, x, padding });
            requests.push((problem, "pad", None));
        }
        for (size, alpha, beta, k) in [(1, 1.0, 0.75, 1.0), (4, 0.5, 0.5, 2.0), (31, 3.0, 1.5, 0.1)]
        {
            let [alpha, beta, k] = [alpha, beta, k].map(ActivationParameter::new);
            let lrn = Lrn {
                size,
                alpha,
                beta,
                k,
            };
            for x in [x, TensorShape::new(batch, 13, 1, 1)] {
                requests.push((Problem::Lrn(LrnProblem { lrn, x }), "lrn", None));
            }
        }
        requests.push((
            Problem::Pool(PoolProblem {
                kind: PoolKind::Max,
                x,
                kernel: [2, 3],
                stride: [1, 3],
                padding: Padding::all(1),
                dilation: [3, 2],
                out: [6, 3],
                input: Format::default(),
                output: Format::default(),
            }),
            "pool",
            None,
        ));
    }
    units(&requests)
}

/// Every scheme with a prologue, if it supports one, whose activation of padding would not be zero, and with an epilogue whose
/// activation is not linear, in one launch and where a second launch adds partial sums.
fn activation_units() -> Vec<PlannedUnit> {
    let fused = |prologue: bool, epilogue, shape| ConvProblem {
        prologue: prologue.then_some(Prologue {
            activation: Activation::Sigmoid,
        }),
        epilogue: Epilogue {
            bias: true,
            residual: true,
            activation: epilogue,
        },
        ..ConvProblem::new(shape)
    };
    let image = |c, n, r, groups| ConvShape {
        padding: Padding::all(r / 2),
        groups,
        batch: 2,
        ..ConvShape::new(c, n, 9, 11, r, r)
    };
    let conv = |c, n, r, groups, epilogue| fused(c > 1, epilogue, image(c, n, r, groups));
    let mut requests = Vec::new();
    for activation in [Activation::HardSigmoid, activation(11)] {
        for scheme in [
            "implicit_gemm",
            "wgmma",
            "winograd",
            "direct_tiled",
            "direct",
            "tdc",
            "tdc_rows",
        ] {
            requests.push((Problem::Conv(conv(21, 19, 3, 1, activation)), scheme, None));
        }
        let few = conv(3, 9, 3, 1, activation);
        requests.push((Problem::Conv(few), "implicit_gemm", None));
        let depthwise = conv(7, 7, 3, 7, activation);
        requests.push((Problem::Conv(depthwise), "depthwise", None));
        let pointwise = conv(21, 19, 1, 1, activation);
        requests.push((Problem::Conv(pointwise), "pointwise", None));
        let hwcn = conv(21, 19, 3, 1, activation).in_layout(Layout::Hwcn);
        requests.push((Problem::Conv(hwcn), "tvm", None));
        for scheme in ["single_channel", "stride_fixed", "input_stationary"] {
            requests.push((Problem::Conv(conv(1, 7, 3, 1, activation)), scheme, None));
        }
        let atomic = ConvProblem {
            reduce: Reduce::Atomic,
            ..conv(21, 19, 3, 1, activation)
        };
        for scheme in ["tdc", "tdc_rows"] {
            let tile = Some(vec![3, 3, 4]);
            requests.push((Problem::Conv(atomic), scheme, tile.clone()));
            let ordered = Problem::Conv(conv(21, 19, 3, 1, activation));
            requests.push((ordered, scheme, tile));
        }
        let split = Problem::Conv(conv(21, 19, 3, 1, activation));
        requests.push((split, "direct", Some(vec![32, 2, 1, 4])));
        let split = Problem::Conv(conv(21, 19, 1, 1, activation));
        requests.push((split, "pointwise", Some(vec![16, 16, 8, 4, 1, 2])));
        for scheme in ["cp_chain", "cp_fused"] {
            let conv = conv(21, 19, 3, 1, activation);
            requests.push((Problem::Cp(CpProblem { conv, rank: 8 }), scheme, None));
        }
        for next in [None, Some(true), Some(false)] {
            let conv = conv(21, 19, 3, 1, activation);
            let tucker = Problem::Tucker(TuckerProblem {
                core: ConvShape {
                    c: 35,
                    n: 33,
                    ..conv.shape
                },
                first: Some(21),
                n: 19,
                prologue: conv.prologue,
                epilogue: conv.epilogue,
                next: next.map(|stores_layer_output| NextFactor {
                    n: 9,
                    stores_layer_output,
                }),
                precision: Precision::default(),
            });
            requests.push((tucker, "tucker_fused", None));
        }
    }
    units(&requests)
}

/// Each activation function of -20 to 20, and of values that are larger in magnitude.
fn assert_activations_are_exact(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    const STEPS: usize = 2000;
    let activations: Vec<Activation> = INDICES[1..].iter().map(|&i| activation(i)).collect();
    let x = TensorShape::new(1, 1, 1, STEPS as u32 + 4);
    let requests: Vec<_> = activations
        .iter()
        .map(|&activation| {
            let function = Elementwise::Activation(activation);
            let problem = Problem::Elementwise(ElementwiseProblem { function, x });
            (problem, "elementwise", None)
        })
        .collect();
    let units = units(&requests);
    let mut device = open(&units);
    let mut input: Vec<f32> = (0..STEPS)
        .map(|i| i as f32 * (40.0 / STEPS as f32) - 20.0)
        .collect();
    input.extend([-1e30, -150.0, 150.0, 1e30]);
    for (unit, activation) in units.iter().zip(activations) {
        let y = run_unit(device.as_mut(), unit, &input, &[], input.len());
        // The results of negative values are small for some functions.
        for range in [0..STEPS / 2, STEPS / 2..STEPS] {
            let (mut error, mut norm) = (0.0, 0.0);
            for index in range.clone() {
                let expected = activate(activation, f64::from(input[index]));
                error += (f64::from(y[index]) - expected).powi(2);
                norm += expected.powi(2);
            }
            let error = f64::sqrt(error) / f64::sqrt(norm).max(1e-30);
            assert!(error < 5e-7, "{activation:?}, {range:?}: {error:e}");
        }
        for (&x, &y) in input.iter().zip(&y).skip(STEPS) {
            let expected = activate(activation, f64::from(x));
            let error = (f64::from(y) - expected).abs();
            assert!(
                error <= 1e-6 * expected.abs().max(1e-30),
                "{activation:?}({x}) is {y}, not {expected}"
            );
        }
    }
}

/// CP layers with both schemes that compute one in a single launch.
fn all_cp_units(count: usize) -> Vec<PlannedUnit> {
    let mut units = cp_units("cp_chain", count);
    units.extend(cp_units("cp_fused", count.div_ceil(2)));
    units.extend(cp_product_units());
    units
}

/// Tests on the CPU in both tiers: the quick one has a few random units of each scheme, the deep one many.
macro_rules! random_units_are_right {
    ($($name:ident: $units:ident, $few:literal of $many:literal;)*) => {
        $(
            #[test]
            fn $name() {
                assert_right(&$units($few), cpu);
            }
        )*

        mod deep {
            use super::*;

            $(
                #[test]
                #[ignore = "deep tier"]
                fn $name() {
                    assert_right(&$units($many), cpu);
                }
            )*
        }
    };
}

mod random {
    use super::*;

    random_units_are_right! {
        direct_is_right: direct_units, 8 of 60;
        pointwise_is_right: pointwise_units, 6 of 40;
        depthwise_is_right: depthwise_units, 6 of 40;
        depthwise_nhwc_is_right: depthwise_nhwc_units, 10 of 100;
        the_schemes_of_tdc_are_right: tdc_units, 6 of 40;
        the_tiled_schemes_are_right: tiled_units, 8 of 40;
        steps_of_few_channels_are_right: few_channel_units, 4 of 30;
        groups_on_tensor_cores_are_right: grouped_units, 6 of 40;
        wgmma_is_right: wgmma_units, 6 of 60;
        wgmma_is_right_with_fp16_outputs: wgmma_fp16_units, 6 of 60;
        wgmma_nhwc_is_right: wgmma_nhwc_units, 10 of 120;
        wgmma_nhwc_is_right_with_split_inputs: wgmma_split_units, 10 of 120;
        wgmma_nhwc_is_right_with_dilation: wgmma_dilated_units, 10 of 120;
        wgmma_nhwc_is_right_with_clusters: wgmma_cluster_units, 10 of 160;
        wgmma_stem_is_right: wgmma_stem_units, 10 of 120;
        wgmma_stem_is_right_with_bytes: wgmma_stem_byte_units, 10 of 120;
        wgmma_projected_is_right: wgmma_projected_units, 10 of 120;
        wgmma_converted_is_right: wgmma_converted_units, 6 of 60;
        implicit_gemm_is_right_with_fp16_outputs: nhwc_output_units, 6 of 60;
        mma_nhwc_is_right: mma_nhwc_units, 10 of 150;
        bf16_activations_are_right: bf16_units, 2 of 50;
        views_in_nhwc_are_right: view_units, 2 of 50;
        winograd_is_right: winograd_units, 6 of 40;
        cp_layers_in_one_launch_are_right: all_cp_units, 6 of 24;
        tucker_layers_in_one_launch_are_right: tucker_units, 6 of 40;
        tvm_is_right: tvm_units, 6 of 40;
        single_channel_is_right: single_channel_units, 6 of 40;
        stride_fixed_is_right: stride_fixed_units, 6 of 40;
        input_stationary_is_right: input_stationary_units, 6 of 60;
        squeeze_excite_is_right: squeeze_excite_units, 16 of 120;
        dense_step_is_right: dense_step_units, 8 of 100;
        inverted_residual_is_right: inverted_residual_units, 8 of 100;
        padded_channels_do_not_contribute: padded_units, 3 of 12;
    }
}

#[test]
fn inputs_are_normalised() {
    assert_right(&normalize_units(), cpu);
}

#[test]
fn pooling_and_conversions_of_nhwc_are_right() {
    assert_right(&nhwc_format_units(), cpu);
}

#[test]
fn the_published_tile_of_tvm_is_right() {
    assert_right(&published_tvm_units(), cpu);
}

#[test]
fn each_kind_of_tucker_layer_is_right() {
    assert_right(&tucker_kinds(), cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn each_kind_of_tucker_layer_is_right_on_a_gpu() {
    assert_right(&tucker_kinds(), gpu_here);
}

/// One convolution by the tensor cores in every precision.
fn precise_units() -> Vec<PlannedUnit> {
    let requests = Precision::NAMES.map(|(_, precision)| {
        let problem = Problem::Conv(ConvProblem {
            precision,
            ..ConvProblem::new(ConvShape {
                padding: Padding::all(1),
                ..ConvShape::new(61, 35, 12, 12, 3, 3)
            })
        });
        (
            problem,
            "implicit_gemm",
            Some(vec![4, 4, 1, 3, 1, 3, 2, 1, 2]),
        )
    });
    units(&requests)
}

/// Products must be rounded as far as the precision allows, and no further: the mean error of a product is
/// 3e-4 with operands of 11 bits, 2.4e-3 with 8 bits.
fn assert_precise(units: &[PlannedUnit], device: &mut dyn Device) {
    let expected = [
        ("fp32", 1e-8, 1e-6),
        ("tf32", 2e-4, 4e-4),
        ("fp16", 2e-4, 4e-4),
        ("bf16", 2e-3, 3e-3),
    ];
    assert_eq!(units.len(), expected.len());
    for (unit, (word, least, most)) in units.iter().zip(expected) {
        let check =
            check_unit(device, unit, 3).unwrap_or_else(|failure| panic!("{word}: {failure}"));
        let relative = check.deviation.relative;
        assert!((least..most).contains(&relative), "{word}: {relative:e}");
        let name = &unit.unit.name;
        assert_eq!(
            name.contains(&format!("_{word}_implicit_gemm_")),
            word != "fp32",
            "{name}"
        );
    }
}

#[test]
fn products_are_rounded_as_the_precision_says() {
    let units = precise_units();
    assert_precise(&units, cpu(&units).as_mut());
}

/// Channels whose magnitudes differ by 2^24, with weights that compensate it: in tf32, which has the range of
/// fp32, the sums must follow the scale of the inputs, whether it increases or decreases from chunk to chunk,
/// in one block and in the blocks of a cluster.
#[test]
fn tf32_keeps_its_bound_for_channels_of_any_magnitude() {
    const C: usize = 61;
    const N: usize = 19;
    const PIXELS: usize = 16 * 16;
    let problem = Problem::Conv(ConvProblem {
        precision: Precision::Tf32,
        ..ConvProblem::new(ConvShape::new(C as u32, N as u32, 16, 16, 1, 1))
    });
    let tiles = [
        vec![4, 4, 1, 2, 1, 1, 1, 1, 2],
        vec![4, 4, 2, 1, 1, 1, 2, 1, 2],
    ];
    let units = units(&tiles.map(|tile| (problem, "implicit_gemm", Some(tile))));
    let mut device = cpu(&units);
    for unit in &units {
        for grows in [true, false] {
            let magnitude = |c: usize| {
                let chunk = (c / 16) as i32;
                2f32.powi(8 * if grows { chunk } else { 3 - chunk } - 12)
            };
            let mut random = Random::new(23);
            let mut x = random.values(C * PIXELS);
            let mut weight = random.values(N * C);
            for (index, value) in x.iter_mut().enumerate() {
                *value *= magnitude(index / PIXELS);
            }
            for (index, value) in weight.iter_mut().enumerate() {
                *value /= magnitude(index % C);
            }
            let y = run_unit(device.as_mut(), unit, &x, &weight, N * PIXELS);
            let (mut error, mut norm) = (0.0, 0.0);
            for (index, &found) in y.iter().enumerate() {
                let (n, pixel) = (index / PIXELS, index % PIXELS);
                let expected: f64 = (0..C)
                    .map(|c| f64::from(weight[n * C + c]) * f64::from(x[c * PIXELS + pixel]))
                    .sum();
                error += (f64::from(found) - expected).powi(2);
                norm += expected.powi(2);
            }
            let relative = (error / norm).sqrt();
            let name = &unit.unit.name;
            assert!(
                (1e-4..5e-4).contains(&relative),
                "{name}, growing {grows}: {relative:e}"
            );
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn products_are_rounded_as_the_precision_says_on_a_gpu() {
    let units = precise_units();
    assert_precise(&units, gpu_here(&units).as_mut());
}

/// Outputs of convolutions in fp16 and bf16 NHWC: 16 to 8 channels, of which output n is twice input n. fp16 saturates; bf16 has the range of
/// fp32.
fn assert_saturates(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    // The value of a channel, and bits of its double.
    let fp16 = [
        (40_000.0, 0x7bff),
        (-40_000.0, 0xfbff),
        (1.5, 0x4200),
        (-32_752.0, 0xfbff),
        (32_760.0, 0x7bff),
    ];
    assert_doubles(open, Precision::Fp16, fp16);
    // Two numbers beyond fp16, two operands beside a tie, and a sum beyond fp32, which is infinite.
    let bf16 = [
        (2_f32.powi(99), 0x7180),
        (-1.5 * 2_f32.powi(99), 0xf1c0),
        (257.0 / 512.0, 0x3f80),
        (0.502, 0x3f81),
        (-2.5e38, 0xff80),
    ];
    assert_doubles(open, Precision::Bf16, bf16);
}

/// The bits of the doubles of values that are stored in the type of a precision. That of the last pixel is not a number.
fn assert_doubles(
    open: fn(&[PlannedUnit]) -> Box<dyn Device>,
    precision: Precision,
    values: [(f32, u16); 5],
) {
    const C: usize = 16;
    const N: usize = 8;
    const PIXELS: usize = 35;
    let problem = Problem::Conv(ConvProblem {
        precision,
        output: precision.nhwc_format().unwrap(),
        ..ConvProblem::new(ConvShape::new(C as u32, N as u32, 5, 7, 1, 1))
    });
    let units = units(&["implicit_gemm", "wgmma"].map(|scheme| (problem, scheme, None)));
    assert_eq!(units.len(), 2);
    let kind = |n: usize, pixel: usize| (3 * n + pixel) % values.len();
    let mut x = vec![0.0; C * PIXELS];
    let mut weight = vec![0.0; N * C];
    for n in 0..N {
        weight[n * C + n] = 2.0;
        for pixel in 0..PIXELS {
            x[n * PIXELS + pixel] = values[kind(n, pixel)].0;
        }
    }
    x[3 * PIXELS - 1] = f32::NAN;
    let mut device = open(&units);
    for unit in &units {
        let y = run_unit(device.as_mut(), unit, &x, &weight, N * PIXELS / 2);
        for pixel in 0..PIXELS {
            for n in 0..N {
                let found = half_at(&y, pixel * N + n);
                let place = format!("{}, pixel {pixel}, channel {n}: {found:#x}", unit.unit.name);
                if pixel + 1 == PIXELS {
                    let infinity = match precision {
                        Precision::Bf16 => 0x7f80,
                        _ => 0x7c00,
                    };
                    assert!(found & 0x7fff > infinity, "{place}");
                } else {
                    assert_eq!(found, values[kind(n, pixel)].1, "{place}");
                }
            }
        }
    }
}

#[test]
fn outputs_of_16_bits_saturate_and_keep_nan() {
    assert_saturates(cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn outputs_of_16_bits_saturate_and_keep_nan_on_a_gpu() {
    assert_saturates(gpu_here);
}

/// Convolutions in fp16 with inputs beyond the largest fp16 number, which takes their place: output n is half of input n, modulo the channels.
fn assert_operands_saturate(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    const N: usize = 8;
    const PIXELS: usize = 9 * 11;
    const VALUES: [f32; 7] = [
        1e5,
        -1e5,
        f32::INFINITY,
        1.5,
        f32::NEG_INFINITY,
        65_520.0,
        -60_000.0,
    ];
    let problem = |c, size, output| {
        Problem::Conv(ConvProblem {
            precision: Precision::Fp16,
            output,
            ..ConvProblem::new(ConvShape {
                padding: Padding::all(size / 2),
                ..ConvShape::new(c, N as u32, 9, 11, size, size)
            })
        })
    };
    let units = units(&[
        (problem(16, 1, Format::default()), "implicit_gemm", None),
        (problem(3, 3, Format::default()), "implicit_gemm", None),
        (problem(16, 1, Format::default()), "wgmma", None),
        (problem(3, 3, Format::FP16_NHWC), "wgmma_stem", None),
    ]);
    assert_eq!(units.len(), 4);
    let value = |c: usize, pixel: usize| VALUES[(3 * c + pixel) % VALUES.len()];
    let mut device = open(&units);
    for unit in &units {
        let Problem::Conv(conv) = unit.problem else {
            panic!("{} is no convolution", unit.unit.name);
        };
        let (c, taps) = (
            conv.shape.c as usize,
            (conv.shape.r * conv.shape.s) as usize,
        );
        let mut weight = vec![0.0; N * c * taps];
        for n in 0..N {
            weight[(n * c + n % c) * taps + taps / 2] = 0.5;
        }
        let x: Vec<f32> = (0..c * PIXELS)
            .map(|i| value(i / PIXELS, i % PIXELS))
            .collect();
        let y = run_unit(device.as_mut(), unit, &x, &weight, N * PIXELS);
        for n in 0..N {
            for pixel in 0..PIXELS {
                let expected = 0.5 * value(n % c, pixel).clamp(-65_504.0, 65_504.0);
                let found = match conv.writes_16_bit_nhwc() {
                    false => y[n * PIXELS + pixel],
                    true => fp16_value(half_at(&y, pixel * N + n)),
                };
                let place = format!("{}, pixel {pixel}, channel {n}", unit.unit.name);
                assert_eq!(found, expected, "{place}");
            }
        }
    }
}

#[test]
fn fp16_operands_saturate() {
    assert_operands_saturate(cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn fp16_operands_saturate_on_a_gpu() {
    assert_operands_saturate(gpu_here);
}

/// A convolution whose input is converted, and one that reads its output in split NHWC: scales follow inputs of any magnitude.
fn assert_any_magnitude(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    let shape = |n| ConvShape {
        batch: 2,
        ..ConvShape::new(16, n, 5, 7, 1, 1)
    };
    let split = Format::SPLIT_NHWC;
    let first = ConvProblem::new(shape(16)).in_formats(Format::default(), split);
    let second = ConvProblem::new(shape(24)).in_formats(split, Format::default());
    let problems = [first, second].map(Problem::Conv);
    let units = units(&[
        (problems[0], "wgmma_converted", None),
        (problems[1], "wgmma_nhwc", None),
    ]);
    let mut device = open(&units);
    let mut random = Random::new(3);
    let mut weights = problems.map(|problem| random.values(problem.weight_len() as usize));
    // A channel without weights does not take bits from the others, which have small ones.
    weights[0].iter_mut().for_each(|weight| *weight *= 1e-3);
    weights[0][..16].fill(0.0);
    let values = random.values(problems[0].x().len() as usize);
    // Of every seventh value, and of the others.
    let magnitudes = [
        ("one", [1.0, 1.0]),
        ("large", [1e30, 1e30]),
        ("small", [1e-30, 1e-30]),
        ("both", [1e30, 1e-30]),
        ("zero", [0.0, 0.0]),
    ];
    for (name, [seventh, other]) in magnitudes {
        let magnitude = |i: usize| if i.is_multiple_of(7) { seventh } else { other };
        let x: Vec<f32> = values
            .iter()
            .enumerate()
            .map(|(i, value)| value * magnitude(i))
            .collect();
        let mut expected: Vec<f64> = x.iter().map(|&value| f64::from(value)).collect();
        for (problem, weight) in problems.iter().zip(&weights) {
            expected = problem.kind().reference(&ReferenceInputs {
                x: &expected,
                residual: &[],
                weights: &[weight.iter().map(|&value| f64::from(value)).collect()],
                bias: &[],
                scale: &[],
                shift: &[],
            });
        }
        let mut address = device.alloc(x.len()).unwrap();
        device.write(address, &x).unwrap();
        for (unit, weight) in units.iter().zip(&weights) {
            let variant = unit.variant();
            let mut packed = vec![0.0; variant.weights.len()];
            variant.weights.pack(weight, &[], &[], &mut packed).unwrap();
            let y_words = unit.problem.kind().output().bytes() as usize / 4;
            let mut place = |words: usize, values: &[f32]| {
                let address = device.alloc(words.max(4)).unwrap();
                device.write(address, values).unwrap();
                address
            };
            let images = |shape: TensorShape| shape.image_len();
            let bindings = Bindings {
                x: address,
                packed: place(packed.len(), &packed),
                y: place(y_words, &vec![f32::NAN; y_words]),
                workspace: place(variant.workspace_bytes as usize / 4, &[]),
                x_batch_stride: images(unit.problem.x()),
                y_batch_stride: images(unit.problem.y()),
                ..Bindings::default()
            };
            run_variant(device.as_mut(), variant, &bindings).unwrap();
            address = bindings.y;
        }
        let mut found = vec![0.0; expected.len()];
        device.read(address, &mut found).unwrap();
        let squares = |terms: &mut dyn Iterator<Item = f64>| terms.map(|x| x * x).sum::<f64>();
        let pairs = found.iter().zip(&expected);
        let error = squares(&mut pairs.map(|(&found, expected)| f64::from(found) - expected));
        let norm = squares(&mut expected.iter().copied());
        assert!(
            error.sqrt() <= 1e-6 * norm.sqrt(),
            "{name}: {:e} of {:e}",
            error.sqrt(),
            norm.sqrt()
        );
        device.free_all();
    }
}

#[test]
fn split_tensors_hold_any_magnitude() {
    assert_any_magnitude(cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn split_tensors_hold_any_magnitude_on_a_gpu() {
    assert_any_magnitude(gpu_here);
}

/// A block's branch and its shortcut have split tensors of very different scales, whose products are added.
fn assert_scales_may_differ(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    let problem = Problem::Projected(ProjectedProblem {
        x: TensorShape::new(2, 32, 3, 5),
        n: 24,
        shortcut: Shortcut {
            image: [48, 5, 9],
            stride: [2, 2],
        },
        epilogue: Epilogue::default(),
        precision: Precision::Fp32,
        format: Format::SPLIT_NHWC,
    });
    let units = units(&[(problem, "wgmma_projected", None)]);
    let mut device = open(&units);
    for factor in [0.0, 1e-30, 1e-3, 0.3, 1e3, 1e30] {
        let data = ProblemData::with_residual_of(&problem, 7, factor);
        let checked = check_unit_on(device.as_mut(), &units[0], &data, 2);
        checked.unwrap_or_else(|failure| panic!("factor {factor}: {failure}"));
    }
}

#[test]
fn scales_of_split_tensors_that_are_added_may_differ() {
    assert_scales_may_differ(cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn scales_of_split_tensors_that_are_added_may_differ_on_a_gpu() {
    assert_scales_may_differ(gpu_here);
}

#[test]
fn the_other_ops_are_right() {
    assert_right(&other_units(), cpu);
}

#[test]
fn every_scheme_with_activations_is_right() {
    assert_right(&activation_units(), cpu);
}

#[test]
fn activations_are_exact() {
    assert_activations_are_exact(cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn activations_are_exact_on_a_gpu() {
    assert_right(&activation_units(), gpu_here);
    assert_activations_are_exact(gpu_here);
}

#[test]
#[ignore = "needs a GPU"]
fn convolutions_are_right_on_a_gpu() {
    assert_right_on_a_gpu(vec![
        direct_units(300),
        pointwise_units(200),
        depthwise_units(300),
        tdc_units(200),
        tiled_units(500),
        padded_units(12),
        few_channel_units(200),
        grouped_units(200),
        wgmma_units(300),
        winograd_units(300),
    ]);
}

#[test]
#[ignore = "needs a GPU"]
fn nhwc_activations_are_right_on_a_gpu() {
    assert_right_on_a_gpu(vec![
        mma_nhwc_units(400),
        bf16_units(100),
        view_units(100),
        depthwise_nhwc_units(300),
        wgmma_fp16_units(300),
        wgmma_nhwc_units(300),
        wgmma_split_units(300),
        wgmma_stem_units(300),
        wgmma_dilated_units(300),
        wgmma_cluster_units(400),
        wgmma_stem_byte_units(300),
        normalize_units(),
        wgmma_projected_units(300),
        wgmma_converted_units(100),
        nhwc_output_units(300),
        nhwc_format_units(),
    ]);
}

#[test]
#[ignore = "needs a GPU"]
fn factorised_layers_and_published_schemes_are_right_on_a_gpu() {
    assert_right_on_a_gpu(vec![
        tucker_units(300),
        tucker_kinds(),
        squeeze_excite_units(200),
        dense_step_units(300),
        inverted_residual_units(300),
        published_tvm_units(),
        tvm_units(300),
        single_channel_units(200),
        input_stationary_units(300),
        stride_fixed_units(300),
        cp_units("cp_chain", 300),
        cp_product_units(),
        cp_units("cp_fused", 100),
        other_units(),
    ]);
}

/// Runs every unit of all groups on the GPU and lists all failures. The kernels of a group are loaded at a time.
fn assert_right_on_a_gpu(groups: Vec<Vec<PlannedUnit>>) {
    let count = groups.iter().map(Vec::len).sum();
    let all = groups.iter().flat_map(|units| failures(units, gpu_here));
    assert_none(&all.collect::<Vec<_>>(), count);
}

/// Every tile of a tiled scheme for three small problems: rows that are staged as vectors; prime channels and
/// a prologue; strides, uneven padding and two images. The tile spaces are small enough for the compute
/// sanitizer to finish within minutes.
fn every_tile(
    scheme: &str,
    channels: [[u32; 2]; 3],
    precisions: [Precision; 3],
) -> Vec<PlannedUnit> {
    let [[c0, n0], [c1, n1], [c2, n2]] = channels;
    let shapes = [
        ConvShape {
            padding: Padding::all(1),
            ..ConvShape::new(c0, n0, 4, 8, 3, 3)
        },
        ConvShape::new(c1, n1, 5, 7, 1, 1),
        ConvShape {
            batch: 2,
            stride: [2, 1],
            padding: Padding {
                top: 2,
                left: 1,
                bottom: 0,
                right: 1,
            },
            ..ConvShape::new(c2, n2, 9, 5, 3, 2)
        },
    ];
    let found = tdc_generator::scheme::scheme(scheme).unwrap();
    let mut requests = Vec::new();
    for (index, (shape, precision)) in shapes.into_iter().zip(precisions).enumerate() {
        let problem = Problem::Conv(ConvProblem {
            prologue: (index == 1).then_some(Prologue {
                activation: Activation::Relu,
            }),
            epilogue: Epilogue {
                bias: true,
                residual: index == 2,
                activation: Activation::Relu,
            },
            precision,
            ..ConvProblem::new(shape)
        });
        let tiles = found.tiles(&problem, gpu("h200").unwrap());
        assert!(
            (50..=600).contains(&tiles.len()),
            "{scheme}: {} tiles",
            tiles.len()
        );
        requests.extend(
            tiles
                .into_iter()
                .map(|tile| (problem, scheme, Some(tile.0))),
        );
    }
    units(&requests)
}

fn every_tile_of_implicit_gemm() -> Vec<PlannedUnit> {
    every_tile(
        "implicit_gemm",
        [[48, 13], [37, 23], [29, 13]],
        [Precision::Fp32, Precision::Tf32, Precision::Fp16],
    )
}

fn every_tile_of_direct_tiled() -> Vec<PlannedUnit> {
    every_tile(
        "direct_tiled",
        [[9, 8], [12, 23], [13, 11]],
        [Precision::Fp32; 3],
    )
}

/// Checks every `step`-th tile of the spaces; the tests on a GPU check all of them.
fn assert_tiles_are_right(step: usize) {
    for units in [every_tile_of_implicit_gemm(), every_tile_of_direct_tiled()] {
        let some: Vec<PlannedUnit> = units.into_iter().step_by(step).collect();
        assert_right(&some, cpu);
    }
}

#[test]
fn tiles_of_small_problems_are_right() {
    assert_tiles_are_right(500);
}

#[test]
#[ignore = "needs a GPU"]
fn every_tile_of_implicit_gemm_is_right_on_a_gpu() {
    assert_right(&every_tile_of_implicit_gemm(), gpu_here);
}

#[test]
#[ignore = "needs a GPU"]
fn every_tile_of_direct_tiled_is_right_on_a_gpu() {
    assert_right(&every_tile_of_direct_tiled(), gpu_here);
}

/// The check must be able to fail: units without the bias, with incorrect sizes, or with writes past the end of a tensor.
#[test]
fn planted_errors_are_found() {
    let problem = Problem::Conv(ConvProblem {
        epilogue: Epilogue {
            bias: true,
            ..Epilogue::default()
        },
        ..ConvProblem::new(ConvShape {
            padding: Padding::all(1),
            ..ConvShape::new(3, 5, 7, 9, 3, 3)
        })
    });
    let tile = Some(vec![64, 4, 1, 1]);
    let plant = |key: &str, value: serde_json::Value| {
        let mut unit = units(&[(problem, "direct", tile.clone())]).remove(0);
        unit.kernels[0].blueprint.context[key] = value;
        let mut device = CpuDevice::new(std::slice::from_ref(&unit)).unwrap();
        check_unit(&mut device, &unit, 5).unwrap_err().to_string()
    };
    assert!(plant("bias", false.into()).contains("relative error"));
    assert!(plant("checks_border", false.into()).contains("relative error"));
    assert!(plant("checks_n", false.into()).contains("outside"));
    assert!(plant("stride_w", 2.into()).contains("relative error"));
}

mod deep {
    use super::*;

    /// What a test of this program prints on an emulated GPU without clusters.
    fn printed_without_clusters(test: &str) -> String {
        let own = std::env::current_exe().unwrap();
        let run = std::process::Command::new(own)
            .args(["--exact", test])
            .env("TDC_CPU_ARCH", "80")
            .output()
            .unwrap();
        String::from_utf8_lossy(&run.stdout).into_owned()
    }

    /// Without clusters one block does the work of all blocks in sequence.
    #[test]
    #[ignore = "deep tier"]
    fn each_kind_of_tucker_layer_is_right_without_clusters() {
        let printed = printed_without_clusters("each_kind_of_tucker_layer_is_right");
        assert!(printed.contains("1 passed"), "{printed}");
    }

    /// No block has the sums of the others.
    #[test]
    #[ignore = "deep tier"]
    fn products_of_clusters_trap_without_clusters() {
        let printed = printed_without_clusters("random::wgmma_nhwc_is_right_with_clusters");
        assert!(printed.contains("10 of 10 units failed"), "{printed}");
        assert_eq!(printed.matches("the thread traps").count(), 10, "{printed}");
    }

    /// Compiles units for some architectures. Committed configs have few of these variants. Some leave out code, which easily causes
    /// compiler warnings about unused names.
    fn assert_compiles_without_a_warning(units: &[PlannedUnit], archs: &[u16]) {
        let compiler = toolkit::toolkit()
            .compiler(Options {
                effort: Effort::Fast,
                ..Options::default()
            })
            .unwrap();
        let mut failures = Vec::new();
        for unit in units {
            let text = unit_text(unit).unwrap();
            for &sm in archs {
                let image = compiler.compile(&text, &unit.unit.name, Arch::new(sm));
                failures.extend(image.err().map(|error| error.to_string()));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    #[ignore = "deep tier"]
    fn each_kind_of_tucker_layer_compiles_without_a_warning() {
        assert_compiles_without_a_warning(&tucker_kinds(), &[75, 90]);
    }

    #[test]
    #[ignore = "deep tier"]
    fn the_other_ops_compile_without_a_warning() {
        assert_compiles_without_a_warning(&other_units(), &[75, 90]);
    }

    #[test]
    #[ignore = "deep tier"]
    fn random_products_of_16_bit_nhwc_compile_without_a_warning() {
        assert_compiles_without_a_warning(&mma_nhwc_units(30), &[70, 75, 80, 90]);
    }

    #[test]
    #[ignore = "deep tier"]
    fn random_products_of_warpgroups_compile_without_a_warning() {
        let groups: [fn(usize) -> Vec<PlannedUnit>; 13] = [
            bf16_units,
            view_units,
            depthwise_nhwc_units,
            wgmma_units,
            wgmma_fp16_units,
            wgmma_nhwc_units,
            wgmma_split_units,
            wgmma_dilated_units,
            wgmma_cluster_units,
            wgmma_stem_units,
            wgmma_stem_byte_units,
            wgmma_projected_units,
            wgmma_converted_units,
        ];
        for units in groups {
            assert_compiles_without_a_warning(&units(16), &[90]);
        }
    }

    #[test]
    #[ignore = "deep tier"]
    fn tiles_of_small_problems_are_right() {
        assert_tiles_are_right(83);
    }
}
