//! The messages for all kinds of errors in a config, verbatim.

use std::fmt::Write;
use std::path::Path;
use tdc_generator::config::yaml::{load, parse};
use tdc_generator::config::{ConfigErrors, Overrides};
use tdc_generator::gpu::GPUS;

/// `line:column: message` of all errors, one per line.
fn short(errors: &ConfigErrors) -> String {
    let mut text = String::new();
    for error in &errors.first {
        if let Some(at) = error.position {
            let _ = write!(text, "{}:{}: ", at.line, at.column);
        }
        let _ = writeln!(text, "{}", error.message);
    }
    text
}

fn error_lines(text: &str) -> String {
    match parse(text, "x.yaml", &Overrides::default()) {
        Ok(config) => format!("no error: {config:?}\n"),
        Err(errors) => short(&errors),
    }
}

/// A network with these lines under `ops`, which start at line 4.
fn ops(lines: &str) -> String {
    format!("name: net\ninput: 1x8x9x9\nops:\n{lines}")
}

fn whole_text(text: &str) -> String {
    match parse(text, "configs/x.yaml", &Overrides::default()) {
        Ok(config) => format!("no error: {config:?}"),
        Err(errors) => errors.to_string(),
    }
}

fn load_error(path: &Path) -> String {
    match load(path, &Overrides::default()) {
        Ok(config) => format!("no error: {config:?}"),
        Err(errors) => errors.to_string(),
    }
}

/// The table: each block is a config, then `===>` and the expected errors, up to `-----`. A config that
/// starts with `- {` is the list `ops` of a network with the input 1x8x9x9. `{gpus}` are the names of all GPUs.
#[test]
fn every_error_has_its_message() {
    let gpus: Vec<_> = GPUS.iter().map(|gpu| gpu.name).collect();
    let table = include_str!("fixtures/config-errors.txt").replace("{gpus}", &gpus.join(", "));
    let mut wrong = String::new();
    for block in table.split("-----\n").filter(|block| !block.is_empty()) {
        let Some((text, expected)) = block.split_once("===>\n") else {
            panic!("a block without ===>:\n{block}");
        };
        let config = match text.starts_with("- {") {
            true => ops(text),
            false => text.to_owned(),
        };
        let found = error_lines(&config);
        if found != expected {
            let _ = write!(wrong, "{text}===>\n{found}-----\n");
        }
    }
    assert!(wrong.is_empty(), "found instead:\n{wrong}");
}

#[test]
fn an_error_is_printed_with_its_line_and_a_caret() {
    let text = ops("- {op: conv, name: a, n: 64, ranks: [80, 32]}\n").replace("1x8", "1x64");
    let expected = "\
configs/x.yaml:4:38: rank 80 is not between 1 and 64; D1 is at most the input channels; ranks are written [D1, D2]
    - {op: conv, name: a, n: 64, ranks: [80, 32]}
                                         ^";
    assert_eq!(whole_text(&text), expected);
    // A byte-order mark and Windows line ends make no difference.
    let windows = format!("\u{feff}{}", text.replace('\n', "\r\n"));
    assert_eq!(whole_text(&windows), expected);
}

#[test]
fn a_long_list_of_errors_is_truncated() {
    let lines: String = (0..80)
        .map(|i| format!("- {{op: conv, name: c{i}, n: 0}}\n"))
        .collect();
    let wrong: String = lines.replace("n: 0", "n: x");
    let printed = whole_text(&ops(&wrong));
    assert_eq!(printed.matches("must be a whole number").count(), 50);
    assert!(printed.ends_with("\nand 30 more errors"), "{printed}");
}

#[test]
fn files_that_cannot_be_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let missing = at("missing.yaml");
    assert_eq!(
        load_error(&missing),
        format!("{}: no such file; check the path", missing.display())
    );
    assert_eq!(
        load_error(folder.path()),
        format!(
            "{}: this is a directory; give a YAML file",
            folder.path().display()
        )
    );
    let binary = at("binary.yaml");
    std::fs::write(&binary, b"name: net\n\xff\xfe").expect("a written file");
    assert_eq!(
        load_error(&binary),
        format!(
            "{}: line 2 is not UTF-8 text; save the file as UTF-8",
            binary.display()
        )
    );
    let large = at("large.yaml");
    std::fs::write(&large, vec![b'#'; (16 << 20) + 1]).expect("a written file");
    assert_eq!(
        load_error(&large),
        format!(
            "{}: the file is larger than 16 MiB; a config has some kilobytes",
            large.display()
        )
    );
}

#[test]
fn an_input_shape_does_not_fit_a_layer_set() {
    let overrides = Overrides {
        input: "1x3x224x224".parse().ok(),
        ..Overrides::default()
    };
    let text = "name: set\nlayers: [{conv: [4, 4, 4, 4]}]\n";
    let found = parse(text, "x.yaml", &overrides).map_err(|errors| short(&errors));
    assert_eq!(
        found,
        Err(
            "1:1: an input shape was given for a layer set; only a network has an input\n"
                .to_owned()
        )
    );
}

#[test]
fn pathological_yaml_is_rejected_quickly() {
    let deep = format!("name: {}", "[".repeat(100_000));
    let deep_maps: String = (0..5000)
        .map(|depth| format!("{}a:\n", " ".repeat(depth)))
        .collect();
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        laughs.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let itself = "name: &a [*a]\nops: *a\n".to_owned();
    let merges = "a: &a {<<: *a}\nops: []\n".to_owned();
    let inputs = vec!["nobody"; 50_000].join(", ");
    let unknown = ops(&format!("- {{op: concat, name: a, inputs: [{inputs}]}}\n"));
    let word = "n".repeat(1 << 20);
    let long = ops(&format!(
        "- {{op: activation, activation: relu, name: a, {word}: 1}}\n"
    ));
    let many = ops(&"- {op: activation, activation: relu, name: a}\n".repeat(20_000));
    for text in [deep, deep_maps, laughs, itself, merges, unknown, long, many] {
        let start: String = text.chars().take(60).collect();
        let found = error_lines(&text);
        assert!(
            found.starts_with(|c: char| c.is_ascii_digit()),
            "{start}: {found}"
        );
    }
}

#[test]
fn anchors_repeat_what_several_ops_share() {
    let text = ops("- &c {op: conv, name: a, n: 8, activation: relu}\n- {<<: *c, name: b}\n");
    assert!(parse(&text, "x.yaml", &Overrides::default()).is_ok());
    let text = ops("- &c {op: conv, name: a, n: 8, ranks: [8, 8]}\n- {<<: *c, name: b, n: 4}\n");
    assert_eq!(
        error_lines(&text),
        "5:8: rank 8 is not between 1 and 4; D2 is at most the output channels; ranks are written [D1, D2]\n"
    );
}
