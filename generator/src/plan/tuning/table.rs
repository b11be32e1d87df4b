//! The best tile of each scheme for each problem, measured.

use super::{Environment, TuningError};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The best tile that was found of one scheme for one problem.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The tile with its letters, as in the names of units.
    pub tile: String,
    /// Its time in a CUDA graph, microseconds.
    pub us: f64,
}

/// Measured times of one environment.
///
/// As text: the heading of the [`Environment`], then a line for each problem and scheme, sorted; lines that start with `#` are
/// remarks:
///
/// ```text
/// gpu: h200
/// device: NVIDIA H200
/// driver: 580.159.04
/// nvrtc: 13.0
/// generator: 0.1.0
/// # problem scheme tile us
/// conv_c64_n32_h56_w56_k3x3_p1_bias_relu direct p64n8g4k2 5.184
/// conv_c64_n32_h56_w56_k3x3_p1_bias_relu tdc h4w4c16 9.872
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TuningTable {
    environment: Environment,
    rows: BTreeMap<(String, String), Measured>,
}

/// A row that two tables have with different content, of which the one with the smaller time stays.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    /// Key of the problem.
    pub problem: String,
    /// The scheme.
    pub scheme: String,
    /// The row that stays.
    pub kept: Measured,
    /// The other one.
    pub dropped: Measured,
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

const TITLE: &str = "# Measured times of schemes, by `tdc-gen tune`: the best tile of each scheme for each problem, microseconds in a CUDA graph.";

const COLUMNS: &str = "problem scheme tile us";

impl TuningTable {
    /// A table without rows.
    pub fn new(environment: Environment) -> Self {
        Self {
            environment,
            rows: BTreeMap::new(),
        }
    }

    /// What the times hold for.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Adds a measurement, unless the problem and scheme have one that took no longer.
    pub fn insert(&mut self, problem: &str, scheme: &str, measured: Measured) {
        let key = (problem.to_owned(), scheme.to_owned());
        match self.rows.get(&key) {
            Some(known) if known.us <= measured.us => {}
            _ => drop(self.rows.insert(key, measured)),
        }
    }

    /// The best tile of each scheme for the problem of a key, by name of the scheme.
    pub fn of_problem(&self, key: &str) -> impl Iterator<Item = (&str, &Measured)> {
        let first = (key.to_owned(), String::new());
        let rows = self.rows.range(first..);
        rows.take_while(move |((problem, _), _)| problem == key)
            .map(|((_, scheme), measured)| (&scheme[..], measured))
    }

    /// Every row: problem, scheme, best tile.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &Measured)> {
        self.rows
            .iter()
            .map(|((problem, scheme), measured)| (&problem[..], &scheme[..], measured))
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes over the rows of another table. Where both have one, that with the smaller time stays; both tables give the same
    /// whichever is merged into which. A table without rows goes with every other of its GPU, and takes its environment.
    ///
    /// # Errors
    /// [`TuningError::Environment`] when the times do not go together; nothing is changed then.
    pub fn merge(&mut self, other: Self) -> Result<Vec<Conflict>, TuningError> {
        let same = self.environment.same_as(&other.environment);
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
        for (problem, scheme, Measured { tile, us }) in self.iter() {
            writeln!(f, "{problem} {scheme} {tile} {us:.3}")?;
        }
        Ok(())
    }
}

