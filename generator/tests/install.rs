//! Installation with Pythons that are missing, incomplete, offline or slow.
#![cfg(all(feature = "nvrtc", unix))]

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use tdc_generator::compile::Component;
use tdc_generator::compile::install::{InstallError, Installer, Progress};

fn python(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn entries(dir: &Path) -> Vec<String> {
    let mut entries: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    entries.sort();
    entries
}

fn failure(python: PathBuf, component: Component) -> InstallError {
    let cache = tempfile::tempdir().unwrap();
    let error = Installer::new(cache.path())
        .with_python(python)
        .install(component, |_| ())
        .unwrap_err();
    let lock = format!("{}.lock", component.directory());
    assert_eq!(
        entries(cache.path()),
        [lock],
        "only the lock's file is left"
    );
    error
}

#[test]
fn each_failure_names_its_remedy() {
    let error = failure("/nowhere/python3".into(), Component::Nvrtc13);
    assert!(matches!(error, InstallError::NoPython { .. }));
    assert!(error.to_string().contains("apt install python3"), "{error}");

    let error = failure(python("python_without_venv.sh"), Component::Nvrtc13);
    assert!(matches!(error, InstallError::NoVenv { .. }));
    assert!(
        error.to_string().contains("apt install python3-venv"),
        "{error}"
    );
    assert!(error.to_string().contains("\n    The virtual"), "{error}");

    let error = failure(python("python_offline.sh"), Component::Nvrtc13);
    assert!(matches!(error, InstallError::Pip { .. }));
    for part in [
        "PIP_INDEX_URL",
        "\n    Collecting",
        "\n    ERROR: No matching",
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }

    let error = failure(python("python_working.sh"), Component::Nvrtc12);
    assert!(matches!(error, InstallError::Incomplete { .. }));
    assert!(error.to_string().contains("libnvrtc.so.12"), "{error}");
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Installer::new(&file)
        .install(Component::Nvrtc13, |_| ())
        .unwrap_err();
    assert!(error.to_string().contains("TDC_CACHE_DIR"), "{error}");
}

#[test]
fn concurrent_installs_run_once_and_clean_up() {
    let cache = tempfile::tempdir().unwrap();
    let leftover = cache.path().join("nvrtc-13.0.88.partial-1/package/nvidia");
    fs::create_dir_all(&leftover).unwrap();
    let installer = Installer::new(cache.path()).with_python(python("python_working.sh"));
    let reports: Vec<Vec<Progress>> = thread::scope(|scope| {
        let install = || {
            let mut reports = Vec::new();
            let place = installer
                .install(Component::Nvrtc13, |progress| reports.push(progress))
                .unwrap();
            assert!(place.join("nvidia/cu13/lib/libnvrtc.so.13").is_file());
            reports
        };
        let both = [scope.spawn(install), scope.spawn(install)];
        both.map(|thread| thread.join().unwrap()).into()
    });
    let installed = Progress::Installed(Component::Nvrtc13);
    let times = reports
        .iter()
        .flatten()
        .filter(|&&progress| progress == installed);
    assert_eq!(times.count(), 1, "{reports:?}");
    assert_eq!(
        entries(cache.path()),
        ["nvrtc-13.0.88", "nvrtc-13.0.88.lock"]
    );
    let again = installer.install(Component::Nvrtc13, |_| panic!("it is there already"));
    assert_eq!(again.unwrap(), cache.path().join("nvrtc-13.0.88"));
}
