//! What a user sees for every kind of mistake in a config, word for word.

use std::fmt::Write;
use tdc_generator::spec::yaml::{load, parse};
use tdc_generator::spec::{ConfigErrors, Overrides};

/// `line:column: message` of every mistake, one a line.
fn short(errors: &ConfigErrors) -> String {
    let mut text = String::new();
    for error in &errors.0 {
        if let Some(at) = error.position {
            let _ = write!(text, "{}:{}: ", at.line, at.column);
        }
        let _ = writeln!(text, "{}", error.message);
    }
    text
}

fn mistakes(text: &str) -> String {
    match parse(text, "x.yaml", &Overrides::default()) {
        Ok(config) => format!("no mistake: {config:?}\n"),
        Err(errors) => short(&errors),
    }
}

/// A network with these lines under `ops`, which start at line 4.
fn ops(lines: &str) -> String {
    format!("name: net\ninput: 1x8x9x9\nops:\n{lines}")
}

/// The table: each block is a config, then `===>` and the mistakes expected in it, up to `-----`.
/// A config that starts with `- {op` stands for the `ops` of a network with the input 1x8x9x9.
#[test]
fn every_mistake_has_its_message() {
    let table = include_str!("fixtures/config-errors.txt");
    let mut wrong = String::new();
    for block in table.split("-----\n").filter(|block| !block.is_empty()) {
        let Some((text, expected)) = block.split_once("===>\n") else {
            panic!("a block without ===>:\n{block}");
        };
        let config = match text.starts_with("- {op") {
            true => ops(text),
            false => text.to_owned(),
        };
        let found = mistakes(&config);
        if found != expected {
            let _ = write!(wrong, "{text}===>\n{found}-----\n");
        }
    }
    assert!(wrong.is_empty(), "found instead:\n{wrong}");
}
