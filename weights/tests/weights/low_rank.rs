//! Low-rank 1x1 convolutions and linear layers.

use tdc_runtime::Decomposition;
use tdc_weights::{Checkpoint, LowRankFactors, resolve};

use crate::fixtures::{Tensors, batch_norm, conv, factored, low_rank_layer, noise};
use crate::reference::{relative_error, widen};

/// Wide, tall, square, and with a single channel.
const SHAPES: [[usize; 2]; 5] = [[7, 11], [11, 7], [5, 5], [1, 13], [13, 1]];

/// The product by its definition, one element at a time.
fn by_definition(factors: &LowRankFactors) -> Vec<f64> {
    let ([o, i], rank) = (factors.shape, factors.rank);
    let element = |n: usize, c: usize| {
        (0..rank)
            .map(|k| factors.last[n * rank + k] * factors.first[k * i + c])
            .sum()
    };
    let element = &element;
    (0..o)
        .flat_map(|n| (0..i).map(move |c| element(n, c)))
        .collect()
}

/// A matrix with exactly this rank.
fn of_rank(shape: [usize; 2], rank: usize) -> LowRankFactors {
    let [o, i] = shape;
    LowRankFactors {
        shape,
        rank,
        first: noise("first", rank * i),
        last: noise("last", o * rank),
    }
}

#[test]
fn the_full_rank_is_exact_at_any_scale() {
    for shape in SHAPES {
        for scale in [1e-300, 1.0, 1e300, 0.0] {
            let [o, i] = shape;
            let weight: Vec<_> = noise("w", o * i).iter().map(|v| v * scale).collect();
            let factors = LowRankFactors::svd(&weight, shape, o.min(i)).unwrap();
            let error = factors.relative_error(&weight);
            assert!(error < 1e-14, "{shape:?} {scale}: {error}");
            assert_eq!(factors.first.len(), o.min(i) * i);
            assert_eq!(factors.last.len(), o * o.min(i));
        }
    }
    assert!(LowRankFactors::svd(&[1.0, f64::NAN], [2, 1], 1).is_err());
}

#[test]
fn reconstruction_is_the_definition_and_low_ranks_are_found_again() {
    for (shape, rank) in [([7, 11], 3), ([11, 7], 3), ([5, 5], 1)] {
        let factors = of_rank(shape, rank);
        let weight = by_definition(&factors);
        assert!(relative_error(&factors.reconstruct(), &weight) < 1e-14);
        let found = LowRankFactors::svd(&weight, shape, rank).unwrap();
        assert!(found.relative_error(&weight) < 1e-13, "{shape:?}");
    }
}

#[test]
fn truncation_leaves_out_the_least_singular_values() {
    // Rows and columns in another order than the singular values 5, 4, 3, 2; signs too.
    let wide = [
        [0.0, -3.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 5.0, 0.0],
        [2.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 4.0],
    ];
    let tall: Vec<f64> = (0..5)
        .flat_map(|column| wide.iter().map(move |row| row[column]))
        .collect();
    let norm = 54.0_f64.sqrt();
    for (weight, shape) in [(wide.concat(), [4, 5]), (tall, [5, 4])] {
        for (rank, left_out) in [(1, 29.0_f64), (2, 13.0), (3, 4.0), (4, 0.0)] {
            let factors = LowRankFactors::svd(&weight, shape, rank).unwrap();
            let error = factors.relative_error(&weight);
            assert!((error - left_out.sqrt() / norm).abs() < 1e-14, "{rank}");
        }
    }
    // The largest component of each singular vector is positive.
    let factors = LowRankFactors::svd(&wide.concat(), [4, 5], 3).unwrap();
    let unit = |at: usize| (0..4).map(move |row| f64::from(u8::from(row == at)));
    let columns = [unit(1), unit(3), unit(0)].map(Iterator::collect::<Vec<_>>);
    for (k, column) in columns.iter().enumerate() {
        let found: Vec<_> = (0..4).map(|row| factors.last[3 * row + k]).collect();
        assert!(relative_error(&found, column) < 1e-14, "{k}");
    }
    assert!((factors.first[2 * 5 + 1] + 3.0).abs() < 1e-14);
}

