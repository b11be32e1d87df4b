//! The tables of keys, ops and options in the reference, from the schema of configs.
//!
//! A table is between the lines `<!-- table: NAME -->` and `<!-- end -->`.

use super::root;
use std::fs;
use tdc_generator::config::schema::{CallOp, Key, Mapping, NetworkOp, ROWS, Row};

/// A page with such tables.
struct Page {
    path: &'static str,
    /// What every line starts with.
    indent: &'static str,
    links: Links,
}

/// What happens to links, which are relative to `docs/reference`.
enum Links {
    /// In a page of `docs/reference`, of this name.
    Relative(&'static str),
    /// Only their text is kept.
    Removed,
}

const PAGES: [Page; 4] = [
    Page {
        path: "docs/reference/configs.md",
        indent: "",
        links: Links::Relative("configs.md"),
    },
    Page {
        path: "docs/reference/kernel-macro.md",
        indent: "",
        links: Links::Relative("kernel-macro.md"),
    },
    Page {
        path: "docs/reference/cli.md",
        indent: "",
        links: Links::Relative("cli.md"),
    },
    Page {
        path: "src/lib.rs",
        indent: "/// ",
        links: Links::Removed,
    },
];

/// The table of a name: its title row, and its other rows.
fn table(name: &str) -> Vec<Vec<String>> {
    let of = |mapping: Mapping| move |row: &Row| (row.is_of)(mapping);
    let conv = of(Mapping::Op(NetworkOp::Conv));
    match name {
        "network" => keys(of(Mapping::Network)),
        "every-op" => keys(is_of_every_op),
        "ops" => ops(),
        "keys-of-ops" => {
            let others = NetworkOp::ALL.iter().copied();
            let others = others.filter(|&op| op != NetworkOp::Conv).map(Mapping::Op);
            keys_of(&others.collect::<Vec<_>>(), "op")
        }
        "convolution" => keys(|row| conv(row) && !is_of_every_op(row)),
        "nested" => {
            let nested = [
                Mapping::Input,
                Mapping::Output,
                Mapping::BatchNorm,
                Mapping::Pad,
                Mapping::Prologue,
            ];
            keys_of(&nested, "in")
        }
        "model-options" => keys(of(Mapping::ModelOptions)),
        "layer-options" => keys_of(
            &[
                Mapping::LayerOptions(NetworkOp::Conv),
                Mapping::LayerOptions(NetworkOp::Linear),
            ],
            "of",
        ),
        "layer-set" => keys(of(Mapping::LayerSet)),
        "layer" => keys(|row| of(Mapping::Layer)(row) && !conv(row)),
        "calls" => calls(),
        "keys-of-calls" => {
            let ops = CallOp::ALL.iter().copied().map(Mapping::Call);
            keys_of(&ops.collect::<Vec<_>>(), "op")
        }
        "flags" => flags(),
        _ => panic!("there is no table named {name}"),
    }
}

fn line(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|&cell| cell.to_owned()).collect()
}

fn code(name: &str) -> String {
    format!("`{name}`")
}

/// The name of a mapping in a table.
fn owner_name(owner: Mapping) -> &'static str {
    let title = owner.title().trim_matches('`');
    title.strip_prefix("the options of a ").unwrap_or(title)
}

fn is_of_every_op(row: &Row) -> bool {
    let mut ops = NetworkOp::ALL.iter().copied();
    ops.all(|op| (row.is_of)(Mapping::Op(op)))
}

fn is_of_a_layer(row: &Row) -> bool {
    [Mapping::Layer, Mapping::LayerSet]
        .into_iter()
        .any(row.is_of)
}

/// The rows of the schema that are selected. Keys of a convolution that a layer does not have are marked.
fn keys(is_selected: impl Fn(&Row) -> bool) -> Vec<Vec<String>> {
    let mut table = vec![line(&["key", "value", "default", "meaning"])];
    for row in ROWS.iter().filter(|row| is_selected(row)) {
        let is_conv = (row.is_of)(Mapping::Op(NetworkOp::Conv)) && !is_of_every_op(row);
        let mark = match is_conv && !is_of_a_layer(row) {
            true => " (in a network)",
            false => "",
        };
        let meaning = format!("{}{mark}", row.meaning);
        table.push(line(&[
            &code(row.key.name()),
            row.value,
            row.default,
            &meaning,
        ]));
    }
    table
}

/// The rows of the schema that some of the mappings have, and which ones, unless all have them.
fn keys_of(mappings: &[Mapping], title: &str) -> Vec<Vec<String>> {
    let mut table = vec![line(&["key", title, "value", "default", "meaning"])];
    for row in ROWS.iter().filter(|row| !is_of_every_op(row)) {
        let mut owners = mappings.to_vec();
        owners.retain(|&mapping| (row.is_of)(mapping));
        let names: Vec<_> = owners
            .iter()
            .map(|owner| code(owner_name(*owner)))
            .collect();
        let names = match owners.len() {
            0 => continue,
            all if all == mappings.len() => "all".to_owned(),
            _ => names.join(", "),
        };
        table.push(line(&[
            &code(row.key.name()),
            &names,
            row.value,
            row.default,
            row.meaning,
        ]));
    }
    table
}

