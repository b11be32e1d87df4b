//! The memory of a network on a device, with guards around its tensors.

use super::guarded_buffer::{GuardedBuffer, INPUT_POISON, MARGIN, OUTPUT_POISON};
use super::stored_tensor::{stored_words, values_of_words, word_count};
use super::{Bindings, Device, DeviceError};
use crate::ir::{Format, Tensor, TensorShape};
use crate::plan::{LayerPlan, Location, Memory, NetworkPlan};

/// Inputs, outputs, arena and weights of a network.
pub(super) struct NetworkBuffers {
    inputs: Vec<GuardedBuffer>,
    outputs: Vec<GuardedBuffer>,
    arena: GuardedBuffer,
    /// Address of the packed weights.
    weights: u64,
}

impl NetworkBuffers {
    /// `packed` is the payload of the weight file, in floats. Inputs are NCHW, and stored as the plan says.
    pub(super) fn new(
        device: &mut dyn Device,
        plan: &NetworkPlan,
        packed: &[f32],
        inputs: &[Vec<f32>],
    ) -> Result<Self, DeviceError> {
        let inputs = plan.inputs.iter().zip(inputs).map(|(planned, input)| {
            let words = stored_words(Tensor::new(planned.shape, planned.format), input);
            let mut x = GuardedBuffer::new(device, words.len(), INPUT_POISON)?;
            x.write(device, 0, &words)?;
            Ok(x)
        });
        let inputs = inputs.collect::<Result<_, DeviceError>>()?;
        let outputs = plan.outputs.iter().map(|output| {
            let words = word_count(Tensor::new(output.shape, output.format));
            GuardedBuffer::new(device, words, OUTPUT_POISON)
        });
        let outputs = outputs.collect::<Result<_, DeviceError>>()?;
        let arena = GuardedBuffer::new(device, plan.arena_bytes as usize / 4, OUTPUT_POISON)?;
        let weights = device.alloc(packed.len().max(1))?;
        device.write(weights, packed)?;
        Ok(Self {
            inputs,
            outputs,
            arena,
            weights,
        })
    }

    fn address(&self, location: &Location) -> u64 {
        let base = match location.memory {
            Memory::Input { index } => self.inputs[index].address,
            Memory::Output { index } => self.outputs[index].address,
            Memory::Arena { offset } => self.arena.address + offset,
        };
        base + location.offset_bytes()
    }

    /// The arguments of a layer's unit.
    pub(super) fn bindings(&self, plan: &NetworkPlan, layer: &LayerPlan) -> Bindings {
        let address = |location: &Location| self.address(location);
        let (packed, bias) = plan.parameter_offsets(layer);
        Bindings {
            x: address(&layer.x),
            residual: layer.residual.as_ref().map_or(0, address),
            packed: packed.map_or(0, |place| self.weights + place),
            bias: bias.map_or(0, |place| self.weights + place),
            y: address(&layer.y),
            workspace: layer
                .workspace
                .map_or(0, |offset| self.arena.address + offset),
            x_batch_stride: layer.x.batch_stride,
            residual_batch_stride: layer.residual.map_or(0, |location| location.batch_stride),
            y_batch_stride: layer.y.batch_stride,
        }
    }

    /// The number of elements around inputs, arena and outputs that were modified.
    pub(super) fn modified_elements(&self, device: &mut dyn Device) -> Result<usize, DeviceError> {
        let tensors = self.inputs.iter().chain([&self.arena]).chain(&self.outputs);
        tensors
            .map(|guarded| guarded.modified_elements(device))
            .sum()
    }

    /// The dense NCHW values of an output of the network.
    pub(super) fn read_output(
        &self,
        device: &mut dyn Device,
        index: usize,
        shape: TensorShape,
        format: Format,
    ) -> Result<Vec<f32>, DeviceError> {
        let y = &self.outputs[index];
        let whole = y.read(device)?;
        let words = whole[MARGIN..MARGIN + y.floats].to_vec();
        Ok(values_of_words(Tensor::new(shape, format), words))
    }

    /// The dense NCHW content of a location.
    pub(super) fn read(
        &self,
        device: &mut dyn Device,
        location: &Location,
    ) -> Result<Vec<f32>, DeviceError> {
        let address = self.address(location);
        let image_len = location.shape.image_len() as usize;
        if let Some(stride) = location.format.pixel_stride {
            return read_view(device, location, stride, address);
        }
        // Any other format is dense.
        if location.format != Format::default() {
            let tensor = Tensor::new(location.shape, location.format);
            let mut words = vec![0.0; word_count(tensor)];
            device.read(address, &mut words)?;
            return Ok(values_of_words(tensor, words));
        }
        let mut values = vec![0.0; location.shape.len() as usize];
        for (image, values) in values.chunks_mut(image_len).enumerate() {
            device.read(address + 4 * image as u64 * location.batch_stride, values)?;
        }
        Ok(values)
    }
}

/// The dense NCHW content of a view of 16-bit numbers in NHWC, whose pixels are `stride` elements apart.
fn read_view(
    device: &mut dyn Device,
    location: &Location,
    stride: u32,
    address: u64,
) -> Result<Vec<f32>, DeviceError> {
    /// Elements of a word.
    const ELEMENTS: usize = 2;
    let shape = location.shape;
    let [pitch, len] = [stride, shape.c].map(|elements| elements as usize / ELEMENTS);
    let pixels = shape.batch as usize * shape.pixels() as usize;
    let mut words = vec![0.0; (pixels - 1) * pitch + len];
    device.read(address, &mut words)?;
    let of_view = words.chunks(pitch).flat_map(|pixel| &pixel[..len]);
    let tensor = Tensor::new(shape, location.format.dense());
    Ok(values_of_words(tensor, of_view.copied().collect()))
}
