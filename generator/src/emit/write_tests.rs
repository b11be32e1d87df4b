//! Tests of writing to a folder that users and other programs work in too.

use super::*;
use crate::emit::{Difference, DifferenceKind, check};
use std::fs;
use std::io;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

fn files(entries: &[(&str, &str)]) -> Files {
    let owned = entries
        .iter()
        .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()));
    owned.collect()
}

/// Every file in a folder with its content.
fn content(folder: &Path) -> Files {
    let mut found = Files::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(current) = pending.pop() {
        for entry in fs::read_dir(&current).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
                found.insert(name.replace('\\', "/"), fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn first() -> Files {
    files(&[
        ("a.txt", "one\n"),
        ("src/b.cu", "two\n"),
        ("src/old/c.cu", "three\n"),
    ])
}

fn second() -> Files {
    files(&[
        ("a.txt", "one\n"),
        ("src/b.cu", "changed\n"),
        ("src/d.cu", "four\n"),
    ])
}

/// A disk on which operation number `fails_at` fails.
struct Failing {
    operation: usize,
    fails_at: usize,
    fails_on: &'static str,
}

impl Failing {
    fn on(fails_on: &'static str, fails_at: usize) -> Self {
        Self {
            operation: 0,
            fails_at,
            fails_on,
        }
    }

    fn step(&mut self, name: &str) -> io::Result<()> {
        if name == self.fails_on {
            self.operation += 1;
            if self.operation > self.fails_at {
                return Err(io::Error::other("no space left"));
            }
        }
        Ok(())
    }
}

impl FileSystem for Failing {
    fn create_folder(&mut self, path: &Path) -> io::Result<()> {
        self.step("create_folder")?;
        Disk.create_folder(path)
    }
    fn write(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.step("write")?;
        Disk.write(path, content)
    }
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename")?;
        Disk.rename(from, to)
    }
    fn back_up(&mut self, path: &Path, name: &Path) -> io::Result<()> {
        self.step("keep")?;
        Disk.back_up(path, name)
    }
}

fn write_with(
    disk: &mut Failing,
    files: &Files,
    folder: &Path,
    force: bool,
) -> Result<WriteSummary, EmitError> {
    stage_with(disk, files, folder, force)?.commit_with(disk)
}

#[test]
fn writes_updates_and_removes_what_is_stale() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path().join("new/out");
    let written = write(&first(), &folder, false).unwrap();
    assert_eq!(
        written.written,
        ["a.txt", "src/b.cu", "src/old/c.cu", MANIFEST]
    );
    assert_eq!(check(&first(), &folder).unwrap(), []);

    let written = write(&second(), &folder, false).unwrap();
    assert_eq!(written.written, ["src/b.cu", "src/d.cu", MANIFEST]);
    assert_eq!(written.unchanged, ["a.txt"]);
    assert_eq!(written.removed, ["src/old/c.cu"]);
    let mut expected = second();
    expected.insert(
        MANIFEST.to_owned(),
        Manifest::of(&second()).text().into_bytes(),
    );
    assert_eq!(content(&folder), expected);
    assert!(!folder.join("src/old").exists(), "empty folders go too");
}

#[test]
fn what_did_not_change_keeps_its_time() {
    let folder = TempDir::new().unwrap();
    write(&first(), folder.path(), false).unwrap();
    let past = SystemTime::now() - Duration::from_secs(1000);
    for path in content(folder.path()).keys() {
        let file = fs::File::options()
            .write(true)
            .open(folder.path().join(path))
            .unwrap();
        file.set_modified(past).unwrap();
    }
    let modified = |path: &str| {
        let metadata = fs::metadata(folder.path().join(path)).unwrap();
        metadata.modified().unwrap()
    };
    let before = modified("a.txt");
    write(&second(), folder.path(), false).unwrap();
    assert_eq!(modified("a.txt"), before);
    assert_ne!(modified("src/b.cu"), before);
}

#[test]
fn foreign_and_edited_files_are_all_named_and_nothing_is_written() {
    let folder = TempDir::new().unwrap();
    write(&first(), folder.path(), false).unwrap();
    fs::write(folder.path().join("src/b.cu"), "edited\n").unwrap();
    fs::write(folder.path().join("src/d.cu"), "mine\n").unwrap();
    let before = content(folder.path());
    let error = write(&second(), folder.path(), false).unwrap_err();
    let EmitError::WouldOverwrite { paths, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(paths, &["src/b.cu", "src/d.cu"]);
    assert!(error.to_string().contains("--force"), "{error}");
    assert_eq!(content(folder.path()), before);

    write(&second(), folder.path(), true).unwrap();
    assert_eq!(check(&second(), folder.path()).unwrap(), []);
}

#[test]
fn a_foreign_manifest_is_not_overwritten() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join(MANIFEST), "my cargo list\n").unwrap();
    let error = write(&first(), folder.path(), false).unwrap_err();
    assert!(matches!(&error, EmitError::WouldOverwrite { paths, .. } if paths == &[MANIFEST]));
    assert_eq!(content(folder.path()).len(), 1);
}

