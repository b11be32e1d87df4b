//! Names of the user's inside C++ text.

/// The inside of a C++ string literal. It never ends in a backslash, so it may stand in a `//` comment between quotes too.
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
