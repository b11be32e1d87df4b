//! Tests of the command line: exit codes, output, and files.

#![cfg(feature = "cli")]

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tdc_generator::gpu::CostModel;
use tdc_generator::gpu::{GPUS, gpu};
use tdc_generator::measure::tune::present_text;
use tempfile::TempDir;

/// A network with a BatchNorm, Tucker ranks and a linear layer.
const TINY: &str = "\
name: tiny
input: 1x3x8x8
ops:
  - {op: conv, name: a, n: 8, bn: a_bn, activation: relu}
  - {op: conv, name: b, n: 8, ranks: [4, 4]}
  - {op: global_avg_pool, name: p}
  - {op: linear, name: fc, n: 4}
";

const SET: &str = "\
name: set
layers:
  - {conv: [4, 8, 6, 6]}
";

/// An empty folder in which the program runs.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().expect("a temporary folder"))
    }

    /// With the network `tiny` in `tiny.yaml`.
    fn with_tiny() -> Self {
        let folder = Self::new();
        folder.write("tiny.yaml", TINY);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).expect("a written file");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a file")
    }

    /// Every file with its content, and every folder.
    fn content(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut found = BTreeMap::new();
        let mut pending = vec![self.0.path().to_owned()];
        while let Some(folder) = pending.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    pending.push(path.clone());
                    found.insert(path, None);
                } else {
                    let content = fs::read(&path).expect("a file");
                    found.insert(path, Some(content));
                }
            }
        }
        found
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tdc-gen"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(self.command(arguments).output().expect("tdc-gen runs"))
    }

    /// Runs a command that must succeed; returns its output.
    fn succeeds(&self, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        assert_eq!(outcome.code, Some(0), "{arguments:?}: {}", outcome.stderr);
        outcome.stdout
    }

    /// Runs a command that must fail with this first line on standard error, no standard output and no files
    /// written; returns standard error. `{gpus}` in the line are the names of all GPUs.
    fn fails(&self, arguments: &[&str], code: i32, first_line: &str) -> String {
        let gpus: Vec<_> = GPUS.iter().map(|gpu| gpu.name).collect();
        let first_line = first_line.replace("{gpus}", &gpus.join(", "));
        let before = self.content();
        let outcome = self.run(arguments);
        let found = outcome.stderr.lines().next().unwrap_or_default();
        assert_eq!(found, first_line, "{arguments:?}: {}", outcome.stderr);
        assert_eq!(outcome.code, Some(code), "{arguments:?}: {first_line}");
        assert_eq!(outcome.stdout, "", "{arguments:?}");
        assert!(
            self.content() == before,
            "{arguments:?} has written something"
        );
        outcome.stderr
    }
}

struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Outcome {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

fn resnet18() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/resnet18.yaml");
    path.display().to_string()
}

#[test]
fn configs_that_cannot_be_read() {
    let folder = Folder::new();
    folder.write("prose.yaml", "name: [tiny\n");
    for (arguments, message) in [
        (["none.yaml"], "none.yaml: no such file; check the path"),
        (["."], ".: this is a directory; give a YAML file"),
        (
            ["prose.yaml"],
            "prose.yaml:1:7: not valid YAML: unclosed bracket '['; check brackets, quotes, colons and \
             indentation here and just before",
        ),
    ] {
        folder.fails(&arguments, 2, &format!("error: {message}"));
    }
}

#[test]
fn errors_in_a_config_have_their_position() {
    let folder = Folder::new();
    for (right, wrong, message) in [
        (
            "activation: relu",
            "activaton: relu",
            "4:41: unknown key `activaton`; did you mean `activation`? conv takes op, name, inputs, output, n, kernel, stride, pad, dilation, \
             groups, bias, bn, activation, ranks, cp_rank, rank, factors, scheme, tile, reduce, precision, tolerance, layout",
        ),
        (
            "n: 8, bn",
            "n: eight, bn",
            "4:28: `n` must be a whole number, not `eight`; use digits only",
        ),
        (
            "n: 8, bn",
            "n: 0, bn",
            "4:28: `n` is 0; it must be at least 1",
        ),
        (
            "n: 8, bn",
            "n: -8, bn",
            "4:28: `n` is negative: `-8`; it must be a whole number from 0",
        ),
        (
            "n: 8, bn",
            "n: 99999999999, bn",
            "4:28: `n` is too large: `99999999999`; at most 2147483647",
        ),
        (
            "1x3x8x8",
            "1x3x65536x65536",
            "2:8: the input 1x3x65536x65536 has more than 2147483647 elements; use a smaller image or batch",
        ),
        (
            "n: 8, bn",
            "n: 8, kernel: 11, pad: 1, bn",
            "4:39: the window spans 11 pixels, the padded height is 10; use a smaller kernel or more padding",
        ),
        (
            "name: p}",
            "name: p, inputs: [aa]}",
            "6:45: `aa` is not the name of an earlier op; did you mean `a`?",
        ),
        (
            "name: p}",
            "name: b}",
            "6:33: there are two ops named `b`; give each op its own name",
        ),
        (
            "name: p}",
            "name: input}",
            "6:33: `input` is the network's input; give each op its own name",
        ),
        (
            "name: p}",
            "name: b.first}",
            "6:33: `b.first` is what a part of `b` is called; choose another name",
        ),
        (
            "[4, 4]",
            "[0, 4]",
            "5:39: rank 0 is not between 1 and 8; D1 is at most the input channels; ranks are written [D1, D2]",
        ),
        (
            "[4, 4]",
            "[4, 9]",
            "5:42: rank 9 is not between 1 and 8; D2 is at most the output channels; ranks are written [D1, D2]",
        ),
        (
            "ranks: [4, 4]",
            "groups: 3",
            "5:39: 3 groups do not divide 8 input and 8 output channels; groups must divide both",
        ),
        (
            "name: tiny",
            "name: class",
            "1:7: `class` cannot be the name of a network: it is a keyword of C++; choose another, such as `class_net`",
        ),
        (
            "name: tiny",
            "name: Status",
            "1:7: `Status` cannot be the name of a network: every C++ or CUDA program has that name already; choose another, such \
             as `Status_net`",
        ),
    ] {
        let text = TINY.replacen(right, wrong, 1);
        assert_ne!(text, TINY);
        folder.write("bad.yaml", text);
        folder.fails(&["bad.yaml"], 2, &format!("error: bad.yaml:{message}"));
    }
}

