//! The licence of every dependency permits its use in a program under MIT OR Apache-2.0.

use std::process::Command;

/// Licences (and exceptions) that require no more than preserving their text.
const ACCEPTED: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Whether a licence expression permits an accepted choice; an error if it is not an expression.
///
/// `OR` binds less than `AND`; `/` is the older way to write `OR`.
fn is_accepted(expression: &str) -> Result<bool, String> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (accepted, rest) = any_of(&words)?;
    match rest {
        [] => Ok(accepted),
        [word, ..] => Err(format!("`{word}` is out of place")),
    }
}

type Parsed<'a, 'b> = Result<(bool, &'a [&'b str]), String>;

fn any_of<'a, 'b>(words: &'a [&'b str]) -> Parsed<'a, 'b> {
    let (mut accepted, mut rest) = all_of(words)?;
    while let ["OR", after @ ..] = rest {
        let (other, after) = all_of(after)?;
        accepted |= other;
        rest = after;
    }
    Ok((accepted, rest))
}

fn all_of<'a, 'b>(words: &'a [&'b str]) -> Parsed<'a, 'b> {
    let (mut accepted, mut rest) = one(words)?;
    while let ["AND", after @ ..] = rest {
        let (other, after) = one(after)?;
        accepted &= other;
        rest = after;
    }
    Ok((accepted, rest))
}

fn one<'a, 'b>(words: &'a [&'b str]) -> Parsed<'a, 'b> {
    match words {
        ["(", inner @ ..] => match any_of(inner)? {
            (accepted, [")", rest @ ..]) => Ok((accepted, rest)),
            _ => Err("a bracket is open".to_owned()),
        },
        [] | ["OR" | "AND" | "WITH" | ")", ..] => Err("a licence is missing".to_owned()),
        [licence, "WITH", exception, rest @ ..] => {
            let both = format!("{licence} WITH {exception}");
            Ok((ACCEPTED.contains(&both.as_str()), rest))
        }
        [licence, rest @ ..] => Ok((ACCEPTED.contains(licence), rest)),
    }
}

#[test]
fn expressions_are_understood() {
    for good in [
        "MIT",
        "MIT OR Apache-2.0",
        "MIT/Apache-2.0",
        "LGPL-3.0 OR MIT",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        "GPL-2.0-only AND MIT OR Zlib",
    ] {
        assert_eq!(is_accepted(good), Ok(true), "{good}");
    }
    for bad in [
        "GPL-3.0-only",
        "MPL-2.0",
        "MIT AND LGPL-2.1-only",
        "(MIT OR GPL-2.0) AND MPL-2.0",
        "GPL-2.0-only AND (MIT OR Zlib)",
        "GPL-3.0-only WITH GCC-exception-3.1",
        "mit",
    ] {
        assert_eq!(is_accepted(bad), Ok(false), "{bad}");
    }
    for wrong in [
        "", "MIT OR", "(MIT", "MIT)", "MIT ISC", "AND MIT", "MIT WITH",
    ] {
        assert!(is_accepted(wrong).is_err(), "{wrong}");
    }
}

fn cargo(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    output.stdout
}

#[test]
fn every_dependency_has_an_accepted_licence() {
    let version = String::from_utf8_lossy(&cargo(&["-vV"])).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    // Dependencies of this platform: others are not downloaded by a build, and no network is needed here.
    let output = cargo(&[
        "metadata",
        "--format-version=1",
        "--offline",
        "--locked",
        "--filter-platform",
        host.expect("the line `host:`"),
    ]);
    let metadata: serde_json::Value = serde_json::from_slice(&output).expect("JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    let mut refused = Vec::new();
    for package in packages {
        let problem = match package["license"].as_str() {
            None => "no licence expression".to_owned(),
            Some(expression) => match is_accepted(expression) {
                Ok(true) => continue,
                Ok(false) => format!("`{expression}` is not accepted"),
                Err(error) => format!("`{expression}`: {error}"),
            },
        };
        refused.push(format!(
            "{} {}: {problem}",
            package["name"], package["version"]
        ));
    }
    println!("{} packages", packages.len());
    assert!(packages.len() > 50, "the dependencies are not listed");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
