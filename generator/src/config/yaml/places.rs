//! Positions of the layers of a config, for errors that are found by the planner.

use super::Config;
use super::node::{Node, Value};
use crate::config::schema::Key;
use crate::config::{ConfigErrors, Position};

/// The positions of a config's keys, and of those of its ops or layers.
#[derive(Debug, Clone)]
pub struct Places {
    file: String,
    text: String,
    config: Mapping,
    /// Defaults of a layer.
    defaults: Option<Mapping>,
    /// Ops of a network or layers of a layer set, by name.
    layers: Vec<(String, Mapping)>,
}

/// A mapping with its values.
#[derive(Debug, Clone)]
struct Mapping {
    at: Position,
    keys: Vec<(String, Position)>,
}

impl Mapping {
    fn of(node: &Node) -> Self {
        Self {
            at: node.at,
            keys: entries(node)
                .map(|(key, value)| (key.to_owned(), value.at))
                .collect(),
        }
    }

    fn key(&self, key: &str) -> Option<Position> {
        let mut keys = self.keys.iter();
        keys.find(|(known, _)| known == key).map(|(_, at)| *at)
    }
}

fn entries(node: &Node) -> impl Iterator<Item = (&str, &Node)> {
    let map = match &node.value {
        Value::Map(map) => &map[..],
        _ => &[],
    };
    map.iter().filter_map(|(key, value)| match &key.value {
        Value::String(word) => Some((&word[..], value)),
        _ => None,
    })
}

impl Places {
    /// The positions in a valid text, with the config parsed from it.
    pub(super) fn new(file: &str, text: &str, root: &Node, config: &Config) -> Self {
        let (list, names): (_, Vec<&str>) = match config {
            // The first ops are the inputs, which are not in the list.
            Config::Network(network) => (
                Key::Ops,
                network.ops[network.inputs().len()..]
                    .iter()
                    .map(|op| &op.name[..])
                    .collect(),
            ),
            Config::LayerSet(set) => (
                Key::Layers,
                set.layers.iter().map(|layer| &layer.name[..]).collect(),
            ),
        };
        let find = |key: Key| entries(root).find(|(word, _)| *word == key.name());
        let items = match find(list).map(|(_, node)| &node.value) {
            Some(Value::List(items)) => &items[..],
            _ => &[],
        };
        Self {
            file: file.to_owned(),
            text: text.to_owned(),
            config: Mapping::of(root),
            defaults: find(Key::Defaults).map(|(_, node)| Mapping::of(node)),
            layers: names
                .into_iter()
                .map(str::to_owned)
                .zip(items.iter().map(Mapping::of))
                .collect(),
        }
    }

    /// The positions in a text whose layers are the entries of a mapping.
    pub(super) fn of_mapping(file: &str, text: &str, root: &Node, layers: &[(Node, Node)]) -> Self {
        let layer = |(key, node): &(Node, Node)| match &key.value {
            Value::String(name) => Some((name.clone(), Mapping::of(node))),
            _ => None,
        };
        Self {
            file: file.to_owned(),
            text: text.to_owned(),
            config: Mapping::of(root),
            defaults: None,
            layers: layers.iter().filter_map(layer).collect(),
        }
    }

    /// The position of a key of the op or layer with the given name, or of the layer if it does not have the
    /// key. Tasks of a lowered layer have a suffix after its name, such as `conv.core`.
    pub fn of_layer(&self, name: &str, key: Option<&str>) -> Position {
        let is_of = |known: &str| {
            let rest = name.strip_prefix(known);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+']))
        };
        let found = self.layers.iter().filter(|(known, _)| is_of(known));
        let Some((_, layer)) = found.max_by_key(|(known, _)| known.len()) else {
            return self.config.at;
        };
        let inherited = |key| self.defaults.as_ref()?.key(key);
        key.and_then(|key| layer.key(key).or_else(|| inherited(key)))
            .unwrap_or(layer.at)
    }

    /// The position of a key of the config itself, or of the start of the config.
    pub fn of_config(&self, key: Key) -> Position {
        self.config.key(key.name()).unwrap_or(self.config.at)
    }

    /// Errors at these positions, in the order of the text.
    pub fn errors(&self, located_errors: impl Iterator<Item = (Position, String)>) -> ConfigErrors {
        let mut located_errors: Vec<_> = located_errors.collect();
        located_errors.sort();
        located_errors.dedup();
        ConfigErrors::in_text(&self.file, &self.text, &located_errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, yaml};

    #[test]
    fn layers_and_their_keys_are_found() {
        let text = "\
name: n
input: 1x3x8x8
ops:
  - {op: conv, name: a, n: 8, scheme: direct}
  - op: conv
    name: a.b
    n: 8
    ranks: [4, 4]
";
        let (_, places) = yaml::parse_with_places(text, "n.yaml", &Overrides::default()).unwrap();
        let at = |line, column| Position { line, column };
        assert_eq!(places.of_layer("a", Some("scheme")), at(4, 39));
        assert_eq!(places.of_layer("a", Some("tile")), at(4, 5));
        assert_eq!(places.of_layer("a", None), at(4, 5));
        assert_eq!(places.of_layer("a.core", Some("n")), at(4, 28));
        assert_eq!(places.of_layer("a.b", Some("n")), at(7, 8));
        assert_eq!(places.of_layer("a.b.core+c.first", Some("n")), at(7, 8));
        assert_eq!(places.of_layer("ab", Some("n")), at(1, 1));
        assert_eq!(places.of_config(Key::Input), at(2, 8));
        assert_eq!(places.of_config(Key::Gpu), at(1, 1));
        let located_errors = [
            (at(7, 8), "late".to_owned()),
            (at(4, 5), "early".to_owned()),
        ];
        assert_eq!(
            places.errors(located_errors.into_iter()).to_string(),
            "n.yaml:4:5: early\n      - {op: conv, name: a, n: 8, scheme: direct}\n        ^\n\
             n.yaml:7:8: late\n        n: 8\n           ^"
        );
    }

    #[test]
    fn a_layer_has_the_keys_of_the_defaults() {
        let text = "\
name: set
defaults: {scheme: direct}
layers:
  - {conv: [4, 8, 6, 6]}
  - {conv: [4, 8, 6, 7], name: x, scheme: tdc}
";
        let (config, places) =
            yaml::parse_with_places(text, "set.yaml", &Overrides::default()).unwrap();
        let yaml::Config::LayerSet(set) = config else {
            panic!("no set");
        };
        let scheme = |name: &str| places.of_layer(name, Some("scheme"));
        let at = |line, column| Position { line, column };
        assert_eq!(scheme(&set.layers[0].name), at(2, 20));
        assert_eq!(scheme("x"), at(5, 43));
    }
}
