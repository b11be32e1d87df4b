//! Networks from the files of other programs.

pub mod onnx;
