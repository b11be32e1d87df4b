use super::*;
use crate::config::yaml::ModelOptions;
use crate::config::{Config, ConfigErrors, Overrides, text, yaml};

/// A value that no key takes.
const WRONG: &str = "{zzz: [[]]}";

/// The mapping in flow style with `key` set to [`WRONG`].
fn with_wrong(required: &[(&str, &str)], key: Key) -> String {
    let others = required.iter().filter(|(name, _)| *name != key.name());
    let others: String = others
        .map(|(name, value)| format!("{name}: {value}, "))
        .collect();
    format!("{{{others}{key}: {WRONG}}}")
}

/// A network with an op.
fn network(op: &str) -> String {
    format!("{{name: net, input: 1x8x9x9, ops: [{op}]}}")
}

/// A layer set with a layer.
fn layer_set(layer: &str) -> String {
    format!("{{name: set, layers: [{layer}]}}")
}

/// A config or a call, in which the mapping has a wrong value of the key and is valid otherwise.
fn text_with_wrong(mapping: Mapping, key: Key) -> String {
    let conv = "{op: conv, name: a, n: 8}";
    let of_conv =
        |key: &str, value: String| network(&format!("{{op: conv, name: a, n: 8, {key}: {value}}}"));
    match mapping {
        Mapping::Network => {
            let ops = format!("[{conv}]");
            with_wrong(&[("name", "net"), ("input", "1x8x9x9"), ("ops", &ops)], key)
        }
        Mapping::LayerSet => with_wrong(
            &[("name", "set"), ("layers", "[{conv: [8, 8, 9, 9]}]")],
            key,
        ),
        Mapping::Defaults => format!(
            "{{name: set, defaults: {}, layers: [{{conv: [8, 8, 9, 9]}}]}}",
            with_wrong(&[], key)
        ),
        Mapping::Layer => layer_set(&with_wrong(&[("conv", "[8, 8, 9, 9]")], key)),
        Mapping::Op(op) => {
            let mut required = vec![("op", op.row().name), ("name", "a")];
            match op {
                NetworkOp::Conv | NetworkOp::Linear | NetworkOp::Slice => {
                    required.push(("n", "8"));
                }
                NetworkOp::Shuffle => required.push(("groups", "2")),
                NetworkOp::Pad => required.push(("pad", "1")),
                NetworkOp::ConvTranspose => required.extend([("n", "8"), ("kernel", "2")]),
                NetworkOp::Lrn => required.push(("size", "5")),
                NetworkOp::Resize if key != Key::Size => required.push(("scale", "2")),
                NetworkOp::MaxPool | NetworkOp::AvgPool => required.push(("kernel", "2")),
                NetworkOp::Activation => required.push(("activation", "relu")),
                _ => {}
            }
            network(&with_wrong(&required, key))
        }
        Mapping::Call(op) => {
            let ranks = match op {
                CallOp::Tucker if key != Key::Ranks => ", ranks = [2, 2]",
                CallOp::LowRank if key != Key::Rank => ", rank = 2",
                _ => "",
            };
            let sizes = &["8", "8", "9", "9"][..op.row().sizes.len()].join(",");
            format!("{} {sizes}{ranks}, {key} = {WRONG}", op.row().name)
        }
        Mapping::CallConfig => format!("\"a.yaml\", {key} = {WRONG}"),
        Mapping::CallConfigLayer if key == Key::Layer => {
            format!("\"a.yaml\", {key} = {WRONG}")
        }
        Mapping::CallConfigLayer => format!("\"a.yaml\", layer = \"b\", {key} = {WRONG}"),
        Mapping::ModelOptions => with_wrong(&[], key),
        Mapping::LayerOptions(op) => {
            let layer = match op {
                NetworkOp::Linear => "l",
                _ => "a",
            };
            format!("{{layers: {{{layer}: {}}}}}", with_wrong(&[], key))
        }
        Mapping::Input => format!(
            "{{name: net, input: {}, ops: [{{op: conv, name: a, n: 8}}]}}",
            with_wrong(&[("shape", "1x8x9x9")], key)
        ),
        Mapping::ModelOutput => format!("{{output: {}}}", with_wrong(&[], key)),
        Mapping::Output => of_conv("output", with_wrong(&[("name", "b")], key)),
        Mapping::Pad => of_conv("pad", with_wrong(&[], key)),
        Mapping::BatchNorm => of_conv("bn", with_wrong(&[("name", "b")], key)),
        Mapping::Prologue => layer_set(&format!(
            "{{conv: [8, 8, 9, 9], prologue: {}}}",
            with_wrong(&[], key)
        )),
    }
}

