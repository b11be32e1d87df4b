//! Reading and generating checkpoints.

use std::io::Write;

use half::{bf16, f16};
use safetensors::Dtype;
use tdc_runtime::{WeightFile, WeightLayout};
use tdc_weights::{
    Checkpoint, CheckpointError, ScaleShiftSource, SlotRecipe, WeightError, WeightSource, resolve,
};

use crate::fixtures::{Tensors, batch_norm, conv, factored, noise, tucker_layer};

#[test]
fn every_float_type_is_converted() {
    let numbers = [0.0, -1.5, 0.333, 1024.25];
    let half: Vec<_> = numbers.map(f16::from_f64).to_vec();
    let brain: Vec<_> = numbers.map(bf16::from_f64).to_vec();
    let tensors = Tensors::default()
        .raw(
            "h.weight",
            Dtype::F16,
            &[4, 1, 1, 1],
            half.iter().flat_map(|v| v.to_le_bytes()).collect(),
        )
        .raw(
            "b.weight",
            Dtype::BF16,
            &[4, 1, 1, 1],
            brain.iter().flat_map(|v| v.to_le_bytes()).collect(),
        )
        .f32("s.weight", &[4, 1, 1, 1], &numbers.map(|v| v as f32))
        .f64("d.weight", &[4, 1, 1, 1], &numbers);
    let recipes = ["h", "b", "s", "d"].map(|name| conv(name, [4, 1, 1, 1]));
    let values = resolve(&recipes, &tensors.checkpoint()).unwrap().values;
    let single = numbers.map(|v| v as f32);
    assert_eq!(
        values[0].weight,
        half.iter().map(|v| v.to_f32()).collect::<Vec<_>>()
    );
    assert_eq!(
        values[1].weight,
        brain.iter().map(|v| v.to_f32()).collect::<Vec<_>>()
    );
    assert_eq!(values[2].weight, single);
    assert_eq!(values[3].weight, single);
    assert_ne!(values[0].weight, values[1].weight);
}

#[test]
fn a_file_is_read_like_its_bytes() {
    let tensors = Tensors::default()
        .noise("a.weight", &[4, 3, 3, 3])
        .noise("b.weight", &[2, 4]);
    let recipes = [conv("b", [2, 4, 1, 1]), conv("a", [4, 3, 3, 3])];
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&tensors.to_bytes()).unwrap();
    let from_file = Checkpoint::open(file.path()).unwrap();
    let from_bytes = tensors.checkpoint();
    assert_eq!(
        from_file.names().collect::<Vec<_>>(),
        ["a.weight", "b.weight"]
    );
    assert_eq!(from_file.shape("b.weight"), Some(&[2, 4][..]));
    assert_eq!(
        resolve(&recipes, &from_file).unwrap(),
        resolve(&recipes, &from_bytes).unwrap()
    );
    assert_eq!(
        from_file.to_safetensors().unwrap(),
        from_bytes.to_safetensors().unwrap()
    );

    // A file that is truncated while it is open is an error, not a crash.
    file.as_file().set_len(200).unwrap();
    let errors = resolve(&recipes, &from_file).unwrap_err();
    assert!(
        errors
            .iter()
            .any(|error| matches!(error, WeightError::Checkpoint(CheckpointError::Read { .. })))
    );
}

fn network() -> Vec<SlotRecipe> {
    let mut first = conv("first", [16, 3, 3, 3]);
    first.bias = Some("first.bias".to_owned());
    first.fold = vec![batch_norm("bn", 16)];
    let mut linear = conv("fc", [10, 16, 1, 1]);
    linear.weight = Some(WeightSource::Linear("fc.weight".to_owned()));
    linear.prologue = Some(ScaleShiftSource::Tensors {
        scale: "gain".to_owned(),
        shift: "offset".to_owned(),
        channels: 16,
    });
    linear.slot.layout = linear.slot.layout.with_prologue(16);
    let mut recipes = vec![first];
    recipes.extend(factored(&tucker_layer("middle", [16, 16, 3, 3], [8, 4])));
    recipes.push(linear);
    recipes
}

