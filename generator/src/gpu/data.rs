//! Every GPU that code can be planned for, in one file each. Adding one = its file and its name here. The first GPU of an architecture
//! represents it: kernels for the architecture are planned for that GPU if none is named.

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
