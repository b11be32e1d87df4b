//! The generated folders of small networks and a layer set: their files are compared with committed ones, and
//! run after compilation against the CPU emulation.

mod networks;
mod nhwc_activations;
mod run;
mod several_batches;
mod several_inputs;
mod several_outputs;
mod text;
