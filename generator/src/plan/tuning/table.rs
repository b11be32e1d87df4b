//! The tuning table: for each problem and scheme the tile with the least measured time.

use super::{Environment, TuningError};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The fastest tile of one scheme for one problem.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredTile {
    /// The label of the tile, as in the names of units.
    pub tile: String,
    /// Its time in a CUDA graph, microseconds.
    pub us: f64,
    /// Checksum of the kernels' source without comments and of the launches with which the time was measured.
    pub text: u64,
}

/// Measured times of one environment.
///
/// As text: the header of the [`Environment`], then a line for each problem and scheme, sorted; lines that start with `#` are
/// comments:
///
/// ```text
/// gpu: h200
/// device: NVIDIA H200
/// driver: 580.159.04
/// nvrtc: 13.0
/// generator: 0.1.0
/// # problem scheme tile us text
/// conv_c64_n32_h56_w56_k3x3_p1_bias_relu direct p64rn8xn4sk2 5.184 0123456789abcdef
/// conv_c64_n32_h56_w56_k3x3_p1_bias_relu tdc h4w4c16 9.872 fedcba9876543210
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TuningTable {
    environment: Environment,
    rows: BTreeMap<(String, String), MeasuredTile>,
}

/// Two rows of the same problem and scheme, of which the one with the smaller time is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    /// Key of the problem.
    pub problem: String,
    /// The scheme.
    pub scheme: String,
    /// The row that is kept.
    pub kept: MeasuredTile,
    /// The other one.
    pub dropped: MeasuredTile,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: kept {} with {:.3} us, not {} with {:.3} us",
            self.problem,
            self.scheme,
            self.kept.tile,
            self.kept.us,
            self.dropped.tile,
            self.dropped.us
        )
    }
}

/// A row whose kernels have changed since it was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Stale {
    /// Key of the problem.
    pub problem: String,
    /// The scheme.
    pub scheme: String,
    /// The row.
    pub measured: MeasuredTile,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            problem,
            scheme,
            measured: MeasuredTile { tile, us, .. },
        } = self;
        write!(
            f,
            "{problem} {scheme}: dropped {tile} with {us:.3} us, measured with other kernels than this version generates; measure it \
             again"
        )
    }
}

const TITLE: &str = "\
# Measured times of schemes, by `tdc-gen tune`: the best tile of each scheme for each problem, microseconds in a CUDA graph.
# `text` is a checksum of the kernels that were measured, without comments: `merge` drops rows of other kernels than today's.";

const COLUMNS: &str = "problem scheme tile us text";

impl TuningTable {
    /// A table without rows.
    pub fn new(environment: Environment) -> Self {
        Self {
            environment,
            rows: BTreeMap::new(),
        }
    }

    /// The environment of the times.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Adds a measurement, unless the problem and scheme have one with the same or a smaller time.
    pub fn insert(&mut self, problem: &str, scheme: &str, measured: MeasuredTile) {
        let key = (problem.to_owned(), scheme.to_owned());
        match self.rows.get(&key) {
            Some(known) if known.us <= measured.us => {}
            _ => drop(self.rows.insert(key, measured)),
        }
    }

    /// The fastest tile of each scheme for the problem of a key, by name of the scheme.
    pub fn rows_for(&self, key: &str) -> impl Iterator<Item = (&str, &MeasuredTile)> {
        let first = (key.to_owned(), String::new());
        let rows = self.rows.range(first..);
        rows.take_while(move |((problem, _), _)| problem == key)
            .map(|((_, scheme), measured)| (&scheme[..], measured))
    }

