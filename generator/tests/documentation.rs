//! The documentation against the code: links, results, command-line options.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every page of the documentation.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<_> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .map(|page| root().join(page))
        .into();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|&c| c.is_alphanumeric() || " -_".contains(c));
    kept.map(|c| {
        if c == ' ' {
            '-'
        } else {
            c.to_ascii_lowercase()
        }
    })
    .collect()
}

#[test]
fn relative_links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap_or_default();
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let found = match (target.exists(), heading) {
                (exists, "") => exists,
                (false, _) => false,
                (true, heading) => fs::read_to_string(&target)
                    .unwrap()
                    .lines()
                    .filter(|line| line.starts_with('#'))
                    .any(|line| anchor(line.trim_start_matches('#').trim()) == heading),
            };
            if !found {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn result_pages_are_what_the_script_makes_of_the_reports() {
    let made = Command::new("python3")
        .args(["tests/gpu/results.py", "page", "--check"])
        .current_dir(root())
        .output()
        .expect("python3 is a requirement of the tests");
    assert!(
        made.status.success(),
        "{}{}",
        String::from_utf8_lossy(&made.stdout),
        String::from_utf8_lossy(&made.stderr)
    );
}

fn help(command: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tdc-gen"))
        .args(command)
        .arg("--help")
        .output()
        .unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The long options that a help text lists, except the options that all commands have.
fn options(help: &str) -> BTreeSet<&str> {
    // Wrapped descriptions are indented further.
    let lines = help
        .lines()
        .filter(|line| line.len() - line.trim_start().len() <= 6)
        .map(str::trim_start)
        .filter(|line| line.starts_with('-'));
    lines
        .filter_map(|line| line.split([' ', ',']).find(|word| word.starts_with("--")))
        .filter(|word| !["--help", "--version"].contains(word))
        .collect()
}

/// `docs/reference/cli.md` has a section for each command, which lists exactly its options.
#[test]
fn the_reference_lists_every_option_of_every_command() {
    let reference = fs::read_to_string(root().join("docs/reference/cli.md")).unwrap();
    let (shared, sections) = reference.split_once("## Commands").unwrap();
    let shared: BTreeSet<&str> = options_in(shared);
    let all = help(&[]);
    let commands = all
        .split_once("Commands:")
        .unwrap()
        .1
        .lines()
        .skip(1)
        .map_while(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|&command| command != "help");
    let mut checked = 0;
    for command in std::iter::once("").chain(commands) {
        let title = match command {
            "" => "### `tdc-gen CONFIG...`".to_owned(),
            command => format!("### `tdc-gen {command}"),
        };
        let (_, section) = sections
            .split_once(&title)
            .unwrap_or_else(|| panic!("no section {title}"));
        let section = section.split("\n### ").next().unwrap_or_default();
        let mut listed = options_in(section);
        if section.contains("[config options](#config-options)") {
            listed.extend(&shared);
        }
        let text = match command {
            "" => all.clone(),
            command => help(&[command]),
        };
        assert_eq!(options(&text), listed, "options of `tdc-gen {command}`");
        checked += 1;
    }
    assert!(checked > 10);
}

/// The options in the first column of a page's tables.
fn options_in(page: &str) -> BTreeSet<&str> {
    page.lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split(['`', ' ']).find(|word| word.starts_with("--")))
        .collect()
}