#[test]
fn a_checkpoint_is_factorised_with_bias_and_batch_norm_in_the_last_factor() {
    for [o, i] in SHAPES.map(|shape| shape.map(|size| size as u32)) {
        let layer = low_rank_layer("a", [o, i], o.min(i));
        let mut recipes = factored(&layer);
        recipes[1].bias = Some("a.bias".to_owned());
        recipes[1].fold = vec![batch_norm("bn", o)];
        let mut dense = conv("a", layer.shape);
        dense.bias.clone_from(&recipes[1].bias);
        dense.fold.clone_from(&recipes[1].fold);
        recipes.push(dense);
        // As PyTorch stores the weight of a linear layer and of a 1x1 convolution.
        for stored in [&[o, i][..], &[o, i, 1, 1]] {
            let stored: Vec<_> = stored.iter().map(|&size| size as usize).collect();
            let checkpoint = Tensors::default()
                .noise("a.weight", &stored)
                .noise("a.bias", &[o as usize])
                .batch_norm("bn", o as usize)
                .checkpoint();
            let resolved = resolve(&recipes, &checkpoint).unwrap();
            let [first, last, dense] = &resolved.values[..] else {
                panic!("{:?}", resolved.values);
            };
            let folded = LowRankFactors {
                shape: [o as usize, i as usize],
                rank: o.min(i) as usize,
                first: widen(&first.weight),
                last: widen(&last.weight),
            };
            assert!(relative_error(&folded.reconstruct(), &widen(&dense.weight)) < 1e-6);
            assert_eq!(last.bias, dense.bias);
            assert_eq!(first.bias, vec![0.0; o.min(i) as usize]);
            let [factorisation] = &resolved.factorizations[..] else {
                panic!("{:?}", resolved.factorizations);
            };
            assert_eq!(
                factorisation.decomposition,
                Decomposition::LowRank(o.min(i))
            );
            assert!(!factorisation.trained);
            assert!(factorisation.relative_error.unwrap() < 1e-14);
            assert_eq!(factorisation.cancellation, None);
        }
    }
}

#[test]
fn trained_factors_are_taken_as_they_are() {
    let factors = of_rank([7, 11], 3);
    let layer = low_rank_layer("a", [7, 11], 3);
    let trained = Tensors::default()
        .f64("a.first.weight", &[3, 11], &factors.first)
        .f64("a.last.weight", &[7, 3, 1, 1], &factors.last);
    let rounded = |values: &[f64]| -> Vec<f32> { values.iter().map(|&v| v as f32).collect() };
    let resolved = resolve(&factored(&layer), &trained.checkpoint()).unwrap();
    assert_eq!(resolved.values[0].weight, rounded(&factors.first));
    assert_eq!(resolved.values[1].weight, rounded(&factors.last));
    assert!(resolved.factorizations[0].trained);
    assert_eq!(resolved.factorizations[0].relative_error, None);

    // The dense weight is only used for comparison.
    let doubled: Vec<_> = by_definition(&factors).iter().map(|v| 2.0 * v).collect();
    let both = trained.clone().f64("a.weight", &[7, 11], &doubled);
    let resolved = resolve(&factored(&layer), &both.checkpoint()).unwrap();
    assert_eq!(resolved.values[1].weight, rounded(&factors.last));
    assert!((resolved.factorizations[0].relative_error.unwrap() - 0.5).abs() < 1e-14);
    assert_eq!(resolved.unused, Vec::<String>::new());

    let incomplete = trained.without("a.last.weight").checkpoint();
    let error = resolve(&factored(&layer), &incomplete).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("a.last.weight"), "{text}");
}

#[test]
fn a_second_run_gives_the_same_bits() {
    for shape in [[31, 24], [24, 31]] {
        let recipes = factored(&low_rank_layer("a", shape, 9));
        let run = || resolve(&recipes, &Checkpoint::random(&recipes, 5)).unwrap();
        let (first, second) = (run(), run());
        assert_eq!(first, second);
        assert!(first.values[0].weight.iter().all(|v| v.is_finite()));
        assert!(first.factorizations[0].relative_error.unwrap() > 0.1);
    }
}

/// Measures VGG-16's first linear layer: `cargo test --release -p tdc-weights -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn time_of_a_large_layer() {
    let shape = [4096, 25088];
    let weight = noise("large", shape.iter().product());
    let start = std::time::Instant::now();
    let factors = LowRankFactors::svd(&weight, shape, 512).unwrap();
    let factorised = start.elapsed();
    let error = factors.relative_error(&weight);
    println!(
        "4096x25088 at 512: {factorised:?}, with the error {:?}; error {error:.6}",
        start.elapsed()
    );
}
