//! Wording of messages.

/// A count with its noun: `1 layer`, `2 layers`. The plural must be the noun with an `s`.
pub fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}
