//! Lists and sentences, broken into lines that fit the right margin.

/// Maximum number of columns of a line of generated text.
pub const MAX_COLUMNS: usize = 110;

/// `items` separated by commas; the first line starts at `column`, further lines at `indent`.
pub fn wrap_list<T: AsRef<str>>(items: &[T], mut column: usize, indent: usize) -> String {
    let mut text = String::new();
    for (index, item) in items.iter().map(AsRef::as_ref).enumerate() {
        if index > 0 {
            text.push(',');
            column += 1;
        }
        // A break before the first item helps only if it moves the item to the left.
        let moves = index > 0 || column > indent;
        if moves && column + item.len() + 2 > MAX_COLUMNS {
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

/// `head(items)` at `column`; if it does not fit, the items are on separate lines, indented by `indent`.
pub fn wrap_call<T: AsRef<str>>(head: &str, items: &[T], column: usize, indent: usize) -> String {
    let line = items
        .iter()
        .map(AsRef::as_ref)
        .collect::<Vec<_>>()
        .join(", ");
    // A bracket and a semicolon or a brace follow.
    if column + head.len() + line.len() + 4 <= MAX_COLUMNS {
        return format!("{head}({line})");
    }
    let space = " ".repeat(indent);
    format!("{head}(\n{space}{})", wrap_list(items, indent, indent))
}

/// A sentence in lines of at most `width`, broken at spaces.
pub fn wrap_words(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lists_stay_on_one_line_and_long_ones_are_indented() {
        assert_eq!(wrap_call("f", &["a", "b"], 0, 4), "f(a, b)");
        let long = "x".repeat(60);
        assert_eq!(
            wrap_call("f", &[&long, &long], 4, 8),
            format!("f(\n        {long},\n        {long})")
        );
    }

    #[test]
    fn paragraphs_break_at_spaces() {
        assert_eq!(wrap_words("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap_words("unbreakable", 3), ["unbreakable"]);
    }
}