#[test]
fn random_weights_satisfy_their_recipes_and_pass_through_safetensors() {
    let recipes = network();
    let random = Checkpoint::random(&recipes, 3);
    let resolved = resolve(&recipes, &random).unwrap();
    assert_eq!(resolved.unused, Vec::<String>::new());
    let names: Vec<_> = random.names().collect();
    assert_eq!(
        names,
        [
            "bn.bias",
            "bn.running_mean",
            "bn.running_var",
            "bn.weight",
            "fc.weight",
            "first.bias",
            "first.weight",
            "gain",
            "middle.weight",
            "offset"
        ]
    );
    // PyTorch's shapes: a linear layer has a matrix.
    assert_eq!(random.shape("fc.weight"), Some(&[10, 16][..]));
    assert_eq!(random.shape("middle.weight"), Some(&[16, 16, 3, 3][..]));
    let again = Checkpoint::from_bytes(random.to_safetensors().unwrap()).unwrap();
    assert_eq!(resolve(&recipes, &again).unwrap(), resolved);
}

#[test]
fn random_weights_depend_on_seed_name_and_shape_only() {
    let mut recipes = network();
    let first = Checkpoint::random(&recipes, 3).to_safetensors().unwrap();
    assert_eq!(
        Checkpoint::random(&recipes, 3).to_safetensors().unwrap(),
        first
    );
    assert_ne!(
        Checkpoint::random(&recipes, 4).to_safetensors().unwrap(),
        first
    );
    recipes.reverse();
    assert_eq!(
        Checkpoint::random(&recipes, 3).to_safetensors().unwrap(),
        first
    );

    // The same numbers on every machine; the expectation was computed in another language.
    let recipe = [conv("c", [2, 1, 1, 1])];
    let values = resolve(&recipe, &Checkpoint::random(&recipe, 0))
        .unwrap()
        .values;
    assert_eq!(values[0].weight, [-2.0005822, 2.0790725]);
}

#[test]
fn random_weights_are_he_normal() {
    let recipe = [conv("c", [64, 32, 3, 3])];
    let weight = resolve(&recipe, &Checkpoint::random(&recipe, 0))
        .unwrap()
        .values
        .remove(0)
        .weight;
    let count = weight.len() as f64;
    let mean = weight.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
    let variance = weight.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / count;
    let expected = 2.0 / (32.0 * 9.0);
    assert!(mean.abs() < 0.002, "{mean}");
    assert!(
        (variance / expected - 1.0).abs() < 0.03,
        "{variance} {expected}"
    );
}

/// A file of a few hundred bytes with everything that a recipe can use.
fn small_file() -> (Vec<SlotRecipe>, Vec<u8>) {
    let layer = tucker_layer("t", [2, 2, 1, 1], [1, 2]);
    let mut recipes = factored(&layer);
    let mut plain = conv("c", [2, 1, 1, 1]);
    plain.fold = vec![batch_norm("n", 2)];
    recipes.push(plain);
    let bytes = Tensors::default()
        .noise("t.weight", &[2, 2, 1, 1])
        .f32("c.weight", &[2, 1, 1, 1], &[1.0, 2.0])
        .batch_norm("n", 2)
        .to_bytes();
    (recipes, bytes)
}

