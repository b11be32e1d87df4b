//! The right margin of generated C++. Sizes and names decide how long a rendered line is, so lines are broken after rendering.

use super::wrap::{MAX_COLUMNS, wrap_words};

/// Columns by which a continuation line is indented if no bracket is open.
const CONTINUATION: usize = 4;

/// C++ text with its long lines broken: code at brackets, commas and operators, comments between words. Preprocessor directives start in
/// the first column and are not broken, nor are lines without a possible break.
pub fn break_long_lines(text: &str) -> String {
    let mut broken = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let code = &line[indent..];
        if let Some(comment) = code.strip_prefix("//") {
            let mut comment = comment.to_owned();
            let mut is_long = line.len() > MAX_COLUMNS;
            while let Some(&next) = lines.peek()
                && let Some(words) = continued_comment(next, indent, is_long)
            {
                comment = format!("{comment} {words}");
                is_long = next.len() > MAX_COLUMNS;
                lines.next();
            }
            break_comment(&mut broken, indent, &comment);
        } else if code.starts_with('#') {
            broken += code;
            broken.push('\n');
        } else if line.len() <= MAX_COLUMNS || code.ends_with('\\') {
            broken += line;
            broken.push('\n');
        } else if let Some((statement, comment)) = trailing_comment(code) {
            break_comment(&mut broken, indent, comment);
            break_code(&mut broken, indent, statement);
        } else {
            break_code(&mut broken, indent, code);
        }
    }
    if !text.ends_with('\n') {
        broken.pop();
    }
    broken
}

/// The words of a line that continues the comment of the line before it: it starts in lower case, or the line before `is_long`.
fn continued_comment(line: &str, indent: usize, is_long: bool) -> Option<&str> {
    let words = line.get(indent..)?.strip_prefix("// ")?;
    let continues = |c: char| c.is_ascii_lowercase() || is_long && c.is_ascii_alphabetic();
    (line[..indent].trim().is_empty() && words.starts_with(continues)).then_some(words)
}

/// Appends a comment, given without its `//`, in as many lines as it needs.
fn break_comment(text: &mut String, indent: usize, comment: &str) {
    // A list in a comment keeps its indentation.
    let margin = " ".repeat(comment.len() - comment.trim_start().len());
    let start = format!("{}//{margin}", " ".repeat(indent));
    for line in wrap_words(comment.trim(), MAX_COLUMNS - start.len()) {
        *text += format!("{start}{line}").trim_end();
        text.push('\n');
    }
}

/// A statement and the comment after it, without its `//`.
fn trailing_comment(code: &str) -> Option<(&str, &str)> {
    let at = scan(code).into_iter().find(|place| place.comment)?.at;
    Some((code[..at].trim_end(), &code[at + "//".len()..]))
}

/// Appends a line of code at `indent`, in as many lines as it needs.
fn break_code(text: &mut String, indent: usize, code: &str) {
    let mut column = indent;
    let mut rest = code.to_owned();
    let mut continuation = indent + CONTINUATION;
    loop {
        *text += &" ".repeat(column);
        let place = (column + rest.len() > MAX_COLUMNS)
            .then(|| best_break(&rest, MAX_COLUMNS - column))
            .flatten();
        let Some(place) = place else {
            *text += &rest;
            text.push('\n');
            return;
        };
        let (line, next) = rest.split_at(place.at);
        *text += line.trim_end();
        text.push('\n');
        // Under the innermost open bracket, unless that leaves too few columns.
        let next_column = match place.bracket {
            Some(bracket) if column + bracket < MAX_COLUMNS / 2 => column + bracket + 1,
            Some(_) => continuation.max(column),
            None if column > indent => column,
            None => continuation,
        };
        continuation = continuation.max(next_column);
        rest = next.trim_start().to_owned();
        column = next_column;
    }
}

/// A position where a line may be broken, or where its comment starts.
struct Place {
    at: usize,
    comment: bool,
    /// Number of open brackets, less those that were closed without being opened.
    depth: i32,
    /// The innermost open bracket.
    bracket: Option<usize>,
    /// Priority of the break: lower is better.
    rank: u8,
}

/// The best break in the first `columns` columns: outside as many brackets as possible, at the operator of lowest precedence, as far to the
/// right as possible.
fn best_break(code: &str, columns: usize) -> Option<Place> {
    let mut places: Vec<Place> = scan(code)
        .into_iter()
        .filter(|place| !place.comment && place.at > 0)
        .collect();
    // A very short first line is avoided if there is another break.
    let is_short = |place: &Place| place.at < columns / 3;
    if places
        .iter()
        .any(|place| place.at <= columns && !is_short(place))
    {
        places.retain(|place| !is_short(place));
    }
    if places.iter().any(|place| place.at <= columns) {
        places.retain(|place| place.at <= columns);
        let best = places
            .into_iter()
            .min_by_key(|place| (place.depth, place.rank, std::cmp::Reverse(place.at)));
        return best;
    }
    places.into_iter().min_by_key(|place| place.at)
}

