//! The generated folders of small networks and a layer set: their text against committed files, and what it does when it is
//! compiled against the CPU emulation of the CUDA runtime.

mod networks;
mod run;
mod text;
