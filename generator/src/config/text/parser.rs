//! Tokens and structure of a call.

use super::super::Position;
use super::super::yaml::node::{Node, Value};
use super::super::yaml::report::Report;
use std::ops::Range;

/// Maximal nesting; the values of keys need two levels.
const MAX_DEPTH: usize = 8;

/// The components of a call.
pub(super) struct Call {
    /// The op's name, or the path of a config.
    pub(super) op: Node,
    pub(super) is_config: bool,
    pub(super) sizes: Vec<Node>,
    pub(super) options: Node,
}

/// Parses a call; `None` after an error.
pub(super) fn call(text: &str, report: &mut Report<'_>) -> Option<Call> {
    let tokens = tokens(text);
    Parser::new(text, &tokens).call(report)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Number,
    /// Text in double quotes.
    Quoted,
    Symbol(char),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    kind: Kind,
    written: Range<usize>,
}

pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (kind, length) = if first.is_ascii_digit() {
            (Kind::Number, number_length(rest))
        } else if is_word(first) {
            (Kind::Word, rest.find(|c| !is_word(c)).unwrap_or(rest.len()))
        } else if first == '"' {
            (Kind::Quoted, quoted(rest))
        } else {
            (Kind::Symbol(first), first.len_utf8())
        };
        let start = text.len() - rest.len();
        tokens.push(Token {
            kind,
            written: start..start + length,
        });
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Length in bytes of the number that `text` starts with; a sign is included after an `e`.
fn number_length(text: &str) -> usize {
    let mut before = ' ';
    for (index, c) in text.char_indices() {
        let is_sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E');
        if !is_word(c) && c != '.' && !is_sign {
            return index;
        }
        before = c;
    }
    text.len()
}

/// Length in bytes of the quoted string that `text` starts with; all of `text` if it is not closed.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return index + 1,
            _ => {}
        }
    }
    text.len()
}