fn errors(mapping: Mapping, text: &str) -> Option<ConfigErrors> {
    match mapping {
        Mapping::Call(_) | Mapping::CallConfigLayer => text::parse(text, "call").err(),
        Mapping::ModelOptions | Mapping::ModelOutput | Mapping::LayerOptions(_) => {
            let model = "{name: net, input: 1x8x1x1, ops: [{op: conv, name: a, n: 8, kernel: 1}, {op: linear, name: l, n: 8}]}";
            let model = yaml::parse(model, "model", &Overrides::default());
            let Ok(Config::Network(model)) = model else {
                panic!("{model:?}");
            };
            let options = ModelOptions::parse(text, "a.yaml");
            let applied = options.and_then(|options| options.apply(model, &Overrides::default()));
            applied.err()
        }
        Mapping::CallConfig => text::parse_config(text, "call").err(),
        _ => yaml::parse(text, "a.yaml", &Overrides::default()).err(),
    }
}

fn mappings() -> Vec<Mapping> {
    let mut mappings = vec![
        Mapping::Network,
        Mapping::LayerSet,
        Mapping::Defaults,
        Mapping::Layer,
        Mapping::CallConfig,
        Mapping::CallConfigLayer,
        Mapping::ModelOptions,
        Mapping::LayerOptions(NetworkOp::Conv),
        Mapping::LayerOptions(NetworkOp::Linear),
        Mapping::Input,
        Mapping::Output,
        Mapping::ModelOutput,
        Mapping::Pad,
        Mapping::BatchNorm,
        Mapping::Prologue,
    ];
    mappings.extend(NetworkOp::mappings());
    mappings.extend(CallOp::mappings());
    mappings
}

/// A key that nothing reads would be accepted with any value.
#[test]
fn every_key_of_every_mapping_is_read() {
    let mut checked = 0;
    for mapping in mappings() {
        for key in mapping.keys() {
            let text = text_with_wrong(mapping, key);
            let start = text.find(WRONG).expect("the wrong value") + 1;
            let value = start..start + WRONG.len();
            let found = errors(mapping, &text);
            let columns: Vec<_> = found
                .iter()
                .flat_map(|errors| &errors.first)
                .map(|error| error.position.map_or(0, |at| at.column))
                .collect();
            let is_read = !columns.is_empty() && columns.iter().all(|at| value.contains(at));
            assert!(is_read, "`{key}` of {}: {text}: {found:?}", mapping.title());
            checked += 1;
        }
    }
    assert!(checked > 150, "{checked}");
}

#[test]
fn every_key_has_a_row_and_every_row_a_mapping() {
    for &key in Key::ALL {
        assert!(ROWS.iter().any(|row| row.key == key), "{key} has no row");
    }
    for row in ROWS {
        let mut mappings = mappings().into_iter();
        assert!(mappings.any(row.is_of), "`{}`: {}", row.key, row.meaning);
    }
}

/// Otherwise it would be ambiguous which row holds.
#[test]
fn no_mapping_has_a_key_twice() {
    for mapping in mappings() {
        let keys: Vec<Key> = mapping.keys().collect();
        for (index, key) in keys.iter().enumerate() {
            assert!(
                !keys[..index].contains(key),
                "`{key}` of {}",
                mapping.title()
            );
        }
    }
}
