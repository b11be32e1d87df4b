//! Tests with NVRTC: found or installed as for users. Without one these tests need network access.
#![cfg(feature = "nvrtc")]

use std::num::NonZeroUsize;
use std::process::Command;
use std::sync::LazyLock;
use tdc_generator::compile::cache::cache_dir;
use tdc_generator::compile::install::Installer;
use tdc_generator::compile::nvrtc::{Effort, LoadError, Nvrtc, Options};
use tdc_generator::compile::toolkit::{Search, Toolkit};
use tdc_generator::compile::{ByArch, CompileError, Compiler, Component, Image, Job, compile_all};
use tdc_generator::gpu::archs;
use tdc_runtime::Arch;

/// Two kernels; the first has 1024 floats of shared memory.
const SHIFT: &str = r#"
extern "C" __global__ void __launch_bounds__(256) shift(const float* x, float* y, int n) {
    __shared__ float tile[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = x[i];
    __syncthreads();
    y[threadIdx.x] = tile[(threadIdx.x + n) & 1023];
}
extern "C" __global__ void scale(float* y, float by) { y[threadIdx.x] *= by; }
"#;

/// Keeps 96 values per thread live.
const MANY_REGISTERS: &str = r#"
extern "C" __global__ void __launch_bounds__(1024) hungry(const float* x, float* y, int n) {
    float a[96];
    #pragma unroll
    for (int i = 0; i < 96; i++) a[i] = x[threadIdx.x + i * n];
    for (int j = 0; j < n; j++) {
        #pragma unroll
        for (int i = 0; i < 96; i++) a[i] = fmaf(a[i], a[(i * 7 + 3) % 96], x[j]);
    }
    #pragma unroll
    for (int i = 0; i < 96; i++) y[threadIdx.x + i * n] = a[i];
}
"#;

static TOOLKIT: LazyLock<Toolkit> = LazyLock::new(|| {
    let found = Toolkit::find();
    let installer = Installer::new(&cache_dir().unwrap());
    for (component, there) in [
        (Component::Nvrtc13, found.nvrtc13.is_some()),
        (Component::Nvrtc12, found.nvrtc12.is_some()),
    ] {
        if !there {
            let installed = installer.install(component, |progress| eprintln!("{progress}"));
            installed.unwrap_or_else(|error| panic!("{error}"));
        }
    }
    Toolkit::find()
});

fn compiler(options: Options) -> ByArch<Nvrtc> {
    let compiler = TOOLKIT.compiler(options);
    compiler.unwrap_or_else(|error| panic!("{error}\n{}", *TOOLKIT))
}

fn compile(source: &str, arch: u16, options: Options) -> Result<Image, CompileError> {
    compiler(options).compile(source, "test.cu", Arch::new(arch))
}

/// NVRTC 13 supports the new architectures, 12.9 the old one.
#[test]
fn all_architectures_compile_in_one_process() {
    let compiler = compiler(Options::default());
    let job = |arch| Job {
        source: SHIFT,
        name: "shift.cu",
        arch,
    };
    let jobs: Vec<_> = archs().into_iter().map(job).collect();
    let mut done = 0;
    let images = compile_all(&compiler, &jobs, NonZeroUsize::new(2).unwrap(), |_, _| {
        done += 1
    });
    assert_eq!(done, jobs.len());
    for (job, image) in jobs.iter().zip(images) {
        let image = image.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(&image.cubin[..4], b"\x7fELF", "{}", job.arch);
        assert_eq!(image.kernels.len(), 2, "{}", image.log);
        let shift = image.kernel("shift").unwrap();
        assert_eq!(shift.shared_bytes, 1024 * 4, "{}", job.arch);
        assert!((8..=255).contains(&shift.registers), "{}", job.arch);
        assert_eq!((shift.spill_stores, shift.spill_loads), (0, 0));
        assert_eq!(image.kernel("scale").unwrap().shared_bytes, 0);

        let version = compiler.version_for(job.arch).unwrap();
        assert_eq!(version.major, if job.arch.sm == 70 { 12 } else { 13 });
    }
}

#[test]
fn spills_are_detected() {
    let tight = Options {
        max_registers: Some(32),
        ..Options::default()
    };
    let free = MANY_REGISTERS.replace("__launch_bounds__(1024)", "");
    for (source, options) in [(MANY_REGISTERS, Options::default()), (&free, tight)] {
        let image = compile(source, 80, options).unwrap();
        let hungry = image.kernel("hungry").unwrap();
        assert!(hungry.registers <= 64, "{}", image.log);
        assert!(
            hungry.spill_stores > 0 && hungry.spill_loads > 0,
            "{}",
            image.log
        );
    }
    let image = compile(&free, 80, Options::default()).unwrap();
    assert_eq!(
        image.kernel("hungry").unwrap().spill_stores,
        0,
        "{}",
        image.log
    );
}

#[test]
fn two_compilations_give_the_same_bytes() {
    for arch in [70, 90] {
        let first = compile(MANY_REGISTERS, arch, Options::default()).unwrap();
        assert_eq!(
            first,
            compile(MANY_REGISTERS, arch, Options::default()).unwrap()
        );
    }
}

#[test]
fn fast_effort_compiles_too() {
    let fast = Options {
        effort: Effort::Fast,
        ..Options::default()
    };
    for arch in archs() {
        let image = compile(SHIFT, arch.sm, fast).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(image.kernel("shift").unwrap().shared_bytes, 1024 * 4);
    }
}

#[test]
fn a_broken_kernel_shows_the_log() {
    let error = compile(
        "__global__ void f(float* x) { x[0] = y; }\n",
        90,
        Options::default(),
    );
    let error = error.unwrap_err();
    assert!(matches!(error, CompileError::SourceErrors { .. }));
    let text = error.to_string();
    assert!(text.starts_with("test.cu: NVRTC 13."), "{text}");
    assert!(
        text.contains("\n    test.cu(1): error: identifier \"y\" is undefined\n"),
        "{text}"
    );
}

#[test]
fn inline_assembly_of_another_architecture_is_an_error() {
    let source =
        "extern \"C\" __global__ void f() { asm volatile(\"wgmma.fence.sync.aligned;\"); }";
    let error = compile(source, 90, Options::default()).unwrap_err();
    assert!(
        error.to_string().contains("'wgmma.fence' not supported"),
        "{error}"
    );
}

#[test]
fn a_warning_is_an_error() {
    let source = "extern \"C\" __global__ void f(float* x) { int unused; x[0] = 1; }";
    for arch in [70, 90] {
        let error = compile(source, arch, Options::default()).unwrap_err();
        assert!(
            matches!(error, CompileError::SourceWarnings { .. }),
            "{error}"
        );
        assert!(
            error.to_string().contains("\"unused\" was declared"),
            "{error}"
        );
    }
}

#[test]
fn too_much_static_shared_memory_is_explained() {
    let source = SHIFT.replace("1024", "20000").replace("1023", "16383");
    let error = compile(&source, 80, Options::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("kernel `shift` has 80000 bytes of static shared memory"),
        "{error}"
    );
}

#[test]
fn an_unknown_architecture_and_a_nul_are_errors() {
    let error = compile(SHIFT, 999, Options::default()).unwrap_err();
    assert!(matches!(error, CompileError::Unsupported { .. }));
    assert!(
        error.to_string().contains("NVRTC 13.0 supports sm_75"),
        "{error}"
    );
    let error = compile("a\0b", 90, Options::default()).unwrap_err();
    assert!(matches!(error, CompileError::Nul { what: "source", .. }));
}

#[test]
fn a_missing_or_broken_library_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = Nvrtc::in_dir(dir.path()).unwrap_err();
    assert!(matches!(error, LoadError::NotInDir { .. }));
    assert!(error.to_string().contains("tdc-gen toolkit install nvrtc"));

    let search = Search {
        nvrtc_dir: Some(dir.path().to_owned()),
        search_system: true,
        ..Search::default()
    };
    let error = search.find().compiler(Options::default()).unwrap_err();
    assert!(matches!(error, LoadError::NotFound { .. }));

    for file in ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"] {
        std::fs::write(dir.path().join(file), "not a library").unwrap();
    }
    let error = Nvrtc::in_dir(dir.path()).unwrap_err();
    assert!(matches!(error, LoadError::Library { .. }), "{error}");

    // A library that is not NVRTC: the builtins with NVRTC's file name.
    let nvrtc13 = TOOLKIT.nvrtc13.as_ref().unwrap();
    if let Some(files) = &nvrtc13.files {
        for file in ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"] {
            std::fs::copy(&files.builtins, dir.path().join(file)).unwrap();
        }
        let error = Nvrtc::in_dir(dir.path()).unwrap_err();
        assert!(matches!(error, LoadError::Symbol { .. }), "{error}");
    }
}

#[test]
fn nvcc_compiles_and_links_a_program_without_flags() {
    let installer = Installer::new(&cache_dir().unwrap());
    let installed = installer.install(Component::Nvcc, |progress| eprintln!("{progress}"));
    installed.unwrap_or_else(|error| panic!("{error}"));
    let toolkit = Toolkit::find();
    let nvcc = toolkit.nvcc.as_ref().unwrap_or_else(|| panic!("{toolkit}"));

    let dir = tempfile::tempdir().unwrap();
    let program = format!(
        "{SHIFT}\nint main() {{ return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1; }}\n"
    );
    std::fs::write(dir.path().join("main.cu"), program).unwrap();
    let output = Command::new(&nvcc.program)
        .args(["-arch=sm_90", "-O3", "-o", "main", "main.cu"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(dir.path().join("main").is_file());
}
