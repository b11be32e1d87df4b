//! The naming grammar of units.
//!
//! ```text
//! unit    = problem "_" scheme "_" tile                  conv_c64_n32_h56_w56_k3x3_p1_relu_direct_p64rn8xn4sk1
//! problem = "conv" sizes "_k" RxS [options] [epilogue] [numbers]   sizes: [_bB] _cC _nN _hH _wW
//!         | "cp" [_bB] _cC _rRANK _nN _hH _wW "_k" RxS [options] [epilogue] [numbers]
//!         | "tucker" [_bB] [_cC] _dD1xD2 _nN _hH _wW "_k" RxS [options] [epilogue] [next] [numbers]   without C the first factor is not part of it
//!         | "convert" sizes "_" ("hwcn" | "nchw")                the layout of the output
//! options = [_sSTRIDE] [_pPAD] [_dDILATION] [_gGROUPS] [_prologue[ACTIVATION]]   what is not said is 1, 0 or absent
//! epilogue = [_bias] [_residual] [_ACTIVATION]             such as relu
//! numbers = [_atomic] [_tf32|_fp16|_bf16] [_tolBILLIONTHS] [_hwcn]
//! next    = ("_next" | "_nextonly") D1      the first factor of the layer behind; the N channels that it reads are kept, or not
//! tile    = (letters number)+                            the letters are the scheme's
//! ```
//! A pair is written once when both are equal, else `VxH`; padding `TxLxBxR`.

mod parse;

pub use parse::problem_of_label;

use crate::ir::Problem;
use crate::scheme::{Scheme, Tile};

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
    problem.kind().label()
}
