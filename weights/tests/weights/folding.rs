//! A folded convolution gives the same result as the convolution and the layers after it.

use tdc_weights::{Checkpoint, ScaleShiftSource, SlotRecipe, WeightSource, resolve};

use crate::fixtures::{Tensors, batch_norm, conv, noise};
use crate::reference::{self, Image, Window, relative_error, widen};

/// Half a unit in the last place of fp32, with a margin for the sum of a few dozen products.
const FP32: f64 = 2e-7;

fn image(size: [usize; 3]) -> Image {
    let values = noise("image", size.iter().product());
    Image { size, values }
}

/// The result of a kernel with the values of one slot.
fn run(recipe: &SlotRecipe, tensors: &Tensors, image: &Image, window: &Window) -> Image {
    let resolved = resolve(std::slice::from_ref(recipe), &tensors.checkpoint()).unwrap();
    assert_eq!(resolved.unused, Vec::<String>::new());
    let [values] = resolved.values.try_into().unwrap();
    let shape = recipe.slot.layout.source.map(|size| size as usize);
    let image = if values.scale.is_empty() {
        image.clone()
    } else {
        image.map_channels(|c, x| f64::from(values.scale[c]) * x + f64::from(values.shift[c]))
    };
    reference::conv(&image, &widen(&values.weight), shape, window)
        .map_channels(|n, y| y + f64::from(values.bias[n]))
}

fn apply_batch_norm(tensors: &Tensors, name: &str, image: &Image) -> Image {
    let [weight, bias, mean, variance] = ["weight", "bias", "running_mean", "running_var"]
        .map(|suffix| tensors.values(&format!("{name}.{suffix}")));
    image.map_channels(|c, x| (x - mean[c]) / (variance[c] + 1e-5).sqrt() * weight[c] + bias[c])
}

#[test]
fn batch_norm_and_bias_behind_an_odd_convolution() {
    let window = Window {
        stride: 2,
        padding: 1,
        groups: 1,
    };
    let tensors = Tensors::default()
        .noise("c.weight", &[5, 3, 3, 1])
        .noise("c.bias", &[5])
        .batch_norm("bn", 5);
    let mut recipe = conv("c", [5, 3, 3, 1]);
    recipe.bias = Some("c.bias".to_owned());
    recipe.fold = vec![batch_norm("bn", 5)];
    let image = image([3, 7, 9]);

    let bias = tensors.values("c.bias");
    let plain = reference::conv(&image, &tensors.values("c.weight"), [5, 3, 3, 1], &window)
        .map_channels(|n, y| y + bias[n]);
    let expected = apply_batch_norm(&tensors, "bn", &plain);

    let found = run(&recipe, &tensors, &image, &window);
    assert!(relative_error(&found.values, &expected.values) < FP32);
}

#[test]
fn grouped_convolution_and_two_affines_in_order() {
    let window = Window {
        stride: 1,
        padding: 1,
        groups: 3,
    };
    let tensors = Tensors::default()
        .noise("c.weight", &[6, 2, 3, 3])
        .batch_norm("bn", 6)
        .noise("layer_scale", &[6, 1, 1])
        .noise("layer_shift", &[1, 6, 1, 1]);
    let mut recipe = conv("c", [6, 2, 3, 3]);
    let scale_shift = ScaleShiftSource::Tensors {
        scale: "layer_scale".to_owned(),
        shift: "layer_shift".to_owned(),
        channels: 6,
    };
    recipe.fold = vec![batch_norm("bn", 6), scale_shift];
    let image = image([6, 5, 5]);

    let plain = reference::conv(&image, &tensors.values("c.weight"), [6, 2, 3, 3], &window);
    let (scale, shift) = (tensors.values("layer_scale"), tensors.values("layer_shift"));
    let expected =
        apply_batch_norm(&tensors, "bn", &plain).map_channels(|n, y| scale[n] * y + shift[n]);

    let found = run(&recipe, &tensors, &image, &window);
    assert!(relative_error(&found.values, &expected.values) < FP32);
}

#[test]
fn batch_norm_before_a_convolution_becomes_scale_and_shift() {
    let tensors = Tensors::default()
        .noise("c.weight", &[4, 3, 1, 1])
        .batch_norm("bn", 3);
    let mut recipe = conv("c", [4, 3, 1, 1]);
    recipe.prologue = Some(batch_norm("bn", 3));
    recipe.slot.layout = recipe.slot.layout.with_prologue(3);
    let image = image([3, 3, 5]);

    let normalised = apply_batch_norm(&tensors, "bn", &image);
    let weight = tensors.values("c.weight");
    let expected = reference::conv(&normalised, &weight, [4, 3, 1, 1], &reference::POINTWISE);

    let found = run(&recipe, &tensors, &image, &reference::POINTWISE);
    assert!(relative_error(&found.values, &expected.values) < FP32);
}