/// Uses a file in every way; no content may cause a panic.
fn exercise(recipes: &[SlotRecipe], bytes: Vec<u8>) -> bool {
    match Checkpoint::from_bytes(bytes) {
        Ok(checkpoint) => {
            let resolved = resolve(recipes, &checkpoint);
            if let Err(errors) = &resolved {
                assert!(!errors.to_string().is_empty());
            }
            checkpoint.to_safetensors().unwrap();
            resolved.is_ok()
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

#[test]
fn a_file_cut_at_any_place_is_refused() {
    let (recipes, bytes) = small_file();
    assert!(exercise(&recipes, bytes.clone()));
    for len in 0..bytes.len() {
        let error = Checkpoint::from_bytes(bytes[..len].to_vec()).unwrap_err();
        assert!(
            matches!(error, CheckpointError::Length { found, .. } if found == len as u64),
            "{error}"
        );
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(!exercise(&recipes, longer));
}

#[test]
fn damaged_files_never_panic() {
    let (recipes, bytes) = small_file();
    for bit in 0..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        exercise(&recipes, damaged);
    }
    let draws = noise("damage", 30_000);
    for draw in draws.chunks_exact(6) {
        let mut damaged = bytes.clone();
        for pair in draw.chunks_exact(2) {
            let at = (pair[0].abs() * bytes.len() as f64) as usize % bytes.len();
            // Digits and punctuation of JSON find more errors than other bytes.
            let alphabet = b"0123456789-[]{},:\"eE. \xff\0";
            let symbol = (pair[1].abs() * alphabet.len() as f64) as usize % alphabet.len();
            damaged[at] = alphabet[symbol];
        }
        exercise(&recipes, damaged);
    }
}

#[test]
fn headers_with_enormous_numbers_are_refused() {
    let with_header = |header: &str| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        Checkpoint::from_bytes(bytes).unwrap_err()
    };
    // Eight tensors of 2^61 - 1 bytes each: their end is near 2^64.
    let part = (1u64 << 61) - 1;
    let entries: Vec<_> = (0..8)
        .map(|at| {
            let (from, to) = (at * part, (at + 1) * part);
            format!(r#""t{at}":{{"dtype":"U8","shape":[{part}],"data_offsets":[{from},{to}]}}"#)
        })
        .collect();
    let error = with_header(&format!("{{{}}}", entries.join(",")));
    assert!(matches!(error, CheckpointError::Length { .. }), "{error}");
    let error = with_header(
        r#"{"t":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#,
    );
    assert!(matches!(error, CheckpointError::Format { .. }), "{error}");
    let error = with_header(&"[".repeat(100_000));
    assert!(matches!(error, CheckpointError::Format { .. }), "{error}");
    let error = Checkpoint::from_bytes(vec![0x7f; 64]).unwrap_err();
    assert!(matches!(error, CheckpointError::Format { .. }), "{error}");
}

#[test]
fn metadata_in_the_header_is_no_tensor() {
    let header = r#"{"__metadata__":{"format":"pt"},"c.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(2.5f32.to_le_bytes());
    let checkpoint = Checkpoint::from_bytes(bytes).unwrap();
    assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["c.weight"]);
    let resolved = resolve(&[conv("c", [1; 4])], &checkpoint).unwrap();
    assert_eq!(resolved.values[0].weight, [2.5]);
}

#[test]
fn other_formats_are_recognised() {
    let message = |bytes: &[u8]| {
        Checkpoint::from_bytes(bytes.to_vec())
            .unwrap_err()
            .to_string()
    };
    let zip = message(b"PK\x03\x04\0\0\x08\x08rest of an archive");
    assert!(
        zip.contains("torch.save") && zip.contains("safetensors.torch.save_file"),
        "{zip}"
    );
    let pickle = message(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20");
    assert!(pickle.contains("torch.save"), "{pickle}");
    let slot = crate::fixtures::slot("c", [1; 4]);
    assert_eq!(slot.layout, WeightLayout::oihw([1; 4]));
    let packed = message(&WeightFile::new(vec![slot]).header(&[]));
    assert!(packed.contains("packed weight file already"), "{packed}");
}

#[test]
fn unreadable_paths_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.safetensors");
    for path in [missing.as_path(), folder.path()] {
        let error = Checkpoint::open(path).unwrap_err();
        assert!(matches!(error, CheckpointError::Read { .. }));
        assert!(
            error.to_string().contains(&path.display().to_string()),
            "{error}"
        );
    }
}
