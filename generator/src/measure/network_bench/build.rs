//! Compiles a generated folder with nvcc.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tdc_runtime::{Arch, Checksum};

/// Name of the program in a folder, and of the file with the checksum of what it was built from.
const PROGRAM: &str = "app";
const STAMP: &str = "app.built";

/// The architecture in nvcc's option `-arch`: on sm_90 the one with the features that wgmma needs.
pub fn nvcc_arch(arch: Arch) -> String {
    match arch.sm {
        90 => "sm_90a".to_owned(),
        sm => format!("sm_{sm}"),
    }
}

/// Compiles the sources of a folder on all cores and links them. A program of an earlier run is used if it was built from the same sources
/// by the same commands; `sources` is their checksum.
///
/// # Errors
/// The command that failed, with the end of its messages.
pub fn build(nvcc: &Path, arch: &str, folder: &Path, sources: u64) -> Result<PathBuf, String> {
    let program = folder.join(PROGRAM);
    let stamp = folder.join(STAMP);
    let command = format!("{sources:016x} {} {arch}\n", nvcc.display());
    let is_built = fs::read_to_string(&stamp).is_ok_and(|found| found == command);
    if is_built && program.is_file() {
        return Ok(program);
    }
    let objects = folder.join("objects");
    fs::create_dir_all(&objects).map_err(|error| format!("{}: {error}", objects.display()))?;
    let commands = compile_commands(folder, &objects)?;
    run_all(&commands, |(source, object)| {
        let mut compile = Command::new(nvcc);
        compile
            .args(["-std=c++17", "-O3"])
            .arg(format!("-arch={arch}"));
        compile.arg("-I").arg(folder.join("include"));
        compile.arg("-I").arg(folder.join("src"));
        compile.arg("-c").arg(source).arg("-o").arg(object);
        run(&mut compile)
    })?;
    let mut link = Command::new(nvcc);
    link.arg(format!("-arch={arch}"));
    link.args(commands.iter().map(|(_, object)| object));
    run(link.arg("-o").arg(&program))?;
    fs::write(&stamp, command).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(program)
}

/// Sources with their objects, the largest first: a network's driver takes as long as several units, and should not be the last to
/// finish.
fn compile_commands(folder: &Path, objects: &Path) -> Result<Vec<(PathBuf, PathBuf)>, String> {
    let mut sources = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let at = |error| format!("{}: {error}", folder.display());
        for entry in fs::read_dir(&folder).map_err(at)? {
            let path = entry.map_err(at)?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "cu") {
                let bytes = fs::metadata(&path).map_err(at)?.len();
                sources.push((bytes, path));
            }
        }
    }
    sources.sort_by(|a, b| b.cmp(a));
    let object = |source: &Path| {
        // Files of different folders may have the same name.
        let name = Checksum::of(source.as_os_str().as_encoded_bytes());
        objects.join(format!("{name:016x}.o"))
    };
    Ok(sources
        .into_iter()
        .map(|(_, source)| (source.clone(), object(&source)))
        .collect())
}

/// Works on all items with as many threads as there are cores; the first error ends the work.
fn run_all<T: Sync>(
    items: &[T],
    work: impl Fn(&T) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(reason) = work(item) {
                        next.store(items.len(), Ordering::Relaxed);
                        if let Ok(mut failure) = failure.lock() {
                            *failure = Some(reason);
                        }
                    }
                }
            });
        }
    });
    match failure.into_inner() {
        Ok(Some(reason)) => Err(reason),
        _ => Ok(()),
    }
}

/// Runs a command that prints nothing of interest.
fn run(command: &mut Command) -> Result<(), String> {
    output(command).map(drop)
}

/// Runs a command; returns what it prints.
///
/// # Errors
/// The program that failed, with the end of its messages.
pub fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let messages = String::from_utf8_lossy(&done.stderr);
    Err(format!(
        "{program} failed ({}): {}",
        done.status,
        end_of(messages.trim())
    ))
}

/// At most the last 2000 characters.
pub fn end_of(text: &str) -> &str {
    const MOST: usize = 2000;
    let start = text.char_indices().rev().take(MOST).last();
    start.map_or("", |(at, _)| &text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hopper_needs_features_of_its_own() {
        assert_eq!(nvcc_arch(Arch::new(90)), "sm_90a");
        assert_eq!(nvcc_arch(Arch::new(89)), "sm_89");
        assert_eq!(nvcc_arch(Arch::new(120)), "sm_120");
    }

    #[test]
    fn the_end_of_a_text_is_cut_between_characters() {
        assert_eq!(end_of(""), "");
        assert_eq!(end_of("short"), "short");
        let long = "é".repeat(3000);
        assert_eq!(end_of(&long).chars().count(), 2000);
    }

    /// A stand-in for nvcc writes its arguments to the file after `-o`.
    #[cfg(unix)]
    #[test]
    fn a_folder_is_compiled_once() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let nvcc = dir.path().join("nvcc");
        let log = dir.path().join("log");
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {}\nfor last; do :; done\necho \"$@\" > \"$last\"\n",
            log.display()
        );
        fs::write(&nvcc, script).unwrap();
        fs::set_permissions(&nvcc, fs::Permissions::from_mode(0o755)).unwrap();
        let folder = dir.path().join("net");
        fs::create_dir_all(folder.join("src/units")).unwrap();
        for (name, text) in [
            ("main.cu", "m"),
            ("src/net.cu", "nnn"),
            ("src/units/net.cu", ""),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        let lines = || fs::read_to_string(&log).unwrap().lines().count();
        let program = build(&nvcc, "sm_90a", &folder, 1).unwrap();
        assert_eq!(program, folder.join("app"));
        let link = fs::read_to_string(&program).unwrap();
        assert_eq!(link.matches(".o ").count(), 3, "{link}");
        assert!(link.starts_with("-arch=sm_90a "), "{link}");
        assert_eq!(lines(), 4);
        build(&nvcc, "sm_90a", &folder, 1).unwrap();
        assert_eq!(lines(), 4);
        build(&nvcc, "sm_90a", &folder, 2).unwrap();
        assert_eq!(lines(), 8);
        fs::write(&nvcc, "#!/bin/sh\necho no such register >&2\nexit 3\n").unwrap();
        let error = build(&nvcc, "sm_89", &folder, 2).unwrap_err();
        assert!(error.contains("no such register"), "{error}");
    }
}