#[test]
fn batch_norm_without_weight_and_bias() {
    let tensors = Tensors::default()
        .f64("c.weight", &[2, 1], &[3.0, 5.0])
        .f64("bn.running_mean", &[2], &[1.0, -2.0])
        .f64("bn.running_var", &[2], &[3.0, 0.0]);
    let mut recipe = conv("c", [2, 1, 1, 1]);
    recipe.fold = vec![ScaleShiftSource::BatchNorm {
        name: "bn".to_owned(),
        eps: 1.0,
        channels: 2,
    }];
    let values = resolve(&[recipe], &tensors.checkpoint()).unwrap().values;
    assert_eq!(values[0].weight, [1.5, 5.0]);
    assert_eq!(values[0].bias, [-0.5, 2.0]);
}

#[test]
fn values_are_rounded_once() {
    // In fp32, 1 + 2^-24 would be rounded to 1 before the multiplication, and the product to 3.
    let nearly_one = 1.0 + 2f64.powi(-24);
    let tensors = Tensors::default()
        .f64("c.weight", &[1, 1, 1, 1], &[nearly_one])
        .f64("scale", &[1], &[3.0])
        .f64("shift", &[1], &[0.0]);
    let mut recipe = conv("c", [1; 4]);
    recipe.fold = vec![ScaleShiftSource::Tensors {
        scale: "scale".to_owned(),
        shift: "shift".to_owned(),
        channels: 1,
    }];
    let values = resolve(&[recipe], &tensors.checkpoint()).unwrap().values;
    assert_eq!(values[0].weight, [(3.0 * nearly_one) as f32]);
    assert_ne!(values[0].weight, [3.0]);
}

/// Layers of one slot: with a bias, with a BatchNorm, with neither. Their values are those of separate slots.
#[test]
fn merged_layers_follow_each_other() {
    let tensors = Tensors::default()
        .noise("a.weight", &[2, 3, 1, 1])
        .noise("a.bias", &[2])
        .noise("b.weight", &[5, 3, 1, 1])
        .batch_norm("bn", 5)
        .noise("c.weight", &[1, 3, 1, 1])
        .batch_norm("before", 3);
    let mut a = conv("a", [2, 3, 1, 1]);
    a.bias = Some("a.bias".to_owned());
    let mut b = conv("b", [5, 3, 1, 1]);
    b.fold = vec![batch_norm("bn", 5)];
    let mut c = conv("c", [1, 3, 1, 1]);
    c.slot.bias_len = 0;
    let layers = vec![a, b, c];
    let mut merged = conv("b+a+c", [8, 3, 1, 1]);
    merged.weight = Some(WeightSource::Merged(layers.clone()));
    merged.slot.layout = merged.slot.layout.with_prologue(3);
    merged.prologue = Some(batch_norm("before", 3));

    let checkpoint = tensors.checkpoint();
    let separate = resolve(&layers, &checkpoint).unwrap().values;
    let resolved = resolve(std::slice::from_ref(&merged), &checkpoint).unwrap();
    assert_eq!(resolved.unused, Vec::<String>::new());
    let values = &resolved.values[0];
    let weights: Vec<f32> = separate.iter().flat_map(|v| v.weight.clone()).collect();
    assert_eq!(values.weight, weights);
    assert_eq!(
        values.bias[..7],
        [&separate[0].bias[..], &separate[1].bias].concat()
    );
    assert_eq!(values.bias[7..], [0.0]);
    assert_eq!(values.scale.len(), 3);

    // Random tensors have the names and values that they have for separate slots.
    let random = Checkpoint::random(std::slice::from_ref(&merged), 7);
    let found = resolve(&layers, &random).unwrap().values;
    assert_eq!(
        found,
        resolve(&layers, &Checkpoint::random(&layers, 7))
            .unwrap()
            .values
    );
    let mut names: Vec<_> = ["weight", "bias", "running_mean", "running_var"]
        .iter()
        .flat_map(|part| [format!("bn.{part}"), format!("before.{part}")])
        .chain(["a.weight", "a.bias", "b.weight", "c.weight"].map(str::to_owned))
        .collect();
    names.sort();
    assert!(
        names
            .iter()
            .all(|name| random.tensor(name).unwrap().is_ok())
    );

    // An error names the layer.
    let missing = Tensors::default().noise("a.weight", &[2, 3, 1, 1]);
    let errors = resolve(&[merged], &missing.checkpoint())
        .unwrap_err()
        .to_string();
    assert!(
        errors.contains("`b.weight`") && errors.contains("`b`"),
        "{errors}"
    );
}

