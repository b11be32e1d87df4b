//! Error messages for checkpoints that do not match their recipes.

use safetensors::Dtype;
use tdc_weights::{ScaleShiftSource, SlotRecipe, WeightError, WeightSource, resolve};

use crate::fixtures::{Tensors, batch_norm, conv, factored, low_rank_layer, tucker_layer};

fn recipe() -> SlotRecipe {
    let mut recipe = conv("conv1", [2, 3, 1, 1]);
    recipe.bias = Some("conv1.bias".to_owned());
    recipe.fold = vec![batch_norm("bn1", 2)];
    recipe
}

fn tensors() -> Tensors {
    Tensors::default()
        .noise("conv1.weight", &[2, 3, 1, 1])
        .noise("conv1.bias", &[2])
        .batch_norm("bn1", 2)
}

fn messages(recipes: &[SlotRecipe], tensors: &Tensors) -> Vec<String> {
    let errors = resolve(recipes, &tensors.checkpoint()).unwrap_err();
    let messages: Vec<_> = errors.iter().map(WeightError::to_string).collect();
    assert_eq!(errors.to_string(), messages.join("\n"));
    messages
}

fn message(tensors: &Tensors) -> String {
    let [message] = messages(&[recipe()], tensors).try_into().unwrap();
    message
}

#[test]
fn the_tensors_fit() {
    resolve(&[recipe()], &tensors().checkpoint()).unwrap();
}

#[test]
fn missing_tensors_come_with_a_suggestion() {
    let misspelt = tensors()
        .without("conv1.weight")
        .noise("cnv1.weight", &[2, 3, 1, 1]);
    assert_eq!(
        message(&misspelt),
        "the checkpoint has no tensor `conv1.weight`, which `conv1` needs; did you mean `cnv1.weight`?"
    );
    let wrapped = tensors()
        .without("conv1.weight")
        .noise("module.conv1.weight", &[2, 3, 1, 1]);
    assert!(message(&wrapped).ends_with("did you mean `module.conv1.weight`?"));
    let other = Tensors::default().noise("z", &[1]);
    let all = messages(&[recipe()], &other);
    assert_eq!(all.len(), 4, "{all:?}");
    assert!(
        all[0].contains("check the name in the config"),
        "{}",
        all[0]
    );
    for name in [
        "bn1.running_mean",
        "bn1.running_var",
        "conv1.bias",
        "conv1.weight",
    ] {
        assert!(all.iter().any(|line| line.contains(name)), "{name}");
    }
}

#[test]
fn shapes_are_compared() {
    let transposed = tensors().noise("conv1.weight", &[3, 2, 1, 1]);
    assert_eq!(
        message(&transposed),
        "tensor `conv1.weight` has shape [3, 2, 1, 1], `conv1` needs [2, 3, 1, 1]; \
         the config and the checkpoint describe different networks"
    );
    for (name, shape) in [
        ("conv1.weight", vec![6]),
        ("conv1.weight", vec![3, 2]),
        ("conv1.bias", vec![3]),
        ("conv1.bias", vec![2, 2]),
        ("conv1.bias", vec![]),
        ("bn1.running_var", vec![1]),
        ("bn1.weight", vec![4]),
    ] {
        let found = message(&tensors().noise(name, &shape));
        assert!(
            found.contains(&format!("`{name}` has shape {shape:?}")),
            "{found}"
        );
    }
}

#[test]
fn integers_are_not_weights() {
    let integers = tensors().raw("conv1.bias", Dtype::I32, &[2], vec![0; 8]);
    assert_eq!(
        message(&integers),
        "tensor `conv1.bias` has elements of type I32, expected F16, BF16, F32 or F64; \
         convert it before saving the checkpoint"
    );
}

