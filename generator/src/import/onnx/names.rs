//! Names of ops and networks from those of the file.
//!
//! PyTorch's older exporter writes module paths into node names (`/layer1/layer1.0/conv1/Conv`), its newer one into metadata
//! (`['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_1']`). Both give `layer1.0.conv1`. If the exporter has folded a BatchNorm into a
//! convolution, only the name of the weight, `layer1.0.conv1.weight`, is still that of the convolution.

use super::error::NodePlace;
use super::message::Node;
use std::collections::{HashMap, HashSet};

/// A C identifier from any text.
pub fn identifier(text: &str) -> String {
    let mut name: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .take(80)
        .collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert_str(0, "net_");
    }
    name
}

/// Where a node comes from, for messages.
pub fn place(node: &Node) -> NodePlace {
    let name = node.name.as_deref().filter(|name| !name.is_empty());
    let output = node.output.first().map(String::as_str);
    NodePlace {
        name: name.or(output).unwrap_or_default().to_owned(),
        op: op_type(node).to_owned(),
        scope: module(node),
        source: metadata(node, "pkg.torch.onnx.stack_trace").and_then(source_line),
    }
}

/// The op type of a node.
pub fn op_type(node: &Node) -> &str {
    node.op_type.as_deref().unwrap_or_default()
}

/// Longest path of modules that is read; every prefix of it is looked at.
const MAX_PATH: usize = 4096;

/// The module of the exporting program that a node belongs to.
pub fn module(node: &Node) -> Option<String> {
    if let Some(scopes) = metadata(node, "pkg.torch.onnx.name_scopes") {
        if scopes.len() > MAX_PATH {
            return None;
        }
        let scopes = scopes.trim().strip_prefix('[')?.strip_suffix(']')?;
        let parts: Vec<&str> = scopes
            .split(", ")
            .map(|part| part.trim_matches(['\'', '"']))
            .collect();
        // The last one is the operation itself.
        let module = parts.len().checked_sub(2).map(|index| parts[index])?;
        return Some(module.to_owned());
    }
    let path = node.name.as_deref()?.strip_prefix('/')?;
    if path.len() > MAX_PATH {
        return None;
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    let module = parts.into_iter().fold(String::new(), |all, part| {
        let inside = part.strip_prefix(&all[..]);
        match inside {
            _ if all.is_empty() => part.to_owned(),
            Some(rest) if rest.starts_with('.') => part.to_owned(),
            _ => format!("{all}.{part}"),
        }
    });
    Some(module)
}

fn metadata<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    let mut entries = node.metadata_props.iter();
    let entry = entries.find(|entry| entry.key.as_deref() == Some(key))?;
    entry.value.as_deref()
}

/// `model.py:275` from the innermost `File ".../model.py", line 275, in forward` of a stack trace.
fn source_line(trace: &str) -> Option<String> {
    let line = trace
        .lines()
        .rev()
        .find(|line| line.trim_start().starts_with("File \""))?;
    let (path, rest) = line
        .trim_start()
        .strip_prefix("File \"")?
        .split_once("\", line ")?;
    let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let file = path.rsplit(['/', '\\']).next()?;
    Some(format!("{file}:{number}"))
}

/// Gives each op a name of its own.
#[derive(Debug, Default)]
pub struct Names {
    /// Modules that contain other modules: no op has their name.
    containers: HashSet<String>,
    used: HashSet<String>,
    /// How many ops have asked for a name.
    numbers: HashMap<String, u32>,
}

impl Names {
    /// For the nodes of a graph.
    pub fn new(nodes: &[Node]) -> Self {
        let mut containers = HashSet::new();
        for module in nodes.iter().filter_map(module) {
            for (end, _) in module.match_indices('.') {
                containers.insert(clean(&module[..end]));
            }
        }
        Self {
            containers,
            used: HashSet::new(),
            numbers: HashMap::new(),
        }
    }

    /// This name, or one like it.
    pub fn like(&mut self, name: &str) -> String {
        self.unused(&clean(name))
    }

    /// A name for the op of a node.
    pub fn op(&mut self, node: &Node) -> String {
        self.op_called(node, &op_type(node).to_lowercase())
    }

    /// The same, if it has to be told from others of its module by a word.
    pub fn op_called(&mut self, node: &Node, kind: &str) -> String {
        let weight = node.input.get(1);
        if let Some(module) = weight.and_then(|weight| weight.strip_suffix(".weight")) {
            return self.unused(&clean(module));
        }
        let base = match module(node).map(|module| clean(&module)) {
            Some(module) if module.is_empty() => kind.to_owned(),
            Some(module) if self.containers.contains(&module) => format!("{module}.{kind}"),
            Some(module) => module,
            None => clean(
                node.name
                    .as_deref()
                    .filter(|name| !name.is_empty())
                    .unwrap_or(kind),
            ),
        };
        self.unused(&base)
    }

    /// The name itself, or with a number if it is in use.
    fn unused(&mut self, base: &str) -> String {
        let base = if base.is_empty() { "op" } else { base };
        // Names of other ops may look like numbered ones.
        loop {
            let number = self.numbers.entry(base.to_owned()).or_insert(0);
            *number += 1;
            let name = match number {
                1 => base.to_owned(),
                number => format!("{base}_{number}"),
            };
            if self.used.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// A name for configs: letters, digits, `.`, `-` and `_`.
fn clean(name: &str) -> String {
    let trimmed = name.trim_matches(['/', '.']);
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    trimmed
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .take(120)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::message::Entry;
    use super::*;

    fn node(name: &str, op: &str) -> Node {
        Node {
            name: Some(name.to_owned()),
            op_type: Some(op.to_owned()),
            ..Node::default()
        }
    }

    #[test]
    fn both_exporters_give_module_names() {
        let nodes = [
            node("/layer1/layer1.0/conv1/Conv", "Conv"),
            node("/layer1/layer1.0/relu/Relu", "Relu"),
            node("/layer1/layer1.0/relu/Relu_1", "Relu"),
            node("/layer1/layer1.0/Add", "Add"),
            node("/Flatten", "Flatten"),
            node("", "Gemm"),
        ];
        let mut names = Names::new(&nodes);
        let found: Vec<_> = nodes.iter().map(|node| names.op(node)).collect();
        let expected = [
            "layer1.0.conv1",
            "layer1.0.relu",
            "layer1.0.relu_2",
            "layer1.0.add",
            "flatten",
            "gemm",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn metadata_name_the_source() {
        let entry = |key: &str, value: &str| Entry {
            key: Some(key.to_owned()),
            value: Some(value.to_owned()),
        };
        let trace = "File \"/a/run.py\", line 3, in main\n  m(x)\nFile \"/lib/resnet.py\", line 275, in forward\n    return self.conv1(x)";
        let node = Node {
            metadata_props: vec![
                entry(
                    "pkg.torch.onnx.name_scopes",
                    "['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_1']",
                ),
                entry("pkg.torch.onnx.stack_trace", trace),
            ],
            ..node("node_conv2d_1", "Conv")
        };
        assert_eq!(
            place(&node).to_string(),
            "node `node_conv2d_1` (Conv of layer1.0.conv1, resnet.py:275)"
        );
        assert_eq!(Names::new(&[]).op(&node), "layer1.0.conv1");
    }
}
