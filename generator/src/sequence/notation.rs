//! The notation of networks.
//!
//! ```text
//! # a CP convolution: the input, four factors that share the rank r, the output
//! U[s:3, y:224, x:224] S[s, r:4] H[y:11, r] W[x:11, r] T[t:96, r] -> V[t, y, x]
//! convolve y: same
//! convolve x: valid, stride 2, dilation 1
//! ```
//!
//! Spaces and line ends have no meaning, except that a line end ends a comment; `;` may separate statements.

use super::{Convolution, Padding, TensorNetwork, TensorNetworkLocation, TensorSpec};
use crate::config::{ConfigError, Position};
use std::num::NonZeroU32;

/// Parses a network; `file` is its name in messages.
///
/// # Errors
/// The first error, of notation or of labels, with its line and column.
pub fn parse_network(file: &str, text: &str) -> Result<TensorNetwork, ConfigError> {
    let at = |(position, message): ParseError| ConfigError::at(file, text, position, &message);
    let request = Reader::new(text).and_then(Reader::request).map_err(at)?;
    let convolutions: Vec<_> = request
        .convolutions
        .iter()
        .map(|(_, what)| what.clone())
        .collect();
    let operands: Vec<_> = request
        .operands
        .iter()
        .map(|(_, what)| what.clone())
        .collect();
    TensorNetwork::new(&operands, &request.result.1, &convolutions)
        .map_err(|error| at((request.position(error.place), error.message)))
}

type ParseError = (Position, String);

/// A parsed network, with the position of each element.
struct ParsedNetwork {
    start: Position,
    operands: Vec<(TensorPositions, TensorSpec)>,
    result: (TensorPositions, Vec<String>),
    convolutions: Vec<(Position, (String, Convolution))>,
}

/// Positions of a tensor and its modes.
struct TensorPositions {
    whole: Position,
    modes: Vec<Position>,
}

