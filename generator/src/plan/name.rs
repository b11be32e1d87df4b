//! The naming grammar of units.
//!
//! ```text
//! unit    = problem "_" scheme "_" tile                  conv_c64_n32_h56_w56_k3x3_p1_relu_direct_p64rn8xn4sk1
//! problem = "conv" sizes "_k" RxS [options] [epilogue] [numbers]   sizes: [_bB] _cC _nN _hH _wW
//!         | "cp" [_bB] _cC _rRANK _nN _hH _wW "_k" RxS [options] [epilogue] [numbers]
//!         | "tucker" [_bB] [_cC] _dD1xD2 _nN _hH _wW "_k" RxS [options] [epilogue] [next] [numbers]   without C the first factor is not part of it
//!         | "convert" sizes "_" ("hwcn" | "nchw")                the layout of the output
//! options = [_sSTRIDE] [_pPAD] [_dDILATION] [_gGROUPS] [_prologue|_prologuerelu]   what is not said is 1, 0 or absent
//! epilogue = [_bias] [_residual] [_relu]
//! numbers = [_atomic] [_tf32|_fp16|_bf16] [_tolBILLIONTHS] [_hwcn]
//! next    = ("_next" | "_nextonly") D1      the first factor of the layer behind; the N channels that it reads are kept, or not
//! tile    = (letters number)+                            the letters are the scheme's
//! ```
//! A pair is written once when both are equal, else `VxH`; padding `TxLxBxR`.

mod parse;

pub use parse::problem_of_label;

use crate::ir::{
    Elementwise, Epilogue, PoolKind, Precision, Problem, Prologue, Reduce, TensorShape, Tolerance,
};
use crate::scheme::{Scheme, Tile};
use tdc_runtime::{ConvShape, Padding};

/// The unit's name: also the stem of its file and, behind the network's name, of its symbols.
pub fn unit_name(problem: &Problem, scheme: &dyn Scheme, tile: &Tile) -> String {
    let label = problem_label(problem);
    // `linear_..._linear_wt4` would say the same twice.
    let scheme_name = scheme.name();
    let tile = tile.label(scheme.tile_fields());
    if label.starts_with(scheme_name) {
        format!("{label}_{tile}")
    } else {
        format!("{label}_{scheme_name}_{tile}")
    }
}

/// The problem's part of the name; equal labels mean equal problems.
pub fn problem_label(problem: &Problem) -> String {
    match problem {
        Problem::Conv(p) | Problem::HwcnConv(p) => {
            let s = &p.shape;
            let mut name = format!("conv{}_c{}_n{}", batch(problem.x()), s.c, s.n);
            name += &filter(s);
            name += prologue(p.prologue);
            name += &epilogue(p.epilogue);
            if p.reduce == Reduce::Atomic {
                name += "_atomic";
            }
            name += &precision(p.precision);
            if p.tolerance != Tolerance::default() {
                name += &format!("_tol{}", p.tolerance.billionths());
            }
            if matches!(problem, Problem::HwcnConv(_)) {
                name += "_hwcn";
            }
            name
        }
        Problem::Cp(p) => {
            let conv = problem_label(&Problem::Conv(p.conv));
            let sizes = format!("_n{}_h", p.conv.shape.n);
            let ranked = format!("_r{}{sizes}", p.rank);
            conv.replacen("conv", "cp", 1).replacen(&sizes, &ranked, 1)
        }
        Problem::Tucker(p) => {
            let s = &p.core;
            let mut name = format!("tucker{}", batch(problem.x()));
            if let Some(c) = p.first {
                name += &format!("_c{c}");
            }
            name += &format!("_d{}x{}_n{}", s.c, s.n, p.n);
            name += &filter(s);
            name += prologue(p.prologue);
            name += &epilogue(p.epilogue);
            if let Some(next) = p.next {
                name += if next.stores_layer_output {
                    "_next"
                } else {
                    "_nextonly"
                };
                name += &next.n.to_string();
            }
            name + &precision(p.precision)
        }
        Problem::Linear(p) => format!(
            "linear{}_c{}_n{}{}",
            batch(problem.x()),
            p.c,
            p.n,
            epilogue(p.epilogue)
        ),
        Problem::Pool(p) => {
            let kind = match p.kind {
                PoolKind::Max => "maxpool",
                PoolKind::Avg {
                    count_include_pad: true,
                } => "avgpool",
                PoolKind::Avg {
                    count_include_pad: false,
                } => "avgpoolvalid",
            };
            format!(
                "{kind}{}_k{}x{}{}{}{}_o{}x{}",
                sizes(p.x),
                p.kernel[0],
                p.kernel[1],
                pair("s", p.stride, 1),
                padding(p.padding),
                pair("d", p.dilation, 1),
                p.out[0],
                p.out[1]
            )
        }
        Problem::GlobalPool(p) => {
            let kind = if p.max {
                "globalmaxpool"
            } else {
                "globalavgpool"
            };
            format!("{kind}{}", sizes(p.x))
        }
        Problem::Elementwise(p) => {
            let kind = match p.function {
                Elementwise::Add { relu: false } => "add",
                Elementwise::Add { relu: true } => "addrelu",
                Elementwise::Relu => "relu",
                Elementwise::ScaleShift { relu: false } => "scaleshift",
                Elementwise::ScaleShift { relu: true } => "scaleshiftrelu",
                Elementwise::Copy => "copy",
            };
            format!("{kind}{}", sizes(p.x))
        }
        Problem::Convert(p) => {
            let layout = p.to.name().to_lowercase();
            format!("convert{}_{layout}", sizes(p.x))
        }
    }
}

fn batch(x: TensorShape) -> String {
    match x.batch {
        1 => String::new(),
        batch => format!("_b{batch}"),
    }
}

fn sizes(x: TensorShape) -> String {
    format!("{}_c{}_h{}_w{}", batch(x), x.c, x.h, x.w)
}

fn pair(letter: &str, [v, h]: [u32; 2], default: u32) -> String {
    if v != h {
        format!("_{letter}{v}x{h}")
    } else if v != default {
        format!("_{letter}{v}")
    } else {
        String::new()
    }
}

fn padding(p: Padding) -> String {
    if p == Padding::all(p.top) {
        pair("p", [p.top, p.top], 0)
    } else {
        format!("_p{}x{}x{}x{}", p.top, p.left, p.bottom, p.right)
    }
}

/// Image, filter and options of a convolution.
fn filter(s: &ConvShape) -> String {
    let mut name = format!("_h{}_w{}_k{}x{}", s.h, s.w, s.r, s.s);
    name += &pair("s", s.stride, 1);
    name += &padding(s.padding);
    name += &pair("d", s.dilation, 1);
    if s.groups > 1 {
        name += &format!("_g{}", s.groups);
    }
    name
}

fn prologue(p: Option<Prologue>) -> &'static str {
    match p {
        None => "",
        Some(Prologue { relu: true }) => "_prologuerelu",
        Some(Prologue { relu: false }) => "_prologue",
    }
}

fn precision(p: Precision) -> String {
    match p {
        Precision::Fp32 => String::new(),
        _ => format!("_{}", p.as_str()),
    }
}

fn epilogue(e: Epilogue) -> String {
    let parts = [
        (e.bias, "_bias"),
        (e.residual, "_residual"),
        (e.relu, "_relu"),
    ];
    parts
        .into_iter()
        .filter(|(there, _)| *there)
        .map(|(_, part)| part)
        .collect()
}
