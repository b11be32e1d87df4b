//! Every GPU that code can be planned for, one file each. A new GPU needs a file and its name in the list below. The first GPU of an
//! architecture represents it: kernels for the architecture are planned for that GPU by default.

use super::Gpu;

macro_rules! gpus {
    ($($name:ident,)*) => {
        $(mod $name;)*

        /// All GPUs that can be planned for.
        pub const GPUS: &[Gpu] = &[$($name::GPU),*];
    };
}

gpus! {
    h200,
    h100,
    gh200,
    b200,
    a100,
    v100,
    rtx5090,
    rtx4090,
    rtx3090,
    rtx2080ti,
    gtx1080ti,
    l40s,
    l4,
    rtx6000ada,
    agxorin,
}
