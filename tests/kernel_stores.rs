//! The stores of embedded kernels: what is found again, what is made anew, and that nothing half-written is ever found.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use tdc::Arch;
use tdc_generator::embed::{Expansion, Mistake, Mode, Settings, expand, expand_config};

mod toolkit;

/// Settings of a crate in `base` with a cache of its own.
fn settings(base: &Path) -> Settings {
    Settings {
        base: base.to_owned(),
        mode: Mode::Auto,
        impatient: false,
        archs: vec![Arch::new(80)],
        prepared: None,
        cache: Ok(base.join("cache")),
        record: None,
    }
}

fn offline(settings: &Settings) -> Settings {
    Settings {
        mode: Mode::Offline,
        ..settings.clone()
    }
}

fn file(expansion: Result<Expansion, Vec<Mistake>>) -> PathBuf {
    expansion.unwrap().kernel.unwrap()
}

fn message(expansion: Result<Expansion, Vec<Mistake>>) -> String {
    expansion.unwrap_err().remove(0).message
}

/// The files of a cache with their contents.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

const CALL: &str = "conv 5,3,7,6, kernel = 1, bias = true, scheme = direct";

#[test]
fn what_was_made_is_found_and_what_is_broken_is_made_anew() {
    toolkit::toolkit();
    let base = tempfile::tempdir().unwrap();
    let settings = settings(base.path());
    let refused = message(expand(CALL, &offline(&settings)));
    assert_eq!(
        refused,
        "`conv_c5_n3_h7_w6_k1x1_bias` is not in generated/kernels of this crate or of a folder above it, and \
         TDC_KERNELS=offline forbids compiling; run `tdc-gen prepare` and commit what it writes"
    );
    let made = file(expand(CALL, &settings));
    assert_eq!(file(expand(CALL, &offline(&settings))), made);
    let whole = contents(&base.path().join("cache"));

    // Spaces and the order of keys do not matter, everything that decides does.
    let same = "conv 5, 3, 7, 6, scheme = direct, bias = true, kernel = [1, 1], arch = sm_80,";
    assert_eq!(file(expand(same, &offline(&settings))), made);
    for other in [
        "conv 5,3,7,6, kernel = 1, bias = true",
        "conv 5,3,7,6, kernel = 1, scheme = direct",
        "conv 5,3,7,6, kernel = 1, bias = true, scheme = direct, arch = [sm_80, sm_90]",
        "conv 5,3,7,6, kernel = 1, bias = true, scheme = direct, tiles = model",
        "conv 5,3,7,6, kernel = 1, bias = true, scheme = direct, gpu = l4",
    ] {
        assert!(expand(other, &offline(&settings)).is_err(), "{other}");
    }

    // An image that is gone, a file that was cut off, one of another key: not found, made as it was.
    let image = whole
        .iter()
        .find(|(path, _)| path.extension().is_some_and(|e| e == "cubin"));
    let (image, _) = image.unwrap();
    fs::remove_file(image).unwrap();
    assert!(expand(CALL, &offline(&settings)).is_err());
    assert_eq!(file(expand(CALL, &settings)), made);
    let text = fs::read_to_string(&made).unwrap();
    for broken in [
        &text[..100],
        &text.replacen("// key gpu a100", "// key gpu l4", 1),
    ] {
        fs::write(&made, broken).unwrap();
        assert!(expand(CALL, &offline(&settings)).is_err());
        assert_eq!(file(expand(CALL, &settings)), made);
    }
    assert_eq!(contents(&base.path().join("cache")), whole);
}

#[test]
fn builds_at_once_leave_the_cache_whole() {
    toolkit::toolkit();
    let base = tempfile::tempdir().unwrap();
    let settings = settings(base.path());
    // What a killed build leaves behind.
    let cache = base.path().join("cache");
    fs::create_dir(&cache).unwrap();
    fs::write(cache.join("conv.1-0.partial"), "half").unwrap();
    let files: Vec<PathBuf> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| file(expand(CALL, &settings))))
            .collect();
        let files = threads.into_iter().map(|thread| thread.join().unwrap());
        files.collect()
    });
    assert!(files.iter().all(|file| *file == files[0]));
    fs::remove_file(cache.join("conv.1-0.partial")).unwrap();
    let at_once = contents(&cache);
    fs::remove_dir_all(&cache).unwrap();
    file(expand(CALL, &settings));
    assert_eq!(contents(&cache), at_once);
}