    /// Every row: problem, scheme, fastest tile.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &MeasuredTile)> {
        self.rows
            .iter()
            .map(|((problem, scheme), measured)| (&problem[..], &scheme[..], measured))
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Removes the rows whose kernels have changed since: those for which `present` returns no checksum, or a different one.
    ///
    /// # Errors
    /// Those of `present`; the table is then unchanged.
    pub fn remove_stale<E>(
        &mut self,
        mut present: impl FnMut(&str, &str, &str) -> Result<Option<u64>, E>,
    ) -> Result<Vec<Stale>, E> {
        let mut found = Vec::new();
        for ((problem, scheme), measured) in &self.rows {
            if present(problem, scheme, &measured.tile)? != Some(measured.text) {
                found.push(Stale {
                    problem: problem.clone(),
                    scheme: scheme.clone(),
                    measured: measured.clone(),
                });
            }
        }
        for Stale {
            problem, scheme, ..
        } in &found
        {
            self.rows.remove(&(problem.clone(), scheme.clone()));
        }
        Ok(found)
    }

    /// Adds the rows of another table. If both have a row, the one with the smaller time is kept, so the result does not depend on which
    /// table is merged into which. A table without rows can be merged with any other of its GPU, and takes its environment.
    ///
    /// # Errors
    /// [`TuningError::Environment`] if the times must not be compared; the table is then unchanged.
    pub fn merge(&mut self, other: Self) -> Result<Vec<Conflict>, TuningError> {
        let same = self.environment.check_same(&other.environment);
        let same_gpu = self.environment.gpu == other.environment.gpu;
        if !(same_gpu && (self.is_empty() || other.is_empty())) {
            same?;
        }
        if self.is_empty() && !other.is_empty() {
            self.environment = other.environment;
        }
        let mut conflicts = Vec::new();
        for ((problem, scheme), theirs) in other.rows {
            let key = (problem, scheme);
            let Some(ours) = self.rows.get_mut(&key) else {
                self.rows.insert(key, theirs);
                continue;
            };
            if *ours == theirs {
                continue;
            }
            let order = theirs.us.total_cmp(&ours.us);
            let theirs_wins = order.then_with(|| theirs.tile.cmp(&ours.tile)).is_lt();
            let dropped = if theirs_wins {
                std::mem::replace(ours, theirs)
            } else {
                theirs
            };
            let (problem, scheme) = key;
            conflicts.push(Conflict {
                problem,
                scheme,
                kept: ours.clone(),
                dropped,
            });
        }
        Ok(conflicts)
    }
}

impl fmt::Display for TuningTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TITLE}\n{}# {COLUMNS}\n", self.environment)?;
        for (problem, scheme, MeasuredTile { tile, us, text }) in self.iter() {
            writeln!(f, "{problem} {scheme} {tile} {us:.3} {text:016x}")?;
        }
        Ok(())
    }
}

impl FromStr for TuningTable {
    type Err = TuningError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (environment, rows) = Environment::read(text)?;
        if !text.ends_with('\n') {
            return Err(TuningError::Truncated {
                line: text.lines().count(),
            });
        }
        let mut table = Self::new(environment);
        for (line, row) in rows {
            let fields: Vec<_> = row.split_whitespace().collect();
            let [problem, scheme, tile, us, text] = fields[..] else {
                return Err(TuningError::Fields {
                    line,
                    found: fields.len(),
                    columns: COLUMNS,
                });
            };
            let us = parse_microseconds(line, "us", us)?;
            let text = text_checksum(line, text)?;
            let key = (problem.to_owned(), scheme.to_owned());
            let tile = tile.to_owned();
            if table
                .rows
                .insert(key, MeasuredTile { tile, us, text })
                .is_some()
            {
                return Err(TuningError::Duplicate {
                    line,
                    problem: problem.to_owned(),
                    scheme: scheme.to_owned(),
                });
            }
        }
        Ok(table)
    }
}

/// The checksum in the column `text` of a row.
pub(crate) fn text_checksum(line: usize, text: &str) -> Result<u64, TuningError> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let sum = u64::from_str_radix(text, 16).ok();
    sum.filter(|_| digits).ok_or_else(|| TuningError::Field {
        line,
        column: "text",
        text: text.to_owned(),
        expected: "a checksum of 16 hexadecimal digits",
    })
}