#[test]
fn values_must_be_finite() {
    let nan = tensors().f32(
        "conv1.weight",
        &[2, 3, 1, 1],
        &[0., 0., 0., 0., f32::NAN, 0.],
    );
    assert_eq!(
        message(&nan),
        "tensor `conv1.weight` holds NaN at [1, 1, 0, 0], expected finite numbers; \
         the training diverged or the file is damaged"
    );
    // Infinity in F16.
    let infinite = tensors().raw("bn1.bias", Dtype::F16, &[2], vec![0, 0, 0, 0xfc]);
    assert!(message(&infinite).contains("`bn1.bias` holds -inf at [1]"));
}

#[test]
fn variances_must_be_positive() {
    let negative = tensors().f64("bn1.running_var", &[2], &[1.0, -0.25]);
    assert_eq!(
        message(&negative),
        "tensor `bn1.running_var` holds the variance -0.25 at [1], which with eps = 0.00001 is not above zero; \
         correct eps in the config or the checkpoint's statistics"
    );
    let mut zero_eps = recipe();
    zero_eps.fold = vec![ScaleShiftSource::BatchNorm {
        name: "bn1".to_owned(),
        eps: 0.0,
        channels: 2,
    }];
    let zero = tensors().f64("bn1.running_var", &[2], &[0.0, 1.0]);
    let found = messages(&[zero_eps], &zero);
    assert!(
        found[0].contains("variance 0 at [0], which with eps = 0"),
        "{found:?}"
    );
}

#[test]
fn results_must_fit_fp32() {
    let large = tensors().f64("conv1.weight", &[2, 3, 1, 1], &[0., 0., 1e39, 0., 0., 0.]);
    let found = message(&large);
    assert!(found.starts_with("the weight of `conv1` holds "), "{found}");
    assert!(
        found.contains(" at 2 after folding, which is beyond fp32"),
        "{found}"
    );
}

#[test]
fn trained_factors_come_in_threes() {
    let layer = tucker_layer("t", [4, 3, 3, 3], [2, 3]);
    let dense = Tensors::default().noise("t.weight", &[4, 3, 3, 3]);
    let partial = dense.clone().noise("t.core.weight", &[3, 2, 3, 3]);
    assert_eq!(
        messages(&factored(&layer), &partial),
        [
            "the checkpoint has the trained factor `t.core.weight` of `t` but not `t.first.weight`, `t.last.weight`; \
             save all three, or none to factorise the dense weight"
        ]
    );
    // Exchanged ranks: every factor has a different shape.
    let exchanged = dense
        .noise("t.first.weight", &[3, 3, 1, 1])
        .noise("t.core.weight", &[2, 3, 3, 3])
        .noise("t.last.weight", &[4, 2, 1, 1]);
    let found = messages(&factored(&layer), &exchanged);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found[1].contains("`t.core.weight` has shape [2, 3, 3, 3]"),
        "{found:?}"
    );
    assert!(found[1].contains("needs [3, 2, 3, 3]"), "{found:?}");
}

#[test]
fn a_shared_problem_is_listed_once() {
    let layer = tucker_layer("t", [4, 3, 3, 3], [2, 3]);
    let mut recipes = factored(&layer);
    recipes.push(conv("t", [4, 3, 3, 3]));
    let found = messages(&recipes, &tensors());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("no tensor `t.weight`"));
}

