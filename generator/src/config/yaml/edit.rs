//! A config with other ranks that keeps its text: comments, order and layout.

use super::{Config, parse};
use crate::config::Overrides;
use crate::config::schema::Key;
use crate::ir::{Network, Op, OpKind};

/// The text of a config with the ranks of `network`, which differs from the config's network in ranks only. `None` if that cannot be done
/// line by line, because an op whose ranks differ is not a mapping `- {...}` on one line, or if the result is not `network`.
pub fn with_ranks(text: &str, network: &Network) -> Option<String> {
    let Ok(Config::Network(known)) = parse(text, "", &Overrides::default()) else {
        return None;
    };
    if known.ops.len() != network.ops.len() {
        return None;
    }
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    for (old, new) in known.ops.iter().zip(&network.ops) {
        if old != new {
            let mut found = lines.iter_mut().filter(|line| is_named(line, &old.name));
            let line = found.next()?;
            *line = with_ranks_of(line, new)?;
        }
    }
    let edited = lines.join("\n");
    match parse(&edited, "", &Overrides::default()) {
        Ok(Config::Network(found)) if found == *network => Some(edited),
        _ => None,
    }
}

/// A line with a flow mapping: what is before its entries, the entries, and what is after them.
fn entries(line: &str) -> Option<(&str, Vec<&str>, &str)> {
    let start = line.find('{')? + 1;
    if line[..start].trim() != "- {" {
        return None;
    }
    let (mut depth, mut quote, mut entry) = (0u32, None, start);
    let mut found = Vec::new();
    for (at, letter) in line.char_indices().skip_while(|(at, _)| *at < start) {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[' | '{') => depth += 1,
            (None, '}') if depth == 0 => {
                found.push(line[entry..at].trim());
                return Some((&line[..start], found, &line[at..]));
            }
            (None, ']' | '}') => depth = depth.checked_sub(1)?,
            (None, ',') if depth == 0 => {
                found.push(line[entry..at].trim());
                entry = at + 1;
            }
            _ => {}
        }
    }
    None
}

/// The key of an entry, and its value.
fn key_and_value(entry: &str) -> Option<(&str, &str)> {
    let (key, value) = entry.split_once(':')?;
    Some((key.trim(), value.trim()))
}

fn is_named(line: &str, name: &str) -> bool {
    let Some((_, entries, _)) = entries(line) else {
        return false;
    };
    let mut pairs = entries.into_iter().filter_map(key_and_value);
    pairs.any(|(key, value)| key == Key::Name.name() && value.trim_matches(['"', '\'']) == name)
}

fn with_ranks_of(line: &str, op: &Op) -> Option<String> {
    let (before, entries, after) = entries(line)?;
    let replaced = [Key::Ranks, Key::Rank, Key::CpRank, Key::Factors].map(Key::name);
    let is_kept =
        |entry: &&str| key_and_value(entry).is_none_or(|(key, _)| !replaced.contains(&key));
    let mut kept: Vec<String> = entries
        .into_iter()
        .filter(is_kept)
        .map(str::to_owned)
        .collect();
    let (ranks, cp_rank, rank) = match &op.kind {
        OpKind::Conv(conv) => (conv.options.ranks, conv.options.cp_rank, conv.options.rank),
        OpKind::Linear(linear) => (None, None, linear.options.rank),
        _ => (None, None, None),
    };
    if let Some([d1, d2]) = ranks {
        kept.push(format!("{}: [{d1}, {d2}]", Key::Ranks));
    }
    if let Some(rank) = cp_rank {
        kept.push(format!("{}: {rank}", Key::CpRank));
    }
    if let Some(rank) = rank {
        kept.push(format!("{}: {rank}", Key::Rank));
    }
    Some(format!("{before}{}{after}", kept.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::OpId;

    const TEXT: &str = "\
# A small network.
name: net # its name
input: 1x16x14x14

ops:
  # The stem.
  - {op: conv, name: 'a,b', n: 32, ranks: [8, 8], bias: true} # as published
  - {op: conv, name: b, n: 32, factors: [x, y, z], ranks: [9, 8], activation: {clip: [0, 6]}}

  - {op: global_avg_pool, name: pool}
  - {op: flatten, name: flat}
  - {name: fc, op: linear, n: 10}  # the head
";

    fn network(text: &str) -> Network {
        match parse(text, "net.yaml", &Overrides::default()) {
            Ok(Config::Network(network)) => network,
            other => panic!("{other:?}"),
        }
    }

    fn with(network: &Network, op: usize, ranks: Option<[u32; 2]>, rank: Option<u32>) -> Network {
        let mut network = network.clone();
        match &mut network.ops[op].kind {
            OpKind::Conv(conv) => {
                conv.options.ranks = ranks;
                conv.options.factors = None;
            }
            OpKind::Linear(linear) => linear.options.rank = rank,
            other => panic!("{other:?}"),
        }
        network
    }

    #[test]
    fn comments_and_layout_stay() {
        let known = network(TEXT);
        assert_eq!(with_ranks(TEXT, &known).unwrap(), TEXT);
        let other = with(&known, 1, None, None);
        let other = with(&other, 2, Some([16, 24]), None);
        let other = with(&other, 5, None, Some(4));
        let edited = with_ranks(TEXT, &other).unwrap();
        let expected = TEXT
            .replace(", ranks: [8, 8], bias: true}", ", bias: true}")
            .replace(
                "factors: [x, y, z], ranks: [9, 8], activation: {clip: [0, 6]}}",
                "activation: {clip: [0, 6]}, ranks: [16, 24]}",
            )
            .replace("n: 10}", "n: 10, rank: 4}");
        assert_eq!(edited, expected);
        assert_eq!(network(&edited), other);
        assert_eq!(other.op(OpId(1)).name, "a,b");
    }

    #[test]
    fn what_cannot_be_edited_by_line_is_none() {
        let block = "\
name: net
input: 1x16x14x14
ops:
  - op: conv
    name: a
    n: 32
  - {op: conv, name: b, n: 32}
";
        let known = network(block);
        assert_eq!(
            with_ranks(block, &with(&known, 1, Some([8, 8]), None)),
            None
        );
        assert!(with_ranks(block, &with(&known, 2, Some([8, 8]), None)).is_some());
        // Another difference than ranks.
        let mut other = known.clone();
        other.name = "other".to_owned();
        assert_eq!(with_ranks(block, &other), None);
        assert_eq!(with_ranks("no config", &known), None);
    }
}
