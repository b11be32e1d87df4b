//! The inputs of a node, of which ONNX allows any to be left out.

/// An input that may be missing: left out at the end, or with an empty name.
pub fn input<T: Copy>(inputs: &[Option<T>], index: usize) -> Option<T> {
    inputs.get(index).copied().flatten()
}
