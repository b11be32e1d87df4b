//! The naming grammar of units.
//!
//! ```text
//! unit    = problem "_" scheme "_" tile                  conv_c64_n32_h56_w56_k3x3_p1_relu_direct_p64rn8xn4sk1
//! problem = "conv" sizes "_k" RxS [options] [epilogue] [numbers]   sizes: [_bB] _cC _nN _hH _wW
//!         | "cp" [_bB] _cC _rRANK _nN _hH _wW "_k" RxS [options] [epilogue] [numbers]
//!         | "tucker" [_bB] [_cC] _dD1xD2 _nN _hH _wW "_k" RxS [options] [epilogue] [next] [numbers]   no C: without the first factor
//!         | "invertedresidual" [_bB] _cC _eE _nN _hH _wW "_k" RxS [options] [epilogue] "_depthwise" [epilogue] "_project" [epilogue] [numbers]
//!         | "densestep" [_bB] _cC "_grow" G "_before" B _nN _hH _wW "_k" RxS [options] [epilogue] "_concat" [_prologue[ACTIVATION]] [epilogue] [numbers]
//!         | "projected" [_bB] _cC _hH _wW _nN "_shortcut" _cC _hH _wW [_sSTRIDE] [epilogue] [numbers]   two 1x1 convolutions, added
//!         | "convert" sizes ("_hwcn" | "_nchw")                    the layout of the output, from or to HWCN
//!         | "convert" sizes ["_from" nhwc] ["_tonhwc" | "_tonchw16" | "_tonchwbf16" | "_to" nhwc]
//! options = [_sSTRIDE] [_pPAD] [_dDILATION] [_gGROUPS] [_prologue[ACTIVATION]]   default: 1, 0, none
//! epilogue = [_bias] [_residual] [_ACTIVATION]             such as relu
//! numbers = [_atomic] [_tf32|_fp16|_bf16] [_tolBILLIONTHS] ["_hwcn" | format]
//!         | "normalize" [_bB] _cC _hH _wW ("_fromfp32" | "_fromuint8") ("nchw" | "nhwc")       an input
//! format  = "_" nhwc | "_from" nhwc | "_to" nhwc           input and output, only the input (not of pools), only the output
//!         | ("_fromuint8nchw" | "_fromuint8nhwc") ["_to" nhwc]     an input in uint8
//!         | "_from" nhwc "_to" nhwc                         both, of which one is a view or both are views of different tensors
//! nhwc    = ("nhwc16" | "nhwcbf16" | "nhwcsplit") ["of" CHANNELS]   fp16, bf16 and split NHWC; "of": a view of a tensor with CHANNELS channels
//! next    = ("_next" | "_nextonly") D1      first factor of the next layer; its N input channels are stored, or not
//! tile    = (letters number)+                            the letters are the scheme's labels
//! ```
//! A pair is written as one number if both are equal, otherwise as `VxH`; padding as `TxLxBxR`.

mod parse;

pub use parse::problem_of_label;

use crate::ir::Problem;
use crate::scheme::{Scheme, Tile};

/// The unit's name. It is also the stem of its file name and, after the network's name, of its symbols.
pub fn unit_name(problem: &Problem, scheme: &dyn Scheme, tile: &Tile) -> String {
    let tile = tile.label(scheme.tile_fields());
    format!(
        "{}{tile}",
        unit_name_prefix(&problem_label(problem), scheme)
    )
}

/// The name, without its tile, of a unit for the problem with this label.
pub(super) fn unit_name_prefix(label: &str, scheme: &dyn Scheme) -> String {
    // Avoids a repetition such as `linear_..._linear_wt4`.
    let scheme_name = scheme.name();
    if label.starts_with(scheme_name) {
        format!("{label}_")
    } else {
        format!("{label}_{scheme_name}_")
    }
}

/// The label of a problem, which is its part of the name. Equal labels mean equal problems.
pub fn problem_label(problem: &Problem) -> String {
    problem.kind().label()
}
