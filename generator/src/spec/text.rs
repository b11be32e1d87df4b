//! One kernel in one line: `conv 64,32,56,56, kernel = 5, pad = [2, 1], gpu = h100`.
//!
//! ```text
//! call  = op value {"," value} {"," key "=" value} [","]        the values are the sizes: C, N, H, W
//! value = number | word | string | "[" value {"," value} "]" | "{" key ":" value {"," key ":" value} "}"
//! ```
//! The keys are those of a layer in a layer set, with the same forms, defaults and checks, and `gpu`.

use super::yaml::fields::{Fields, Words, whole};
use super::yaml::layers::{self, Names};
use super::yaml::node::{Node, Value};
use super::yaml::report::Report;
use super::{ConfigErrors, Layer, Overrides, Position, Tiles, nearest, yaml};
use crate::gpu::{DEFAULT_GPU, Gpu, gpu};
use std::ops::Range;

/// A convolution asked for by itself, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelRequest {
    /// What it computes, and the wishes for scheme and tile.
    pub layer: Layer,
    /// The GPU to plan for.
    pub gpu: &'static Gpu,
    /// How tiles are chosen.
    pub tiles: Tiles,
    op: Position,
    scheme: Position,
    tile: Position,
    reduce: Position,
}

impl KernelRequest {
    /// Where the cause of a [`PlanError`](crate::plan::PlanError) stands: its key, or the op for the sizes.
    pub fn position(&self, key: Option<&str>) -> Position {
        match key {
            Some("scheme") => self.scheme,
            Some("tile") => self.tile,
            Some("reduce") => self.reduce,
            _ => self.op,
        }
    }
}

/// The op and its keys.
const CONV: Words = Words {
    what: "conv",
    keys: &layers::with_options::<2, 18>(["gpu", "tiles"]),
};

/// Nesting allowed; the values of keys need two levels.
const MAX_DEPTH: usize = 8;

/// Reads the request in a text; `source` is what messages call it.
///
/// # Errors
/// Every mistake that can be found, each with its line and column.
pub fn parse(text: &str, source: &str) -> Result<KernelRequest, ConfigErrors> {
    let mut report = Report::new(text);
    let tokens = tokens(text);
    let call = Parser::new(text, &tokens).call(&mut report);
    let request = call.and_then(|call| request(call, &mut report));
    report.finish(source, request)
}

/// The parts of a call.
struct Call {
    op: Node,
    sizes: Vec<Node>,
    options: Node,
}

fn request(call: Call, report: &mut Report<'_>) -> Option<KernelRequest> {
    let Call { op, sizes, options } = call;
    let known = matches!(&op.value, Value::Text(word) if word == CONV.what);
    if !known {
        let near = match &op.value {
            Value::Text(word) => nearest(word, [CONV.what].into_iter()),
            _ => None,
        };
        let hint = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
        let found = report.quote(&op);
        report.error(
            op.at,
            format!("unknown op {found}; {hint}the ops are {}", CONV.what),
        );
        return None;
    }
    Fields::of(&options, CONV.what, report)?.check_keys(&options, CONV, &[], report);
    let numbers = four(&op, &sizes, report);
    let at = op.at;
    let list = Node {
        value: Value::List(sizes),
        at,
        written: op.written.clone(),
    };
    let mut entries = vec![(op, list)];
    if let Value::Map(written) = options.value {
        // A key that was refused must not take the place of the sizes.
        let options = written.into_iter();
        entries.extend(
            options.filter(|(key, _)| !matches!(&key.value, Value::Text(k) if k == CONV.what)),
        );
    }
    let all = Node {
        value: Value::Map(entries),
        at,
        written: options.written,
    };
    let fields = Fields::of(&all, CONV.what, report)?;
    let gpu = match fields.get("gpu") {
        None => gpu(DEFAULT_GPU).ok(),
        Some(node) => fields.word("gpu", report).and_then(|name| {
            let found = gpu(name).map_err(|unknown| unknown.to_string());
            found
                .and_then(|gpu| gpu.code_target().map_err(|old| old.to_string()))
                .map_err(|error| report.error(node.at, error))
                .ok()
        }),
    };
    let overrides = Overrides::default();
    let tiles = yaml::tiles(&fields, &overrides, report);
    let layer = layers::layer(numbers, &fields, &overrides, &mut Names::default(), report);
    Some(KernelRequest {
        layer: layer?,
        gpu: gpu?,
        tiles,
        op: at,
        scheme: fields.position("scheme", None),
        tile: fields.position("tile", None),
        reduce: fields.position("reduce", None),
    })
}

