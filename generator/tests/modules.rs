//! Modules depend on each other in one direction only, that of the data flow. Test code is ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the crate in the order of the data flow, each with the modules that it may use. These precede it in the list, so
/// there is no cycle.
const MODULES: &[(&str, &[&str])] = &[
    ("suggest", &[]),
    ("wording", &[]),
    ("gpu", &["suggest"]),
    ("ir", &["gpu", "suggest"]),
    ("cost", &["gpu", "ir"]),
    ("scheme", &["cost", "gpu", "ir", "suggest"]),
    // A config names the numbers of a tile as its scheme does.
    ("config", &["gpu", "ir", "scheme", "suggest"]),
    ("import", &["config", "ir"]),
    ("sequence", &["config", "cost", "gpu", "suggest"]),
    (
        "plan",
        &[
            "cost", "gpu", "ir", "scheme", "sequence", "suggest", "wording",
        ],
    ),
    (
        "render",
        &["cost", "gpu", "ir", "plan", "scheme", "sequence"],
    ),
    ("compress", &["cost", "gpu", "ir", "plan", "suggest"]),
    ("emit", &["plan", "render"]),
    ("compile", &["plan"]),
    (
        "embed",
        &[
            "compile", "config", "emit", "gpu", "import", "ir", "plan", "render", "scheme",
            "suggest",
        ],
    ),
    (
        "verify",
        &[
            "compile", "emit", "gpu", "ir", "plan", "render", "scheme", "wording",
        ],
    ),
    (
        "measure",
        &[
            "compile", "config", "cost", "emit", "gpu", "ir", "plan", "render", "scheme",
            "suggest", "verify",
        ],
    ),
];

/// One source file: its module path below the crate, and its text without comments and tests.
struct Source {
    module: Vec<String>,
    text: String,
}

/// All files of the library.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    files.sort();
    let sources = files.iter().filter_map(|file| {
        let module = file.strip_prefix(&root).unwrap().with_extension("");
        let module: Vec<String> = module
            .iter()
            .map(|name| name.to_str().unwrap().to_owned())
            .collect();
        let is_library = module != ["lib"] && module[0] != "bin";
        let is_test = |name: &String| name == "tests" || name.ends_with("_tests");
        let is_checked = is_library && !module.last().is_some_and(is_test);
        is_checked.then(|| Source {
            module,
            text: without_tests(&fs::read_to_string(file).unwrap()),
        })
    });
    sources.collect()
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The text without comments and without test items. The block of a test item ends at the first brace in the column of its attribute,
/// as formatted by rustfmt.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let code = line.split("//").next().unwrap_or_default();
        if code.trim() == "#[cfg(test)]" {
            let indent = &line[..line.len() - line.trim_start().len()];
            let end = format!("{indent}}}");
            let item = lines.next().unwrap_or_default();
            if !item.ends_with(';') && item != end {
                let is_block = item.ends_with('{');
                lines.find(|line| *line == end || !is_block && line.ends_with(';'));
            }
            continue;
        }
        kept.push_str(code);
        kept.push('\n');
    }
    kept
}

/// The paths of modules and items that a text names with `crate::` or `super::`, resolved from its module. Each item of a `use` list
/// in braces gives a path.
fn paths(source: &Source) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (start, _) in source.text.match_indices("::") {
        let before = &source.text[..start];
        let word_start = before
            .rfind(|c: char| !c.is_alphanumeric() && c != '_')
            .map_or(0, |at| at + 1);
        let first = &before[word_start..];
        let starts_path = !before[..word_start].ends_with("::");
        let mut base = match first {
            "crate" => Vec::new(),
            "super" if starts_path => source.module[..source.module.len() - 1].to_vec(),
            _ => continue,
        };
        let mut rest = &source.text[start + 2..];
        while let Some(after) = rest.strip_prefix("super::") {
            base.pop();
            rest = after;
        }
        add_paths(&base, rest, &mut found);
    }
    found
}