/// Weight and bias of a layer in two slots: with a bias and a BatchNorm, and with a BatchNorm only.
#[test]
fn the_bias_of_a_layer_may_have_a_slot() {
    let tensors = Tensors::default()
        .noise("a.weight", &[5, 3, 1, 1])
        .noise("a.bias", &[5])
        .batch_norm("bn", 5);
    let mut with_bias = conv("a", [5, 3, 1, 1]);
    with_bias.bias = Some("a.bias".to_owned());
    with_bias.fold = vec![batch_norm("bn", 5)];
    let without = SlotRecipe {
        bias: None,
        ..with_bias.clone()
    };
    for layer in [with_bias, without] {
        let [mut weight, mut bias] = [conv("a", [5, 3, 1, 1]), conv("a.bias", [5, 1, 1, 1])];
        weight.weight = Some(WeightSource::WeightOf(Box::new(layer.clone())));
        bias.weight = Some(WeightSource::BiasOf(Box::new(layer.clone())));
        (weight.slot.bias_len, bias.slot.bias_len) = (0, 0);
        let recipes = [weight, bias];
        let checkpoint = tensors.checkpoint();
        let expected = &resolve(std::slice::from_ref(&layer), &checkpoint)
            .unwrap()
            .values[0];
        let found = resolve(&recipes, &checkpoint).unwrap().values;
        assert_eq!(found[0].weight, expected.weight);
        assert_eq!(found[1].weight, expected.bias);
        assert!(found[1].weight.iter().all(|&value| value != 0.0));
        assert_eq!([&found[0].bias, &found[1].bias], [&[0.0f32; 0]; 2]);

        // Random tensors have the names that they have for a slot of its own.
        let random = Checkpoint::random(&recipes, 7);
        assert!(resolve(&[layer], &random).is_ok());
    }
}

/// A row of the weight has a row of each layer; biases are added.
#[test]
fn added_layers_are_side_by_side() {
    let tensors = Tensors::default()
        .noise("a.weight", &[2, 3, 1, 1])
        .noise("a.bias", &[2])
        .noise("b.weight", &[2, 1, 1, 1])
        .batch_norm("bn", 2)
        .noise("c.weight", &[2, 2, 1, 1]);
    let mut a = conv("a", [2, 3, 1, 1]);
    a.bias = Some("a.bias".to_owned());
    let mut b = conv("b", [2, 1, 1, 1]);
    b.fold = vec![batch_norm("bn", 2)];
    let mut c = conv("c", [2, 2, 1, 1]);
    c.slot.bias_len = 0;
    let layers = vec![a, b, c];
    let mut added = conv("a+b+c", [2, 6, 1, 1]);
    added.weight = Some(WeightSource::Added(layers.clone()));

    let checkpoint = tensors.checkpoint();
    let separate = resolve(&layers, &checkpoint).unwrap().values;
    let resolved = resolve(std::slice::from_ref(&added), &checkpoint).unwrap();
    assert_eq!(resolved.unused, Vec::<String>::new());
    let values = &resolved.values[0];
    let [a, b, c] = [0, 1, 2].map(|layer| &separate[layer].weight);
    let rows = [&a[..3], &b[..1], &c[..2], &a[3..], &b[1..], &c[2..]];
    assert_eq!(values.weight, rows.concat());
    let biases = separate[0].bias.iter().zip(&separate[1].bias);
    let sums = biases.map(|(&a, &b)| (f64::from(a) + f64::from(b)) as f32);
    assert_eq!(values.bias, sums.collect::<Vec<_>>());
    assert!(values.bias.iter().all(|&bias| bias != 0.0));
}

#[test]
fn slots_without_weights() {
    use tdc_runtime::{WeightLayout, WeightSlot};
    let empty = SlotRecipe {
        slot: WeightSlot {
            name: "pool".to_owned(),
            layout: WeightLayout::NONE,
            bias_len: 0,
        },
        weight: None,
        bias: None,
        fold: Vec::new(),
        prologue: None,
    };
    let mut scale_shift = empty.clone();
    scale_shift.slot.layout = WeightLayout::NONE.with_prologue(2);
    scale_shift.prologue = Some(batch_norm("bn", 2));
    let checkpoint = Tensors::default()
        .batch_norm("bn", 2)
        .noise("spare", &[3])
        .checkpoint();
    let resolved = resolve(&[empty, scale_shift], &checkpoint).unwrap();
    assert_eq!(resolved.values[0], tdc_weights::SlotValues::default());
    assert_eq!(resolved.values[1].scale.len(), 2);
    assert_eq!(resolved.values[1].shift.len(), 2);
    assert_eq!(resolved.unused, ["spare"]);
}