fn ops() -> Vec<Vec<String>> {
    let mut table = vec![line(&["op", "keys", "what it computes"])];
    for &op in NetworkOp::ALL {
        let rows = Mapping::Op(op).rows().filter(|row| !is_of_every_op(row));
        let keys: Vec<_> = rows.map(|row| code(row.key.name())).collect();
        let keys = match op {
            NetworkOp::Conv => "[below](configs.md#a-convolution)".to_owned(),
            _ => keys.join(", "),
        };
        table.push(line(&[&code(op.row().name), &keys, op.row().meaning]));
    }
    table
}

fn calls() -> Vec<Vec<String>> {
    let mut table = vec![line(&["call", "what it computes"])];
    for &op in CallOp::ALL {
        let required = Mapping::Call(op)
            .rows()
            .filter(|row| row.default == "required");
        let required: String = required
            .map(|row| format!(", {} = {}", row.key, row.value.trim_matches('`')))
            .collect();
        let call = format!("{} {}{required}", op.row().name, op.row().sizes.join(","));
        table.push(line(&[&code(&call), op.row().meaning]));
    }
    let call = format!("\"net.yaml\", {} = \"name\"", Key::Layer);
    table.push(line(&[
        &code(&call),
        "a convolution or linear layer of a config with the ops fused with it",
    ]));
    table
}

fn flags() -> Vec<Vec<String>> {
    let mut table = vec![line(&["option", "meaning"])];
    for flag in ROWS.iter().filter_map(|row| row.flag) {
        let option = format!("--{} {}", flag.name, flag.value);
        table.push(line(&[&code(option.trim_end()), flag.meaning]));
    }
    table
}

/// Markdown without the targets of its links.
fn without_links(text: &str) -> String {
    let mut pieces = text.split("](");
    let mut result = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let opening = result.rfind('[').expect("the start of a link");
        result.remove(opening);
        let (_, rest) = piece.split_once(')').expect("the end of a link");
        result += rest;
    }
    result
}

impl Page {
    fn cell(&self, text: &str) -> String {
        match self.links {
            Links::Removed => without_links(text),
            Links::Relative(name) => text.replace(&format!("]({name}#"), "](#"),
        }
    }

    fn lines(&self, table: &[Vec<String>]) -> String {
        let mut lines = String::new();
        for (index, cells) in table.iter().enumerate() {
            let cells: Vec<_> = cells.iter().map(|text| self.cell(text)).collect();
            let row = format!("{}| {} |\n", self.indent, cells.join(" | "));
            // An empty cell has one space.
            lines += &row.replace("|  |", "| |");
            if index == 0 {
                lines += &format!("{}{}|\n", self.indent, "|---".repeat(cells.len()));
            }
        }
        lines
    }

    /// The page with the tables of the schema, and their names.
    fn expected(&self, text: &str) -> (String, Vec<String>) {
        let (mut result, mut names) = (String::new(), Vec::new());
        let mut lines = text.lines();
        let end = format!("{}<!-- end -->", self.indent);
        while let Some(line) = lines.next() {
            result += &format!("{line}\n");
            let name = line.strip_prefix(self.indent);
            let name = name.and_then(|line| line.strip_prefix("<!-- table: "));
            let Some(name) = name.and_then(|line| line.strip_suffix(" -->")) else {
                continue;
            };
            assert!(
                lines.any(|line| line == end),
                "{}: no end of {name}",
                self.path
            );
            let table = self.lines(&table(name));
            // Markdown needs an empty line between a comment and a table.
            let empty = self.indent.trim_end();
            result += &format!("{empty}\n{table}{empty}\n{end}\n");
            names.push(name.to_owned());
        }
        (result, names)
    }
}

/// `TDC_BLESS=1` rewrites the tables.
#[test]
fn the_reference_has_the_tables_of_the_schema() {
    let mut all = Vec::new();
    for page in PAGES {
        let path = root().join(page.path);
        let text = fs::read_to_string(&path).expect(page.path);
        let (expected, names) = page.expected(&text);
        all.extend(names);
        if std::env::var_os("TDC_BLESS").is_some() {
            fs::write(&path, &expected).expect("the page is writable");
            continue;
        }
        assert!(
            text == expected,
            "{} is out of date: run this test with TDC_BLESS=1",
            page.path
        );
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 13, "{all:?}");
}

/// No row is missing in the reference.
#[test]
fn every_row_is_in_a_table() {
    let tables = [
        "network",
        "every-op",
        "keys-of-ops",
        "convolution",
        "nested",
        "layer-set",
        "layer",
        "model-options",
        "layer-options",
        "keys-of-calls",
    ];
    let lines: Vec<_> = tables.into_iter().flat_map(table).collect();
    // `layer` is in the table of calls.
    for row in ROWS.iter().filter(|row| row.key != Key::Layer) {
        let found = lines.iter().any(|cells| {
            let meaning = cells
                .last()
                .is_some_and(|text| text.starts_with(row.meaning));
            let has = |text: &str| cells.iter().any(|cell| cell == text);
            cells[0] == code(row.key.name()) && has(row.value) && has(row.default) && meaning
        });
        assert!(found, "`{}`: {}", row.key, row.meaning);
    }
}
