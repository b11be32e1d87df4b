//! Winograd's minimal filtering of 3x3 convolutions: F(m x m, 3 x 3) computes m x m outputs from (m + 2) x (m + 2) products
//! instead of 9 m^2 (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, section 4).

/// The size m of F(m x m, 3 x 3).
///
/// With a filter g and an input window d of (m + 2) x (m + 2) the outputs are `A^T [(G g G^T) . (B^T d B)]
/// A`, where `.` is the element-wise product. Packed weights contain `G g G^T`; kernels compute the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Winograd {
    /// Points 0, 1, -1 and infinity: 16 products for 4 outputs.
    F2,
    /// Points 0, 1, -1, 2, -2 and infinity: 36 products for 16 outputs.
    F4,
}

impl Winograd {
    /// Outputs of a window along each axis.
    pub const fn m(self) -> u32 {
        match self {
            Winograd::F2 => 2,
            Winograd::F4 => 4,
        }
    }

    /// Points along each axis: inputs of a window, and products.
    pub const fn points(self) -> u32 {
        self.m() + 2
    }

    /// G as integers over a common denominator, one row per point.
    pub const fn filter(self) -> (&'static [[i8; 3]], u8) {
        match self {
            Winograd::F2 => (&[[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], 2),
            Winograd::F4 => (
                &[
                    [6, 0, 0],
                    [-4, -4, -4],
                    [-4, 4, -4],
                    [1, 2, 4],
                    [1, -2, 4],
                    [0, 0, 24],
                ],
                24,
            ),
        }
    }
}

/// `G g G^T` of each 3x3 filter of `weight`, computed in float64 and rounded once. The emitted packers do the
/// same in C++.
pub(crate) fn points(weight: &[f32], winograd: Winograd) -> Vec<f32> {
    let (g, denominator) = winograd.filter();
    let denominator_squared = f64::from(denominator) * f64::from(denominator);
    let mut points = Vec::with_capacity(weight.len() / 9 * g.len() * g.len());
    for filter in weight.chunks_exact(9) {
        for vertical in g {
            for horizontal in g {
                let mut sum = 0.0;
                for (r, vertical) in vertical.iter().enumerate() {
                    for (s, horizontal) in horizontal.iter().enumerate() {
                        let factor = f64::from(*vertical) * f64::from(*horizontal);
                        sum += factor * f64::from(filter[3 * r + s]);
                    }
                }
                points.push((sum / denominator_squared) as f32);
            }
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_values_of_the_filters_polynomial() {
        // G evaluates g0 + g1 x + g2 x^2 at each point, over the product of its distances from the others.
        let weight: Vec<f32> = (0..9).map(|value| (value * value) as f32 - 7.5).collect();
        let at = |x: f64, y: f64| -> f64 {
            let powers = |x: f64| [1.0, x, x * x];
            let terms = (0..9).map(|i| powers(y)[i / 3] * powers(x)[i % 3] * f64::from(weight[i]));
            terms.sum()
        };
        for (winograd, finite, distances) in [
            (Winograd::F2, &[0.0, 1.0, -1.0][..], &[1.0, 2.0, 2.0][..]),
            (
                Winograd::F4,
                &[0.0, 1.0, -1.0, 2.0, -2.0],
                &[4.0, -6.0, -6.0, 24.0, 24.0],
            ),
        ] {
            let found = points(&weight, winograd);
            let size = winograd.points() as usize;
            assert_eq!(found.len(), size * size);
            for (i, (y, y_distance)) in finite.iter().zip(distances).enumerate() {
                for (j, (x, x_distance)) in finite.iter().zip(distances).enumerate() {
                    let expected = at(*x, *y) / (x_distance * y_distance);
                    assert!((f64::from(found[i * size + j]) - expected).abs() < 1e-5);
                }
            }
            // At infinity only the last coefficient counts.
            assert_eq!(found[size * size - 1], weight[8]);
        }
    }
}
