//! Errors in a config file, printed with the line that they are in.

use std::fmt;

/// A position in a text; both numbers start at 1, columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

/// An error in a config file.
///
/// It is printed as `file:line:column: error; remedy`, with the line and a caret under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, as given by the user.
    pub file: String,
    /// Position in the file; `None` if the file could not be read.
    pub position: Option<Position>,
    /// The error and its remedy.
    pub message: String,
    excerpt: Option<Excerpt>,
}

/// An excerpt of a line, with the position of the caret in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Excerpt {
    line: String,
    caret: usize,
}

/// The errors in a config file, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The first errors, at least one.
    pub first: Vec<ConfigError>,
    /// Number of further errors.
    pub omitted: usize,
}

/// Maximal number of errors that are kept.
const MAX_ERRORS: usize = 50;

impl ConfigErrors {
    /// The errors of a text, by their positions.
    pub(super) fn in_text(file: &str, text: &str, errors: &[(Position, String)]) -> Self {
        let first = errors.iter().take(MAX_ERRORS);
        Self {
            first: first
                .map(|(at, message)| ConfigError::at(file, text, *at, message))
                .collect(),
            omitted: errors.len().saturating_sub(MAX_ERRORS),
        }
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self {
            first: vec![error],
            omitted: 0,
        }
    }
}

/// Number of characters of a long line on either side of the caret.
const EXCERPT_CHARS: usize = 60;

impl ConfigError {
    /// An error at a position of `text`, the content of `file`.
    pub fn at(file: &str, text: &str, position: Position, message: &str) -> Self {
        Self {
            file: file.to_owned(),
            position: Some(position),
            message: printable(message),
            excerpt: Excerpt::of(text, position),
        }
    }

    /// An error for a file that could not be read.
    pub fn unreadable(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            position: None,
            message: message.into(),
            excerpt: None,
        }
    }
}

impl Excerpt {
    fn of(text: &str, position: Position) -> Option<Self> {
        let line = lines(text).nth(position.line.checked_sub(1)?)?;
        let column = position.column.saturating_sub(1).min(line.chars().count());
        let first = column.saturating_sub(EXCERPT_CHARS);
        let shown = line.chars().skip(first).take(2 * EXCERPT_CHARS);
        // Characters that are not one column wide would misplace the caret.
        let line: String = shown
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        Some(Self {
            line: line.trim_end().to_owned(),
            caret: column - first,
        })
    }
}

/// Lines as in YAML: a single carriage return ends one too.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let now = rest?;
        let Some(end) = now.find(['\n', '\r']) else {
            rest = None;
            return Some(now);
        };
        let width = if now[end..].starts_with("\r\n") { 2 } else { 1 };
        rest = Some(&now[end + width..]);
        Some(&now[..end])
    })
}

fn printable(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for c in message.chars() {
        if c.is_control() {
            text.extend(c.escape_debug());
        } else {
            text.push(c);
        }
    }
    text
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(Position { line, column }) => {
                write!(f, "{}:{line}:{column}: {}", self.file, self.message)?;
            }
            None => write!(f, "{}: {}", self.file, self.message)?,
        }
        if let Some(Excerpt { line, caret }) = &self.excerpt {
            write!(f, "\n    {line}\n    {:caret$}^", "")?;
        }
        Ok(())
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.first.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        match self.omitted {
            0 => Ok(()),
            more => write!(f, "\nand {more} more errors"),
        }
    }
}

impl std::error::Error for ConfigError {}
impl std::error::Error for ConfigErrors {}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, line: usize, column: usize) -> String {
        ConfigError::at("x.yaml", text, Position { line, column }, "bad").to_string()
    }

    #[test]
    fn the_caret_stands_under_the_column() {
        assert_eq!(
            shown("a: 1\r\nb: 2\r\n", 2, 4),
            "x.yaml:2:4: bad\n    b: 2\n       ^"
        );
        assert_eq!(shown("a\t: 1", 1, 3), "x.yaml:1:3: bad\n    a : 1\n      ^");
        assert_eq!(shown("a\rbc", 2, 2), "x.yaml:2:2: bad\n    bc\n     ^");
        assert_eq!(shown("a", 9, 2), "x.yaml:9:2: bad");
        assert_eq!(shown("", 1, 1), "x.yaml:1:1: bad\n    \n    ^");
    }

    #[test]
    fn long_lines_are_cut_around_the_caret() {
        let text = format!("{}!{}", "a".repeat(1000), "b".repeat(1000));
        let expected = format!(
            "x.yaml:1:1001: bad\n    {}!{}\n    {}^",
            "a".repeat(60),
            "b".repeat(59),
            " ".repeat(60)
        );
        assert_eq!(shown(&text, 1, 1001), expected);
    }

    #[test]
    fn control_characters_are_escaped() {
        let error = ConfigError::at(
            "x",
            "",
            Position { line: 2, column: 1 },
            "`\u{1b}[31m` and \n",
        );
        assert_eq!(error.to_string(), "x:2:1: `\\u{1b}[31m` and \\n");
    }
}
