//! The tokens of a call as a text, and from places in the text back to tokens.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use tdc_generator::config::Position;
use tdc_generator::embed::CallError;

/// What is wrong, at its token.
pub type SpannedError = (Span, String);

/// A call with every token on a line of its own, so that a line is a token. A minus stands with its number.
#[derive(Default)]
pub struct Call {
    text: String,
    /// The token that begins each line.
    spans: Vec<Span>,
    /// The last token was a minus.
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

    /// The token at a place; the whole call where there is none.
    pub fn span(&self, at: Option<Position>) -> Span {
        at.and_then(|at| self.spans.get(at.line.checked_sub(1)?))
            .copied()
            .unwrap_or_else(Span::call_site)
    }

    /// Mistakes in the text, at their tokens.
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
                        // What another macro matched as one piece.
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
                    // No value has a line break in it, but it must not count as a line here.
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
