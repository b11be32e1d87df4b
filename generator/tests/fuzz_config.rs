//! Mutated configs: whatever the text, reading it ends with a config or with mistakes that have a line.
//!
//! Deterministic for a given number of rounds. Runs for `TDC_FUZZ_SECONDS` (default 20). For ten minutes:
//!
//! ```text
//! TDC_FUZZ_SECONDS=600 cargo test --release -p tdc-generator --test fuzz_config
//! ```

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};
use tdc_generator::spec::Overrides;
use tdc_generator::spec::yaml::parse;

/// Short texts that are awkward in many places.
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

/// Splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`; 0 when that is 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }
}

/// A start and end of a run of characters for which `wanted` holds, at a random place.
fn run(random: &mut Random, text: &[u8], wanted: fn(&u8) -> bool) -> Option<(usize, usize)> {
    let from = random.below(text.len());
    let start = from + text[from..].iter().position(wanted)?;
    let length = text[start..]
        .iter()
        .take_while(|&byte| wanted(byte))
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

/// What is wrong with the way a text was read, if anything is.
fn problem(text: &str, overrides: Overrides) -> Option<String> {
    let read = catch_unwind(|| parse(text, "x.yaml", &overrides));
    match read {
        Err(_) => Some("it panicked".to_owned()),
        Ok(Ok(_)) => None,
        Ok(Err(errors)) => {
            let placed = errors.first.iter().any(|error| error.position.is_some());
            let printed = errors.to_string();
            (!placed || printed.is_empty()).then(|| format!("no mistake has a line: {errors:?}"))
        }
    }
}

#[test]
fn no_text_is_too_strange() {
    let seconds = std::env::var("TDC_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .expect("the folder of configs")
        .map(|entry| entry.expect("an entry of it").path())
        .collect();
    paths.sort();
    let mut seeds: Vec<String> = paths
        .iter()
        .map(|path| fs::read_to_string(path).expect("a config"))
        .collect();
    seeds.extend(
        include_str!("fixtures/every-key.txt")
            .split("-----\n")
            .map(str::to_owned),
    );
    for seed in &seeds {
        let read = parse(seed, "seed", &Overrides::default());
        assert!(
            read.is_ok(),
            "{}",
            read.err().map_or(String::new(), |e| e.to_string())
        );
    }
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random(1);
    let (mut rounds, mut good) = (0u64, 0u64);
    while Instant::now() < deadline {
        let mut text = seeds[random.below(seeds.len())].clone().into_bytes();
        for _ in 0..=random.below(6) {
            mutate(&mut random, &mut text, &seeds);
        }
        let text = String::from_utf8_lossy(&text);
        let overrides = Overrides {
            dense: random.below(4) == 0,
            ..Overrides::default()
        };
        if let Some(problem) = problem(&text, overrides) {
            let path = std::env::temp_dir().join(format!("tdc-config-{rounds}.yaml"));
            fs::write(&path, text.as_bytes()).expect("the failing input kept");
            panic!("{problem}; the text is in {}", path.display());
        }
        good += u64::from(parse(&text, "x.yaml", &overrides).is_ok());
        rounds += 1;
    }
    println!("{rounds} texts, {good} of them valid");
    // A mutator that only makes rubbish would test the YAML parser and nothing behind it.
    assert!(rounds < 1000 || good > rounds / 100, "{good} of {rounds}");
}