/// C, N, H and W. A size too many is reported and left out, so that the others are still checked.
fn four(op: &Node, sizes: &[Node], report: &mut Report<'_>) -> Option<[u32; 4]> {
    let names = ["C", "N", "H", "W"];
    let numbers: Vec<_> = names
        .iter()
        .zip(sizes)
        .map(|(name, node)| whole(name, node, report))
        .collect();
    if let Some(extra) = sizes.get(names.len()) {
        let side = match extra.value {
            Value::Whole(side @ 1..=11) => side,
            _ => 5,
        };
        report.error(
            extra.at,
            format!(
                "conv takes 4 sizes (C, N, H, W), not {}; for a {side}x{side} filter write `kernel = {side}`",
                sizes.len()
            ),
        );
    } else if sizes.len() < names.len() {
        report.error(
            sizes.last().unwrap_or(op).at,
            format!(
                "conv takes 4 sizes (C, N, H, W), not {}; write them as `conv 64,32,56,56`",
                sizes.len()
            ),
        );
    }
    let numbers: Option<Vec<u32>> = numbers.into_iter().collect();
    numbers?.try_into().ok()
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

fn is_word(c: char) -> bool {
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

/// Bytes of the number that `text` starts with; a sign belongs to it behind an `e`.
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

/// Bytes of the quoted text that `text` starts with, up to its end when it is not closed.
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
        let op = match self.kind(0) {
            Some(Kind::Word) => self.value(0, report)?,
            _ => {
                let found = match self.kind(0) {
                    Some(_) => format!("`{}` is no op", self.shown()),
                    None => "nothing is asked for".to_owned(),
                };
                report.error(self.at(), format!("{found}; write `conv 64,32,56,56`"));
                return None;
            }
        };
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
                            "`{word}` is no size; write a number, or `{word} = ...` if it is a key"
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
                    format!("the key {found} stands here twice; keep one of them"),
                );
            }
            let (at, start) = (self.at(), self.next);
            let Some(value) = self.value(0, report) else {
                // From the start, so that a comma inside its brackets does not end it.
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
                        "{} stands behind a key; write the sizes first, then `key = value`",
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
                    // A value or key is read as if the comma were there.
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
            sizes,
            options: Node {
                value: Value::Map(options),
                at,
                written,
            },
        })
    }

    /// A word and the sign behind it.
    fn key(&mut self) -> Option<Node> {
        let token = self.tokens.get(self.next)?;
        let key = self.node(
            Value::Text(self.text[token.written.clone()].to_owned()),
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
                "true" => Value::Flag(true),
                "false" => Value::Flag(false),
                word => Value::Text(word.to_owned()),
            },
            Some(Kind::Number) => number(written),
            Some(Kind::Quoted) => Value::Text(written.trim_matches('"').to_owned()),
            Some(Kind::Symbol('-')) if self.kind(1) == Some(Kind::Number) => {
                self.next += 1;
                match number(self.shown()) {
                    Value::Whole(number) => Value::Whole(-number),
                    Value::Real(number) => Value::Real(-number),
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
                    "a value is missing at the end; write it or leave out the key",
                );
                return None;
            }
        };
        self.next += 1;
        Some(self.node(value, start))
    }

    /// What stands behind an opening bracket or brace, up to its end.
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
                report.error(self.at(), "a key was expected; write it as {relu: true}");
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

    /// A node of the tokens from `start` to those already read.
    fn node(&self, value: Value, start: usize) -> Node {
        let first = &self.tokens[start].written;
        let last = &self.tokens[self.next.saturating_sub(1).max(start)].written;
        Node {
            value,
            at: self.position(first.start),
            written: first.start..last.end,
        }
    }

    /// Goes behind the next comma that is in no bracket.
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

    /// The next token as it is written.
    fn shown(&self) -> &'t str {
        self.tokens
            .get(self.next)
            .map_or("", |token| &self.text[token.written.clone()])
    }

    /// Where the next token stands, or the last one at the end.
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
    matches!((&a.value, &b.value), (Value::Text(a), Value::Text(b)) if a == b)
}

