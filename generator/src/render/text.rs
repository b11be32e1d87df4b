//! Names that users have chosen, in C++ and Markdown text.

/// The content of a C++ string literal. It may also be part of a `//` comment, because it does not end in a backslash.
pub fn literal(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if matches!(c, '"' | '\\') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

/// A name in a cell of a Markdown table, without markup.
pub fn markdown_cell(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_ascii_punctuation() && !matches!(c, '.' | ',' | '-' | '/' | ':' | '+') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}
