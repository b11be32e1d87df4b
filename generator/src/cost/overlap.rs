//! Work that overlaps in time.

/// The time of two kinds of work that overlap, but not completely if both take about as long.
pub(crate) fn overlapped(a: f64, b: f64) -> f64 {
    (a.powi(4) + b.powi(4)).sqrt().sqrt()
}
