//! Times that others published or that were measured elsewhere, from a text table.
//!
//! ```text
//! # what it is, where it comes from
//! shape            cuDNN  TDC   TVM
//! 32,32,7,7        9.09   3.37  5.31
//! 64,32,224,224    65.71  -     198.10
//! ```
//! A shape is written as by [`shape_label`](super::shape_label), with `_` for spaces. The second column is
//! cuDNN's best fp32 time (Winograd and FFT included, TF32 not) on the machine of the other columns; they are
//! scaled by its ratio to cuDNN's time here. `-` is an unknown time.

use serde::Serialize;
use std::str::FromStr;
use thiserror::Error;

/// A table of times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Published {
    titles: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    shape: String,
    cudnn_us: f64,
    us: Vec<Option<f64>>,
}

/// An invalid line of a table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {message}")]
pub struct PublishedError {
    line: usize,
    message: String,
}

impl FromStr for Published {
    type Err = PublishedError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut table: Option<Self> = None;
        for (index, line) in text.lines().enumerate() {
            let error = |message: String| PublishedError {
                line: index + 1,
                message,
            };
            let words: Vec<&str> = line.split_whitespace().collect();
            match (&mut table, &words[..]) {
                (_, []) => {}
                (_, [first, ..]) if first.starts_with('#') => {}
                (None, ["shape", "cuDNN", titles @ ..]) if !titles.is_empty() => {
                    table = Some(Self {
                        titles: titles.iter().map(|title| (*title).to_owned()).collect(),
                        rows: Vec::new(),
                    });
                }
                (None, _) => {
                    return Err(error(format!(
                        "`{}` is not a header; it must be `shape cuDNN` and a title for each further column",
                        line.trim()
                    )));
                }
                (Some(table), [shape, times @ ..]) => {
                    let row = table.row(shape, times).map_err(error)?;
                    table.rows.push(row);
                }
            }
        }
        table.ok_or_else(|| PublishedError {
            line: text.lines().count().max(1),
            message:
                "the file has no table; start it with `shape cuDNN` and a title for each further column"
                    .to_owned(),
        })
    }
}

impl Published {
    fn row(&self, shape: &str, times: &[&str]) -> Result<Row, String> {
        let time = |word: &str| match word.parse::<f64>() {
            Ok(us) if us.is_finite() && us > 0.0 => Ok(us),
            _ => Err(format!(
                "`{word}` is not a time in microseconds, such as 9.09"
            )),
        };
        let [cudnn, others @ ..] = times else {
            return Err(format!("`{shape}` has no times; cuDNN's time comes first"));
        };
        if others.len() != self.titles.len() {
            return Err(format!(
                "`{shape}` has {} times after cuDNN's, but the header has {} titles; write `-` for an unknown time",
                others.len(),
                self.titles.len()
            ));
        }
        let shape = shape.replace('_', " ");
        if self.rows.iter().any(|row| row.shape == shape) {
            return Err(format!("`{shape}` has two rows; remove one"));
        }
        let us = others.iter().map(|&word| match word {
            "-" => Ok(None),
            word => time(word).map(Some),
        });
        Ok(Row {
            cudnn_us: time(cudnn)?,
            us: us.collect::<Result<_, _>>()?,
            shape,
        })
    }

    /// Titles of the columns after cuDNN's.
    pub fn titles(&self) -> &[String] {
        &self.titles
    }

    /// The times of a shape, scaled to a machine on which cuDNN takes `cudnn_us`; `None` if the shape is not
    /// in the table.
    pub fn scaled(&self, shape: &str, cudnn_us: f64) -> Option<Vec<Option<f64>>> {
        let row = self.rows.iter().find(|row| row.shape == shape)?;
        let scale = cudnn_us / row.cudnn_us;
        Some(row.us.iter().map(|us| us.map(|us| us * scale)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_scaled_by_cudnns() {
        let text = "# times\n\nshape cuDNN A B\n8,8,5,5 10 3 -\n8,8,5,5_1x1 4 2 1\n";
        let table: Published = text.parse().unwrap();
        assert_eq!(table.titles(), ["A", "B"]);
        assert_eq!(table.scaled("8,8,5,5", 20.0), Some(vec![Some(6.0), None]));
        let pointwise = table.scaled("8,8,5,5 1x1", 2.0);
        assert_eq!(pointwise, Some(vec![Some(1.0), Some(0.5)]));
        assert_eq!(table.scaled("9,9,9,9", 1.0), None);
    }

    #[test]
    fn errors_have_their_line() {
        for (text, line, part) in [
            ("", 1, "has no table"),
            ("# only words\n", 1, "has no table"),
            ("8,8,5,5 1 2\n", 1, "is not a header"),
            ("shape cuDNN\n", 1, "is not a header"),
            ("shape cuDNN A\n8,8,5,5\n", 2, "has no times"),
            ("shape cuDNN A\n8,8,5,5 1\n", 2, "0 times after"),
            ("shape cuDNN A\n8,8,5,5 1 2 3\n", 2, "2 times after"),
            ("shape cuDNN A\n8,8,5,5 x 2\n", 2, "`x` is not a time"),
            ("shape cuDNN A\n8,8,5,5 1 -2\n", 2, "`-2` is not a time"),
            ("shape cuDNN A\n8,8,5,5 - 2\n", 2, "`-` is not a time"),
            ("shape cuDNN A\na 1 2\n\na 1 2\n", 4, "has two rows"),
        ] {
            let error = text.parse::<Published>().unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
            assert!(error.to_string().contains(part), "{text:?}: {error}");
        }
    }
}
