//! Mutated configs: parsing gives a config or errors with lines.

use crate::fuzz;
use crate::random::Random;
use std::fs;
use std::path::Path;
use tdc_generator::config::Overrides;
use tdc_generator::config::yaml::parse;
use tdc_generator::ir::Precision;

/// Short texts that are error-prone in many contexts.
const AWKWARD: [&str; 38] = [
    "0",
    "-1",
    "1",
    "4294967295",
    "4294967296",
    "2147483647",
    "99999999999999999999",
    "1e400",
    ".nan",
    "-.inf",
    "0x7fffffff",
    "1.5",
    "null",
    "~",
    "true",
    "\"3\"",
    "[",
    "]",
    "{",
    "}",
    ":",
    ",",
    "- ",
    "&a ",
    "*a",
    "<<: *a",
    "!!int ",
    "|",
    ">",
    "#",
    "\t",
    "\r",
    "\0",
    "\u{feff}",
    "\u{2028}",
    "é",
    "---\n",
    "same",
];

/// Start and end of a run of characters that satisfy `predicate`, at a random position.
fn run(random: &mut Random, text: &[u8], predicate: fn(&u8) -> bool) -> Option<(usize, usize)> {
    let from = random.below(text.len());
    let start = from + text[from..].iter().position(predicate)?;
    let length = text[start..]
        .iter()
        .take_while(|&byte| predicate(byte))
        .count();
    Some((start, start + length))
}

fn is_word(byte: &u8) -> bool {
    byte.is_ascii_alphabetic() || *byte == b'_'
}

fn mutate(random: &mut Random, text: &mut Vec<u8>, seeds: &[String]) {
    match random.below(9) {
        0 if !text.is_empty() => {
            let at = random.below(text.len());
            text[at] ^= 1 << random.below(8);
        }
        1 => {
            let mut lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
            if !lines.is_empty() {
                let (a, b) = (random.below(lines.len()), random.below(lines.len()));
                lines.swap(a, b);
                *text = lines.concat();
            }
        }
        2 => {
            if let Some((start, end)) = run(random, text, u8::is_ascii_digit) {
                text.splice(start..end, random.pick(&AWKWARD).bytes());
            }
        }
        3 => {
            let (a, b) = (run(random, text, is_word), run(random, text, is_word));
            if let (Some((start, end)), Some((from, to))) = (a, b) {
                let word = text[from..to].to_vec();
                text.splice(start..end, word);
            }
        }
        4 => text.truncate(random.below(text.len() + 1)),
        5 => {
            let start = random.below(text.len() + 1);
            let end = (start + random.below(200)).min(text.len());
            let piece = text[start..end].to_vec();
            let at = random.below(text.len() + 1);
            text.splice(at..at, piece);
        }
        6 => {
            let start = random.below(text.len() + 1);
            let end = (start + random.below(20)).min(text.len());
            text.drain(start..end);
        }
        7 => {
            let other = seeds[random.below(seeds.len())].as_bytes();
            let start = random.below(other.len());
            let end = (start + random.below(100)).min(other.len());
            let at = random.below(text.len() + 1);
            text.splice(at..at, other[start..end].iter().copied());
        }
        _ => {
            let at = random.below(text.len() + 1);
            text.splice(at..at, random.pick(&AWKWARD).bytes());
        }
    }
    text.truncate(1 << 16);
}

/// Whether a text is a valid config; an error if reading it misbehaved.
fn read(text: &[u8]) -> Result<bool, String> {
    let text = String::from_utf8_lossy(text);
    let mut is_valid = false;
    for dense in [false, true] {
        let overrides = Overrides {
            dense,
            precision: dense.then_some(Precision::Tf32),
            ..Overrides::default()
        };
        match parse(&text, "x.yaml", &overrides) {
            Ok(_) => is_valid = true,
            Err(errors) => {
                let placed = errors.first.iter().any(|error| error.position.is_some());
                if !placed || errors.to_string().is_empty() {
                    return Err(format!("no mistake has a line: {errors:?}"));
                }
            }
        }
    }
    Ok(is_valid)
}

/// The committed configs, and some that together have every key.
fn seeds() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .expect("the folder of configs")
        .map(|entry| entry.expect("an entry of it").path())
        .collect();
    paths.sort();
    let every_key = include_str!("../fixtures/every-key.txt").split("-----\n");
    paths
        .iter()
        .map(|path| fs::read_to_string(path).expect("a config"))
        .chain(every_key.map(str::to_owned))
        .collect()
}

pub fn fuzz_configs(seconds: u64) {
    let seeds = seeds();
    for seed in &seeds {
        assert_eq!(read(seed.as_bytes()), Ok(true), "{seed}");
    }
    let make = |random: &mut Random| {
        let mut text = seeds[random.below(seeds.len())].clone().into_bytes();
        for _ in 0..=random.below(6) {
            mutate(random, &mut text, &seeds);
        }
        text
    };
    fuzz(seconds, "yaml", make, read);
}
