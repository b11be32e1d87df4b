//! CP decomposition.

use tdc_runtime::{Decomposition, FactorRole};
use tdc_weights::{CpFactors, resolve};

use crate::fixtures::{Tensors, cp_layer, factored, noise};

/// Output and input channels, filter height and width: all different, so that exchanging two of them is
/// detected.
const SHAPE: [usize; 4] = [7, 5, 3, 2];

/// Random factors.
fn random_form(shape: [usize; 4], rank: usize) -> CpFactors {
    let [o, i, r, s] = shape;
    CpFactors {
        shape,
        rank,
        first: noise("first", rank * i),
        vertical: noise("vertical", rank * r),
        horizontal: noise("horizontal", rank * s),
        last: noise("last", o * rank),
    }
}

fn rounded(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

/// The sum, evaluated by its definition.
fn by_definition(factors: &CpFactors) -> Vec<f64> {
    let [o, i, r, s] = factors.shape;
    let mut weight = Vec::new();
    for n in 0..o {
        for c in 0..i {
            for v in 0..r {
                for h in 0..s {
                    let of_term = |k: usize| {
                        factors.last[n * factors.rank + k]
                            * factors.first[k * i + c]
                            * factors.vertical[k * r + v]
                            * factors.horizontal[k * s + h]
                    };
                    weight.push((0..factors.rank).map(of_term).sum());
                }
            }
        }
    }
    weight
}

#[test]
fn the_product_is_the_sum_of_outer_products() {
    for rank in [1, 2, 5] {
        let factors = random_form(SHAPE, rank);
        let error = factors.relative_error(&by_definition(&factors));
        assert!(error < 1e-14, "{rank}: {error}");
    }
}

#[test]
fn weights_of_a_rank_are_found_again() {
    for (shape, rank) in [
        (SHAPE, 1),
        (SHAPE, 3),
        // More outer products than the filter, or than any mode, has elements.
        ([6, 8, 1, 3], 4),
        ([4, 4, 3, 3], 5),
        ([1, 5, 3, 1], 1),
    ] {
        let weight = random_form(shape, rank).reconstruct();
        let found = CpFactors::als(&weight, shape, rank).expect("factors");
        let error = found.relative_error(&weight);
        assert!(error < 1e-4, "{shape:?} {rank}: {error}");
        assert_eq!(found.first.len(), rank * shape[1]);
    }
}

#[test]
fn vectors_are_balanced_and_sorted_whatever_the_scale() {
    for scale in [1e-150, 1.0, 1e100] {
        let weight: Vec<_> = noise("w", 7 * 5 * 3 * 2)
            .iter()
            .map(|v| v * scale)
            .collect();
        let found = CpFactors::als(&weight, SHAPE, 3).expect("factors");
        let norm = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>().sqrt();
        let mut before = f64::INFINITY;
        for k in 0..3 {
            let of_first = norm(&found.first[5 * k..][..5]);
            let last: Vec<_> = (0..7).map(|n| found.last[3 * n + k]).collect();
            for other in [
                norm(&found.vertical[3 * k..][..3]),
                norm(&found.horizontal[2 * k..][..2]),
                norm(&last),
            ] {
                assert!((other / of_first - 1.0).abs() < 1e-9, "{scale} {k}");
            }
            assert!(of_first <= before, "{scale} {k}");
            before = of_first;
        }
        // Better than the best result with one outer product less, and the same in every run.
        let smaller = CpFactors::als(&weight, SHAPE, 2).expect("factors");
        assert!(found.relative_error(&weight) < smaller.relative_error(&weight));
        assert_eq!(CpFactors::als(&weight, SHAPE, 3).expect("factors"), found);
    }
}

#[test]
fn cancelling_outer_products_are_told() {
    let independent = CpFactors {
        shape: [2, 2, 1, 1],
        rank: 2,
        first: vec![1.0, 0.0, 0.0, 1.0],
        vertical: vec![1.0, 1.0],
        horizontal: vec![1.0, 1.0],
        last: vec![1.0, 0.0, 0.0, 1.0],
    };
    assert!((independent.cancellation() - 1.0).abs() < 1e-12);
    // Two nearly equal products of opposite signs: their sum is a thousandth of each.
    let cancelling = CpFactors {
        first: vec![1.0, 0.0, 1.0, 1e-3],
        last: vec![1.0, -1.0, 0.0, 0.0],
        ..independent
    };
    let found = cancelling.cancellation();
    assert!((1400.0..1430.0).contains(&found), "{found}");
    let nothing = CpFactors::als(&[0.0; 4], [2, 2, 1, 1], 2).expect("factors");
    assert_eq!(nothing.relative_error(&[0.0; 4]), 0.0);
    assert_eq!(nothing.cancellation(), 1.0);
    assert!(CpFactors::als(&[0.0, f64::NAN], [2, 1, 1, 1], 1).is_err());
}

#[test]
fn a_checkpoint_is_factorised_or_gives_its_factors() {
    let layer = cp_layer("a", SHAPE.map(|size| size as u32), 2);
    let recipes = factored(&layer);
    let weight = random_form(SHAPE, 2).reconstruct();
    let dense = Tensors::default().f32("a.weight", &SHAPE, &rounded(&weight));
    let resolved = resolve(&recipes, &dense.checkpoint()).expect("values");
    let [factorisation] = &resolved.factorizations[..] else {
        panic!("{:?}", resolved.factorizations);
    };
    assert_eq!(factorisation.decomposition, Decomposition::Cp(2));
    assert!(!factorisation.trained);
    assert!(factorisation.relative_error.expect("an error") < 1e-4);
    assert!(factorisation.cancellation.expect("a number") >= 0.5);
    let lengths: Vec<_> = resolved.values.iter().map(|v| v.weight.len()).collect();
    assert_eq!(lengths, [2 * 5, 2 * 3, 2 * 2, 7 * 2]);

    let trained = random_form(SHAPE, 2);
    let mut tensors = Tensors::default();
    for (role, values) in [
        (FactorRole::First, &trained.first),
        (FactorRole::Vertical, &trained.vertical),
        (FactorRole::Horizontal, &trained.horizontal),
        (FactorRole::Last, &trained.last),
    ] {
        let index = layer
            .decomposition
            .factors()
            .iter()
            .position(|&other| other == role);
        let name = &layer.factors[index.expect("a part")];
        let shape = layer.factor_shape(role).map(|size| size as usize);
        tensors = tensors.f32(name, &shape, &rounded(values));
    }
    let resolved = resolve(&recipes, &tensors.checkpoint()).expect("values");
    assert!(resolved.factorizations[0].trained);
    assert_eq!(resolved.factorizations[0].relative_error, None);
    assert_eq!(resolved.values[1].weight, rounded(&trained.vertical));
}
