//! Tucker decomposition.

use tdc_runtime::{Decomposition, FactorRole};
use tdc_weights::{Checkpoint, TuckerFactors, resolve};

use crate::fixtures::{Tensors, conv, factored, noise, tucker_layer};
use crate::reference::{self, Image, POINTWISE, Window, relative_error, widen};

const SHAPE: [usize; 4] = [7, 5, 3, 2];

fn random_weight() -> Vec<f64> {
    noise("dense", SHAPE.iter().product())
}

/// A weight with exactly the given ranks.
fn low_rank(ranks: [usize; 2]) -> TuckerFactors {
    let ([o, i, r, s], [d1, d2]) = (SHAPE, ranks);
    TuckerFactors {
        shape: SHAPE,
        ranks,
        first: noise("first", d1 * i),
        core: noise("core", d2 * d1 * r * s),
        last: noise("last", o * d2),
    }
}

/// `sum over d1, d2 of last[o, d2] core[d2, d1, r, s] first[d1, i]`, eq. 1, one element at a time.
fn equation_1(factors: &TuckerFactors) -> Vec<f64> {
    let ([o, i, r, s], [d1, d2]) = (factors.shape, factors.ranks);
    let mut weight = Vec::new();
    for (at_o, at_i, at_rs) in
        (0..o).flat_map(|a| (0..i).flat_map(move |b| (0..r * s).map(move |c| (a, b, c))))
    {
        let mut sum = 0.0;
        for (a, b) in (0..d2).flat_map(|a| (0..d1).map(move |b| (a, b))) {
            sum += factors.last[at_o * d2 + a]
                * factors.core[(a * d1 + b) * r * s + at_rs]
                * factors.first[b * i + at_i];
        }
        weight.push(sum);
    }
    weight
}

#[test]
fn full_ranks_are_exact() {
    let weight = random_weight();
    let factors = TuckerFactors::hosvd(&weight, SHAPE, [5, 7]).unwrap();
    assert!(factors.relative_error(&weight) < 1e-14);
    assert!(relative_error(&equation_1(&factors), &weight) < 1e-14);
}

#[test]
fn reconstruction_is_equation_1() {
    let factors = low_rank([2, 3]);
    assert!(relative_error(&factors.reconstruct(), &equation_1(&factors)) < 1e-14);
}

#[test]
fn a_tensor_of_low_rank_is_found_again() {
    // D1 = 2 belongs to dimension 1, D2 = 3 to dimension 0: exchanged ranks would lose information.
    let weight = low_rank([2, 3]).reconstruct();
    let error = |ranks| {
        let factors = TuckerFactors::hosvd(&weight, SHAPE, ranks).unwrap();
        factors.relative_error(&weight)
    };
    assert!(error([2, 3]) < 1e-12, "{}", error([2, 3]));
    assert!(error([3, 2]) > 0.01);
    assert!(error([1, 3]) > 0.01);
}

