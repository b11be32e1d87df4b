//! Consecutive units as one variant, so that the launches of a Tucker layer are a single kernel for the program.

use super::unit::PlannedUnit;
use tdc_runtime::{Arg, Step, Variant, WeightFile};

/// Alignment of each buffer in the workspace, bytes.
const ALIGNMENT: u64 = WeightFile::ALIGNMENT;

/// One variant with the steps of `units` in order. The first unit reads the input, every other unit reads the output of the unit before it,
/// and the last one writes the output. The workspace contains the values between the units and the units' own workspaces. The prologue
/// belongs to the first unit; bias and residual belong to the last.
///
/// `None` if there is no unit.
pub fn chain_units(units: &[PlannedUnit]) -> Option<Variant> {
    let (first, last) = (units.first()?, units.last()?);
    let mut steps = Vec::new();
    let mut layouts = Vec::new();
    let mut end = 0u64;
    let mut place = |bytes: u64| match bytes {
        0 => 0,
        _ => {
            let offset = end.next_multiple_of(ALIGNMENT);
            end = offset + bytes;
            offset
        }
    };
    // Byte offset of the unit's input in the workspace; `None` for the first unit.
    let mut x: Option<u64> = None;
    // Bytes of the packed weights of the units before.
    let mut packed = 0u64;
    for (index, unit) in units.iter().enumerate() {
        let variant = unit.variant();
        let workspace = place(variant.workspace_bytes);
        let output = unit.problem.y();
        let y = (index + 1 < units.len()).then(|| place(4 * output.len()));
        let bind = |arg: Arg| match arg {
            Arg::X => x.map_or(arg, |offset| Arg::Workspace { offset }),
            Arg::Y => y.map_or(arg, |offset| Arg::Workspace { offset }),
            Arg::XBatchStride if x.is_some() => Arg::Elements {
                count: unit.problem.x().image_len(),
            },
            Arg::YBatchStride if y.is_some() => Arg::Elements {
                count: output.image_len(),
            },
            Arg::Packed if packed > 0 => Arg::PackedAt { offset: packed },
            Arg::Workspace { offset } => Arg::Workspace {
                offset: workspace + offset,
            },
            other => other,
        };
        steps.extend(variant.steps.iter().map(|step| match step {
            Step::Launch(launch) => {
                let mut launch = launch.clone();
                launch.args = launch.args.iter().map(|&arg| bind(arg)).collect();
                Step::Launch(launch)
            }
            Step::Memset { target, bytes } => Step::Memset {
                target: bind(*target),
                bytes: *bytes,
            },
        }));
        layouts.push(variant.weights.clone());
        layouts.extend(variant.extra_weight_layouts.iter().cloned());
        packed += (4 * variant.packed_len() as u64).next_multiple_of(ALIGNMENT);
        x = y;
    }
    let extra_weight_layouts = layouts.split_off(1);
    Some(Variant {
        gpu: first.variant().gpu.clone(),
        min_arch: units.iter().map(|unit| unit.variant().min_arch).max()?,
        steps: steps.into(),
        workspace_bytes: end,
        weights: layouts.pop()?,
        extra_weight_layouts: extra_weight_layouts.into(),
        bias_len: last.variant().bias_len,
    })
}
