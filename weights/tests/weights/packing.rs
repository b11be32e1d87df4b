//! Packs values into a file and unpacks them by the layout.

use tdc_runtime::{Axis, Checksum, Filter, LayoutDim, Transform, WeightFile, WeightLayout};
use tdc_weights::{Checkpoint, FileError, SlotRecipe, SlotValues, pack, resolve};

use crate::fixtures::{batch_norm, conv};

/// A 6 x 5 x 3 x 3 convolution in tiles of four output channels with a prologue, and one stored in OIHW
/// order.
fn recipes() -> Vec<SlotRecipe> {
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    let mut tiled = conv("tiled", [6, 5, 3, 3]);
    tiled.slot.layout = WeightLayout {
        source: [6, 5, 3, 3],
        dims: vec![
            dim(Axis::O, 2, 4),
            dim(Axis::R, 3, 1),
            dim(Axis::S, 3, 1),
            dim(Axis::I, 5, 1),
            dim(Axis::O, 4, 1),
        ]
        .into(),
        filter: Filter::Taps,
        transform: Transform::None,
        prologue_channels: 5,
    };
    tiled.prologue = Some(batch_norm("before", 5));
    tiled.fold = vec![batch_norm("behind", 6)];
    vec![tiled, conv("plain", [3, 6, 1, 1])]
}

fn file(recipes: &[SlotRecipe]) -> WeightFile {
    WeightFile::new(recipes.iter().map(|recipe| recipe.slot.clone()).collect())
}

fn read(bytes: &[u8], count: usize) -> Vec<f32> {
    bytes[..4 * count]
        .chunks_exact(4)
        .map(|v| f32::from_le_bytes(v.try_into().unwrap()))
        .collect()
}

/// The OIHW source of a packed block; padding must be zero.
fn unpack(layout: &WeightLayout, packed: &[f32]) -> Vec<f32> {
    let mut source = vec![f32::NAN; layout.source_len()];
    for (mut index, &value) in packed.iter().enumerate() {
        let mut at = [0; 4];
        for dim in layout.dims.iter().rev() {
            at[dim.axis.index()] += (index as u32 % dim.count) * dim.step;
            index /= dim.count as usize;
        }
        if at.iter().zip(layout.source).all(|(&at, size)| at < size) {
            let flat = at
                .iter()
                .zip(layout.source)
                .fold(0, |flat, (&at, size)| flat * size + at);
            source[flat as usize] = value;
        } else {
            assert_eq!(value, 0.0);
        }
    }
    source
}

#[test]
fn a_packed_file_holds_the_values_again() {
    let recipes = recipes();
    let values = resolve(&recipes, &Checkpoint::random(&recipes, 1))
        .unwrap()
        .values;
    let file = file(&recipes);
    let bytes = pack(&file, &values).unwrap().bytes;

    let (header, payload) = bytes.split_at(WeightFile::HEADER_BYTES as usize);
    assert_eq!(payload.len() as u64, file.payload_bytes());
    assert_eq!(header[0..8], WeightFile::MAGIC);
    assert_eq!(header[16..24], file.layouts_checksum().to_le_bytes());
    assert_eq!(header[32..40], Checksum::of(payload).to_le_bytes());
    for ((slot, region), values) in file.iter().zip(&values) {
        let layout = &slot.layout;
        let block = read(&payload[region.packed as usize..], layout.len());
        let (weight, prologue) = block.split_at(layout.weight_len());
        assert_eq!(unpack(layout, weight), values.weight);
        assert_eq!(prologue, [&values.scale[..], &values.shift[..]].concat());
        let bias = read(&payload[region.bias as usize..], slot.bias_len as usize);
        assert_eq!(bias, values.bias);
    }
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let recipes = recipes();
    let file = file(&recipes);
    let values = resolve(&recipes, &Checkpoint::random(&recipes, 1))
        .unwrap()
        .values;
    let expected = FileError::Count {
        expected: 2,
        found: 1,
    };
    assert_eq!(pack(&file, &values[..1]), Err(expected));
    let refused = |change: fn(&mut SlotValues)| {
        let mut values = values.clone();
        change(&mut values[0]);
        pack(&file, &values).unwrap_err().to_string()
    };
    let bias = refused(|values| values.bias.truncate(5));
    assert_eq!(
        bias,
        "the values of `tiled` do not match its layout: bias has length 5, expected 6"
    );
    let weight = refused(|values| values.weight.push(0.0));
    assert!(
        weight.contains("weight has length 271, expected 270"),
        "{weight}"
    );
    let shift = refused(|values| values.shift.clear());
    assert!(shift.contains("shift has length 0, expected 5"), "{shift}");
}