struct Parser<'t> {
    text: &'t str,
    tokens: &'t [Token],
    next: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, tokens: &'t [Token]) -> Self {
        Self {
            text,
            tokens,
            next: 0,
        }
    }

    fn call(mut self, report: &mut Report<'_>) -> Option<Call> {
        let is_config = self.kind(0) == Some(Kind::Quoted);
        let op = match self.kind(0) {
            Some(Kind::Word | Kind::Quoted) => self.value(0, report)?,
            _ => {
                let found = match self.kind(0) {
                    Some(_) => format!("`{}` is not an op", self.shown()),
                    None => "empty call".to_owned(),
                };
                report.error(self.at(), format!("{found}; write `conv 64,32,56,56`"));
                return None;
            }
        };
        if is_config && self.kind(0) == Some(Kind::Symbol(',')) {
            self.next += 1;
        }
        let mut sizes = Vec::new();
        let mut options: Vec<(Node, Node)> = Vec::new();
        while self.kind(0).is_some() {
            let key = match (self.kind(0), self.kind(1)) {
                (Some(Kind::Word), Some(Kind::Symbol('='))) => self.key(),
                (Some(Kind::Word), _) => {
                    let word = self.shown();
                    report.error(
                        self.at(),
                        format!(
                            "`{word}` is not a size; write a number, or `{word} = ...` if it is a key"
                        ),
                    );
                    self.skip_item();
                    continue;
                }
                _ => None,
            };
            if let Some(key) = &key
                && options.iter().any(|(known, _)| same(known, key))
            {
                let found = report.quote(key);
                report.error(
                    key.at,
                    format!("duplicate key {found}; remove one of the two"),
                );
            }
            let (at, start) = (self.at(), self.next);
            let Some(value) = self.value(0, report) else {
                // Starts again at the value, so that a comma inside its brackets does not end it.
                self.next = start;
                self.skip_item();
                continue;
            };
            match key {
                Some(key) => options.push((key, value)),
                None if options.is_empty() => sizes.push(value),
                None => report.error(
                    at,
                    format!(
                        "{} follows a key; write the sizes first, then `key = value`",
                        report.quote(&value)
                    ),
                ),
            }
            match self.kind(0) {
                None => {}
                Some(Kind::Symbol(',')) => self.next += 1,
                Some(kind) => {
                    let found = self.shown();
                    let help = "write a comma between sizes and between keys";
                    report.error(self.at(), format!("`{found}` was not expected; {help}"));
                    // Continues as if the comma were there.
                    if matches!(kind, Kind::Symbol(_)) {
                        self.skip_item();
                    }
                }
            }
        }
        let written = op.written.clone();
        let at = op.at;
        Some(Call {
            op,
            is_config,
            sizes,
            options: Node {
                value: Value::Map(options),
                at,
                written,
            },
        })
    }

    /// A name and the sign after it.
    fn key(&mut self) -> Option<Node> {
        let token = self.tokens.get(self.next)?;
        let key = self.node(
            Value::String(self.text[token.written.clone()].to_owned()),
            self.next,
        );
        self.next += 2;
        Some(key)
    }

    fn value(&mut self, depth: usize, report: &mut Report<'_>) -> Option<Node> {
        let start = self.next;
        let written = self.shown();
        let value = match self.kind(0) {
            Some(Kind::Word) => match written {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                "inf" => Value::Float(f64::INFINITY),
                word => Value::String(word.to_owned()),
            },
            Some(Kind::Number) => number(written),
            Some(Kind::Quoted) => Value::String(written.trim_matches('"').to_owned()),
            Some(Kind::Symbol('-')) if self.is_number(1) => {
                self.next += 1;
                match number(self.shown()) {
                    Value::Integer(number) => Value::Integer(-number),
                    Value::Float(number) => Value::Float(-number),
                    other => other,
                }
            }
            Some(Kind::Symbol(open @ ('[' | '{'))) if depth < MAX_DEPTH => {
                self.next += 1;
                return self.group(start, open, depth, report);
            }
            Some(_) => {
                report.error(
                    self.at(),
                    format!(
                        "`{written}` was not expected; write a number, a word, true, false or a list in []"
                    ),
                );
                return None;
            }
            None => {
                report.error(
                    self.at(),
                    "a value is missing at the end; add it or remove the key",
                );
                return None;
            }
        };
        self.next += 1;
        Some(self.node(value, start))
    }

    /// The content of brackets or braces, up to the closing one.
    fn group(
        &mut self,
        start: usize,
        open: char,
        depth: usize,
        report: &mut Report<'_>,
    ) -> Option<Node> {
        let close = if open == '[' { ']' } else { '}' };
        let (mut items, mut entries) = (Vec::new(), Vec::new());
        while self.kind(0) != Some(Kind::Symbol(close)) {
            if open == '[' {
                items.push(self.value(depth + 1, report)?);
            } else if (self.kind(0), self.kind(1)) == (Some(Kind::Word), Some(Kind::Symbol(':'))) {
                let key = self.key()?;
                entries.push((key, self.value(depth + 1, report)?));
            } else {
                report.error(
                    self.at(),
                    "a key was expected; write it as {activation: relu}",
                );
                return None;
            }
            match self.kind(0) {
                Some(Kind::Symbol(',')) => self.next += 1,
                Some(Kind::Symbol(found)) if found == close => {}
                _ => {
                    report.error(
                        self.at(),
                        format!("a comma or `{close}` was expected; write one"),
                    );
                    return None;
                }
            }
        }
        self.next += 1;
        let value = if open == '[' {
            Value::List(items)
        } else {
            Value::Map(entries)
        };
        Some(self.node(value, start))
    }

    /// A node for the tokens from `start` to those already read.
    fn node(&self, value: Value, start: usize) -> Node {
        let first = &self.tokens[start].written;
        let last = &self.tokens[self.next.saturating_sub(1).max(start)].written;
        Node {
            value,
            at: self.position(first.start),
            written: first.start..last.end,
        }
    }

    /// Skips to after the next comma that is not in brackets.
    fn skip_item(&mut self) {
        let mut depth = 0usize;
        while let Some(kind) = self.kind(0) {
            self.next += 1;
            match kind {
                Kind::Symbol(',') if depth == 0 => return,
                Kind::Symbol('(' | '[' | '{') => depth += 1,
                Kind::Symbol(')' | ']' | '}') => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn kind(&self, ahead: usize) -> Option<Kind> {
        self.tokens.get(self.next + ahead).map(|token| token.kind)
    }

    /// Whether a token after the next one is a number or an infinity.
    fn is_number(&self, ahead: usize) -> bool {
        let token = self.tokens.get(self.next + ahead);
        token.is_some_and(|token| {
            token.kind == Kind::Number || &self.text[token.written.clone()] == "inf"
        })
    }

    /// The next token as written.
    fn shown(&self) -> &'t str {
        self.tokens
            .get(self.next)
            .map_or("", |token| &self.text[token.written.clone()])
    }

    /// The position of the next token, or of the last one at the end.
    fn at(&self) -> Position {
        let token = self.tokens.get(self.next).or(self.tokens.last());
        self.position(token.map_or(0, |token| token.written.start))
    }

    fn position(&self, byte: usize) -> Position {
        let before = &self.text[..byte];
        let line = before.rsplit('\n').next().unwrap_or_default();
        Position {
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
        }
    }
}

fn same(a: &Node, b: &Node) -> bool {
    matches!((&a.value, &b.value), (Value::String(a), Value::String(b)) if a == b)
}

/// A number as in YAML; anything else stays a string.
fn number(written: &str) -> Value {
    let digits = written.replace('_', "");
    if let Ok(whole) = digits.parse::<i128>() {
        return Value::Integer(whole);
    }
    match digits.parse::<f64>() {
        Ok(real) => Value::Float(real),
        Err(_) => Value::String(written.to_owned()),
    }
}
