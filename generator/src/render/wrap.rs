//! Lists that would run over the right margin, broken into lines.

/// Columns of generated text.
pub const MARGIN: usize = 120;

/// `items` with commas; the first starts at `column`, further lines at `indent`.
pub fn wrapped<T: AsRef<str>>(items: &[T], mut column: usize, indent: usize) -> String {
    let mut text = String::new();
    for (index, item) in items.iter().map(AsRef::as_ref).enumerate() {
        if index > 0 {
            text.push(',');
            column += 1;
        }
        if column + item.len() + 2 > MARGIN {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(item);
        column += item.len();
    }
    text
}

/// `head(items)` with further lines indented by `indent`; `head` starts at `column`.
pub fn call<T: AsRef<str>>(head: &str, items: &[T], column: usize, indent: usize) -> String {
    let arguments = wrapped(items, column + head.len() + 1, indent);
    format!("{head}({arguments})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lists_stay_on_one_line_and_long_ones_are_indented() {
        assert_eq!(call("f", &["a", "b"], 0, 4), "f(a, b)");
        let long = "x".repeat(60);
        assert_eq!(
            call("f", &[&long, &long, &long], 4, 8),
            format!("f({long},\n        {long},\n        {long})")
        );
    }
}
