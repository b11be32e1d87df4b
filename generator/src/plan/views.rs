//! Views: values that are stored inside another value, so that concatenation, slice and flatten need no kernel.

use super::graph::{Value, ValueId};
use crate::ir::{Format, Network, OpId, OpKind};

/// The analysis of which ops' outputs are stored inside other values.
pub(super) struct Views<'a> {
    network: &'a Network,
    consumers: &'a [Vec<OpId>],
}

/// An input of a concatenation that cannot be a view and is copied.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConcatCopy {
    pub input: OpId,
    pub concat: OpId,
    /// Offset in each image of the concatenation, in elements.
    pub offset: u64,
}

impl<'a> Views<'a> {
    /// For a network with the [consumers](Network::consumers) of its ops.
    pub(super) fn new(network: &'a Network, consumers: &'a [Vec<OpId>]) -> Self {
        Self { network, consumers }
    }

    /// Makes views of the ops' values: a flattened tensor and a slice are views of their input, and the inputs of a concatenation are
    /// views of its output. Returns the inputs that must be copied instead.
    pub(super) fn place(&self, values: &mut [Value]) -> Vec<ConcatCopy> {
        let mut copies = Vec::new();
        for (index, op) in self.network.ops.iter().enumerate() {
            match op.kind {
                OpKind::Flatten if !self.flatten_needs_copy(OpId(index)) => {
                    values[index].parent = Some((ValueId(op.inputs[0].0), 0));
                }
                OpKind::Slice { start } if !self.slice_needs_copy(OpId(index)) => {
                    let offset = u64::from(start) * op.y.pixels();
                    values[index].parent = Some((ValueId(op.inputs[0].0), offset));
                }
                OpKind::Concat => {
                    let mut offset = 0;
                    for &input in &op.inputs {
                        let len = values[input.0].shape.image_len();
                        if self.can_be_concat_view(input, &values[input.0]) {
                            values[input.0].parent = Some((ValueId(index), offset));
                        } else {
                            copies.push(ConcatCopy {
                                input,
                                concat: OpId(index),
                                offset,
                            });
                        }
                        offset += len;
                    }
                }
                _ => {}
            }
        }
        // The caller's memory is that of a flattened output, so its input becomes the view.
        for output in &self.network.outputs {
            let value = &mut values[output.op.0];
            if let Some((flattened, _)) = value.parent.filter(|_| self.is_nchw_output(output.op)) {
                value.parent = None;
                values[flattened.0].parent = Some((ValueId(output.op.0), 0));
            }
        }
        copies
    }

    /// Whether an op's output is an output of the network in fp32 NCHW, so that its value has the caller's memory.
    fn is_nchw_output(&self, id: OpId) -> bool {
        let mut outputs = self.network.outputs.iter();
        let shape = self.network.op(id).y;
        outputs.any(|output| {
            output.op == id && output.format.as_kernels_write(shape) == Format::default()
        })
    }

    /// Whether an input of a concatenation can be written directly to its slice of the output.
    fn can_be_concat_view(&self, id: OpId, value: &Value) -> bool {
        let op = self.network.op(id);
        let is_view = value.parent.is_some();
        !is_view
            && !self.is_nchw_output(id)
            && !self.must_be_contiguous(id)
            && !matches!(op.kind, OpKind::Input(_) | OpKind::Flatten)
    }

    /// Whether the images of a value must follow each other, which those of a view of some channels do not: a flattened view of several
    /// images requires it.
    fn must_be_contiguous(&self, id: OpId) -> bool {
        let mut readers = self.consumers[id.0].iter();
        self.network.op(id).y.batch > 1
            && readers.any(|&reader| self.network.op(reader).kind == OpKind::Flatten)
    }

    /// Whether a slice moves data. Any other slice is a view.
    pub(super) fn slice_needs_copy(&self, id: OpId) -> bool {
        self.is_nchw_output(id) || self.must_be_contiguous(id)
    }

    /// Whether a flatten moves data. It does if its output is an output of the network in fp32 NCHW and its input is one too, has other readers, is a view
    /// or a slice, or is an input of the network. Any other flatten is a view.
    pub(super) fn flatten_needs_copy(&self, id: OpId) -> bool {
        let flattened = self.network.op(id).inputs[0];
        let mut source = flattened;
        while self.network.op(source).kind == OpKind::Flatten {
            source = self.network.op(source).inputs[0];
        }
        let is_output = self.is_nchw_output(id);
        let has_other_readers =
            self.consumers[flattened.0].len() > 1 || self.is_nchw_output(flattened);
        let is_slice = matches!(self.network.op(source).kind, OpKind::Slice { .. });
        is_output
            && (has_other_readers
                || matches!(self.network.op(source).kind, OpKind::Input(_))
                || source != flattened
                || is_slice)
    }
}
