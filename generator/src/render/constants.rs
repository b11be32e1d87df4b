//! Named constants of a kernel. A template refers to an integer of its context by its name in upper case (`PIXEL_TILES` for
//! `pixel_tiles`, `CORE_ROWS` for `core.rows`); the constants that a rendered kernel uses are declared at the top of its body, those of
//! each nested object together, and the offsets in memory (`INPUT_AT`) that are in none.

use super::wrap::wrap_list;
use serde_json::Value;
use std::collections::HashMap;

/// A rendered kernel with declarations of the constants that it uses and does not declare itself.
pub fn declare_constants(text: &str, context: &Value) -> String {
    const BODY: &str = "\n{\n";
    let Some(body) = text.find(BODY).map(|at| at + BODY.len()) else {
        return text.to_owned();
    };
    let mut values = HashMap::new();
    collect("", context, &mut values);
    let mut groups: Vec<(String, Vec<String>)> = vec![(String::new(), Vec::new())];
    let mut long_declarations = String::new();
    for name in names(&text[body..]) {
        let Some((group, value)) = values.remove(name) else {
            continue;
        };
        if is_declared(&text[body..], name) {
            continue;
        }
        match i32::try_from(value) {
            Ok(value) => {
                let declaration = format!("{name} = {value}");
                match groups.iter_mut().find(|(known, _)| *known == group) {
                    Some((_, declarations)) => declarations.push(declaration),
                    None => groups.push((group, vec![declaration])),
                }
            }
            Err(_) => {
                long_declarations += &format!("    constexpr long long {name} = {value};\n");
            }
        }
    }
    let (head, rest) = text.split_at(body);
    let mut declared = head.to_owned();
    for (_, declarations) in groups {
        if declarations.is_empty() {
            continue;
        }
        let start = "    constexpr int ";
        declared += start;
        declared += &wrap_list(&declarations, start.len(), 2 * 4);
        declared += ";\n";
    }
    declared + &long_declarations + rest
}

/// The end of the names of offsets.
const OFFSET_SUFFIX: &str = "_AT";

/// The integers of a context, each with its group, by their names in upper case. A nested object is a group; its integers are prefixed
/// with its name.
fn collect(prefix: &str, context: &Value, values: &mut HashMap<String, (String, i64)>) {
    for (key, value) in context.as_object().into_iter().flatten() {
        let name = format!("{prefix}{}", key.to_ascii_uppercase());
        if let Some(number) = value.as_i64() {
            let is_offset = prefix.is_empty() && name.ends_with(OFFSET_SUFFIX);
            let group = if is_offset { OFFSET_SUFFIX } else { prefix };
            values.insert(name, (group.to_owned(), number));
        } else {
            collect(&format!("{name}_"), value, values);
        }
    }
}

/// The words of a text outside comments, in order.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let code = text
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    code.flat_map(|code| code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(|word| !word.is_empty())
}

/// Whether a text declares a constant itself.
fn is_declared(text: &str, name: &str) -> bool {
    let declares = |line: &str| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            before == Some(' ') && line[at + name.len()..].starts_with(" = ")
        })
    };
    text.lines().any(declares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn constants_that_are_used_and_not_declared_are_declared() {
        let text = "f()\n{\n    constexpr int H = 3;\n    g(A_AT, H, TILES_W, CORE_ROWS * 2, BIG);  // UNUSED\n}\n";
        let context = json!({
            "h": 3, "a_at": 4, "tiles_w": 1, "unused": 2, "core": {"rows": 16}, "name": "x", "big": 1u64 << 33,
        });
        let declared = "f()\n{\n    constexpr int TILES_W = 1;\n    constexpr int A_AT = 4;\n    constexpr int CORE_ROWS = 16;\n    constexpr long long BIG = 8589934592;\n";
        assert_eq!(
            declare_constants(text, &context),
            text.replace("f()\n{\n", declared)
        );
        assert_eq!(declare_constants("int x;\n", &context), "int x;\n");
    }
}