/// The positions in a line where it may be broken. Literals are skipped.
fn scan(code: &str) -> Vec<Place> {
    const OPERATORS: [(&str, u8); 9] = [
        (" ? ", 1),
        (" : ", 1),
        (" || ", 2),
        (" && ", 3),
        (" << ", 5),
        (" | ", 5),
        (" + ", 5),
        (" - ", 5),
        (" * ", 6),
    ];
    let mut places = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut depth = 0;
    let bytes = code.as_bytes();
    let mut quote = None;
    for (at, &byte) in bytes.iter().enumerate() {
        if let Some(end) = quote {
            if byte == end && (bytes[at - 1] != b'\\' || bytes[..at].ends_with(b"\\\\")) {
                quote = None;
            }
            continue;
        }
        let mut place = |at, rank, comment| {
            let bracket = open.last().copied();
            places.push(Place {
                at,
                comment,
                depth,
                bracket,
                rank,
            });
        };
        match byte {
            // An apostrophe in a number would separate digits; generated text has none.
            b'"' | b'\'' => quote = Some(byte),
            b'/' if code[at..].starts_with("//") => {
                place(at, 0, true);
                break;
            }
            b'(' | b'[' | b'{' => {
                open.push(at);
                depth += 1;
                // After `{`, or after the bracket of a call whose arguments do not fit on the line.
                if byte == b'{' && bytes.get(at + 1) == Some(&b' ') {
                    places.push(Place {
                        at: at + 2,
                        comment: false,
                        depth: depth - 1,
                        bracket: None,
                        rank: 0,
                    });
                }
            }
            b')' | b']' | b'}' => {
                open.pop();
                depth -= 1;
            }
            b';' | b',' if bytes.get(at + 1) == Some(&b' ') => {
                place(at + 2, if byte == b';' { 0 } else { 4 }, false);
            }
            b' ' => {
                if code[at..].starts_with(" = ") {
                    place(at + 3, 7, false);
                } else if let Some((_, rank)) = OPERATORS
                    .iter()
                    .find(|(operator, _)| code[at..].starts_with(operator))
                {
                    place(at + 1, *rank, false);
                } else if at > 0 && bytes[at - 1] == b')' && depth == 0 {
                    // The statement of an `if` or a loop.
                    place(at + 1, 0, false);
                }
            }
            _ => {}
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text without white space, which is all that a break may change.
    fn dense(text: &str) -> String {
        text.split_whitespace().collect()
    }

    #[test]
    fn code_breaks_at_the_outermost_bracket() {
        let long = "a".repeat(40);
        let line = format!("    float sum = f({long}, g({long}, 1), {long});\n");
        let text = break_long_lines(&line);
        assert_eq!(
            text,
            format!("    float sum = f({long}, g({long}, 1),\n                  {long});\n")
        );
        let line = format!("    if ({long} < 1 && {long} < 2) return {long} + {long};\n");
        let text = break_long_lines(&line);
        assert_eq!(
            text,
            format!("    if ({long} < 1 && {long} < 2)\n        return {long} + {long};\n")
        );
    }

    #[test]
    fn comments_break_between_words_and_run_on() {
        let words = ["word"; 30].join(" ");
        let text = break_long_lines(&format!("  // {words}\n  // next line\n  f();\n"));
        assert!(text.lines().all(|line| line.len() <= MAX_COLUMNS), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(
            text.lines().nth(1).unwrap().ends_with("word next line"),
            "{text}"
        );
        let text = break_long_lines(&format!("f();  // {words}\n"));
        assert!(
            text.starts_with("// word") && text.ends_with("\nf();\n"),
            "{text}"
        );
    }

    #[test]
    fn literals_directives_and_long_names_stay() {
        let name = "n".repeat(150);
        for line in [
            format!("#include \"{name}.h\"\n"),
            format!("    {name}\n"),
            format!("    \"{name}, {name}\"\n"),
        ] {
            assert_eq!(break_long_lines(&line), line);
        }
        let line = format!("    print(\"a // b, \\\"{}\", x);\n", "c, ".repeat(40));
        assert_eq!(dense(&break_long_lines(&line)), dense(&line));
        assert!(break_long_lines(&line).contains("c, c, c"), "{line}");
    }
}