#[test]
fn schemes_and_tiles_that_do_not_exist() {
    let folder = Folder::new();
    for (keys, at, message) in [
        (
            "scheme: dircet",
            "4:39",
            "there is no scheme named `dircet`; did you mean `direct`?",
        ),
        (
            "scheme: direct, tile: [7, 7, 7, 7]",
            "4:53",
            "tile [7, 7, 7, 7] is not one of scheme `direct` for conv_c3_n8_h8_w8_k3x3_p1_bias_relu; its numbers are",
        ),
        (
            "scheme: direct_tiled, tile: [1, 4, 2147483647, 4, 2147483647, 1, 1, 4, 1]",
            "4:59",
            "tile [1, 4, 2147483647, 4, 2147483647, 1, 1, 4, 1] is not one of scheme `direct_tiled` for",
        ),
        (
            "scheme: direct, reduce: atomic",
            "4:55",
            "`reduce: atomic` is not supported for conv_c3_n8_h8_w8_k3x3_p1_bias_relu_atomic by scheme `direct`; \
             only schemes `tdc` and `tdc_rows` support it",
        ),
        (
            "pad: 0, kernel: 8, reduce: atomic, dilation: [1, 1], groups: 1, scheme: pointwise",
            "4:58",
            "`reduce: atomic` is not supported for conv_c3_n8_h8_w8_k8x8_bias_relu_atomic by scheme `pointwise`; only schemes",
        ),
        (
            "scheme: pointwise",
            "4:39",
            "scheme `pointwise` cannot compute conv_c3_n8_h8_w8_k3x3_p1_bias_relu; remove `scheme` to let \
             the planner choose one that can",
        ),
        (
            "tile: [7, 7]",
            "4:37",
            "`tile` is given without `scheme`; add the scheme that the tile belongs to",
        ),
    ] {
        folder.write(
            "bad.yaml",
            TINY.replacen("n: 8", &format!("n: 8, {keys}"), 1),
        );
        let before = folder.content();
        let outcome = folder.run(&["bad.yaml"]);
        let expected = format!("error: bad.yaml:{at}: layer `a`: {message}");
        assert!(outcome.stderr.starts_with(&expected), "{}", outcome.stderr);
        // With the line and a caret under the key's value.
        assert_eq!(outcome.stderr.lines().count(), 3, "{}", outcome.stderr);
        assert_eq!(outcome.code, Some(2));
        assert!(folder.content() == before);
    }

    // Several errors, in the order of the text: in a factor of a Tucker layer, and in an op without the key.
    let text = TINY.replacen("n: 8", "n: 8, tile: [7]", 1).replacen(
        "ranks: [4, 4]",
        "ranks: [4, 4], scheme: tvm",
        1,
    );
    folder.write("bad.yaml", text);
    let outcome = folder.run(&["plan", "bad.yaml"]);
    assert_eq!(outcome.code, Some(2));
    assert_eq!(
        outcome.stderr,
        "error: bad.yaml:4:37: layer `a`: `tile` is given without `scheme`; add the scheme that the tile belongs to\n    \
         \x20 - {op: conv, name: a, n: 8, tile: [7], bn: a_bn, activation: relu}\n    \
         \x20                                   ^\n\
         bad.yaml:5:54: layer `b.core`: scheme `tvm` cannot compute conv_c4_n4_h8_w8_k3x3_p1; its activations are HWCN: add \
         `layout: hwcn`\n    \
         \x20 - {op: conv, name: b, n: 8, ranks: [4, 4], scheme: tvm}\n    \
         \x20                                                    ^\n"
    );
    let set = SET.replace("layers:", "defaults: {scheme: pointwise}\nlayers:");
    folder.write("bad.yaml", set);
    let outcome = folder.run(&["verify", "bad.yaml"]);
    assert!(
        outcome.stderr.starts_with("error: bad.yaml:2:20: layer `"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn all_errors_of_a_config_are_printed() {
    let folder = Folder::new();
    let text = TINY
        .replace("name: tiny", "name: class")
        .replace("n: 8, bn", "n: eight, bn")
        .replace("ranks", "rnaks")
        .replace("n: 4}", "n: }");
    folder.write("bad.yaml", text);
    let printed = folder.fails(
        &["bad.yaml"],
        2,
        "error: bad.yaml:1:7: `class` cannot be the name of a network: it is a keyword of C++; choose another, such as \
         `class_net`",
    );
    assert_eq!(printed.matches("bad.yaml:").count(), 4, "{printed}");
    for part in [
        "\nbad.yaml:4:28: `n` must be a whole number, not `eight`",
        "\nbad.yaml:5:31: unknown key `rnaks`; did you mean `ranks`?",
        "\nbad.yaml:7:29: `n` has no value",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    // Errors of the planner are listed in the same way.
    let text = TINY
        .replace("n: 8, bn", "n: 8, scheme: x, bn")
        .replace("n: 8, ranks: [4, 4]", "n: 8, tile: [1]");
    folder.write("bad.yaml", text);
    let printed = folder.run(&["bad.yaml"]).stderr;
    assert_eq!(printed.matches("bad.yaml:").count(), 2, "{printed}");
    for part in [
        "error: bad.yaml:4:39: layer `a`: there is no scheme named `x`",
        "\nbad.yaml:5:37: layer `b`: `tile` is given without `scheme`",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}

#[test]
fn invalid_arguments_exit_with_2() {
    let folder = Folder::with_tiny();
    folder.write("again.yaml", TINY);
    folder.write("set.yaml", SET);
    folder.write("file", "");
    for (arguments, message) in [
        (
            &["tiny.yaml", "--gpu", "h20"][..],
            "there is no GPU named `h20`; did you mean `h200`? known are {gpus}",
        ),
        (
            &["tiny.yaml", "--gpu", "h200,a100,h200"],
            "`h200` is listed twice; remove one of the two",
        ),
        (
            &["set.yaml", "--gpu", "h200,a100"],
            "set.yaml:1:1: a layer set is planned for one GPU, not 2; choose one",
        ),
        (
            &["verify", "set.yaml", "--gpu", "h200,a100"],
            "set.yaml:1:1: a layer set is planned for one GPU, not 2; choose one",
        ),
        (
            &["plan", "tiny.yaml", "--gpu", "rtx4080"],
            "there is no GPU named `rtx4080`; did you mean `rtx4090`? known are {gpus}",
        ),
        (
            &["plan", "tiny.yaml", "none.yaml"],
            "none.yaml: no such file; check the path",
        ),
        (
            &["tiny.yaml", "set.yaml", "--out", "out"],
            "--out is one folder, but several configs were given; generate them one by one",
        ),
        (
            &["tiny.yaml", "again.yaml"],
            "two configs would be written to generated/tiny; give them different names",
        ),
        (
            &["tiny.yaml", "--out", "file"],
            "cannot write to file: file is not a folder; choose another folder",
        ),
        (
            &["tiny.yaml", "--out", "file/a/b"],
            "cannot write to file/a/b: file is not a folder; choose another folder",
        ),
        (
            &["tiny.yaml", "--input", "3x64x64"],
            "invalid value '3x64x64' for '--input <[NAME=]BxCxHxW>': `3x64x64` is not a shape; write batch, channels, height and \
             width as 1x3x224x224",
        ),
        (
            &["set.yaml", "--input", "1x3x64x64"],
            "set.yaml:1:1: an input shape was given for a layer set; only a network has an input",
        ),
        (
            &["tiny.yaml", "--batch", "0"],
            "invalid value '0' for '--batch <N,...>': a batch of 0 images is not possible; give numbers from 1",
        ),
        (
            &["compile", "tiny.yaml", "--arch", "sm_90,turing"],
            "invalid value 'turing' for '--arch <SM,...>': `turing` is not an architecture; write it as sm_90 or 90",
        ),
        (
            &["pack", "set.yaml", "--random", "1"],
            "set.yaml: a layer set has no weights to pack; give the config of a network",
        ),
        (
            &["pack", "tiny.yaml", "--random", "1", "-o", "tiny.yaml"],
            "tiny.yaml is an input and would be overwritten; choose another output file",
        ),
        (
            &[
                "pack",
                "tiny.yaml",
                "--random",
                "1",
                "--safetensors",
                "weights.bin",
            ],
            "two outputs would be written to weights.bin; choose different files",
        ),
        (
            &[
                "pack",
                "tiny.yaml",
                "--random",
                "1",
                "--safetensors",
                "file/x",
            ],
            "cannot write to file: file is not a folder; choose another folder",
        ),
        (
            &[
                "pack",
                "tiny.yaml",
                "--random",
                "1",
                "-o",
                "w.bin",
                "--safetensors",
                "./w.bin",
            ],
            "two outputs would be written to ./w.bin; choose different files",
        ),
        (
            &[
                "pack",
                "tiny.yaml",
                "--random",
                "1",
                "--table",
                "table.txt",
                "-o",
                "./table.txt",
            ],
            "./table.txt is an input and would be overwritten; choose another output file",
        ),
        (
            &["plan", "tiny.yaml", "--gpu", "H100"],
            "there is no GPU named `H100`; did you mean `h100`? known are {gpus}",
        ),
        (
            &["verify", "tiny.yaml", "--weights", "none"],
            "cannot read the checkpoint none: No such file or directory (os error 2); check the path and its permissions",
        ),
        (
            &["compile", "tiny.yaml", "--resources", "tiny.yaml"],
            "tiny.yaml: line 1: 2 fields where `key arch registers shared spill_stores spill_loads` are needed",
        ),
        (
            &["verify", "set.yaml", "--weights", "file"],
            "set.yaml: a layer set has no weights; omit --weights or give a network",
        ),
        (
            &["tiny.yaml", "--check", "--force"],
            "the argument '--check' cannot be used with '--force'",
        ),
        (
            &["tiny.yaml", "--stdout", "--out", "here"],
            "the argument '--stdout' cannot be used with '--out <DIR>'",
        ),
        (
            &["tiny.yaml", "--precision", "tf23"],
            "invalid value 'tf23' for '--precision <PRECISION>'",
        ),
        (
            &["tiny.yaml", "--tolerance", "1"],
            "invalid value '1' for '--tolerance <ERROR>': must be a relative error from 1e-6 to 0.1, such as 5e-6",
        ),
        (
            &["--dense"],
            "the following required arguments were not provided:",
        ),
    ] {
        folder.fails(arguments, 2, &format!("error: {message}"));
    }
}

/// Moving a file into place must not replace a link or a pipe.
#[cfg(unix)]
#[test]
fn outputs_follow_symlinks_and_keep_pipes() {
    let folder = Folder::with_tiny();
    folder.succeeds(&["pack", "tiny.yaml", "--random", "1", "-o", "file"]);
    let content = folder.read("file");
    folder.write("file", "before");
    std::os::unix::fs::symlink("file", folder.path("link")).unwrap();
    folder.succeeds(&["pack", "tiny.yaml", "--random", "1", "-o", "link"]);
    assert!(folder.path("link").is_symlink());
    assert!(folder.read("file") == content);

    std::os::unix::fs::symlink("nowhere", folder.path("astray")).unwrap();
    let pipe = Folder::with_tiny();
    let made = Command::new("mkfifo").arg(pipe.path("pipe")).status();
    assert!(made.unwrap().success());
    for (folder, name) in [(&folder, "astray"), (&pipe, "pipe")] {
        let before = folder.path(name).symlink_metadata().unwrap().file_type();
        let output = folder.run(&["pack", "tiny.yaml", "--random", "1", "-o", name]);
        let message = format!(
            "error: cannot write to {name}: it is not a regular file; choose another path\n"
        );
        assert_eq!((output.code, output.stderr), (Some(2), message));
        let after = folder.path(name).symlink_metadata().unwrap().file_type();
        assert_eq!(after, before);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn non_utf8_paths_are_printed_in_json() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::with_tiny();
    let mut command = folder.command(&["pack", "tiny.yaml", "--random", "1", "--json", "-o"]);
    command.arg(std::ffi::OsStr::from_bytes(b"w\xff.bin"));
    let outcome = Outcome::of(command.output().unwrap());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["file"], "w\u{fffd}.bin");
}

#[test]
fn strides_larger_than_the_image() {
    let folder = Folder::new();
    let layer = "{conv: [7, 4, 5, 3], kernel: 1, stride: 2147483647, name: a}";
    folder.write("set.yaml", format!("name: set\nlayers:\n  - {layer}\n"));
    folder.succeeds(&["plan", "set.yaml"]);
}

#[test]
fn a_folder_that_cannot_be_created() {
    let folder = Folder::with_tiny();
    // Not even root may create a folder at this path.
    let stderr = folder.run(&["tiny.yaml", "--out", "/proc/tdc/out"]);
    assert!(
        stderr
            .stderr
            .starts_with("error: cannot create /proc/tdc/out: "),
        "{}",
        stderr.stderr
    );
    assert_eq!(stderr.code, Some(2));
}

#[cfg(unix)]
#[test]
fn an_unwritable_folder_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::with_tiny();
    fs::create_dir(folder.path("locked")).expect("a folder");
    fs::set_permissions(folder.path("locked"), fs::Permissions::from_mode(0o555))
        .expect("permissions");
    if fs::write(folder.path("locked/probe"), "").is_ok() {
        println!("skipped: this user may write everywhere");
        return;
    }
    folder.fails(
        &["tiny.yaml", "--out", "locked/out"],
        2,
        "error: cannot create locked/out: Permission denied (os error 13)",
    );
    folder.fails(
        &["pack", "tiny.yaml", "--random", "1", "-o", "locked/w"],
        2,
        "error: cannot write locked/w: Permission denied (os error 13)",
    );
}

/// Changes the header and the payload of a safetensors file.
fn edit(file: &[u8], change: impl FnOnce(&mut Value, &mut [u8])) -> Vec<u8> {
    let length = u64::from_le_bytes(file[..8].try_into().expect("eight bytes")) as usize;
    let mut header: Value = serde_json::from_slice(&file[8..8 + length]).expect("JSON");
    let mut payload = file[8 + length..].to_vec();
    change(&mut header, &mut payload);
    let header = serde_json::to_vec(&header).expect("JSON");
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], &header, &payload].concat()
}

/// Writes a number over the first one of a tensor.
fn put(tensor: &str, number: f32) -> impl FnOnce(&mut Value, &mut [u8]) {
    move |header, payload| {
        let start = header[tensor]["data_offsets"][0]
            .as_u64()
            .expect("an offset") as usize;
        payload[start..start + 4].copy_from_slice(&number.to_le_bytes());
    }
}

#[test]
fn checkpoints_that_do_not_match_the_network() {
    let folder = Folder::with_tiny();
    folder.succeeds(&[
        "pack",
        "tiny.yaml",
        "--random",
        "1",
        "--safetensors",
        "good",
    ]);
    fs::remove_file(folder.path("weights.bin")).expect("the packed file");
    let good = folder.read("good");
    let cut = &good[..good.len() - 4];
    let (whole, left) = (good.len(), cut.len());
    let cases: [(Vec<u8>, String); 9] = [
        (
            cut.to_vec(),
            format!(
                "the checkpoint w has {left} bytes, but its header requires {whole}; it is damaged or incomplete: copy, download \
                 or save it again"
            ),
        ),
        (
            b"name: tiny\n".to_vec(),
            "the checkpoint w is not a safetensors file: its header has 7598733906462728558 bytes, more than \
             100000000; save it with safetensors.torch.save_file(model.state_dict(), path)"
                .to_owned(),
        ),
        (
            b"PK\x03\x04....data.pkl".to_vec(),
            "the checkpoint w is not a safetensors file: it looks like one written by torch.save; load it in Python and save \
             it with safetensors.torch.save_file(state_dict, path)"
                .to_owned(),
        ),
        (
            edit(&good, |header, _| {
                header["a.wieght"] = header["a.weight"].take();
                header.as_object_mut().expect("tensors").remove("a.weight");
            }),
            "the checkpoint has no tensor `a.weight`, which `a` needs; did you mean `a.wieght`?".to_owned(),
        ),
        (
            edit(&good, |header, _| {
                header["a.weight"]["shape"] = [3, 8, 3, 3].to_vec().into();
            }),
            "tensor `a.weight` has shape [3, 8, 3, 3], `a` needs [8, 3, 3, 3]; the config and the checkpoint describe \
             different networks"
                .to_owned(),
        ),
        (
            edit(&good, |header, _| header["a.weight"]["dtype"] = "I32".into()),
            "tensor `a.weight` has elements of type I32, expected F16, BF16, F32 or F64; convert it before saving the \
             checkpoint"
                .to_owned(),
        ),
        (
            edit(&good, put("b.weight", f32::NAN)),
            "tensor `b.weight` holds NaN at [0, 0, 0, 0], expected finite numbers; the training diverged or the file is \
             damaged"
                .to_owned(),
        ),
        (
            edit(&good, put("fc.bias", f32::INFINITY)),
            "tensor `fc.bias` holds inf at [0], expected finite numbers; the training diverged or the file is damaged"
                .to_owned(),
        ),
        (
            edit(&good, put("a_bn.running_var", -1.0)),
            "tensor `a_bn.running_var` holds the variance -1 at [0], which with eps = 0.00001 is not above zero; correct eps \
             in the config or the checkpoint's statistics"
                .to_owned(),
        ),
    ];
    for (content, message) in cases {
        folder.write("w", content);
        let file = if message.starts_with("the checkpoint w ") {
            ""
        } else {
            "w: "
        };
        folder.fails(
            &["pack", "tiny.yaml", "w"],
            2,
            &format!("error: {file}{message}"),
        );
    }
    folder.fails(
        &["pack", "tiny.yaml", "none"],
        2,
        "error: cannot read the checkpoint none: No such file or directory (os error 2); check the path and its permissions",
    );
    folder.fails(
        &["pack", "tiny.yaml", "good", "-o", "good"],
        2,
        "error: good is an input and would be overwritten; choose another output file",
    );
    // Several errors at once.
    let two = edit(&good, put("a.weight", f32::NAN));
    folder.write("w", edit(&two, put("fc.bias", f32::NAN)));
    let outcome = folder.run(&["pack", "tiny.yaml", "w"]);
    assert_eq!(
        outcome.stderr.matches("error: w: tensor ").count(),
        2,
        "{}",
        outcome.stderr
    );
}

#[test]
fn verify_without_a_gpu_exits_with_3() {
    if Path::new("/proc/driver/nvidia/version").exists() || Path::new("/dev/nvidiactl").exists() {
        println!("skipped: this machine has a GPU");
        return;
    }
    let folder = Folder::with_tiny();
    let before = folder.content();
    let outcome = folder.run(&["verify", "tiny.yaml", "--local-gpu"]);
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
    let message = outcome.stderr.lines().last().unwrap_or_default();
    assert!(message.starts_with("error: "), "{}", outcome.stderr);
    assert!(folder.content() == before);
}

/// A C++ compiler that records its start and takes a long time, as a script of this name.
#[cfg(unix)]
fn slow_compiler(folder: &Folder, name: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;

    let path = folder.path(name);
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\n: > \"$TMPDIR/cc123.s\"\n: > \"$STARTED\"\nexec sleep 30\n";
    folder.write(name, script);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script");
    path
}

#[cfg(unix)]
#[test]
fn verify_leaves_nothing_behind_when_it_is_interrupted() {
    use std::os::unix::process::ExitStatusExt;
    use std::time::{Duration, Instant};

    for signal in [libc::SIGINT, libc::SIGTERM] {
        let folder = Folder::with_tiny();
        let compiler = slow_compiler(&folder, "slow");
        let (temporary, started) = (folder.path("tmp"), folder.path("started"));
        fs::create_dir(&temporary).expect("a folder");
        let mut process = Command::new(env!("CARGO_BIN_EXE_tdc-gen"))
            .args(["verify", "tiny.yaml"])
            .current_dir(folder.path("."))
            .env("TMPDIR", &temporary)
            .env("CXX", &compiler)
            .env("STARTED", &started)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process");
        let start = Instant::now();
        while !started.exists() {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "no compiler was started"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(fs::read_dir(&temporary).expect("a folder").count(), 1);
        let id = libc::pid_t::try_from(process.id()).expect("an id");
        // SAFETY: the process is a child that has not been waited for.
        unsafe { libc::kill(id, signal) };
        let ended = process.wait().expect("an end");
        assert!(start.elapsed() < Duration::from_secs(25), "it continued");
        assert_eq!(ended.signal(), Some(signal));
        assert_eq!(fs::read_dir(&temporary).expect("a folder").count(), 0);
    }
}

#[test]
fn generating_twice_writes_once() {
    let folder = Folder::new();
    let config = resnet18();
    let first = folder.succeeds(&[&config]);
    assert!(first.starts_with("generated/resnet18: "), "{first}");
    let content = folder.content();
    let generated = folder.path("generated/resnet18");
    let files = content
        .iter()
        .filter(|(path, bytes)| bytes.is_some() && path.starts_with(&generated));
    let all = files.count();
    let written = format!(": {all} files, {all} written, 0 removed\n");
    assert!(first.contains(&written), "{first}");
    let second = folder.succeeds(&[&config]);
    let written = format!(": {all} files, 0 written, 0 removed\n");
    assert!(second.contains(&written), "{second}");
    assert!(folder.content() == content);
    folder.succeeds(&[&config, "--check"]);
    folder.succeeds(&[&config, "--out", "elsewhere/net"]);
    for (path, bytes) in &content {
        let Ok(inside) = path.strip_prefix(folder.path("generated/resnet18")) else {
            continue;
        };
        if let Some(bytes) = bytes {
            let other = folder.path("elsewhere/net").join(inside);
            assert!(
                fs::read(&other).expect("a file") == *bytes,
                "{}",
                other.display()
            );
        }
    }
}

#[test]
fn an_edited_file_is_found_and_kept() {
    let folder = Folder::with_tiny();
    folder.succeeds(&["tiny.yaml"]);
    let original = folder.read("generated/tiny/main.cu");
    let mut text = String::from_utf8(original.clone()).expect("UTF-8");
    text.insert_str(
        text.find("\n#include").expect("an include") + 1,
        "// mine\n",
    );
    let line = text
        .lines()
        .position(|line| line == "// mine")
        .expect("the line");
    folder.write("generated/tiny/main.cu", text);

    let output = folder.fails(
        &["tiny.yaml", "--check"],
        1,
        "failed: generated/tiny is not up to date; run the same command without --check",
    );
    assert!(
        output.contains("main.cu: differs\n--- main.cu\n"),
        "{output}"
    );
    assert!(
        output.contains(&format!("\n@@ -{},", line + 1 - 2)),
        "{output}"
    );
    assert!(output.contains("\n-// mine\n"), "{output}");

    folder.fails(
        &["tiny.yaml"],
        2,
        "error: 1 file of generated/tiny would be overwritten but is not what the generator wrote: main.cu; move them away, \
         or overwrite them with --force",
    );
    folder.succeeds(&["tiny.yaml", "--force"]);
    assert_eq!(folder.read("generated/tiny/main.cu"), original);
    folder.succeeds(&["tiny.yaml", "--check"]);

    fs::remove_file(folder.path("generated/tiny/plan.json")).expect("a file");
    let output = folder.fails(
        &["tiny.yaml", "--check"],
        1,
        "failed: generated/tiny is not up to date; run the same command without --check",
    );
    assert!(output.contains("\nplan.json: missing\n"), "{output}");
}

#[test]
fn a_foreign_file_aborts_the_whole_run() {
    let folder = Folder::with_tiny();
    folder.write("set.yaml", SET);
    fs::create_dir_all(folder.path("generated/tiny")).expect("a folder");
    folder.write("generated/tiny/README.md", "mine\n");
    folder.write("generated/tiny/notes.txt", "mine too\n");
    folder.fails(
        &["set.yaml", "tiny.yaml"],
        2,
        "error: 1 file of generated/tiny would be overwritten but is not what the generator wrote: README.md; move them away, \
         or overwrite them with --force",
    );
    folder.succeeds(&["set.yaml", "tiny.yaml", "--force"]);
    assert_eq!(folder.read("generated/tiny/notes.txt"), b"mine too\n");
    assert!(folder.path("generated/set/plan.json").exists());
}

#[test]
fn stale_files_are_removed_unless_edited() {
    let folder = Folder::with_tiny();
    folder.succeeds(&["tiny.yaml"]);
    folder.write("tiny.yaml", TINY.replace("n: 4}", "n: 5}"));
    let printed = folder.succeeds(&["tiny.yaml"]);
    assert!(printed.contains(" 2 removed\n"), "{printed}");
    let units = folder.content();
    let old = units
        .keys()
        .find(|path| path.to_string_lossy().contains("linear_c8_n5"));
    fs::write(old.expect("the unit of the linear layer"), "edited\n").expect("a written file");
    folder.write("tiny.yaml", TINY);
    let outcome = folder.run(&["tiny.yaml"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(
        outcome.stderr.starts_with("note: src/units/linear_c8_n5"),
        "{}",
        outcome.stderr
    );
    assert!(old.expect("the unit").exists());
}

#[test]
fn stdout_prints_every_file_and_writes_none() {
    let folder = Folder::with_tiny();
    let before = folder.content();
    let printed = folder.succeeds(&["tiny.yaml", "--stdout"]);
    assert!(folder.content() == before);
    folder.succeeds(&["tiny.yaml"]);
    let root = folder.path("generated/tiny");
    for (path, bytes) in folder.content() {
        let (Some(bytes), Ok(name)) = (bytes, path.strip_prefix(&root)) else {
            continue;
        };
        if name == Path::new("manifest.txt") {
            continue;
        }
        let text = String::from_utf8(bytes).expect("UTF-8");
        let entry = format!("==> {} <==\n{text}\n", name.display());
        assert!(printed.contains(&entry), "{}", name.display());
    }
}

#[cfg(unix)]
#[test]
fn closed_stdout_is_not_an_error() {
    let folder = Folder::with_tiny();
    let mut child = folder
        .command(&["tiny.yaml", "--stdout"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tdc-gen runs");
    drop(child.stdout.take());
    let outcome = Outcome::of(child.wait_with_output().expect("tdc-gen ends"));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_full_disk_is_reported() {
    let Ok(full) = fs::File::options().write(true).open("/dev/full") else {
        println!("skipped: this system has no /dev/full");
        return;
    };
    let folder = Folder::with_tiny();
    let mut command = folder.command(&["tiny.yaml", "--stdout"]);
    let outcome = Outcome::of(command.stdout(full).output().expect("tdc-gen runs"));
    assert_eq!(
        (outcome.code, outcome.stderr.as_str()),
        (
            Some(2),
            "error: cannot write to standard output: No space left on device (os error 28)\n"
        )
    );
}

/// The layers of a plan as JSON: those of a layer set, or of a network's first variant.
fn layers_of(plan: &Value) -> &[Value] {
    let plan = plan["variants"].get(0).unwrap_or(plan);
    plan["layers"].as_array().expect("a list of layers")
}

#[test]
fn json_holds_the_layers() {
    let folder = Folder::with_tiny();
    folder.write("set.yaml", SET);
    for (config, layers) in [("tiny.yaml", 6), ("set.yaml", 1)] {
        let printed = folder.succeeds(&[config, "--json"]);
        let plan: Value = serde_json::from_str(&printed).expect("JSON");
        assert_eq!(layers_of(&plan).len(), layers, "{printed}");
    }
    let plan = folder.read("generated/tiny/plan.json");
    assert_eq!(folder.succeeds(&["tiny.yaml", "--json"]).as_bytes(), plan);
}

/// A network whose plans for two GPUs differ.
const TWO_GPUS: &str = "\
name: two
gpu: [h200, rtx2080ti]
input: 1x3x20x20
ops:
  - {op: conv, name: stem, n: 32, scheme: direct, tile: [32, 4, 1, 1]}
  - {op: conv, name: core, n: 64, scheme: direct, ranks: [16, 16]}
  - {op: conv, name: more, n: 64, scheme: direct}
  - {op: global_avg_pool, name: pool}
  - {op: linear, name: head, n: 10}
";

#[test]
fn several_gpus_share_a_folder_and_a_weight_file() {
    let folder = Folder::new();
    folder.write("two.yaml", TWO_GPUS);
    let printed = folder.succeeds(&["two.yaml"]);
    for gpu in ["NVIDIA H200 SXM", "NVIDIA GeForce RTX 2080 Ti"] {
        assert!(
            printed.contains(&format!("planned for {gpu}\n")),
            "{printed}"
        );
    }
    assert!(
        printed.contains(" kernels to compile in total\n"),
        "{printed}"
    );
    let plan: Value =
        serde_json::from_slice(&folder.read("generated/two/plan.json")).expect("JSON");
    let gpus = |plan: &Value| -> Vec<String> {
        let variants = plan["variants"].as_array().expect("variants");
        let name = |variant: &Value| variant["gpu"].as_str().expect("a name").to_owned();
        variants.iter().map(name).collect()
    };
    assert_eq!(gpus(&plan), ["h200", "rtx2080ti"]);
    let layouts: Vec<_> = (0..2)
        .map(|index| &plan["variants"][index]["weights"]["layouts_checksum"])
        .collect();
    assert_ne!(layouts[0], layouts[1]);
    // The command line overrides the config, and GPUs keep the user's order.
    let other = folder.succeeds(&["two.yaml", "--gpu", "a100,h200", "--json", "--out", "other"]);
    let other: Value = serde_json::from_str(&other).expect("JSON");
    assert_eq!(gpus(&other), ["a100", "h200"]);

    // The file for both GPUs is the concatenation of the files for each.
    let pack = |arguments: &[&str]| {
        folder.succeeds(&[&["pack", "two.yaml", "--random", "1"], arguments].concat())
    };
    let printed = pack(&["-o", "both"]);
    let bytes = folder.read("both").len();
    assert_eq!(
        printed.matches("truncated HOSVD").count(),
        1,
        "factorised once: {printed}"
    );
    assert!(
        printed.ends_with(&format!(
            "both: {bytes} bytes, sections for h200; rtx2080ti\n"
        )),
        "{printed}"
    );
    pack(&["-o", "first", "--gpu", "h200"]);
    pack(&["-o", "second", "--gpu", "rtx2080ti"]);
    let joined = [folder.read("first"), folder.read("second")].concat();
    assert!(folder.read("both") == joined);
    // GPUs with the same layouts share a section.
    let report = pack(&["-o", "same", "--gpu", "h200,h100", "--json"]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let sections = report["sections"].as_array().expect("sections");
    let listed: usize = sections
        .iter()
        .map(|section| section["gpus"].as_array().expect("GPUs").len())
        .sum();
    assert_eq!(listed, 2, "{report}");
    assert_eq!(sections[0]["layouts_checksum"], *layouts[0]);
    let sum: u64 = sections
        .iter()
        .filter_map(|section| section["bytes"].as_u64())
        .sum();
    assert_eq!(sum, folder.read("same").len() as u64);

    // `plan` shows each GPU.
    let printed = folder.succeeds(&["plan", "two.yaml"]);
    assert_eq!(
        printed.matches("two: 1x3x20x20 -> ").count(),
        2,
        "{printed}"
    );
    let printed = folder.succeeds(&["plan", "two.yaml", "--json"]);
    assert!(printed.as_bytes() == folder.read("generated/two/plan.json"));

    let printed = folder.succeeds(&["verify", "two.yaml", "--json"]);
    let report: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(gpus(&report[0]), ["h200", "rtx2080ti"]);
    let units = report[0]["units"].as_array().expect("units");
    let stems = units
        .iter()
        .filter(|unit| unit["unit"].as_str().expect("a name").contains("_c3_n32_"));
    assert_eq!(
        stems.count(),
        1,
        "a shared unit is checked once: {report:#}"
    );
    let seed = u64::MAX.to_string();
    let verify = ["verify", "two.yaml", "--gpu", "rtx2080ti"];
    let printed = folder.succeeds(&[&verify[..], &["--seed", &seed]].concat());
    assert_eq!(printed.matches(" network two for ").count(), 1, "{printed}");
    assert!(
        printed.contains("network two for rtx2080ti, input 1x3x20x20: "),
        "{printed}"
    );
}

#[test]
fn plan_prints_a_row_for_each_launch_and_writes_nothing() {
    let folder = Folder::with_tiny();
    folder.write("set.yaml", SET);
    let before = folder.content();
    let printed = folder.succeeds(&["plan", "tiny.yaml", "--batch", "2", "--gpu", "a100"]);
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(
        lines[0],
        "tiny: 2x3x8x8 -> 2x4x1x1, planned for NVIDIA A100 SXM 80 GB (sm_80)"
    );
    let titles: Vec<_> = lines[3].split("  ").filter(|s| !s.is_empty()).collect();
    let titles: Vec<_> = titles.iter().map(|title| title.trim()).collect();
    assert_eq!(
        titles,
        [
            "op",
            "scheme",
            "tile",
            "chosen by",
            "blocks",
            "threads",
            "occupancy",
            "waves",
            "MFLOP",
            "KB",
            "predicted us",
            "measured us",
            "floor us",
            "unit"
        ]
    );
    let end = lines[4..].iter().position(|line| line.is_empty());
    let (rows, rest) = lines[4..].split_at(end.expect("an empty line"));
    assert!(rest[1].starts_with("the network as a whole: "), "{printed}");
    for op in [
        "a ", "b.first ", "b.core ", "b.last ", "p ", "fc ", "total ",
    ] {
        let count = rows.iter().filter(|row| row.starts_with(op)).count();
        assert_eq!(count, 1, "{op}: {printed}");
    }
    let launches = rows.len() - 1;
    assert!(
        lines[1].starts_with(&format!("6 layers, {launches} launches; arena ")),
        "{printed}"
    );

    let dense = folder.succeeds(&["plan", "tiny.yaml", "--dense", "--input", "1x3x9x9"]);
    assert!(dense.starts_with("tiny_dense: 1x3x9x9 -> "), "{dense}");
    assert!(!dense.contains("b.core"), "{dense}");

    let plain = folder.succeeds(&["plan", "tiny.yaml", "--json"]);
    assert!(!plain.contains("precision"), "{plain}");
    let lower = folder.succeeds(&["plan", "tiny.yaml", "--json", "--precision", "bf16"]);
    let convolutions = lower.matches("\"unit\": \"conv_").count();
    let marked = lower.matches("\"precision\": \"bf16\"").count();
    assert_eq!((marked, convolutions), (4, 4), "{lower}");
    assert_eq!(lower.matches("_bf16_").count() / convolutions, 2, "{lower}");
    let tolerant = folder.succeeds(&["plan", "tiny.yaml", "--json", "--tolerance", "2.5e-6"]);
    assert_eq!(
        tolerant.matches("\"tolerance\": 2.5e-6").count(),
        4,
        "{tolerant}"
    );
    assert_eq!(
        tolerant.matches("_tol2500_").count() / convolutions,
        2,
        "{tolerant}"
    );

    let set = folder.succeeds(&["plan", "set.yaml"]);
    assert!(
        set.starts_with("set: planned for NVIDIA H200 SXM (sm_90)\n1 layer, "),
        "{set}"
    );
    let both = folder.succeeds(&["plan", "set.yaml", "set.yaml"]);
    assert_eq!(both, format!("{set}\n{set}"));
    assert!(folder.content() == before);
}

#[test]
fn tiles_paper_plans_as_published() {
    let folder = Folder::new();
    let text = folder.succeeds(&["plan", &resnet18(), "--json", "--tiles", "paper"]);
    let plan: Value = serde_json::from_str(&text).unwrap();
    let layers = layers_of(&plan);
    let (mut by_paper, mut pointwise) = (0, 0);
    for layer in layers {
        let unit = layer["unit"].as_str().unwrap();
        if unit.contains("_k3x3") && unit.starts_with("conv") || unit.contains("_k7x7") {
            assert_eq!(
                (&layer["chosen_by"], &layer["scheme"]),
                (&json!("paper"), &json!("tdc"))
            );
            by_paper += 1;
        } else {
            assert_eq!(layer["chosen_by"], "model");
            pointwise += usize::from(unit.contains("_k1x1"));
        }
    }
    // 16 cores and the stem; two factors each, but one of the two layers with D1 = C, and the three shortcuts.
    assert_eq!((by_paper, pointwise), (17, 33));

    // If a scheme of the paper is specified, its tile is the paper's; that of any other scheme is not. A
    // config may set the policy.
    let config = "name: set\ntiles: paper\nlayers:\n  - {conv: [8, 6, 9, 9], scheme: tdc_rows}\n  - {conv: [8, 6, 9, 9], scheme: direct}\n";
    folder.write("set.yaml", config);
    let chosen = |arguments: &[&str]| {
        let plan: Value = serde_json::from_str(&folder.succeeds(arguments)).unwrap();
        let layers = plan["layers"].as_array().unwrap().clone();
        layers
            .iter()
            .map(|layer| layer["chosen_by"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(chosen(&["plan", "set.yaml", "--json"]), ["paper", "model"]);
    let model = ["plan", "set.yaml", "--json", "--tiles", "model"];
    assert_eq!(chosen(&model), ["model", "model"]);
    let output = folder.fails(
        &["plan", "set.yaml", "--tiles", "papers"],
        2,
        "error: invalid value 'papers' for '--tiles <POLICY>'",
    );
    assert!(
        output.contains("[possible values: tuned, model, paper]"),
        "{output}"
    );
}

/// A tuning table for [`SET`] on the H200; the tile of the first row no longer exists.
const TABLE: &str = "\
gpu: h200
device: NVIDIA H200
driver: 580.1
nvrtc: 13.0
generator: 0.1.0
conv_c4_n8_h6_w6_k3x3_p1_bias_relu direct p31rn8xn1sk1 0.5 0123456789abcdef
conv_c4_n8_h6_w6_k3x3_p1_bias_relu tdc h2w2c4 1.25 0123456789abcdef
";

#[test]
fn a_tuning_table_chooses_tiles() {
    let folder = Folder::new();
    folder.write("set.yaml", SET);
    folder.write("table.txt", TABLE);
    let layer = |arguments: &[&str]| {
        let arguments = [&["plan", "set.yaml", "--json"], arguments].concat();
        let plan: Value = serde_json::from_str(&folder.succeeds(&arguments)).expect("JSON");
        plan["layers"][0].clone()
    };
    let tuned = layer(&["--table", "table.txt"]);
    assert_eq!(tuned["chosen_by"], "tuned");
    assert_eq!(
        (&tuned["scheme"], &tuned["measured_us"]),
        (&json!("tdc"), &json!(1.25))
    );
    assert_eq!(tuned["tile"], json!({"th": 2, "tw": 2, "tc": 4}));
    let table = folder.succeeds(&["plan", "set.yaml", "--table", "table.txt"]);
    assert!(table.contains("tdc     h2w2c4  tuned   "), "{table}");
    assert!(
        table
            .lines()
            .last()
            .is_some_and(|total| total.contains("  1.25  ")),
        "{table}"
    );
    // With a different policy or GPU the table has no effect.
    let model = layer(&["--tiles", "model"]);
    assert_eq!(
        (&model["chosen_by"], &model["measured_us"]),
        (&json!("model"), &Value::Null)
    );
    assert_eq!(layer(&["--tiles", "model", "--table", "table.txt"]), model);
    assert_eq!(
        layer(&["--gpu", "a100", "--table", "table.txt"]),
        layer(&["--gpu", "a100", "--tiles", "model"])
    );
    // The folder is generated with the table, and is up to date with it only.
    folder.succeeds(&["set.yaml", "--table", "table.txt"]);
    folder.succeeds(&["set.yaml", "--check", "--table", "table.txt"]);
    assert_eq!(
        folder
            .run(&["set.yaml", "--check", "--tiles", "model"])
            .code,
        Some(1)
    );

    folder.write("bad.txt", TABLE.replace("1.25", "fast"));
    folder.fails(
        &["plan", "set.yaml", "--table", "bad.txt"],
        2,
        "error: bad.txt: line 7: us cannot be `fast`; it is a time in microseconds, 0.001 at least",
    );
    folder.fails(
        &["plan", "set.yaml", "--table", "none.txt"],
        2,
        "error: none.txt: no such file; check the path",
    );
}

/// A table with rows of problem, scheme and tile, measured with the current kernels.
fn present_table(rows: &[(&str, &str, &str, f64)]) -> String {
    let heading = TABLE.lines().take(5).map(|line| format!("{line}\n"));
    let h200 = gpu("h200").expect("a GPU");
    let rows = rows.iter().map(|(problem, scheme, tile, us)| {
        let text = present_text(problem, scheme, tile, h200).expect("a plan");
        let text = text.expect("a kernel");
        format!("{problem} {scheme} {tile} {us:.3} {text:016x}\n")
    });
    heading.chain(rows).collect()
}

#[test]
fn tables_are_merged() {
    const SAME: &str = "conv_c4_n8_h6_w6_k3x3_p1_bias_relu";
    const OTHER: &str = "conv_c5_n8_h6_w6_k3x3_p1_bias_relu";
    let folder = Folder::new();
    let a = present_table(&[(SAME, "tdc", "h2w2c4", 1.25)]);
    folder.write("a.txt", &a);
    folder.write(
        "b.txt",
        present_table(&[(SAME, "tdc", "h1w1c4", 0.75), (OTHER, "tdc", "h1w1c4", 2.0)]),
    );
    let output = folder.run(&["merge", "a.txt", "b.txt", "--out", "new/all.txt"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(
        output.stderr,
        format!("b.txt: {SAME} tdc: kept h1w1c4 with 0.750 us, not h2w2c4 with 1.250 us\n")
    );
    assert_eq!(output.stdout, "new/all.txt: 2 rows\n");
    let merged = folder.read("new/all.txt");
    // In the opposite order, and writing to one of the inputs.
    folder.succeeds(&["merge", "b.txt", "a.txt", "new/all.txt", "--out", "a.txt"]);
    assert_eq!(folder.read("a.txt"), merged);
    // Faster rows whose kernel, with the same or a different tile, is not the current one; a row of an
    // unknown problem; a row of a tile that no longer exists.
    let stale = |us: &str, tile: &str| {
        format!(
            "{SAME} tdc: dropped {tile} with {us} us, measured with other kernels than this version generates; measure it again\n"
        )
    };
    for tile in ["h1w1c4", "h2w2c4"] {
        let row = format!("{SAME} tdc {tile} 0.125 0123456789abcdef\n");
        let heading: String = TABLE
            .lines()
            .take(5)
            .map(|line| format!("{line}\n"))
            .collect();
        folder.write(
            "old.txt",
            heading + &row + "conv_x direct p32rn1xn1sk1 2 0123456789abcdef\n",
        );
        for tables in [["old.txt", "a.txt"], ["a.txt", "old.txt"]] {
            let output = folder.run(&["merge", tables[0], tables[1], "--out", "all.txt"]);
            let expected = format!(
                "old.txt: {}old.txt: {}",
                stale("0.125", tile),
                stale("2.000", "p32rn1xn1sk1").replace(&format!("{SAME} tdc"), "conv_x direct")
            );
            assert_eq!((output.code, output.stderr), (Some(0), expected));
            assert_eq!(folder.read("all.txt"), merged);
        }
    }
    folder.write("other.txt", a.replace("driver: 580.1", "driver: 575"));
    folder.fails(
        &["merge", "a.txt", "other.txt", "--out", "a.txt"],
        2,
        "error: other.txt: driver is `580.1` here and `575` there; times of different environments cannot be mixed: measure one of \
         them again",
    );
    folder.write("unknown.txt", a.replace("gpu: h200", "gpu: abacus"));
    folder.fails(
        &["merge", "unknown.txt", "--out", "a.txt"],
        2,
        "error: unknown.txt: there is no GPU named `abacus`; known are {gpus}",
    );
    // Times that would be printed as zero, and a truncated time.
    folder.write("short.txt", TABLE.replace(" 1.25 ", " 0.0004 "));
    folder.fails(
        &["merge", "short.txt", "--out", "a.txt"],
        2,
        "error: short.txt: line 7: us cannot be `0.0004`; it is a time in microseconds, 0.001 at least",
    );
    folder.write("cut.txt", TABLE.trim_end());
    folder.fails(
        &["merge", "cut.txt", "--out", "a.txt"],
        2,
        "error: cut.txt: line 7: the line has no end, and may be cut; end it, if all of it is there",
    );
    folder.fails(
        &["merge", "a.txt"],
        2,
        "error: the following required arguments were not provided:",
    );
    folder.fails(
        &["merge", "a.txt", "b.jpg", "--out", "a.txt"],
        2,
        "error: b.jpg: no such file; check the path",
    );
    assert_eq!(folder.read("a.txt"), merged);
}

#[test]
fn calibrate_fits_constants_to_journals() {
    const HEADING: &str = "\
# Every result of `tdc-gen tune`; times in microseconds.
gpu: h200
device: NVIDIA H200
driver: 580.1
nvrtc: 13.0
generator: 0.1.0
# problem scheme tile text outcome
";
    let folder = Folder::new();
    folder.write(
        "set.yaml",
        "name: set\nlayers:\n  - {conv: [64, 32, 14, 14], kernel: 3}\n",
    );
    let row = |tile: &str, outcome: &str| {
        format!(
            "conv_c64_n32_h14_w14_k3x3_p1_bias_relu implicit_gemm {tile} 0123456789abcdef {outcome}\n"
        )
    };
    folder.write(
        "a.journal",
        format!(
            "{HEADING}{}{}{}{}",
            row("h2w8m1wm1wp1wk3cl4cg1s1", "timed 1.7 1.701"),
            row("h2w8m2wm1wp1wk3cl4cg1s1", "timed 1.8 1.801"),
            row("h2w8m1wm1wp1wk1cl4cg1s1", "quick_only 2.9"),
            row("h2w8m1wm1wp1wk3cl2cg1s2", "timed 9.9 9.9").trim_end_matches("9.9\n"),
        ),
    );
    let fit = [
        "calibrate",
        "set.yaml",
        "--journal",
        "a.journal",
        "--out",
        "model.txt",
    ];
    let output = folder.run(&fit);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    // The truncated last line is ignored.
    assert!(
        output
            .stderr
            .contains("tiled, built-in constants: 1 problem, 3 tiles"),
        "{}",
        output.stderr
    );
    // The last row of a candidate counts, in one journal or in several.
    let journal = String::from_utf8(folder.read("a.journal")).unwrap();
    let again =
        row("h2w8m1wm1wp1wk3cl4cg1s1", "timed 5.1 5.1") + journal.strip_prefix(HEADING).unwrap();
    folder.write("again.journal", format!("{HEADING}{again}"));
    let journals = ["--journal", "again.journal", "--journal", "a.journal"];
    let second_output =
        folder.run(&[&["calibrate", "set.yaml", "--evaluate"], &journals[..]].concat());
    let before = output.stderr.lines().next().unwrap();
    assert_eq!(second_output.stderr.lines().next(), Some(before));

    let text = String::from_utf8(folder.read("model.txt")).unwrap();
    assert!(text.starts_with(
        "# Constants of the cost model, fitted by `tdc-gen calibrate` for NVIDIA H200.\ntiled.first_chunk_latency "
    ));
    assert!(CostModel::parse(&text).is_ok(), "{text}");
    folder.run(&fit);
    assert_eq!(folder.read("model.txt"), text.as_bytes());

    folder.write("b.journal", HEADING.replace("gpu: h200", "gpu: h100"));
    folder.fails(
        &["calibrate", "set.yaml", "--journal", "a.journal", "--journal", "b.journal"],
        2,
        "error: b.journal: measured on h100 (NVIDIA H200), but the journals before it on h200 (NVIDIA H200); calibrate one GPU at a time",
    );
    for output in ["a.journal", "./a.journal", "set.yaml"] {
        folder.fails(
            &[
                "calibrate",
                "set.yaml",
                "--journal",
                "a.journal",
                "--out",
                output,
            ],
            2,
            &format!(
                "error: {output} is an input and would be overwritten; choose another output file"
            ),
        );
    }
    folder.write("c.journal", HEADING);
    folder.fails(
        &["calibrate", "set.yaml", "--journal", "c.journal"],
        2,
        "error: no problem of the configs has three measured tiles of a scheme; give the configs that the journals were made with",
    );
    folder.fails(
        &["calibrate", "set.yaml", "--journal", "none.journal"],
        2,
        "error: cannot read none.journal: No such file or directory (os error 2)",
    );
}

#[test]
fn plan_terms_sum_to_the_predicted_time() {
    let folder = Folder::with_tiny();
    // With a pool and a linear layer, and a scheme that sets memory to zero before it adds to it.
    let atomic = "scheme: tdc, tile: [2, 2, 4], reduce: atomic";
    let z = format!("  - {{op: conv, name: z, n: 8, {atomic}}}\n  - {{op: conv, name: b,");
    folder.write("more.yaml", TINY.replace("  - {op: conv, name: b,", &z));
    let output = folder.succeeds(&["plan", "more.yaml", "--terms", "--tiles", "model"]);
    let mut lines = output.lines().skip(2);
    assert!(lines.next().unwrap().starts_with("op "), "{output}");
    let mut ops = Vec::new();
    for line in lines {
        let numbers: Vec<f64> = line
            .split_whitespace()
            .filter_map(|cell| cell.parse().ok())
            .collect();
        let (us, terms) = numbers.split_last().unwrap();
        assert_eq!(terms.len(), 11, "{line}");
        assert!(*us > 0.0, "{line}");
        assert!((terms.iter().sum::<f64>() - us).abs() < 0.07, "{line}");
        ops.push(line.split_whitespace().next().unwrap());
    }
    for op in ["z", "memset", "a", "p", "fc"] {
        assert!(ops.contains(&op), "{op}: {output}");
    }
    folder.fails(
        &["plan", "tiny.yaml", "--terms", "--json"],
        2,
        "error: the argument '--terms' cannot be used with '--json'",
    );
}

#[test]
fn plan_draws_a_timeline() {
    let folder = Folder::with_tiny();
    let table = folder.succeeds(&["plan", "tiny.yaml"]);
    let arguments = ["plan", "tiny.yaml", "--timeline", "drawn/tiny.svg"];
    assert_eq!(folder.succeeds(&arguments), table);
    let svg = String::from_utf8(folder.read("drawn/tiny.svg")).unwrap();
    assert!(svg.contains("<title>fc: linear, "), "{svg}");
    assert!(!svg.contains("measured"), "{svg}");

    // Beside the times that the program printed.
    let json = folder.succeeds(&["plan", "tiny.yaml", "--json"]);
    let plan: serde_json::Value = serde_json::from_str(&json).unwrap();
    let layers = plan["variants"][0]["layers"].as_array().unwrap();
    let rows = layers
        .iter()
        .map(|layer| format!("    2.50      2.25  {}\n", layer["name"].as_str().unwrap()));
    let rows: String = rows.collect();
    let profile = format!("   added     alone  layer\n{rows}    9.00      8.00  sum\n");
    folder.write("profile.txt", &profile);
    let arguments = [&arguments[..], &["--profile", "profile.txt"]].concat();
    assert_eq!(folder.succeeds(&arguments), table);
    let svg = String::from_utf8(folder.read("drawn/tiny.svg")).unwrap();
    let measured = format!("; {:.1} us measured", 2.5 * layers.len() as f64);
    assert!(svg.contains(&measured), "{measured} {svg}");
    folder.write("profile.txt", profile.replace("fc\n", "fd\n"));
    let message = "error: profile.txt: it has the layer `fd` where the plan has `fc`; plan with the options with which the program was generated";
    folder.fails(&arguments, 2, message);
    let message = "error: absent.txt: No such file or directory (os error 2)";
    let absent = [
        "plan",
        "tiny.yaml",
        "--timeline",
        "x.svg",
        "--profile",
        "absent.txt",
    ];
    folder.fails(&absent, 2, message);
    assert!(!folder.path("x.svg").exists());

    folder.write("set.yaml", SET);
    for arguments in [
        &["set.yaml"][..],
        &["tiny.yaml", "tiny.yaml"],
        &["tiny.yaml", "--gpu", "h200,a100"],
    ] {
        let arguments = [&["plan", "--timeline", "x.svg"], arguments].concat();
        let message = "error: --timeline draws one network on one GPU; give one config of a network, and one name in --gpu";
        folder.fails(&arguments, 2, message);
        assert!(!folder.path("x.svg").exists());
    }
}

#[test]
fn tune_rejects_invalid_arguments() {
    let folder = Folder::with_tiny();
    let before = folder.content();
    for (arguments, message) in [
        (
            &["--shard", "5/4"][..],
            "`5/4` is not a shard; write its number and the number of shards",
        ),
        (&["--shard", "2"], "`2` is not a shard"),
        (
            &["--scheme", "fft"],
            "invalid value 'fft' for '--scheme <SCHEME>'",
        ),
        (
            &["--budget=-1"],
            "must be a number of minutes, 0 or more, such as 90 or 0.5",
        ),
        (
            &["--budget", "inf"],
            "must be a number of minutes, 0 or more",
        ),
        (&["--top", "x"], "invalid value 'x' for '--top <K>'"),
        (&["--threads", "0"], "invalid value '0' for '--threads <N>'"),
        (&["none.yaml"], "none.yaml"),
    ] {
        let outcome = folder.run(&[&["tune", "tiny.yaml"], arguments].concat());
        assert_eq!(outcome.code, Some(2), "{message}");
        assert!(outcome.stderr.contains(message), "{}", outcome.stderr);
    }
    // A GPU that no machine has; with none at all the error is a different one.
    let outcome = folder.run(&["tune", "tiny.yaml", "--device", "4000000000"]);
    assert_eq!(outcome.code, Some(3));
    assert!(outcome.stderr.contains("GPU"), "{}", outcome.stderr);
    assert!(folder.content() == before);
}

#[test]
fn plan_as_json_is_the_plan_of_the_folder() {
    let folder = Folder::with_tiny();
    folder.write("set.yaml", SET);
    folder.succeeds(&["tiny.yaml", "set.yaml"]);
    for config in ["tiny", "set"] {
        let printed = folder.succeeds(&["plan", &format!("{config}.yaml"), "--json"]);
        let written = folder.read(&format!("generated/{config}/plan.json"));
        assert_eq!(printed.as_bytes(), written);
        let plan: Value = serde_json::from_str(&printed).expect("JSON");
        for layer in layers_of(&plan) {
            let steps = layer["steps"].as_array().expect("steps");
            let mut us = 0.0;
            for launch in steps.iter().filter_map(|step| step.get("launch")) {
                let share = launch["occupancy"].as_f64().expect("a share");
                assert!(share > 0.0 && share <= 1.0, "{launch}");
                assert!(launch["blocks_per_sm"].as_u64() > Some(0), "{launch}");
                assert!(launch["waves"].as_u64() > Some(0), "{launch}");
                us += launch["predicted_us"].as_f64().expect("a time");
            }
            // Each is rounded to nanoseconds.
            let whole = layer["predicted_us"].as_f64().expect("a time");
            assert!((us - whole).abs() < 2e-3, "{layer}");
        }
    }
}

#[test]
fn a_gpu_before_sm_70_can_be_planned_but_not_generated() {
    let folder = Folder::with_tiny();
    let printed = folder.succeeds(&["plan", "tiny.yaml", "--gpu", "gtx1080ti"]);
    assert!(
        printed.contains(", planned for NVIDIA GeForce GTX 1080 Ti (sm_61)\n"),
        "{printed}"
    );
    for arguments in [
        &["tiny.yaml", "--gpu", "gtx1080ti"][..],
        &["tiny.yaml", "--gpu", "gtx1080ti", "--check"],
        &["pack", "tiny.yaml", "--random", "1", "--gpu", "gtx1080ti"],
        &["verify", "tiny.yaml", "--gpu", "gtx1080ti"],
        &["compile", "tiny.yaml", "--gpu", "gtx1080ti"],
    ] {
        folder.fails(
            arguments,
            2,
            "error: no code can be generated for `gtx1080ti`, which is sm_61; kernels need sm_70 or newer: use `tdc-gen plan` to see its \
             plan, or choose a newer GPU",
        );
    }
    // The name of the config precedes the error if the config specifies the GPU; the other GPU of the list
    // makes no difference.
    folder.write(
        "old.yaml",
        TINY.replace("input:", "gpu: [h200, gtx1080ti]\ninput:"),
    );
    folder.succeeds(&["plan", "old.yaml"]);
    folder.fails(
        &["old.yaml"],
        2,
        "error: old.yaml:2:6: no code can be generated for `gtx1080ti`, which is sm_61; kernels need sm_70 or newer: use `tdc-gen plan` to see \
         its plan, or choose a newer GPU",
    );
    folder.succeeds(&["old.yaml", "--gpu", "h200"]);
}

#[test]
fn dense_ignores_ranks_and_renames_the_network() {
    let folder = Folder::new();
    let printed = folder.succeeds(&[&resnet18(), "--dense"]);
    assert!(
        printed.starts_with("generated/resnet18_dense: "),
        "{printed}"
    );
    let plan: Value =
        serde_json::from_slice(&folder.read("generated/resnet18_dense/plan.json")).expect("JSON");
    assert_eq!(plan["name"], "resnet18_dense");
    let text = plan.to_string();
    assert!(!text.contains("first") && !text.contains("ranks"), "{text}");
}

#[test]
fn another_input_shape() {
    let folder = Folder::new();
    let printed = folder.succeeds(&[&resnet18(), "--input", "1x3x64x64"]);
    assert!(
        printed.contains("\n  1x3x64x64 -> 1x1000x1x1: "),
        "{printed}"
    );
    let printed = folder.succeeds(&[&resnet18(), "--input", "1x3x64x64", "--batch", "2"]);
    assert!(
        printed.contains("\n  2x3x64x64 -> 2x1000x1x1: "),
        "{printed}"
    );
    folder.fails(
        &[&resnet18(), "--input", "1x3x0x64"],
        2,
        &format!(
            "error: {}:7:8: the input 1x3x0x64 is empty; every size must be at least 1",
            resnet18()
        ),
    );
}

#[test]
fn random_weights_are_reproducible_and_survive_safetensors() {
    let folder = Folder::with_tiny();
    let seeded = ["pack", "tiny.yaml", "--random", "1"];
    let printed = folder.succeeds(&[&seeded[..], &["-o", "a", "--safetensors", "st"]].concat());
    let first = printed.lines().next().unwrap_or_default();
    assert!(
        first.starts_with(
            "b                        ranks [4, 4]  truncated HOSVD, relative error 0."
        ),
        "{printed}"
    );
    assert_eq!(
        printed.lines().last(),
        Some(&*format!("a: {} bytes", folder.read("a").len()))
    );
    folder.succeeds(&[&seeded[..], &["-o", "b"]].concat());
    folder.succeeds(&["pack", "tiny.yaml", "st", "-o", "new/c"]);
    folder.succeeds(&["pack", "tiny.yaml", "--random", "2", "-o", "d"]);
    assert_eq!(folder.read("a"), folder.read("b"));
    assert_eq!(folder.read("a"), folder.read("new/c"));
    assert_ne!(folder.read("a"), folder.read("d"));
    let report = folder.succeeds(&[&seeded[..], &["-o", "a", "--json"]].concat());
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["factorizations"][0]["layer"], "b");
    assert!(report["factorizations"][0]["relative_error"].as_f64() < Some(1.0));
}

#[test]
fn a_config_has_no_weights_to_pack() {
    Folder::with_tiny().fails(
        &["pack", "tiny.yaml", "-o", "weights.bin"],
        2,
        "error: weights are missing; give a safetensors file, or --random SEED",
    );
}

/// A file of PyTorch's newer exporter, with its weights beside it.
#[cfg(feature = "onnx")]
fn onnx_folder() -> Folder {
    let folder = Folder::new();
    for file in ["default.onnx", "default.onnx.data"] {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/onnx");
        folder.write(
            file,
            fs::read(Path::new(fixtures).join(file)).expect("a fixture"),
        );
    }
    folder
}

#[cfg(feature = "onnx")]
#[test]
fn an_onnx_file_gives_the_folder_and_its_weights() {
    let folder = onnx_folder();
    let generate = ["default.onnx", "--out", "out"];
    folder.succeeds(&generate);
    folder.succeeds(&["default.onnx", "--out", "out", "--check"]);
    folder.succeeds(&["pack", "default.onnx", "-o", "packed.bin"]);
    assert_eq!(folder.read("out/weights.bin"), folder.read("packed.bin"));
    // Weights of an older file are noticed.
    let mut stale = folder.read("out/weights.bin");
    *stale.last_mut().expect("weights") ^= 1;
    folder.write("out/weights.bin", stale);
    let outcome = folder.run(&["default.onnx", "--out", "out", "--check"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("\nweights.bin: differs"),
        "{}",
        outcome.stderr
    );
    folder.succeeds(&["pack", "default.onnx", "--random", "1", "-o", "random.bin"]);
    assert_ne!(folder.read("random.bin"), folder.read("packed.bin"));
}

#[test]
fn python_modules_are_for_networks() {
    let folder = Folder::with_tiny();
    folder.write("set.yaml", SET);
    folder.succeeds(&["tiny.yaml", "--python"]);
    assert!(folder.path("generated/tiny/tiny.py").is_file());
    folder.succeeds(&["tiny.yaml", "--python", "--check"]);
    // Without the option the module is a file of an earlier run.
    folder.succeeds(&["tiny.yaml"]);
    assert!(!folder.path("generated/tiny/tiny.py").exists());
    folder.fails(
        &["set.yaml", "--python"],
        2,
        "error: set.yaml: --python is for networks; the kernels of a layer set have no driver",
    );
}

/// The config and the weights of `import` give what the ONNX file gives.
#[cfg(feature = "onnx")]
#[test]
fn an_imported_config_gives_the_same_bytes() {
    let folder = onnx_folder();
    let import = ["import", "default.onnx", "--weights", "w.safetensors"];
    let printed = folder.succeeds(&import);
    assert!(
        printed.starts_with("default.yaml: 20 ops\nw.safetensors: "),
        "{printed}"
    );
    folder.succeeds(&["default.onnx", "--out", "direct"]);
    folder.succeeds(&["default.yaml", "--out", "through_config"]);
    folder.succeeds(&[
        "pack",
        "default.yaml",
        "w.safetensors",
        "-o",
        "through_config/weights.bin",
    ]);
    let content = folder.content();
    let of = |name: &str| -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let inside = content.iter().filter_map(|(path, bytes)| {
            let path = path.strip_prefix(folder.path(name)).ok()?;
            Some((path.to_owned(), bytes.clone()))
        });
        inside.collect()
    };
    assert!(of("direct").len() > 10);
    assert!(of("direct") == of("through_config"));

    // A batch and a size of the user's.
    folder.succeeds(&[
        "import",
        "default.onnx",
        "-o",
        "b.yaml",
        "--input",
        "2x3x18x17",
    ]);
    let text = String::from_utf8(folder.read("b.yaml")).expect("UTF-8");
    assert!(text.contains("\ninput: 2x3x18x17\n"), "{text}");

    // An edited config is kept.
    folder.succeeds(&import);
    folder.write("default.yaml", "name: mine\n");
    folder.fails(
        &import,
        2,
        "error: default.yaml exists and differs from what would be written; give another file by -o, or replace it by --force",
    );
    folder.succeeds(&[&import[..], &["--force"]].concat());
    folder.fails(
        &["import", "default.onnx", "-o", "default.onnx"],
        2,
        "error: default.onnx is an input and would be overwritten; choose another output file",
    );
}

#[cfg(feature = "onnx")]
#[test]
fn onnx_files_that_cannot_be_imported_write_nothing() {
    let folder = onnx_folder();
    folder.fails(
        &["none.onnx"],
        2,
        "error: none.onnx: no such file; check the path",
    );
    let whole = folder.read("default.onnx");
    folder.write("cut.onnx", &whole[..whole.len() / 2]);
    let message = folder.run(&["cut.onnx"]).stderr;
    let first = message.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("error: cut.onnx: the file is not an ONNX model"),
        "{message}"
    );
    folder.fails(&["cut.onnx"], 2, first);
    fs::remove_file(folder.path("default.onnx.data")).expect("the weights");
    let message = folder.run(&["default.onnx"]).stderr;
    let first = message.lines().next().unwrap_or_default();
    assert!(
        first.contains("`default.onnx.data` cannot be read"),
        "{message}"
    );
    folder.fails(&["default.onnx"], 2, first);
}

#[test]
fn toolkit_completions_and_help_print() {
    let folder = Folder::new();
    let printed = folder.succeeds(&["toolkit"]);
    assert!(
        printed.contains("NVRTC 13") && printed.contains("nvcc"),
        "{printed}"
    );
    let json: Value = serde_json::from_str(&folder.succeeds(&["toolkit", "--json"])).expect("JSON");
    assert!(json.is_object(), "{json}");
    let script = folder.succeeds(&["completions", "bash"]);
    let help = folder.succeeds(&["--help"]);
    for command in [
        "plan",
        "pack",
        "verify",
        "compile",
        "tune",
        "calibrate",
        "merge",
        "bench",
        "toolkit",
        "completions",
    ] {
        assert!(
            script.contains(&format!("tdc__gen__subcmd__{command}")),
            "{command}"
        );
        assert!(
            help.contains(&format!("\n  {command} ")),
            "{command}: {help}"
        );
    }
    assert!(
        help.contains("\nExamples:\n  tdc-gen configs/resnet18.yaml "),
        "{help}"
    );
    for code in [
        "0  success",
        "1  a check failed",
        "2  invalid input",
        "3  no compiler or no GPU on this machine",
    ] {
        assert!(help.contains(&format!("\n  {code}")), "{help}");
    }
    assert_eq!(folder.content().len(), 0);
}

#[test]
fn a_set_of_cp_layers_is_planned_and_can_be_dense() {
    let folder = Folder::new();
    let text = "name: cp\nlayers:\n  - {conv: [8, 16, 9, 9], cp_rank: 3}\n  - {conv: [8, 16, 9, 9], cp_rank: 3, scheme: cp_fused}\n";
    folder.write("cp.yaml", text);
    let plan = folder.succeeds(&["plan", "cp.yaml"]);
    for unit in [
        "  cp_c8_r3_n16_h9_w9_k3x3_p1_cp_chain_",
        "  cp_c8_r3_n16_h9_w9_k3x3_p1_cp_fused_",
    ] {
        assert!(plan.contains(unit), "{plan}");
    }
    folder.write("plain.yaml", text.replace(", scheme: cp_fused", ""));
    let dense = folder.succeeds(&["plan", "plain.yaml", "--dense"]);
    assert!(dense.starts_with("cp_dense: "), "{dense}");
    assert!(dense.contains("  conv_c8_n16_h9_w9_k3x3_p1_"), "{dense}");
    folder.write("large.yaml", text.replace("cp_rank: 3", "cp_rank: 33"));
    let outcome = folder.run(&["plan", "large.yaml"]);
    assert_eq!(outcome.code, Some(2));
    assert!(
        outcome.stderr.contains("no scheme can compute cp_c8_r33_"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn pack_reports_the_error_of_a_cp_factorisation() {
    let folder = Folder::new();
    folder.write(
        "cp.yaml",
        "name: n\ninput: 1x4x6x6\nops:\n  - {op: conv, name: a, n: 6, cp_rank: 2}\n",
    );
    let packed = folder.succeeds(&["pack", "cp.yaml", "--random", "1", "--safetensors", "dense"]);
    let line = packed.lines().next().unwrap_or_default();
    let expected =
        "a                        CP rank 2  alternating least squares, relative error 0.";
    assert!(line.starts_with(expected), "{line}");
    let json = folder.succeeds(&["pack", "cp.yaml", "dense", "--json"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let of_layer = &report["factorizations"][0];
    assert_eq!(
        (&of_layer["ranks"], &of_layer["cp_rank"]),
        (&json!(null), &json!(2))
    );
    assert!(
        of_layer["cancellation"]
            .as_f64()
            .is_some_and(|times| times > 0.5)
    );
    // Two outer products that nearly cancel each other.
    let first = [1.0, 2.0, -1.0, 0.5, 1.001, 2.0, -1.0, 0.5];
    let last = [
        0.5, -0.5, -1.0, 1.0, 1.0, -1.0, 2.0, -2.0, 0.25, -0.25, -0.5, 0.5,
    ];
    let (mut header, mut payload) = (serde_json::Map::new(), Vec::new());
    for (part, shape, values) in [
        ("first", [2, 4, 1, 1], &first[..]),
        ("vertical", [2, 1, 3, 1], &[1.0; 6]),
        ("horizontal", [2, 1, 1, 3], &[1.0; 6]),
        ("last", [6, 2, 1, 1], &last),
    ] {
        let start = payload.len();
        payload.extend(values.iter().flat_map(|value: &f32| value.to_le_bytes()));
        let tensor =
            json!({"dtype": "F32", "shape": shape, "data_offsets": [start, payload.len()]});
        header.insert(format!("a.{part}.weight"), tensor);
    }
    let header = serde_json::to_vec(&header).expect("JSON");
    let length = (header.len() as u64).to_le_bytes();
    folder.write("factors", [&length[..], &header, &payload].concat());
    let outcome = folder.run(&["pack", "cp.yaml", "factors"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let note = outcome
        .stderr
        .lines()
        .find(|line| line.contains("ill-conditioned"));
    let note = note.expect("a note");
    assert!(
        note.starts_with("note: the CP factorisation of `a` is ill-conditioned: "),
        "{note}"
    );
}

#[test]
fn layers_with_a_rank_are_planned_packed_and_verified() {
    let folder = Folder::new();
    let text = "name: n\ninput: 3x5x3x2\nops:\n  - {op: conv, name: a, n: 7, kernel: 1, stride: 2, pad: 1, bias: true, rank: 5}\n  \
                - {op: flatten, name: f}\n  - {op: linear, name: b, n: 11, activation: relu, rank: 2}\n";
    folder.write("rank.yaml", text);
    let plan: Value =
        serde_json::from_str(&folder.succeeds(&["plan", "rank.yaml", "--json"])).expect("JSON");
    let layers = plan["variants"][0]["layers"].as_array().expect("a list");
    let names: Vec<_> = layers
        .iter()
        .filter_map(|layer| layer["name"].as_str())
        .collect();
    assert_eq!(names, ["a.first", "a.last", "b.first", "b.last"]);
    let packed = folder.succeeds(&[
        "pack",
        "rank.yaml",
        "--random",
        "1",
        "--safetensors",
        "dense",
    ]);
    let lines: Vec<_> = packed.lines().collect();
    let a = "a                        rank 5  truncated SVD, relative error 0.0000";
    assert_eq!(lines[0], a);
    let b = "b                        rank 2  truncated SVD, relative error 0.";
    assert!(
        lines[1].starts_with(b) && !lines[1].ends_with("0.0000"),
        "{packed}"
    );
    let json = folder.succeeds(&["pack", "rank.yaml", "dense", "--json"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let of_layer = &report["factorizations"][1];
    assert_eq!(
        [&of_layer["ranks"], &of_layer["cp_rank"], &of_layer["rank"]],
        [&json!(null), &json!(null), &json!(2)]
    );
    for checkpoint in [&[][..], &["--weights", "dense"]] {
        let arguments = [&["verify", "rank.yaml", "--gpu", "a100"], checkpoint].concat();
        let verified = folder.succeeds(&arguments);
        assert!(
            verified.contains("ok      network n for a100"),
            "{verified}"
        );
    }
    let dense = folder.succeeds(&["plan", "rank.yaml", "--dense"]);
    assert!(dense.starts_with("n_dense: "), "{dense}");
    assert!(!dense.contains(".first"), "{dense}");
}

#[test]
fn sequence_prints_a_table_and_a_tree() {
    let folder = Folder::new();
    let text = "A[i:9, j:2]\nB[j, k:9]  # the outer product\nC[k, l:2]\n-> D[i, l]\n";
    folder.write("chain.txt", text);
    let expected = "\
72 multiply-adds, 320 bytes; largest intermediate: 4 elements

step   operands  result      sums over  convolves  elements  multiplications  bytes
1      B C       [j:2, l:2]  k                            4               36    160
2      A #1      [i:9, l:2]  j                           18               36    160
total                                                                     72    320

#2 ×j [i:9, l:2]
├─ A[i:9, j:2]
└─ #1 ×k [j:2, l:2]
   ├─ B[j:2, k:9]
   └─ C[k:9, l:2]
";
    assert_eq!(
        folder.succeeds(&["sequence", "--file", "chain.txt"]),
        expected
    );
    assert_eq!(folder.succeeds(&["sequence", text]), expected);
    let timed = folder.succeeds(&["sequence", text, "--minimize", "latency", "--gpu", "a100"]);
    assert!(timed.contains(" us on a100; "), "{timed}");
    for (arguments, message) in [
        (
            &["--file", "chain.txt", "--max-intermediate", "3"][..],
            "error: no order keeps every intermediate within 3 elements; allow at least 4",
        ),
        (
            &["A[i:2] B[j:2] -> [i]"],
            "error: network:1:10: `j` is only in `B` and not in the result; add it to the result, or to the tensor that it is \
             contracted with",
        ),
        (
            &["--file", "none"],
            "error: cannot read none: No such file or directory (os error 2)",
        ),
    ] {
        folder.fails(&[&["sequence"], arguments].concat(), 2, message);
    }
}

mod deep {
    use super::*;

    /// Those that take the least time. MobileNet-v2 amplifies errors.
    #[test]
    #[ignore = "deep tier: networks on the CPU"]
    fn verify_accepts_committed_networks() {
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
        for network in ["mobilenet_v2", "mobilenet_v3_large", "squeezenet1_1"] {
            let config = configs.join(format!("{network}.yaml"));
            let config = config.to_str().expect("a path in UTF-8");
            let printed = Folder::new().succeeds(&["verify", config, "--runs", "1"]);
            assert!(
                printed.contains(&format!("ok      network {network} for h200")),
                "{printed}"
            );
        }
    }
}
