//! Converts the tokens of a call to text, and positions in the text to tokens.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use tdc_generator::config::Position;
use tdc_generator::embed::CallError;

/// An error with the span of its token.
pub type SpannedError = (Span, String);

/// A call as text with one token per line, so that a line identifies a token. A minus sign is on the line of
/// its number.
#[derive(Default)]
pub struct Call {
    text: String,
    /// The token at the start of each line.
    spans: Vec<Span>,
    /// Whether the last token was a minus sign.
    after_minus: bool,
}

impl Call {
    pub fn new(tokens: impl Iterator<Item = TokenTree>) -> Self {
        let mut call = Self::default();
        call.walk(tokens);
        call
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The token at a position; the complete call without a position.
    pub fn span(&self, at: Option<Position>) -> Span {
        at.and_then(|at| self.spans.get(at.line.checked_sub(1)?))
            .copied()
            .unwrap_or_else(Span::call_site)
    }

    /// Errors in the text, with the spans of their tokens.
    pub fn spanned(&self, call_errors: Vec<CallError>) -> Vec<SpannedError> {
        let call_errors = call_errors.into_iter();
        let spanned = call_errors.map(|error| (self.span(error.at), error.message));
        spanned.collect()
    }

    fn walk(&mut self, tokens: impl Iterator<Item = TokenTree>) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        // A fragment that another macro has matched.
                        Delimiter::None => ("", ""),
                    };
                    self.line(open, group.span_open());
                    self.walk(TokenStream::into_iter(group.stream()));
                    self.line(close, group.span_close());
                }
                TokenTree::Punct(sign) => {
                    self.line(&sign.as_char().to_string(), sign.span());
                    self.after_minus = sign.as_char() == '-';
                }
                TokenTree::Ident(word) => self.line(&word.to_string(), word.span()),
                TokenTree::Literal(literal) => {
                    // No valid value contains a line break, but one in an invalid value must not start a new
                    // line.
                    let written = literal.to_string().replace('\n', " ");
                    self.line(&written, literal.span());
                }
            }
        }
    }

    fn line(&mut self, token: &str, span: Span) {
        if token.is_empty() {
            return;
        }
        if !self.after_minus {
            if !self.text.is_empty() {
                self.text.push('\n');
            }
            self.spans.push(span);
        }
        self.text.push_str(token);
        self.after_minus = false;
    }
}