impl ParsedNetwork {
    fn position(&self, place: TensorNetworkLocation) -> Position {
        match place {
            TensorNetworkLocation::Whole => self.start,
            TensorNetworkLocation::Tensor(tensor) => self.operands[tensor].0.whole,
            TensorNetworkLocation::Mode(tensor, mode) => self.operands[tensor].0.modes[mode],
            TensorNetworkLocation::Result(mode) => self.result.0.modes[mode],
            TensorNetworkLocation::Convolution(index) => self.convolutions[index].0,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Token<'t> {
    Word(&'t str),
    Number(&'t str),
    Symbol(&'t str),
    End,
}

struct Reader<'t> {
    tokens: Vec<(Position, Token<'t>)>,
    next: usize,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Result<Self, ParseError> {
        let mut tokens = Vec::new();
        let mut at = Position { line: 1, column: 1 };
        for (line, content) in text.lines().enumerate() {
            let content = content.split('#').next().unwrap_or_default();
            let mut rest = content.trim_start();
            while !rest.is_empty() {
                let before = &content[..content.len() - rest.len()];
                at = Position {
                    line: line + 1,
                    column: before.chars().count() + 1,
                };
                let (token, length) = Token::first(rest).ok_or_else(|| {
                    let unknown = rest.chars().next().unwrap_or_default();
                    (at, format!("unexpected `{unknown}`; write a network as A[i:2, j:3] B[j, k:4] -> C[i, k]"))
                })?;
                tokens.push((at, token));
                rest = rest[length..].trim_start();
            }
        }
        tokens.push((at, Token::End));
        Ok(Self { tokens, next: 0 })
    }

    fn at(&self) -> Position {
        self.tokens[self.next].0
    }

    fn peek(&self) -> Token<'t> {
        self.tokens[self.next].1
    }

    fn take(&mut self) -> Token<'t> {
        let token = self.peek();
        if token != Token::End {
            self.next += 1;
        }
        token
    }

    /// Whether the next token is this symbol; if so, it is consumed.
    fn skip_if(&mut self, symbol: &str) -> bool {
        let found = self.peek() == Token::Symbol(symbol);
        self.next += usize::from(found);
        found
    }

    fn symbol(&mut self, symbol: &str, example: &str) -> Result<(), ParseError> {
        match self.skip_if(symbol) {
            true => Ok(()),
            false => Err(self.expected(&format!("`{symbol}`"), example)),
        }
    }

    fn word(&mut self, what: &str, example: &str) -> Result<&'t str, ParseError> {
        match self.peek() {
            Token::Word(word) => {
                self.next += 1;
                Ok(word)
            }
            _ => Err(self.expected(what, example)),
        }
    }

    fn number(&mut self, example: &str) -> Result<NonZeroU32, ParseError> {
        match self.peek() {
            Token::Number(digits) => {
                let number = digits.parse().map_err(|_| {
                    (
                        self.at(),
                        format!(
                            "`{digits}` is not a size; write a whole number from 1 to {}",
                            u32::MAX
                        ),
                    )
                })?;
                self.next += 1;
                Ok(number)
            }
            _ => Err(self.expected("a number", example)),
        }
    }

    fn expected(&self, what: &str, example: &str) -> ParseError {
        let found = match self.peek() {
            Token::Word(text) | Token::Number(text) | Token::Symbol(text) => {
                format!("`{text}` found")
            }
            Token::End => "the text ends".to_owned(),
        };
        (
            self.at(),
            format!("{found} where {what} is expected; write it as in {example}"),
        )
    }

    fn request(mut self) -> Result<ParsedNetwork, ParseError> {
        const EXAMPLE: &str = "A[i:2, j:3] B[j, k:4] -> C[i, k]";
        let start = self.at();
        let mut operands = Vec::new();
        while !self.skip_if("->") {
            let whole = self.at();
            let name = self.word("a tensor's name or `->`", EXAMPLE)?.to_owned();
            let (places, modes) = self.modes(EXAMPLE)?;
            let places = TensorPositions {
                whole,
                modes: places,
            };
            operands.push((places, TensorSpec { name, modes }));
        }
        let whole = self.at();
        if let Token::Word(_) = self.peek() {
            self.take();
        }
        let (places, result) = self.modes(EXAMPLE)?;
        if let Some(at) = result.iter().position(|(_, length)| length.is_some()) {
            let message = format!(
                "`{}` of the result has a length, which follows from the tensors; remove it",
                result[at].0
            );
            return Err((places[at], message));
        }
        let places = TensorPositions {
            whole,
            modes: places,
        };
        let result = result.into_iter().map(|(label, _)| label).collect();
        let mut convolutions = Vec::new();
        loop {
            while self.skip_if(";") {}
            if self.peek() == Token::End {
                break;
            }
            convolutions.push(self.convolution()?);
        }
        Ok(ParsedNetwork {
            start,
            operands,
            result: (places, result),
            convolutions,
        })
    }

    /// `[label:length, label]`, with the position of each label.
    #[expect(clippy::type_complexity, reason = "a name for it would say no more")]
    fn modes(
        &mut self,
        example: &str,
    ) -> Result<(Vec<Position>, Vec<(String, Option<NonZeroU32>)>), ParseError> {
        self.symbol("[", example)?;
        let (mut places, mut modes) = (Vec::new(), Vec::new());
        while !self.skip_if("]") {
            if !modes.is_empty() && !self.skip_if(",") {
                return Err(self.expected("`,` or `]`", example));
            }
            places.push(self.at());
            let label = self.word("a label", example)?.to_owned();
            let length = match self.skip_if(":") {
                true => Some(self.number(example)?),
                false => None,
            };
            modes.push((label, length));
        }
        Ok((places, modes))
    }

    /// `convolve label: padding, stride 1, dilation 1`.
    fn convolution(&mut self) -> Result<(Position, (String, Convolution)), ParseError> {
        const EXAMPLE: &str = "convolve x: same, stride 2, dilation 1";
        if self.peek() != Token::Word("convolve") {
            return Err(self.expected("`convolve` or the end", EXAMPLE));
        }
        self.take();
        let at = self.at();
        let label = self.word("a label", EXAMPLE)?.to_owned();
        self.symbol(":", EXAMPLE)?;
        let padding = match self.peek() {
            Token::Word("same") => Padding::Same,
            Token::Word("valid") => Padding::Valid,
            _ => return Err(self.expected("`same` or `valid`", EXAMPLE)),
        };
        self.take();
        let (mut stride, mut dilation) = (None, None);
        while self.skip_if(",") {
            let slot = match self.peek() {
                Token::Word("stride") if stride.is_none() => &mut stride,
                Token::Word("dilation") if dilation.is_none() => &mut dilation,
                _ => return Err(self.expected("`stride` or `dilation`, each once,", EXAMPLE)),
            };
            self.next += 1;
            *slot = Some(self.number(EXAMPLE)?);
        }
        let convolution = Convolution {
            padding,
            stride: stride.unwrap_or(NonZeroU32::MIN),
            dilation: dilation.unwrap_or(NonZeroU32::MIN),
        };
        Ok((at, (label, convolution)))
    }
}

impl<'t> Token<'t> {
    /// The first token of a text, and its length in bytes.
    fn first(text: &'t str) -> Option<(Self, usize)> {
        let run = |inside: fn(char) -> bool| text.find(|c| !inside(c)).unwrap_or(text.len());
        let first = text.chars().next()?;
        if first.is_ascii_digit() {
            let length = run(|c| c.is_ascii_alphanumeric());
            return Some((Self::Number(&text[..length]), length));
        }
        if first.is_alphabetic() || first == '_' {
            let length = run(|c| c.is_alphanumeric() || c == '_' || c == '\'');
            return Some((Self::Word(&text[..length]), length));
        }
        let symbols = ["->", "[", "]", ",", ":", ";"];
        let symbol = symbols
            .into_iter()
            .find(|symbol| text.starts_with(symbol))?;
        Some((Self::Symbol(symbol), symbol.len()))
    }
}
