//! The stores of embedded kernels: which files are reused and which rebuilt; incomplete files are never used.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{env, fs, thread};
use tdc::{Arch, ConvShape, Padding};
use tdc_generator::compile::Compiler;
use tdc_generator::compile::nvrtc::Options;
use tdc_generator::embed::{CallError, Expansion, KernelMode, Settings, expand, expand_config};
use tdc_generator::gpu::gpu;
use tdc_generator::ir::{Layout, Precision, Tolerance};
use tdc_generator::measure::bench::{BenchProblem, candidates};
use tdc_generator::render::unit_text;

mod toolkit;

/// Settings of a crate in `base` with its own cache.
fn settings(base: &Path) -> Settings {
    Settings {
        base: base.to_owned(),
        mode: KernelMode::Auto,
        stub_on_miss: false,
        archs: vec![Arch::new(80)],
        prepared: None,
        cache: Ok(base.join("cache")),
        record: None,
    }
}

fn offline(settings: &Settings) -> Settings {
    Settings {
        mode: KernelMode::Offline,
        ..settings.clone()
    }
}

fn file(expansion: Result<Expansion, Vec<CallError>>) -> PathBuf {
    expansion.unwrap().kernel.unwrap()
}

fn message(expansion: Result<Expansion, Vec<CallError>>) -> String {
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
fn cached_kernels_are_reused_and_damaged_ones_rebuilt() {
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

    // White space and the order of keys make no difference; everything that affects the kernel does.
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

    // A missing image, a truncated file, a file with a different key: they are ignored and rebuilt.
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
fn kernels_prepared_by_another_version_are_reported() {
    toolkit::toolkit();
    let base = tempfile::tempdir().unwrap();
    let settings = settings(base.path());
    let made = file(expand(CALL, &settings));
    let text = fs::read_to_string(&made).unwrap();
    let version = text.lines().nth(1).unwrap();
    let prepared = base.path().join("prepared");
    fs::create_dir(&prepared).unwrap();
    let older = text.replacen(version, "// key tdc 0.0.9 0123456789abcdef", 1);
    fs::write(
        prepared.join("conv_c5_n3_h7_w6_k1x1_bias-0123456789abcdef.rs"),
        older,
    )
    .unwrap();
    let settings = Settings {
        cache: Ok(base.path().join("nothing")),
        prepared: Some(prepared.clone()),
        ..offline(&settings)
    };
    assert_eq!(
        message(expand(CALL, &settings)),
        format!(
            "`conv_c5_n3_h7_w6_k1x1_bias` in {} was prepared by another version of tdc-gen than this tdc; install tdc-gen 0.1.0 \
             from the same sources, run `tdc-gen prepare` and commit what it writes",
            prepared.display()
        )
    );
    // For a different layer it makes no difference who prepared it.
    let other = message(expand(
        "conv 5,3,7,6, kernel = 1, scheme = direct",
        &settings,
    ));
    assert!(other.contains("is not in"), "{other}");
}

/// The variable with the folder of a build that a test starts as a separate process: the same test, which
/// then runs the build.
const BUILD_IN: &str = "TDC_TEST_BUILD_IN";

/// Runs the build if this process is one; returns whether it is.
fn is_build() -> bool {
    let Some(base) = env::var_os(BUILD_IN) else {
        return false;
    };
    file(expand(CALL, &settings(Path::new(&base))));
    true
}

fn build(test: &str, base: &Path) -> Child {
    let mut build = Command::new(env::current_exe().unwrap());
    build.args(["--exact", test]).env(BUILD_IN, base);
    build.stdout(Stdio::null()).stderr(Stdio::null());
    build.spawn().unwrap()
}

/// The content of a cache, without unfinished files of killed builds.
fn finished(base: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = contents(&base.join("cache"));
    files.retain(|(path, _)| path.extension().is_none_or(|e| e != "partial"));
    let relative =
        |(path, bytes): (PathBuf, _)| (path.strip_prefix(base).unwrap().to_owned(), bytes);
    files.into_iter().map(relative).collect()
}

#[test]
fn concurrent_builds_leave_the_cache_consistent() {
    if is_build() {
        return;
    }
    toolkit::toolkit();
    let [at_once, alone] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let builds = [(); 8].map(|()| {
        build(
            "concurrent_builds_leave_the_cache_consistent",
            at_once.path(),
        )
    });
    for mut build in builds {
        assert!(build.wait().unwrap().success());
    }
    file(expand(CALL, &settings(alone.path())));
    assert_eq!(finished(at_once.path()), finished(alone.path()));
}

#[test]
fn killed_builds_leave_the_cache_consistent() {
    if is_build() {
        return;
    }
    toolkit::toolkit();
    let [killed, alone] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let start = Instant::now();
    file(expand(CALL, &settings(alone.path())));
    let whole = finished(alone.path());
    let step = start.elapsed() / 8;
    let mut unfinished = 0;
    for delay in 0..16 {
        let mut build = build("killed_builds_leave_the_cache_consistent", killed.path());
        thread::sleep(delay * step);
        build.kill().unwrap();
        unfinished += usize::from(!build.wait().unwrap().success());
        let cache = killed.path().join("cache");
        if cache.exists() {
            // Every file under its final name equals that of a completed build.
            assert!(
                finished(killed.path())
                    .iter()
                    .all(|file| whole.contains(file))
            );
        }
    }
    assert!(unfinished > 2, "{unfinished}");
    file(expand(CALL, &settings(killed.path())));
    assert_eq!(finished(killed.path()), whole);
}

#[test]
fn the_machine_code_is_what_bench_times() {
    let compiler = toolkit::toolkit().compiler(Options::default()).unwrap();
    let base = tempfile::tempdir().unwrap();
    let mut settings = settings(base.path());
    settings.archs = vec![Arch::new(90)];
    let call = "conv 64,32,28,28, gpu = h200";
    expand(call, &settings).unwrap();
    let images = contents(&base.path().join("cache"));
    let image = images
        .iter()
        .find(|(path, _)| path.extension().is_some_and(|e| e == "cubin"));
    let problem = BenchProblem {
        label: "64,32,28,28".to_owned(),
        shape: ConvShape {
            padding: Padding::all(1),
            ..ConvShape::new(64, 32, 28, 28, 3, 3)
        },
        precision: Precision::default(),
        tolerance: Tolerance::default(),
        layout: Layout::default(),
        cp_rank: None,
        named: Vec::new(),
        plan_chosen_by: None,
    };
    let (candidates, _) = candidates(gpu("h200").unwrap(), &problem, &[], 1, None);
    let text = unit_text(&candidates[0].unit).unwrap();
    let timed = compiler.compile(&text, "bench.cu", Arch::new(90)).unwrap();
    assert!(image.unwrap().1 == timed.cubin);
}

const CONFIG: &str = "name: layers\ngpu: a100\nlayers:\n  - {name: a, conv: [4, 4, 5, 5], scheme: direct}\n  - {name: b, conv: [4, 4, 6, 5], scheme: direct}\n";

#[test]
fn editing_a_config_rebuilds_only_its_kernels() {
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
fn stubs_have_the_right_type() {
    let base = tempfile::tempdir().unwrap();
    let mut settings = settings(base.path());
    settings.mode = KernelMode::Stub;
    let stub = expand(CALL, &settings).unwrap();
    assert_eq!(stub.kind, "__tdc::Kernel<__tdc::Conv>");
    let text = stub.kernel.unwrap_err();
    assert!(
        text.starts_with("__tdc::Kernel::<__tdc::Conv>::stub(\"conv_c5_n3_h7_w6_k1x1_bias\""),
        "{text}"
    );
    // A language server uses existing kernels and does not wait for others.
    settings.mode = KernelMode::Auto;
    settings.stub_on_miss = true;
    let stub = expand("tucker 9,8,7,6, ranks = [3, 4]", &settings).unwrap();
    assert_eq!(stub.kind, "__tdc::Kernel<__tdc::Tucker>");
    assert!(stub.kernel.unwrap_err().contains("ranks: [3, 4]"));
    // Errors are errors in every mode.
    assert!(expand("conv 5,3,7,6, kernel = 9, pad = 0", &settings).is_err());
    assert!(!base.path().join("cache").exists());
}

#[test]
fn a_table_is_part_of_the_key_and_of_its_gpu() {
    let base = tempfile::tempdir().unwrap();
    let settings = Settings {
        mode: KernelMode::Stub,
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
        "mine.txt has the times of `h200`, which is not planned for; set `gpu = h200`"
    );
    fs::write(base.path().join("mine.txt"), "nonsense").unwrap();
    assert!(expand("conv 5,3,7,6, gpu = h200, table = \"mine.txt\"", &settings).is_err());
}

#[test]
fn an_unwritable_cache_is_reported() {
    let base = tempfile::tempdir().unwrap();
    let settings = Settings {
        cache: Ok(base.path().join("file/cache")),
        ..settings(base.path())
    };
    fs::write(base.path().join("file"), "").unwrap();
    let message = message(expand(CALL, &settings));
    assert!(
        message.contains("cannot be written") && message.contains("set TDC_CACHE_DIR"),
        "{message}"
    );
}
