//! The call by which a driver launches a layer.

use crate::ir::DType;
use crate::plan::{LayerPlan, Location, Memory, NetworkPlan};
use crate::render::kernel::pointee;
use crate::render::unit::has_batch_strides;
use crate::render::wrap::wrap_call;

/// `return <unit>_launch(...);` with the layer's memory.
pub(super) fn launch_call(plan: &NetworkPlan, layer: &LayerPlan) -> String {
    let unit = &plan.units[layer.unit];
    let null = || "nullptr".to_owned();
    let parameter =
        |place: Option<u64>| place.map_or_else(null, |place| at("p.weights", place / 4));
    let (packed, bias) = plan.parameter_offsets(layer);
    let mut arguments = vec![
        pointer(&layer.x, "const "),
        parameter(packed),
        parameter(bias),
        layer
            .residual
            .as_ref()
            .map_or_else(null, |residual| pointer(residual, "const ")),
        pointer(&layer.y, ""),
        layer
            .workspace
            .map_or_else(null, |offset| at("p.arena", offset / 4)),
        "stream".to_owned(),
    ];
    if has_batch_strides(&unit.problem) {
        let residual = layer.residual.as_ref().unwrap_or(&layer.y);
        for location in [&layer.x, residual, &layer.y] {
            arguments.push(location.batch_stride.to_string());
        }
    }
    let head = format!("return {}_launch", unit.unit.name);
    format!("{};", wrap_call(&head, &arguments, 8, 12))
}

fn pointer(location: &Location, qualifier: &str) -> String {
    // A view of 16-bit numbers starts at a multiple of eight.
    let own = location.offset_bytes() / 4;
    let address = match location.memory {
        Memory::Input { index } => at(&format!("p.input({index})"), own),
        Memory::Output { index } => at(&format!("p.output({index})"), own),
        Memory::Arena { offset } => at("p.arena", offset / 4 + own),
    };
    match location.format.dtype {
        DType::Fp32 => address,
        dtype => format!(
            "reinterpret_cast<{qualifier}{}*>({address})",
            pointee(dtype)
        ),
    }
}

fn at(base: &str, offset: u64) -> String {
    match offset {
        0 => base.to_owned(),
        _ => format!("{base} + {offset}"),
    }
}