const CONFIG: &str = "name: layers\ngpu: a100\nlayers:\n  - {name: a, conv: [4, 4, 5, 5], scheme: direct}\n  - {name: b, conv: [4, 4, 6, 5], scheme: direct}\n";

#[test]
fn an_edit_of_a_config_makes_what_it_concerns() {
    toolkit::toolkit();
    let base = tempfile::tempdir().unwrap();
    let config = base.path().join("net.yaml");
    fs::write(&config, CONFIG).unwrap();
    let settings = settings(base.path());
    let call = "\"net.yaml\", arch = sm_80";
    let files = |settings: &Settings| -> Vec<_> {
        let kernels = expand_config(call, settings).unwrap().into_iter();
        kernels
            .map(|(name, expansion)| (name, expansion.kernel.unwrap(), expansion.tracked))
            .collect()
    };
    let before = files(&settings);
    assert_eq!(
        before
            .iter()
            .map(|(name, ..)| &name[..])
            .collect::<Vec<_>>(),
        ["A", "B"]
    );
    assert!(
        before
            .iter()
            .all(|(_, _, tracked)| *tracked == [config.clone()])
    );
    fs::write(
        &config,
        CONFIG.replace("[4, 4, 6, 5]", "[4, 4, 6, 6]") + "# more\n",
    )
    .unwrap();
    let only_a = expand("\"net.yaml\", layer = a, arch = sm_80", &offline(&settings));
    assert_eq!(file(only_a), before[0].1);
    assert!(expand_config(call, &offline(&settings)).is_err());
    let after = files(&settings);
    assert_eq!(after[0], before[0]);
    assert_ne!(after[1].1, before[1].1);
}

#[test]
fn stubs_are_of_the_right_type_and_need_nothing() {
    let base = tempfile::tempdir().unwrap();
    let mut settings = settings(base.path());
    settings.mode = Mode::Stub;
    let stub = expand(CALL, &settings).unwrap();
    assert_eq!(stub.kind, "__tdc::Kernel<__tdc::Conv>");
    let text = stub.kernel.unwrap_err();
    assert!(
        text.starts_with("__tdc::Kernel::<__tdc::Conv>::stub(\"conv_c5_n3_h7_w6_k1x1_bias\""),
        "{text}"
    );
    // An editor's server takes what is there and does not wait for what is not.
    settings.mode = Mode::Auto;
    settings.impatient = true;
    let stub = expand("tucker 9,8,7,6, ranks = [3, 4]", &settings).unwrap();
    assert_eq!(stub.kind, "__tdc::Kernel<__tdc::Tucker>");
    assert!(stub.kernel.unwrap_err().contains("ranks: [3, 4]"));
    // Mistakes are mistakes for all of them.
    assert!(expand("conv 5,3,7,6, kernel = 9, pad = 0", &settings).is_err());
    assert!(!base.path().join("cache").exists());
}

#[test]
fn a_table_is_part_of_the_key_and_of_its_gpu() {
    let base = tempfile::tempdir().unwrap();
    let settings = Settings {
        mode: Mode::Stub,
        ..settings(base.path())
    };
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("generated/tuning/h200.txt");
    fs::copy(committed, base.path().join("mine.txt")).unwrap();
    let own = expand("conv 5,3,7,6, gpu = h200, table = \"mine.txt\"", &settings).unwrap();
    assert_eq!(own.tracked, [base.path().join("mine.txt")]);
    assert_eq!(
        message(expand(
            "conv 5,3,7,6, gpu = a100, table = \"mine.txt\"",
            &settings
        )),
        "mine.txt has the times of `h200`, which is not planned for; write `gpu = h200`"
    );
    fs::write(base.path().join("mine.txt"), "nonsense").unwrap();
    assert!(expand("conv 5,3,7,6, gpu = h200, table = \"mine.txt\"", &settings).is_err());
}

#[test]
fn no_place_to_write_is_told() {
    let base = tempfile::tempdir().unwrap();
    let settings = Settings {
        cache: Ok(base.path().join("file/cache")),
        ..settings(base.path())
    };
    fs::write(base.path().join("file"), "").unwrap();
    let told = message(expand(CALL, &settings));
    assert!(
        told.contains("cannot be written") && told.contains("set TDC_CACHE_DIR"),
        "{told}"
    );
}
