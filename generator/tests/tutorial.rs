//! The tutorial's commands, as printed, up to its program.
//!
//! The export needs PyTorch, so a small network of the same ops has the place of its result. The program is built by the host's compiler
//! against the CPU emulation in the place of CMake and nvcc.

#![cfg(feature = "cli")]

use std::path::{Path, PathBuf};
use std::process::Command;
use tdc_generator::compile::cpu::write_headers;

const NAME: &str = "mobilenet_v3_large";

fn tutorial() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tutorial.md");
    std::fs::read_to_string(path).unwrap()
}

/// The text of the steps of these numbers.
fn steps(text: &str, numbers: std::ops::Range<usize>) -> &str {
    let start = |number: usize| text.find(&format!("\n## {number}. ")).unwrap();
    &text[start(numbers.start)..start(numbers.end)]
}

/// The block of code that begins with a comment of the file's name.
fn file<'t>(text: &'t str, comment: &str) -> &'t str {
    let start = text.find(comment).unwrap();
    let end = text[start..].find("```").unwrap();
    &text[start..start + end]
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// Runs the commands of a range of steps in the folder, but those that need a GPU; their number.
fn run_commands(text: &str, numbers: std::ops::Range<usize>, folder: &Path) -> usize {
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/onnx/small.onnx");
    std::fs::copy(small, folder.join(format!("{NAME}.onnx"))).unwrap();
    let commands = steps(text, numbers).lines();
    let commands = commands.filter_map(|line| line.strip_prefix("    tdc-gen "));
    let mut count = 0;
    for command in commands.filter(|command| !command.contains("--local-gpu")) {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tdc-gen"));
        succeed(program.args(command.split(' ')).current_dir(folder));
        count += 1;
    }
    count
}

fn compiler() -> Command {
    let mut command = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned()));
    command.args(["-std=c++17", "-O1", "-Wno-unknown-pragmas", "-pthread"]);
    command
}

/// Writes the program of the tutorial and the headers of the emulation; the paths of both.
fn write_program(text: &str, folder: &Path) -> (PathBuf, PathBuf) {
    let (headers, main) = (folder.join("cuda"), folder.join("main.cpp"));
    write_headers(&headers).unwrap();
    std::fs::write(&main, file(text, "// app/main.cpp")).unwrap();
    (main, headers)
}

#[test]
fn the_code_is_generated_and_the_program_fits_it() {
    let text = tutorial();
    assert!(
        file(&text, "# export.py").contains(&format!("\"{NAME}.onnx\"")),
        "the export writes another file"
    );
    let folder = tempfile::tempdir().unwrap();
    let count = run_commands(&text, 3..5, folder.path());
    assert_eq!(count, 2, "plan and generate");
    let (main, headers) = write_program(&text, folder.path());
    let include = folder.path().join("generated").join(NAME).join("include");
    let mut compiler = compiler();
    compiler.arg("-fsyntax-only").arg("-I").arg(headers);
    succeed(compiler.arg("-I").arg(include).arg(main));
}

mod deep {
    use super::*;

    #[test]
    #[ignore = "deep tier"]
    fn the_check_passes_and_the_program_prints_a_class() {
        let text = tutorial();
        let folder = tempfile::tempdir().unwrap();
        let count = run_commands(&text, 3..6, folder.path());
        assert_eq!(count, 3, "plan, generate and verify");
        let generated = folder.path().join("generated").join(NAME);
        let output = run_program(&text, folder.path(), &generated);
        assert!(output.starts_with("class "), "{output}");
    }
}

/// What the tutorial's program prints for an image.
fn run_program(text: &str, folder: &Path, generated: &Path) -> String {
    let (main, headers) = write_program(text, folder);
    let sources = [generated.join("src"), generated.join("src/units")];
    let sources = sources
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let sources = sources.map(|entry| entry.unwrap().path());
    let sources: Vec<PathBuf> = sources
        .filter(|path| path.extension() == Some("cu".as_ref()))
        .collect();
    let mut objects = Vec::new();
    for source in sources.iter().chain([&main]) {
        let object = folder.join(source.file_name().unwrap()).with_extension("o");
        let mut compiler = compiler();
        compiler.arg("-I").arg(&headers);
        compiler.arg("-I").arg(generated.join("include"));
        if source != &main {
            compiler.arg("-DTDC_CPU_ENGINE_ELSEWHERE");
        }
        compiler.args(["-x", "c++", "-c"]).arg(source);
        succeed(compiler.arg("-o").arg(&object));
        objects.push(object);
    }
    let program = folder.join("app");
    succeed(compiler().args(objects).arg("-o").arg(&program));
    let image = folder.join("image.bin");
    let pixels = (0..3 * 224 * 224).map(|index| (index % 255) as f32 / 255.0 - 0.5);
    let bytes: Vec<u8> = pixels.flat_map(f32::to_le_bytes).collect();
    std::fs::write(&image, bytes).unwrap();
    let mut program = Command::new(program);
    succeed(program.arg(generated.join("weights.bin")).arg(image))
}
