//! `pub mod resnet18 = "configs/resnet18.yaml", gpu = h200;`

use crate::call::{Call, SpannedError};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};

/// A requested module.
pub struct Module {
    /// Attributes and visibility.
    pub head: TokenStream,
    /// Its name.
    pub name: Ident,
    /// The config's path and the keys after it.
    pub call: Call,
}

impl Module {
    /// The modules of a call, separated by semicolons.
    pub fn all(tokens: impl Iterator<Item = TokenTree>) -> Vec<Result<Self, Vec<SpannedError>>> {
        let tokens: Vec<TokenTree> = tokens.collect();
        let is_end =
            |token: &TokenTree| matches!(token, TokenTree::Punct(sign) if sign.as_char() == ';');
        let parts = tokens.split(is_end).filter(|part| !part.is_empty());
        let modules: Vec<_> = parts.map(Self::new).collect();
        match modules.is_empty() {
            true => vec![Err(vec![(Span::call_site(), expected("empty call"))])],
            false => modules,
        }
    }

    fn new(tokens: &[TokenTree]) -> Result<Self, Vec<SpannedError>> {
        let word =
            |token: &TokenTree, word| matches!(token, TokenTree::Ident(found) if found == word);
        let span = |index: usize| {
            let token = tokens.get(index).or(tokens.last());
            token.map_or_else(Span::call_site, TokenTree::span)
        };
        let error_at = |index, message: &str| Err(vec![(span(index), expected(message))]);
        let Some(start) = tokens.iter().position(|token| word(token, "mod")) else {
            return error_at(0, "`mod` is missing");
        };
        let Some(TokenTree::Ident(name)) = tokens.get(start + 1) else {
            return error_at(start + 1, "the name of the module is missing");
        };
        match tokens.get(start + 2) {
            Some(TokenTree::Punct(sign)) if sign.as_char() == '=' => {}
            _ => return error_at(start + 2, "`=` is missing after the name of the module"),
        }
        Ok(Self {
            head: tokens[..start].iter().cloned().collect(),
            name: name.clone(),
            call: Call::new(tokens[start + 3..].iter().cloned()),
        })
    }
}

fn expected(found: &str) -> String {
    format!("{found}; write `mod resnet18 = \"configs/resnet18.yaml\";`")
}