/// A number as YAML would read it; what only looks like one stays text.
fn number(written: &str) -> Value {
    let digits = written.replace('_', "");
    if let Ok(whole) = digits.parse::<i128>() {
        return Value::Whole(whole);
    }
    match digits.parse::<f64>() {
        Ok(real) => Value::Real(real),
        Err(_) => Value::Text(written.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Config, yaml};

    /// `column: message` of every mistake, one a line.
    fn mistakes(text: &str) -> String {
        match parse(text, "call") {
            Ok(request) => format!("no mistake: {request:?}"),
            Err(errors) => {
                let lines = errors.first.iter().map(|error| {
                    let column = error.position.map_or(0, |at| at.column);
                    format!("{column}: {}\n", error.message)
                });
                lines.collect()
            }
        }
    }

    #[test]
    fn a_call_means_what_a_layer_set_says() {
        for (call, layer) in [
            ("conv 64,32,56,56", "conv: [64, 32, 56, 56]"),
            (
                "conv 64, 32, 56, 28, kernel = [5, 3], stride = 2, pad = [1, 0, 2, 1], dilation = [1, 2],",
                "conv: [64, 32, 56, 28], kernel: [5, 3], stride: 2, pad: [1, 0, 2, 1], dilation: [1, 2]",
            ),
            (
                "conv 1_6,32,9,9,batch=3,groups=4,bias=true,relu=true,residual=true,prologue={relu: true}",
                "conv: [16, 32, 9, 9], batch: 3, groups: 4, bias: true, relu: true, residual: true, prologue: {relu: true}",
            ),
            (
                "conv 8,8,9,9, scheme = \"direct\", tile = [64, 4, 1, 1], pad = {top: 1}, kernel = 2",
                "conv: [8, 8, 9, 9], scheme: direct, tile: [64, 4, 1, 1], pad: {top: 1}, kernel: 2",
            ),
            (
                "conv 8,8,9,9, precision = tf32",
                "conv: [8, 8, 9, 9], precision: tf32",
            ),
            (
                "conv 8,8,9,9, tolerance = 5e-6",
                "conv: [8, 8, 9, 9], tolerance: 5e-6",
            ),
        ] {
            let request = parse(call, "call").unwrap_or_else(|errors| panic!("{errors}"));
            let set = format!("name: set\nlayers: [{{{layer}}}]\n");
            let Ok(Config::LayerSet(set)) = yaml::parse(&set, "set", &Overrides::default()) else {
                panic!("{layer}");
            };
            assert_eq!(request.layer, set.layers[0], "{call}");
            assert_eq!(request.gpu.name, DEFAULT_GPU);
        }
    }

    #[test]
    fn every_mistake_is_reported_at_its_place() {
        assert_eq!(
            mistakes("conv 64,-3,56,\"56\", strid = 2, kernel = x, gpu = h20, pad = 1, pad = 2"),
            "9: `N` is negative: `-3`; it must be a whole number from 0\n\
             15: `W` must be a whole number, not the text `\"56\"`; leave out the quotes\n\
             21: unknown key `strid`; did you mean `stride`? conv takes gpu, tiles, batch, kernel, stride, pad, dilation, groups, bias, relu, residual, prologue, cp_rank, scheme, tile, reduce, precision, tolerance\n\
             41: `kernel` must be a whole number, not `x`; use digits only\n\
             50: there is no GPU named `h20`; did you mean `h200`? known are h200, h100, b200, a100, v100, l40s, l4, rtx5090, rtx4090, rtx3090, rtx2080ti, gtx1080ti\n\
             64: the key `pad` stands here twice; keep one of them\n"
        );
        assert_eq!(
            mistakes("conv 64,32,56,56, gpu = gtx1080ti"),
            "25: no code is made for `gtx1080ti`: it is sm_61, and kernels are compiled for sm_70 and newer; look at its plan \
             with `tdc-gen plan`, or name a newer GPU\n"
        );
        assert_eq!(
            mistakes("conv 64,32,56,56,7, stride = [2, 0], 3, relu"),
            "18: conv takes 4 sizes (C, N, H, W), not 5; for a 7x7 filter write `kernel = 7`\n\
             34: `stride` is 0; it must be at least 1\n\
             38: `3` stands behind a key; write the sizes first, then `key = value`\n\
             41: `relu` is no size; write a number, or `relu = ...` if it is a key\n"
        );
    }

    #[test]
    fn broken_texts_are_refused() {
        assert_eq!(
            mistakes(""),
            "1: nothing is asked for; write `conv 64,32,56,56`\n"
        );
        assert_eq!(
            mistakes("covn 1,2"),
            "1: unknown op `covn`; did you mean `conv`? the ops are conv\n"
        );
        assert_eq!(
            mistakes("conv 4 4,4,4, pad = [1 * 2, 3], bias = 2"),
            "8: `4` was not expected; write a comma between sizes and between keys\n\
             24: a comma or `]` was expected; write one\n\
             40: `bias` is a yes-or-no question, not `2`; write true or false\n"
        );
        assert_eq!(
            mistakes("conv 1u32,2,3*3,4, pad ="),
            "6: `C` must be a whole number, not `1u32`; use digits only\n\
             14: `*` was not expected; write a comma between sizes and between keys\n\
             24: a value is missing at the end; write it or leave out the key\n"
        );
        let pieces = [
            "conv", "1", ",", "=", "[", "]", "{", "}", ":", "-", "\"", "\\", "é", "pad", "9e99",
            " ",
        ];
        let mut state = 1u64;
        for _ in 0..20_000 {
            let mut text = String::from("conv 4,4,4,4, ");
            for _ in 0..12 {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                text += pieces[(state >> 60) as usize];
            }
            let _ = parse(&text, "call");
        }
        let deep = format!("conv 4,4,4,4, pad = {}", "[".repeat(100_000));
        assert!(mistakes(&deep).contains("`[` was not expected"));
    }
}
