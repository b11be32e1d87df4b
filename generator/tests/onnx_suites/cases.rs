//! The cases, as `prepare.py` writes them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages; later ones of onnx have no files of the node tests.
const PACKAGES: [&str; 3] = ["onnx==1.22.0", "onnxruntime==1.32.0", "numpy"];

const PREPARE: &str = include_str!("prepare.py");

/// A case: a folder with models and data.
pub struct Case {
    /// Its name, with that of its suite.
    pub name: String,
    pub folder: PathBuf,
}

/// The cases of one suite.
pub struct Suite {
    pub name: String,
    pub cases: Vec<Case>,
}

/// A tensor with its name.
pub struct NamedTensor {
    pub name: String,
    pub values: Vec<f32>,
}

/// The folder with the cases, prepared once for each version of `prepare.py`.
pub fn prepared() -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("onnx-suites");
    let (data, complete) = (root.join("data"), root.join("complete"));
    if std::fs::read_to_string(&complete).is_ok_and(|text| text == PREPARE) {
        return data;
    }
    if root.exists() {
        std::fs::remove_dir_all(&root).unwrap();
    }
    std::fs::create_dir_all(&data).unwrap();
    let environment = root.join("environment");
    succeed(
        Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment),
    );
    let python = environment.join("bin/python");
    let mut install = Command::new(&python);
    succeed(
        install
            .args(["-m", "pip", "install", "--quiet"])
            .args(PACKAGES),
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx_suites/prepare.py");
    succeed(Command::new(&python).arg(script).arg(&data));
    std::fs::write(complete, PREPARE).unwrap();
    data
}

fn succeed(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}

/// All suites with their cases, by name.
pub fn suites(folder: &Path) -> Vec<Suite> {
    let suite = |suite: PathBuf| {
        let name = file_name(&suite);
        let case = |folder: PathBuf| Case {
            name: format!("{name}/{}", file_name(&folder)),
            folder,
        };
        Suite {
            cases: entries(&suite).into_iter().map(case).collect(),
            name,
        }
    };
    entries(folder).into_iter().map(suite).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut entries: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// The tensors of a file of `prepare.py`.
pub fn tensors(path: &Path) -> Vec<NamedTensor> {
    let bytes = std::fs::read(path).unwrap();
    let mut rest = &bytes[..];
    let mut next = || {
        let (size, after) = rest.split_first_chunk::<8>()?;
        let (data, after) = after.split_at(u64::from_le_bytes(*size) as usize);
        rest = after;
        Some(data)
    };
    let mut tensors = Vec::new();
    while let (Some(name), Some(values)) = (next(), next()) {
        let (values, _) = values.as_chunks::<4>();
        tensors.push(NamedTensor {
            name: String::from_utf8(name.to_vec()).unwrap(),
            values: values
                .iter()
                .map(|&bytes| f32::from_le_bytes(bytes))
                .collect(),
        });
    }
    tensors
}