#[test]
fn an_edited_stale_file_stays() {
    let folder = TempDir::new().unwrap();
    write(&first(), folder.path(), false).unwrap();
    fs::write(folder.path().join("src/old/c.cu"), "edited\n").unwrap();
    let written = write(&second(), folder.path(), false).unwrap();
    assert_eq!(written.kept, ["src/old/c.cu"]);
    assert!(folder.path().join("src/old/c.cu").exists());
}

#[test]
fn a_writer_that_fails_leaves_the_folder_whole() {
    // Every occurrence of each operation: three files change, two existed before, one is removed.
    for (fails_on, times) in [
        ("create_folder", 4),
        ("write", 3),
        ("keep", 2),
        ("rename", 4),
    ] {
        for fails_at in 0..times {
            let folder = TempDir::new().unwrap();
            write(&first(), folder.path(), false).unwrap();
            let before = content(folder.path());
            let mut disk = Failing::on(fails_on, fails_at);
            let error = write_with(&mut disk, &second(), folder.path(), false).unwrap_err();
            assert!(error.to_string().contains("no space left"), "{error}");
            assert_eq!(content(folder.path()), before, "{fails_on} {fails_at}");
            // With content other than that of the failed write, too.
            write(&first(), folder.path(), false).unwrap();
            write(&second(), folder.path(), false).unwrap();
            assert_eq!(check(&second(), folder.path()).unwrap(), []);
            assert!(!folder.path().join("src/old/c.cu").exists());
        }
        let mut disk = Failing::on(fails_on, times);
        let folder = TempDir::new().unwrap();
        write(&first(), folder.path(), false).unwrap();
        write_with(&mut disk, &second(), folder.path(), false).unwrap();
    }
    for (fails_on, fails_at) in [("create_folder", 2), ("write", 2), ("rename", 3)] {
        let parent = TempDir::new().unwrap();
        let mut disk = Failing::on(fails_on, fails_at);
        write_with(&mut disk, &first(), &parent.path().join("x/y"), false).unwrap_err();
        let left = fs::read_dir(parent.path()).unwrap().count();
        assert_eq!(left, 0, "{fails_on}");
    }
}

#[test]
fn what_was_prepared_and_not_committed_vanishes() {
    let parent = TempDir::new().unwrap();
    let folder = parent.path().join("new/out");
    drop(stage(&first(), &folder, false).unwrap());
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    write(&first(), &folder, false).unwrap();
    let before = content(&folder);
    let staged = stage(&second(), &folder, false).unwrap();
    drop(staged);
    assert_eq!(content(&folder), before);
}

#[test]
fn files_written_together_are_written_all_or_none() {
    let folder = TempDir::new().unwrap();
    let (first, second) = (folder.path().join("a/b"), folder.path().join("c/d"));
    fs::create_dir_all(&second).unwrap();
    let error = write_all_atomic(&[(&first, b"1"), (&second, b"2")]).unwrap_err();
    assert!(error.to_string().contains("c/d"), "{error}");
    assert!(!folder.path().join("a").exists());
    fs::remove_dir(&second).unwrap();
    write_all_atomic(&[(&first, b"1"), (&second, b"2")]).unwrap();
    assert_eq!(fs::read(&first).unwrap(), b"1");
    assert_eq!(fs::read(&second).unwrap(), b"2");
}

#[test]
fn a_file_in_the_way_is_named() {
    let parent = TempDir::new().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    for folder in [file.clone(), file.join("out"), file.join("a/b")] {
        let error = write(&first(), &folder, true).unwrap_err();
        assert!(
            matches!(&error, EmitError::NotAFolder { obstacle, .. } if *obstacle == file),
            "{error}"
        );
    }
}

#[test]
fn a_second_writer_is_turned_away() {
    let folder = TempDir::new().unwrap();
    let lock = Lock::take(folder.path()).unwrap();
    let error = write(&first(), folder.path(), false).unwrap_err();
    assert!(matches!(error, EmitError::Busy { .. }), "{error}");
    drop(lock);
    write(&first(), folder.path(), false).unwrap();
}

#[test]
fn check_tells_each_kind_of_difference() {
    let folder = TempDir::new().unwrap();
    write(&first(), folder.path(), false).unwrap();
    fs::write(folder.path().join("a.txt"), "one\r\n").unwrap();
    let found = check(&second(), folder.path()).unwrap();
    let kinds: Vec<_> = found
        .iter()
        .map(|Difference { path, kind }| (path.as_str(), kind))
        .collect();
    assert!(
        matches!(
            kinds[..],
            [
                ("a.txt", DifferenceKind::LineEnds),
                ("src/b.cu", DifferenceKind::Content(_)),
                ("src/d.cu", DifferenceKind::Missing),
                (MANIFEST, DifferenceKind::Content(_)),
                ("src/old/c.cu", DifferenceKind::Stale),
            ]
        ),
        "{kinds:?}"
    );
    let shown = found[1].to_string();
    assert!(shown.contains("-two\n+changed"), "{shown}");

    // A checkout with converted line ends is recognised, and repaired without force.
    write(&second(), folder.path(), false).unwrap();
    assert_eq!(check(&second(), folder.path()).unwrap(), []);
}
