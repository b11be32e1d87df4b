//! The cases, as `prepare.py` and `prepare_keras.py` write them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Python packages with networks of others, and the script that prepares them.
pub struct Source {
    /// Name of the folder of the cases.
    name: &'static str,
    packages: &'static [&'static str],
    /// File name and text of the script.
    script: [&'static str; 2],
    /// The script runs once with each of these arguments behind the folder.
    arguments: &'static [&'static [&'static str]],
}

/// The test data of the package onnx; later versions have no files of the node tests.
pub const ONNX: Source = Source {
    name: "onnx-suites",
    packages: &["onnx==1.22.0", "onnxruntime==1.32.0", "numpy"],
    script: ["prepare.py", include_str!("prepare.py")],
    arguments: &[&[]],
};

/// Networks of Keras.
pub const KERAS: Source = Source {
    name: "keras-networks",
    packages: &[
        "tensorflow-cpu==2.21.0",
        "keras==3.15.1",
        "tf_keras==2.21.0",
        "tf2onnx==1.17.0",
    ],
    script: ["prepare_keras.py", include_str!("prepare_keras.py")],
    arguments: &[&["keras3"], &["tf2onnx"]],
};

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

impl Source {
    /// The folder with the cases, prepared once for each version of the script.
    pub fn prepared(&self) -> PathBuf {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(self.name);
        let (data, complete) = (root.join("data"), root.join("complete"));
        let [script, text] = self.script;
        if std::fs::read_to_string(&complete).is_ok_and(|written| written == text) {
            return data;
        }
        if root.exists() {
            std::fs::remove_dir_all(&root).unwrap();
        }
        std::fs::create_dir_all(&data).unwrap();
        let environment = root.join("environment");
        let mut create = Command::new("python3");
        succeed(create.args(["-m", "venv"]).arg(&environment));
        let python = environment.join("bin/python");
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet"]);
        succeed(install.args(self.packages));
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx_suites");
        for arguments in self.arguments {
            let mut prepare = Command::new(&python);
            prepare.arg(folder.join(script)).arg(&data);
            succeed(prepare.args(*arguments));
        }
        std::fs::write(complete, text).unwrap();
        data
    }
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

/// The tensors of a file of a script.
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