#[test]
fn recipes_that_contradict_themselves_are_refused() {
    let check = |change: &dyn Fn(&mut SlotRecipe), expected: &str| {
        let mut recipe = recipe();
        change(&mut recipe);
        let found = messages(&[recipe], &tensors());
        let fits = found.iter().any(|line| {
            line.starts_with("the recipe of `conv1` is inconsistent: ") && line.contains(expected)
        });
        assert!(fits, "{expected}: {found:?}");
    };
    check(
        &|r| r.weight = None,
        "has no weight, but its layout requires one",
    );
    check(
        &|r| r.slot.bias_len = 0,
        "bias_len is 0, but it has 2 output channels",
    );
    check(&|r| r.slot.layout.source[3] = 0, "is empty");
    check(
        &|r| r.fold = vec![batch_norm("bn1", 3)],
        "`bn1` has 3 channels",
    );
    check(
        &|r| r.prologue = Some(batch_norm("bn1", 3)),
        "its prologue has 3 channels, its layout 0",
    );
    check(
        &|r| {
            r.weight = None;
            r.slot.layout = tdc_runtime::WeightLayout::NONE;
        },
        "a bias or a fold, but no weight",
    );
    let factor = |ranks, role| {
        move |r: &mut SlotRecipe| {
            let layer = tucker_layer("t", [2, 3, 1, 1], ranks);
            r.weight = Some(WeightSource::Factor { layer, role });
        }
    };
    use tdc_runtime::FactorRole::{Core, Last};
    check(
        &factor([4, 2], Last),
        "ranks [4, 2] of `t` are not in 1..=3 and 1..=2",
    );
    check(&factor([3, 0], Last), "ranks [3, 0]");
    check(
        &factor([1, 2], Core),
        "the Core factor of `t` has shape [2, 1, 1, 1]",
    );
    let merged = |change: fn(&mut SlotRecipe), outputs| {
        move |r: &mut SlotRecipe| {
            let mut layer = SlotRecipe {
                prologue: None,
                ..r.clone()
            };
            layer.slot.name = "m".to_owned();
            layer.slot.layout.source[0] = outputs;
            change(&mut layer);
            *r = SlotRecipe {
                slot: r.slot.clone(),
                ..layer.clone()
            };
            (r.bias, r.fold, r.prologue) = (None, Vec::new(), None);
            r.weight = Some(WeightSource::Merged(vec![layer]));
        }
    };
    check(
        &merged(|_| {}, 1),
        "its layers have 1 output channels, its layout's source [2, ",
    );
    check(
        &merged(|layer| layer.slot.layout.source[3] = 5, 2),
        "`m` has shape [2, ",
    );
    check(
        &merged(|layer| layer.prologue = Some(batch_norm("bn1", 3)), 2),
        "`m` has a prologue of its own",
    );
    let added = |r: &mut SlotRecipe| {
        let (layer, mut other) = (r.clone(), r.clone());
        other.slot.layout.source[0] = 5;
        r.weight = Some(WeightSource::Added(vec![layer, other]));
    };
    check(&added, "its layers have 6 input channels");
    check(&added, "`conv1` has shape [5, 3, 1, 1]");
    check(&added, "bias and folds are theirs");
    let part = |source: fn(Box<SlotRecipe>) -> WeightSource| {
        move |r: &mut SlotRecipe| {
            let mut layer = r.clone();
            layer.slot.layout.source[0] = 5;
            r.weight = Some(source(Box::new(layer)));
        }
    };
    check(
        &part(WeightSource::WeightOf),
        "its layer has a weight or bias of shape [5, ",
    );
    check(
        &part(WeightSource::WeightOf),
        "bias and folds are the layer's",
    );
    check(
        &part(WeightSource::BiasOf),
        "its layer has a weight or bias of shape [2, 1, 1, 1]",
    );
    let low_rank = |filter: [u32; 2], rank, role| {
        move |r: &mut SlotRecipe| {
            let mut layer = low_rank_layer("t", [2, 3], rank);
            layer.shape[2..].copy_from_slice(&filter);
            r.weight = Some(WeightSource::Factor { layer, role });
        }
    };
    for rank in [0, 3] {
        check(
            &low_rank([1, 1], rank, Last),
            &format!("the rank {rank} of `t` is not in 1..=2"),
        );
    }
    check(
        &low_rank([1, 2], 1, Last),
        "the filter of `t` is 1x2; only that of a 1x1 convolution",
    );
    check(
        &low_rank([1, 1], 1, Core),
        "`t` has 2 factors, and this one is Core; with rank 1 the factors are [First, Last]",
    );
}