#[test]
fn truncating_one_dimension_leaves_the_discarded_singular_values() {
    // With one full rank HOSVD is optimal (Eckart and Young). The weight has orthogonal unfolding rows of
    // norm 1..=4 on dimension 0, so keeping two leaves sqrt(1 + 4) of sqrt(1 + 4 + 9 + 16).
    let mut weight = vec![0.0; 16];
    for (row, norm) in [2.0, 4.0, 1.0, 3.0].into_iter().enumerate() {
        weight[row * 4 + (row + 1) % 4] = norm;
    }
    let factors = TuckerFactors::hosvd(&weight, [4, 4, 1, 1], [4, 2]).unwrap();
    let optimum = (5.0_f64 / 30.0).sqrt();
    assert!((factors.relative_error(&weight) - optimum).abs() < 1e-14);
    // Vectors are sorted by singular value, the largest first, and have a positive largest component.
    assert_eq!(factors.last, [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn factors_are_orthogonal_and_signed() {
    let factors = TuckerFactors::hosvd(&random_weight(), SHAPE, [4, 6]).unwrap();
    let [_, i, ..] = SHAPE;
    let rows: Vec<_> = factors.first.chunks_exact(i).collect();
    for (a, left) in rows.iter().enumerate() {
        for (b, right) in rows.iter().enumerate() {
            let dot: f64 = left.iter().zip(*right).map(|(x, y)| x * y).sum();
            let expected = if a == b { 1.0 } else { 0.0 };
            assert!((dot - expected).abs() < 1e-14);
        }
        let largest = left.iter().fold(0.0_f64, |max, v| v.abs().max(max));
        assert!(left.contains(&largest));
    }
}

#[test]
fn extreme_scales_and_zero() {
    for scale in [1e-300, 1e300, 0.0] {
        let weight: Vec<_> = random_weight().iter().map(|v| v * scale).collect();
        let factors = TuckerFactors::hosvd(&weight, SHAPE, [5, 7]).unwrap();
        assert!(factors.relative_error(&weight) < 1e-14, "scale {scale}");
    }
    assert!(TuckerFactors::hosvd(&[f64::NAN], [1; 4], [1; 2]).is_err());
}

#[test]
fn three_convolutions_equal_the_dense_one() {
    // Equations 2 to 4, with the values of the weight file.
    let window = Window {
        stride: 2,
        padding: 1,
        groups: 1,
    };
    let weight = random_weight();
    let layer = tucker_layer("a", SHAPE.map(|v| v as u32), [3, 4]);
    let checkpoint = Tensors::default()
        .f64("a.weight", &SHAPE, &weight)
        .checkpoint();
    let resolved = resolve(&factored(&layer), &checkpoint).unwrap();
    let image = Image {
        size: [5, 9, 7],
        values: noise("image", 5 * 9 * 7),
    };
    let mut found = image.clone();
    for ((role, window), values) in [
        (FactorRole::First, &POINTWISE),
        (FactorRole::Core, &window),
        (FactorRole::Last, &POINTWISE),
    ]
    .into_iter()
    .zip(&resolved.values)
    {
        let shape = layer.factor_shape(role).map(|v| v as usize);
        found = reference::conv(&found, &widen(&values.weight), shape, window);
    }
    let truncated = TuckerFactors::hosvd(&weight, SHAPE, [3, 4]).unwrap();
    let expected = reference::conv(&image, &equation_1(&truncated), SHAPE, &window);
    assert!(relative_error(&found.values, &expected.values) < 1e-6);

    // Factorised once for three slots.
    let [factorisation] = resolved.factorizations.try_into().unwrap();
    assert_eq!(factorisation.layer, "a");
    assert_eq!(factorisation.decomposition, Decomposition::Tucker([3, 4]));
    assert!(!factorisation.trained);
    let expected = relative_error(&equation_1(&truncated), &weight);
    assert!((factorisation.relative_error.unwrap() - expected).abs() < 1e-14);
}

#[test]
fn trained_factors_are_taken_as_they_are() {
    let factors = low_rank([2, 3]);
    let layer = tucker_layer("a", SHAPE.map(|v| v as u32), [2, 3]);
    let trained = Tensors::default()
        .f64("a.first.weight", &[2, 5], &factors.first)
        .f64("a.core.weight", &[3, 2, 3, 2], &factors.core)
        .f64("a.last.weight", &[7, 3, 1, 1], &factors.last);
    let rounded = |values: &[f64]| -> Vec<f32> { values.iter().map(|&v| v as f32).collect() };

    let resolved = resolve(&factored(&layer), &trained.checkpoint()).unwrap();
    assert_eq!(resolved.values[0].weight, rounded(&factors.first));
    assert_eq!(resolved.values[1].weight, rounded(&factors.core));
    assert_eq!(resolved.values[2].weight, rounded(&factors.last));
    assert!(resolved.factorizations[0].trained);
    assert_eq!(resolved.factorizations[0].relative_error, None);

    // The dense weight is only used for comparison.
    let doubled: Vec<_> = equation_1(&factors).iter().map(|v| 2.0 * v).collect();
    let both = trained.f64("a.weight", &SHAPE, &doubled);
    let resolved = resolve(&factored(&layer), &both.checkpoint()).unwrap();
    assert_eq!(resolved.values[1].weight, rounded(&factors.core));
    let error = resolved.factorizations[0].relative_error.unwrap();
    assert!((error - 0.5).abs() < 1e-14);
    assert_eq!(resolved.unused, Vec::<String>::new());
}

#[test]
fn bias_and_batch_norm_go_to_the_last_part() {
    let layer = tucker_layer("a", SHAPE.map(|v| v as u32), [5, 7]);
    let mut recipes = factored(&layer);
    recipes[2].bias = Some("a.bias".to_owned());
    recipes[2].fold = vec![crate::fixtures::batch_norm("bn", 7)];
    let mut dense = conv("a", layer.shape);
    dense.bias.clone_from(&recipes[2].bias);
    dense.fold.clone_from(&recipes[2].fold);
    recipes.push(dense);
    let checkpoint = Tensors::default()
        .noise("a.weight", &SHAPE)
        .noise("a.bias", &[7])
        .batch_norm("bn", 7)
        .checkpoint();
    let values = resolve(&recipes, &checkpoint).unwrap().values;
    let folded = TuckerFactors {
        shape: SHAPE,
        ranks: [5, 7],
        first: widen(&values[0].weight),
        core: widen(&values[1].weight),
        last: widen(&values[2].weight),
    };
    assert!(relative_error(&folded.reconstruct(), &widen(&values[3].weight)) < 1e-6);
    assert_eq!(values[2].bias, values[3].bias);
    assert_eq!(values[0].bias, [0.0; 5]);
}

#[test]
fn a_second_run_gives_the_same_bits() {
    let layer = tucker_layer("a", [24, 16, 3, 3], [9, 11]);
    let run = || {
        let recipes = factored(&layer);
        let checkpoint = Checkpoint::random(&recipes, 5);
        resolve(&recipes, &checkpoint).unwrap()
    };
    let first = run();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn({
                let layer = layer.clone();
                move || {
                    let recipes = factored(&layer);
                    resolve(&recipes, &Checkpoint::random(&recipes, 5)).unwrap()
                }
            })
        })
        .collect();
    assert_eq!(run(), first);
    for thread in threads {
        assert_eq!(thread.join().unwrap(), first);
    }
}

/// Measures a large layer: `cargo test --release -p tdc-weights -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn time_of_a_large_layer() {
    let shape = [512, 512, 3, 3];
    let weight = noise("large", shape.iter().product());
    let start = std::time::Instant::now();
    let factors = TuckerFactors::hosvd(&weight, shape, [192, 160]).unwrap();
    let factorised = start.elapsed();
    let error = factors.relative_error(&weight);
    println!(
        "512x512x3x3 at [192, 160]: {factorised:?}, with the error {:?}; error {error:.6}",
        start.elapsed()
    );
    let exact = TuckerFactors::hosvd(&weight, shape, [512, 512]).unwrap();
    assert!(exact.relative_error(&weight) < 1e-12);
}
