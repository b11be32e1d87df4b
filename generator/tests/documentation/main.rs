//! The documentation against the code: links, results, command-line options, keys.

mod key_tables;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tdc_generator::gpu::{DEFAULT_GPU, GPUS, Gpu, archs, gpu_for_arch};

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

/// The head of the table of GPUs in `docs/reference/gpus.md`.
const GPUS_HEADING: &str = "\
## Table

| `--gpu` | product | architecture | SMs | clock, MHz | fp32, TFLOP/s | fp16 on tensor cores, TFLOP/s | L2, MiB | memory, GB/s |
|---|---|---|---|---|---|---|---|---|
";

fn gpu_row(gpu: &'static Gpu) -> String {
    let role = match gpu_for_arch(gpu.arch) {
        None => " (plans only)",
        Some(first) if first == gpu => " (default)",
        Some(_) => "",
    };
    let tensor = match gpu.published.tensor_tflops {
        0.0 => "none".to_owned(),
        rate => rate.to_string(),
    };
    format!(
        "| `{}` | {} | {}{role} | {} | {} | {} | {tensor} | {} | {} |\n",
        gpu.name,
        gpu.title,
        gpu.arch,
        gpu.sms,
        gpu.clock_mhz,
        gpu.published.fp32_tflops,
        gpu.l2_bytes as f64 / f64::from(1 << 20),
        gpu.dram_gbs,
    )
}

/// `TDC_BLESS=1` rewrites the section.
#[test]
fn the_reference_has_every_gpu() {
    let path = root().join("docs/reference/gpus.md");
    let page = fs::read_to_string(&path).expect("docs/reference/gpus.md");
    let (before, _) = page
        .split_once("## Table\n")
        .expect("the table, the last section of the page");
    let mut expected = format!("{before}{GPUS_HEADING}");
    for gpu in GPUS {
        expected += &gpu_row(gpu);
    }
    let archs: Vec<_> = archs().iter().map(ToString::to_string).collect();
    let _ = write!(
        expected,
        "\nKernels are compiled for {}. The default GPU is `{DEFAULT_GPU}`.\n",
        archs.join(", ")
    );
    if std::env::var_os("TDC_BLESS").is_some() {
        fs::write(&path, &expected).expect("docs is writable");
        return;
    }
    assert!(
        page == expected,
        "docs/reference/gpus.md is out of date: run this test with TDC_BLESS=1"
    );
}

/// The command that compiles everything for every architecture names them all.
#[test]
fn the_contributor_compiles_for_every_architecture() {
    let page = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("CONTRIBUTING.md");
    let archs: Vec<_> = archs().iter().map(ToString::to_string).collect();
    let argument = format!("--arch {}\n", archs.join(","));
    assert!(page.contains(&argument), "CONTRIBUTING.md lacks {argument}");
}