/// A time in a column of a row.
pub(crate) fn parse_microseconds(
    line: usize,
    column: &'static str,
    text: &str,
) -> Result<f64, TuningError> {
    // Tables have three decimals: a smaller time would be rounded to 0.
    let us = text.parse().ok();
    us.filter(|us: &f64| us.is_finite() && *us >= 0.0005)
        .ok_or_else(|| TuningError::Field {
            line,
            column,
            text: text.to_owned(),
            expected: "a time in microseconds, 0.001 at least",
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "\
gpu: h200
device: NVIDIA H200
driver: 580.1
nvrtc: 13.0
generator: 0.1.0
";

    const ROWS: &str = "\
# problem scheme tile us text
conv_c4 direct p32rn1xn1sk1 5.184 0000000000000001
conv_c4 tdc h4w4c16 9.872 0123456789abcdef
conv_c40 direct p32rn1xn1sk1 0.001 0000000000000001
pool t64 t64 2.000 0000000000000001
";

    fn table(rows: &str) -> TuningTable {
        format!("{HEADING}{rows}\n").parse().unwrap()
    }

    /// A row with the checksum 1.
    fn measured(tile: &str, us: f64) -> MeasuredTile {
        let tile = tile.to_owned();
        MeasuredTile { tile, us, text: 1 }
    }

    /// A table of rows without checksums, each with the checksum 1.
    fn stamped(rows: &str) -> TuningTable {
        let rows = rows.lines().map(|row| format!("{row} {:016x}\n", 1));
        table(&rows.collect::<String>())
    }

    #[test]
    fn reads_what_it_writes_sorted() {
        let read = table(ROWS);
        let text = read.to_string();
        assert_eq!(text, format!("{TITLE}\n{HEADING}{ROWS}"));
        let mut lines: Vec<_> = text.lines().collect();
        lines.reverse();
        let shuffled = format!("\n{}\r\n", lines.join("\r\n"));
        assert_eq!(shuffled.parse(), Ok(read.clone()));
        assert_eq!(read.len(), 4);
        // A key may be a prefix of another key.
        let found: Vec<_> = read.rows_for("conv_c4").collect();
        let expected = [
            ("direct", &measured("p32rn1xn1sk1", 5.184)),
            (
                "tdc",
                &MeasuredTile {
                    text: 0x0123_4567_89ab_cdef,
                    ..measured("h4w4c16", 9.872)
                },
            ),
        ];
        assert_eq!(found, expected);
        assert_eq!(read.rows_for("conv_c").count(), 0);
    }

    #[test]
    fn the_smaller_time_stays() {
        let mut found = table("");
        for (tile, us) in [("b", 2.0), ("a", 3.0), ("c", 1.0), ("d", 1.0)] {
            found.insert("p", "s", measured(tile, us));
        }
        assert_eq!(found.rows_for("p").next(), Some(("s", &measured("c", 1.0))));
    }

    #[test]
    fn merging_tells_what_it_drops_and_does_not_depend_on_the_order() {
        let a = stamped("p s t1 2.0\np t t1 3.0\nq s t1 1.0");
        let b = stamped("p s t2 1.5\np t t1 3.0\nr s t9 4.0");
        let (mut ab, mut ba) = (a.clone(), b.clone());
        let told = ab.merge(b).unwrap();
        assert_eq!(ba.merge(a).unwrap(), told);
        assert_eq!(ab, ba);
        assert_eq!(
            ab.to_string(),
            stamped("p s t2 1.5\np t t1 3.0\nq s t1 1.0\nr s t9 4.0").to_string()
        );
        let told: Vec<_> = told.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["p s: kept t2 with 1.500 us, not t1 with 2.000 us"]);
    }

    #[test]
    fn rows_of_other_kernels_do_not_stay() {
        let mut found = table(
            "p s t1 1.0 000000000000000a\nq s t1 2.0 000000000000000b\nr s t1 3.0 000000000000000c",
        );
        // The source of `p` has changed, and `r` is not a problem any more.
        let present = |problem: &str, scheme: &str, tile: &str| {
            assert_eq!((scheme, tile), ("s", "t1"));
            match problem {
                "r" => Ok::<_, String>(None),
                _ => Ok(Some(0xb)),
            }
        };
        let stale = found.remove_stale(present).unwrap();
        let stale: Vec<_> = stale.iter().map(ToString::to_string).collect();
        assert_eq!(
            stale,
            [("p", "1.000"), ("r", "3.000")].map(|(problem, us)| format!(
                "{problem} s: dropped t1 with {us} us, measured with other kernels than this version generates; measure it again"
            ))
        );
        assert_eq!(found.len(), 1);
        // The slower row, which has the present kernel, is kept.
        let mut fast = table("q s t1 1.0 000000000000000a");
        let slow = found.clone();
        fast.remove_stale(present).unwrap();
        assert_eq!(fast.merge(slow.clone()), Ok(vec![]));
        assert_eq!(fast, slow);
        // An error changes nothing.
        let error = found.remove_stale(|_, _, _| Err("no".to_owned()));
        assert_eq!(error, Err("no".to_owned()));
        assert_eq!(found, slow);
    }

    #[test]
    fn different_environments_are_not_mixed() {
        let mut ours = stamped("p s t1 2.0");
        let before = ours.clone();
        for (key, here, there) in [("gpu", "h200", "h100"), ("driver", "580.1", "580.2")] {
            let other = HEADING.replace(&format!("{key}: {here}"), &format!("{key}: {there}"));
            let other: TuningTable = format!("{other}p s t1 1.0 0000000000000001\n")
                .parse()
                .unwrap();
            let error = ours.merge(other).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{key} is `{here}` here and `{there}` there;")),
                "{error}"
            );
            assert_eq!(ours, before);
        }
        // An empty table of another driver can be merged, one of another GPU cannot.
        let mut empty: TuningTable = HEADING.replace("580.1", "1").parse().unwrap();
        assert_eq!(empty.merge(ours.clone()), Ok(vec![]));
        assert_eq!(empty, ours);
        let mut other: TuningTable = HEADING.replace("h200", "a100").parse().unwrap();
        assert!(other.merge(ours).is_err());
    }

    #[test]
    fn errors_name_the_line() {
        for (rows, expected) in [
            (
                "p s t",
                "line 6: 3 fields where `problem scheme tile us text` are needed",
            ),
            (
                "# r\np s t 1.0 0 x",
                "line 7: 6 fields where `problem scheme tile us text` are needed",
            ),
            (
                "p s t NaN 0",
                "line 6: us cannot be `NaN`; it is a time in microseconds, 0.001 at least",
            ),
            (
                "p s t -1 0",
                "line 6: us cannot be `-1`; it is a time in microseconds, 0.001 at least",
            ),
            (
                "p s t inf 0",
                "line 6: us cannot be `inf`; it is a time in microseconds, 0.001 at least",
            ),
            (
                "p s t 1 0000000000000001\np s u 2 0000000000000001",
                "line 7: `p s` has a line already; remove one of the two",
            ),
            (
                "p s t 1 123456789abcdef",
                "line 6: text cannot be `123456789abcdef`; it is a checksum of 16 hexadecimal digits",
            ),
            (
                "p s t 1 +123456789abcdef",
                "line 6: text cannot be `+123456789abcdef`; it is a checksum of 16 hexadecimal digits",
            ),
            (
                "gpu: h100",
                "line 6: `gpu:` is unknown or there twice; remove the line",
            ),
            (
                "cpu: x",
                "line 6: `cpu:` is unknown or there twice; remove the line",
            ),
        ] {
            let error = format!("{HEADING}{rows}\n")
                .parse::<TuningTable>()
                .unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let cut = format!("{HEADING}p s t 2.77").parse::<TuningTable>();
        assert_eq!(
            cut.unwrap_err().to_string(),
            "line 6: the line has no end, and may be cut; end it, if all of it is there"
        );
        for text in ["", "gpu: h200", &HEADING.replace("13.0", "")] {
            let error = text.parse::<TuningTable>().unwrap_err().to_string();
            assert!(error.starts_with("the header has no line `"), "{error}");
        }
    }
}
