//! Progress of a run.

use std::fmt;
use std::time::Duration;

/// Work done and left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Number of candidates measured in this run.
    pub done: usize,
    /// Number of candidates of this run.
    pub total: usize,
    /// Time since the first candidate was started.
    pub elapsed: Duration,
}

impl Progress {
    /// Estimated time for the remaining candidates at the present rate; `None` before the first is done.
    pub fn left(&self) -> Option<Duration> {
        let rest = self.total.saturating_sub(self.done) as f64;
        (self.done > 0).then(|| self.elapsed.mul_f64(rest / self.done as f64))
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}/{}", self.done, self.total)?;
        let Some(left) = self.left().map(|left| left.as_secs()) else {
            return f.write_str("]");
        };
        match left {
            0..60 => write!(f, ", {left} s left]"),
            60..7200 => write!(f, ", {} min left]", left.div_ceil(60)),
            _ => write!(f, ", {:.1} h left]", left as f64 / 3600.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_is_extrapolated() {
        let line = |done, total, seconds| {
            let elapsed = Duration::from_secs(seconds);
            let progress = Progress {
                done,
                total,
                elapsed,
            };
            progress.to_string()
        };
        assert_eq!(line(0, 10, 5), "[0/10]");
        assert_eq!(line(5, 10, 5), "[5/10, 5 s left]");
        assert_eq!(line(1, 101, 1), "[1/101, 2 min left]");
        assert_eq!(line(1, 10_801, 1), "[1/10801, 3.0 h left]");
        assert_eq!(line(10, 10, 60), "[10/10, 0 s left]");
    }
}
