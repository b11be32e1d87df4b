//! Minimisation without derivatives.

/// The positive numbers with the least `cost` that are found from `start`; deterministic.
///
/// It is the pattern search of Hooke and Jeeves on logarithms: each number in turn is increased or decreased by its own step, which
/// grows after a success and shrinks after a failure; the change of a complete round is then applied once more. When all steps are
/// small the search restarts with large ones, until that gains nothing.
pub(super) fn minimize(start: &[f64], cost: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    const FIRST_STEP: f64 = 0.2;
    const LAST_STEP: f64 = 0.004;
    const MIN_IMPROVEMENT: f64 = 0.998;
    const ROUNDS: usize = 400;

    let values = |logarithms: &[f64]| -> Vec<f64> {
        let values = logarithms.iter().map(|value| value.exp());
        values.collect()
    };
    let cost = |logarithms: &[f64]| cost(&values(logarithms));
    let mut best: Vec<f64> = start.iter().map(|value| value.ln()).collect();
    let mut steps = vec![FIRST_STEP; best.len()];
    let mut least = cost(&best);
    let mut restart = f64::INFINITY;
    for _ in 0..ROUNDS {
        let before = best.clone();
        for (place, step) in steps.iter_mut().enumerate() {
            match better(&best, place, *step, least, cost) {
                Some((logarithms, found, direction)) => {
                    (best, least) = (logarithms, found);
                    // The direction that helped is tried first the next time.
                    *step = 1.5 * direction;
                }
                None => *step /= 2.0,
            }
        }
        if steps.iter().all(|step| step.abs() < LAST_STEP) {
            if least > MIN_IMPROVEMENT * restart {
                break;
            }
            restart = least;
            steps.fill(FIRST_STEP);
        }
        let extrapolated: Vec<f64> = best
            .iter()
            .zip(&before)
            .map(|(now, before)| 2.0 * now - before)
            .collect();
        let found = cost(&extrapolated);
        if found < least {
            (best, least) = (extrapolated, found);
        }
    }
    values(&best)
}

/// The first of two steps of one number that costs less than `least`, with its cost and direction.
fn better(
    best: &[f64],
    place: usize,
    step: f64,
    least: f64,
    cost: impl Fn(&[f64]) -> f64,
) -> Option<(Vec<f64>, f64, f64)> {
    [step, -step].into_iter().find_map(|direction| {
        let mut changed = best.to_vec();
        changed[place] += direction;
        let found = cost(&changed);
        (found < least).then_some((changed, found, direction))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A curved valley, in which steps along the axes alone are slow.
    #[test]
    fn the_minimum_of_a_curved_valley_is_found() {
        let cost = |values: &[f64]| {
            let [x, y] = [values[0].ln(), values[1].ln()];
            (1.0 - x).powi(2) + 2.0 * (y - x * x).powi(2)
        };
        let found = minimize(&[0.5, 3.0], cost);
        assert!(cost(&found) < 1e-3, "{found:?}, {}", cost(&found));
    }
}