/// Adds the paths that start with `base` and continue as `rest` does.
fn add_paths(base: &[String], rest: &str, found: &mut Vec<Vec<String>>) {
    let rest = rest.trim_start();
    if let Some(list) = rest.strip_prefix('{') {
        let mut depth = 0;
        let mut start = 0;
        for (at, character) in list.char_indices() {
            match character {
                '{' => depth += 1,
                ',' | '}' if depth == 0 => {
                    if !list[start..at].trim().is_empty() {
                        add_paths(base, &list[start..at], found);
                    }
                    start = at + 1;
                    if character == '}' {
                        return;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
        return;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
    let mut path = base.to_vec();
    if name != "self" && !name.is_empty() {
        path.push(name.to_owned());
    }
    match rest.strip_prefix("::") {
        Some(rest) => add_paths(&path, rest, found),
        None => found.push(path),
    }
}

#[test]
fn modules_are_listed_in_the_order_of_the_data_flow() {
    for (index, (module, used)) in MODULES.iter().enumerate() {
        for used in *used {
            let before = MODULES[..index].iter().any(|(known, _)| known == used);
            assert!(
                before,
                "`{module}` may use `{used}`, which is not before it"
            );
        }
    }
    let listed: BTreeSet<_> = MODULES.iter().map(|(module, _)| *module).collect();
    let sources = sources();
    let found: BTreeSet<_> = sources.iter().map(|source| &source.module[0][..]).collect();
    assert_eq!(found, listed);
}

#[test]
fn modules_use_only_modules_before_them() {
    let mut wrong = BTreeSet::new();
    let mut edges = 0;
    for source in sources() {
        let own = &source.module[0];
        let Some((_, allowed)) = MODULES.iter().find(|(module, _)| module == own) else {
            panic!("module `{own}` is not listed");
        };
        for path in paths(&source) {
            let Some(used) = path.first() else {
                continue;
            };
            let is_module = MODULES.iter().any(|(module, _)| module == used);
            if is_module && used != own {
                edges += 1;
                if !allowed.contains(&&used[..]) {
                    wrong.insert(format!(
                        "{} uses {}",
                        source.module.join("::"),
                        path.join("::")
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(edges > 200, "{edges}");
}

/// The files that each file of `plan` uses. An item that a module file re-exports from another file belongs to the latter. A
/// re-export or a `mod` item does not count as a use.
fn plan_uses(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let files: BTreeMap<&[String], &Source> = sources
        .iter()
        .filter(|source| source.module[0] == "plan")
        .map(|source| (&source.module[..], source))
        .collect();
    let mut exports: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    let mut private: BTreeMap<&[String], String> = BTreeMap::new();
    for (&module, source) in &files {
        let mut text = String::new();
        for item in source.text.split_inclusive(';') {
            let re_export = ["pub use ", "pub(crate) use ", "pub(super) use "]
                .into_iter()
                .find_map(|word| Some(item.trim_start().split_once(word)?.1));
            let Some(path) = re_export.filter(|path| !path.starts_with("crate")) else {
                text.push_str(item);
                continue;
            };
            let mut found = Vec::new();
            add_paths(module, path, &mut found);
            for path in found {
                let (name, file) = path.split_last().unwrap();
                exports.insert([module, std::slice::from_ref(name)].concat(), file.to_vec());
            }
        }
        private.insert(module, text);
    }
    let file_of = |path: &[String]| {
        let exported = (0..=path.len()).find_map(|end| exports.get(&path[..end]));
        let path = exported.map_or(path, |file| &file[..]);
        let longest = (1..=path.len())
            .rev()
            .find(|&end| files.contains_key(&path[..end]));
        longest.map(|end| path[..end].join("::"))
    };
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (&module, text) in &private {
        let own = module.join("::");
        let source = Source {
            module: module.to_vec(),
            text: text.clone(),
        };
        let mut used: BTreeSet<_> = paths(&source)
            .iter()
            .filter(|path| path.first().is_some_and(|first| first == "plan"))
            .filter_map(|path| file_of(path))
            .collect();
        // Paths into child modules.
        for child in files.keys().filter(|child| child.len() == module.len() + 1) {
            let (name, parent) = child.split_last().unwrap();
            let is_used = text.match_indices(&format!("{name}::")).any(|(at, _)| {
                !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == ':' || c == '_')
            });
            if parent == module && is_used {
                used.insert(child.join("::"));
            }
        }
        used.remove(&own);
        uses.insert(own, used);
    }
    uses
}

#[test]
fn files_of_the_planner_have_no_cycle() {
    let mut uses = plan_uses(&sources());
    let all: usize = uses.values().map(BTreeSet::len).sum();
    assert!(all > 50, "{uses:#?}");
    assert!(uses["plan::lowering"].contains("plan::select"));
    assert!(uses["plan::candidates"].contains("plan::candidates::separate"));
    // Removes files that use no others until none is left.
    loop {
        let done: BTreeSet<String> = uses
            .iter()
            .filter(|(_, used)| used.is_empty())
            .map(|(file, _)| file.clone())
            .collect();
        if done.is_empty() {
            break;
        }
        uses.retain(|file, _| !done.contains(file));
        for used in uses.values_mut() {
            used.retain(|file| !done.contains(file));
        }
    }
    assert!(uses.is_empty(), "cycles among {uses:#?}");
}

#[test]
fn tests_comments_and_groups_are_read_correctly() {
    let text = "\
use super::super::gpu::{Gpu, table::{self, gpu}};
use crate::ir::Network; // crate::emit
fn f() -> crate::cost::Cost {}
#[cfg(test)]
use crate::render::kernel;
#[cfg(test)]
mod tests {
    use crate::verify::x;
}
use super::b;
";
    let source = Source {
        module: vec!["plan".to_owned(), "a".to_owned()],
        text: without_tests(text),
    };
    let found: Vec<_> = paths(&source).iter().map(|path| path.join("::")).collect();
    let expected = [
        "gpu::Gpu",
        "gpu::table",
        "gpu::table::gpu",
        "ir::Network",
        "cost::Cost",
        "plan::b",
    ];
    assert_eq!(found, expected);
}
