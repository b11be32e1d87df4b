//! Names that users chose, in C++ and Markdown text.

/// The inside of a C++ string literal. Between quotes it may also be in a `//` comment: the line does not end in a backslash.
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