impl FromStr for TuningTable {
    type Err = TuningError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (environment, rows) = Environment::read(text)?;
        if !text.ends_with('\n') {
            return Err(TuningError::Cut {
                line: text.lines().count(),
            });
        }
        let mut table = Self::new(environment);
        for (line, row) in rows {
            let fields: Vec<_> = row.split_whitespace().collect();
            let [problem, scheme, tile, us] = fields[..] else {
                return Err(TuningError::Fields {
                    line,
                    found: fields.len(),
                    columns: COLUMNS,
                });
            };
            let us = microseconds(line, "us", us)?;
            let key = (problem.to_owned(), scheme.to_owned());
            let tile = tile.to_owned();
            if table.rows.insert(key, Measured { tile, us }).is_some() {
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

/// A time in a column of a row.
pub(crate) fn microseconds(
    line: usize,
    column: &'static str,
    text: &str,
) -> Result<f64, TuningError> {
    // As it is written: rounded to nothing it would be no time.
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
# problem scheme tile us
conv_c4 direct p32n1g1k1 5.184
conv_c4 tdc h4w4c16 9.872
conv_c40 direct p32n1g1k1 0.001
pool t64 t64 2.000
";

    fn table(rows: &str) -> TuningTable {
        format!("{HEADING}{rows}\n").parse().unwrap()
    }

    fn measured(tile: &str, us: f64) -> Measured {
        let tile = tile.to_owned();
        Measured { tile, us }
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
        // A key that begins like another is another.
        let found: Vec<_> = read.of_problem("conv_c4").collect();
        let expected = [
            ("direct", &measured("p32n1g1k1", 5.184)),
            ("tdc", &measured("h4w4c16", 9.872)),
        ];
        assert_eq!(found, expected);
        assert_eq!(read.of_problem("conv_c").count(), 0);
    }

    #[test]
    fn the_smaller_time_stays() {
        let mut found = table("");
        for (tile, us) in [("b", 2.0), ("a", 3.0), ("c", 1.0), ("d", 1.0)] {
            found.insert("p", "s", measured(tile, us));
        }
        assert_eq!(
            found.of_problem("p").next(),
            Some(("s", &measured("c", 1.0)))
        );
    }

    #[test]
    fn merging_tells_what_it_drops_and_does_not_depend_on_the_order() {
        let a = table("p s t1 2.0\np t t1 3.0\nq s t1 1.0");
        let b = table("p s t2 1.5\np t t1 3.0\nr s t9 4.0");
        let (mut ab, mut ba) = (a.clone(), b.clone());
        let told = ab.merge(b).unwrap();
        assert_eq!(ba.merge(a).unwrap(), told);
        assert_eq!(ab, ba);
        assert_eq!(
            ab.to_string(),
            table("p s t2 1.5\np t t1 3.0\nq s t1 1.0\nr s t9 4.0").to_string()
        );
        let told: Vec<_> = told.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["p s: kept t2 with 1.500 us, not t1 with 2.000 us"]);
    }

    #[test]
    fn different_environments_are_not_mixed() {
        let mut ours = table("p s t1 2.0");
        let before = ours.clone();
        for (key, here, there) in [("gpu", "h200", "h100"), ("driver", "580.1", "580.2")] {
            let other = HEADING.replace(&format!("{key}: {here}"), &format!("{key}: {there}"));
            let other: TuningTable = format!("{other}p s t1 1.0\n").parse().unwrap();
            let error = ours.merge(other).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{key} is `{here}` here and `{there}` there;")),
                "{error}"
            );
            assert_eq!(ours, before);
        }
        // An empty table of another driver is no obstacle, one of another GPU is.
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
                "line 6: 3 fields where `problem scheme tile us` are needed",
            ),
            (
                "# r\np s t 1.0 x",
                "line 7: 5 fields where `problem scheme tile us` are needed",
            ),
            (
                "p s t NaN",
                "line 6: us cannot be `NaN`; it is a time in microseconds, 0.001 at least",
            ),
            (
                "p s t -1",
                "line 6: us cannot be `-1`; it is a time in microseconds, 0.001 at least",
            ),
            (
                "p s t inf",
                "line 6: us cannot be `inf`; it is a time in microseconds, 0.001 at least",
            ),
            (
                "p s t 1\np s u 2",
                "line 7: `p s` has a line already; remove one of the two",
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
            assert!(error.starts_with("the heading has no line `"), "{error}");
        }
    }
}
