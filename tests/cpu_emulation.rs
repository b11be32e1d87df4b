//! Tier 5: the CPU emulation of CUDA gives correct results, and detects violations.
//!
//! The kernels are in `cpu_emulation/`. Errors are planted by removing a line from a correct kernel, to prove
//! that every check can fail.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use tdc_generator::compile::cpu::{CpuError, CpuModule, TranslationUnit, write_headers};

const TILED: &str = include_str!("cpu_emulation/tiled_multiply.cu");
const WARPS: &str = include_str!("cpu_emulation/warps.cu");
const WRONG: &str = include_str!("cpu_emulation/wrong.cu");

/// All kernels, correct and incorrect, compiled once.
static MODULE: LazyLock<CpuModule> = LazyLock::new(|| {
    let unit = |source: &str, kernels: &[&str]| TranslationUnit {
        source: source.to_owned(),
        kernels: kernels.iter().map(|&kernel| kernel.to_owned()).collect(),
    };
    CpuModule::build_units(&[
        unit(TILED, &["tiled_multiply"]),
        unit(
            &planted(
                TILED,
                "tiled_multiply",
                "no_first_barrier",
                "__syncthreads();  // the tiles are complete",
            ),
            &["no_first_barrier"],
        ),
        unit(
            &planted(
                TILED,
                "tiled_multiply",
                "no_second_barrier",
                "__syncthreads();  // the tiles may be overwritten",
            ),
            &["no_second_barrier"],
        ),
        unit(
            WARPS,
            &[
                "shuffles",
                "votes",
                "block_votes",
                "atomics",
                "pass_to_next_lane",
            ],
        ),
        unit(
            &planted(
                pass_to_next_lane_source(),
                "pass_to_next_lane",
                "hand_on_unsynchronised",
                "__syncwarp();  // all values are there",
            ),
            &["hand_on_unsynchronised"],
        ),
        unit(
            WRONG,
            &[
                "reads_uninitialised_static",
                "reads_uninitialised_dynamic",
                "writes_past_dynamic_shared",
                "leaves_before_barrier",
                "different_barriers",
                "deadlock",
                "mask_without_caller",
                "shuffle_from_absent_lane",
                "last_writer",
                "good",
                "big_frame",
                "big_frame_beside_waiting_threads",
            ],
        ),
    ])
    .unwrap_or_else(|error| panic!("{error}"))
});

/// The kernel without one statement, under a different name.
fn planted(source: &str, kernel: &str, name: &str, statement: &str) -> String {
    assert_eq!(source.matches(statement).count(), 1, "{statement}");
    source.replace(statement, "").replace(kernel, name)
}

fn pass_to_next_lane_source() -> &'static str {
    let start = WARPS
        .find("extern \"C\" __global__ void pass_to_next_lane")
        .unwrap();
    &WARPS[start..]
}

fn pointer<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

/// Launches a kernel whose only parameter is a pointer to `out`.
fn launch_on<T>(
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    out: &mut [T],
) -> Result<(), CpuError> {
    let mut out = out.as_mut_ptr();
    // SAFETY: the kernels have one pointer parameter and write at most as much as the tests allocate.
    unsafe {
        MODULE.launch(
            kernel,
            grid,
            block,
            [1; 3],
            shared_bytes,
            &mut [pointer(&mut out)],
        )
    }
}

/// The message of a launch that must fail while running.
fn failure(kernel: &str, grid: [u32; 3], threads: u32) -> String {
    let mut out = vec![0f32; 4096];
    match launch_on(kernel, grid, [threads, 1, 1], 128, &mut out) {
        Err(CpuError::Launch {
            code: 719, message, ..
        }) => message,
        other => panic!("{kernel}: {other:?}"),
    }
}

/// Line of `text` in `source`, from one.
fn line_of(source: &str, text: &str) -> usize {
    let start = source.find(text).unwrap();
    source[..start].lines().count()
}

/// Zero-mean pseudo-random values.
fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// Relative error of a product of odd sizes by `kernel`; infinite if an element is NaN.
fn multiply_error(kernel: &str, [m, n, k]: [usize; 3]) -> f64 {
    let (a, b) = (noise(m * k, 1), noise(k * n, 2));
    let mut c = vec![f32::NAN; m * n];
    let (mut a_pointer, mut b_pointer, mut c_pointer) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
    let (mut m_arg, mut n_arg, mut k_arg) = (m as i32, n as i32, k as i32);
    let grid = [n.div_ceil(16) as u32, m.div_ceil(16) as u32, 1];
    // SAFETY: the arguments are those of the kernel, and the buffers have the sizes that it is passed.
    unsafe {
        MODULE.launch(
            kernel,
            grid,
            [16, 16, 1],
            [1; 3],
            16 * 16 * 4,
            &mut [
                pointer(&mut a_pointer),
                pointer(&mut b_pointer),
                pointer(&mut c_pointer),
                pointer(&mut m_arg),
                pointer(&mut n_arg),
                pointer(&mut k_arg),
            ],
        )
    }
    .unwrap();

    let (mut difference, mut norm) = (0f64, 0f64);
    for row in 0..m {
        for column in 0..n {
            let exact: f64 = (0..k)
                .map(|i| f64::from(a[row * k + i]) * f64::from(b[i * n + column]))
                .sum();
            difference += (f64::from(c[row * n + column]) - exact).powi(2);
            norm += exact.powi(2);
        }
    }
    let error = (difference / norm).sqrt();
    if error.is_nan() { f64::INFINITY } else { error }
}

#[test]
fn a_tiled_product_is_right_at_odd_sizes() {
    for sizes in [[1, 1, 1], [16, 16, 16], [17, 33, 5], [61, 47, 83]] {
        let error = multiply_error("tiled_multiply", sizes);
        assert!(error < 1e-6, "{sizes:?}: {error}");
    }
}

#[test]
fn a_missing_barrier_after_the_writes_is_found() {
    let error = multiply_error("no_first_barrier", [61, 47, 83]);
    assert!(error > 1e-2, "{error}");
}

#[test]
fn a_missing_barrier_after_the_reads_is_found() {
    let error = multiply_error("no_second_barrier", [61, 47, 83]);
    assert!(error > 1e-2, "{error}");
}

#[test]
fn shuffles_take_from_the_right_lane() {
    let mut out = vec![-1i32; 10 * 64];
    launch_on("shuffles", [1; 3], [64, 1, 1], 0, &mut out).unwrap();
    for thread in 0..64i32 {
        let (warp, lane) = (thread / 32 * 32, thread % 32);
        let half: i32 = if lane < 16 {
            (0..16).sum()
        } else {
            // Two steps: with the lanes that differ in the lowest two bits.
            (0..4).map(|i| lane / 4 * 4 + i).sum()
        };
        let count = if lane < 16 { 16 } else { 4 };
        let expected = [
            100 + warp + 5,
            100 + warp + lane / 8 * 8 + 1,
            100 + warp + if lane >= 3 { lane - 3 } else { lane },
            100 + warp + if lane % 16 >= 3 { lane - 3 } else { lane },
            100 + warp + if lane < 30 { lane + 2 } else { lane },
            100 + warp + if lane % 4 < 2 { lane + 2 } else { lane },
            100 + warp + (lane ^ 16),
            // A lane can read from an earlier segment, but not from a later one.
            100 + warp + if lane & 4 != 0 { lane ^ 4 } else { lane },
            count * (100 + warp) + half,
            warp + 31,
        ];
        for (kind, value) in expected.into_iter().enumerate() {
            assert_eq!(
                out[kind * 64 + thread as usize],
                value,
                "shuffle {kind}, thread {thread}"
            );
        }
    }
}

#[test]
fn votes_count_live_lanes_only() {
    let mut out = vec![u32::MAX; 5 * 40];
    launch_on("votes", [1; 3], [40, 1, 1], 0, &mut out).unwrap();
    for thread in (0..40usize).filter(|thread| !(4..8).contains(&(thread % 32))) {
        let lanes = if thread < 32 { 32 } else { 8 };
        let ballot: u32 = (0..lanes)
            .filter(|lane| lane % 3 == 0 && !(4..8).contains(lane))
            .map(|lane| 1 << lane)
            .sum();
        let found: Vec<u32> = (0..5).map(|kind| out[kind * 40 + thread]).collect();
        assert_eq!(found, [ballot, 1, 0, 1, 0], "thread {thread}");
    }
}

#[test]
fn barriers_count_votes() {
    let mut out = vec![-1i32; 5 * 96];
    launch_on("block_votes", [1; 3], [96, 1, 1], 0, &mut out).unwrap();
    for (kind, expected) in [20, 1, 0, 1, 0].into_iter().enumerate() {
        assert!(
            out[kind * 96..][..96]
                .iter()
                .all(|&found| found == expected),
            "{kind}"
        );
    }
}

#[test]
fn atomics_lose_no_update() {
    let (mut sum, mut count, mut limit, mut largest, mut smallest) =
        (0f32, 0i32, 0u32, -5i32, 5i32);
    let mut pointers = [
        pointer(&mut sum),
        pointer(&mut count),
        pointer(&mut limit),
        pointer(&mut largest),
        pointer(&mut smallest),
    ];
    let mut args = pointers.each_mut().map(pointer);
    // SAFETY: five pointers to the five numbers that the kernel updates.
    unsafe { MODULE.launch("atomics", [40, 1, 1], [250, 1, 1], [1; 3], 0, &mut args) }.unwrap();
    assert_eq!(sum, 5000.0);
    assert_eq!(count, 10_000 * 9_999 / 2);
    assert_eq!(limit, 10_000 % 7);
    assert_eq!((largest, smallest), (9_999, -9_999));
}

#[test]
fn a_missing_warp_barrier_is_found() {
    let expected: Vec<i32> = (1..32).chain([0]).collect();
    let mut out = vec![-1i32; 32];
    launch_on("pass_to_next_lane", [1; 3], [32, 1, 1], 0, &mut out).unwrap();
    assert_eq!(out, expected);
    launch_on("hand_on_unsynchronised", [1; 3], [32, 1, 1], 0, &mut out).unwrap();
    assert_ne!(out, expected);
}

#[test]
fn uninitialised_shared_memory_is_nan_in_every_block() {
    for kernel in ["reads_uninitialised_static", "reads_uninitialised_dynamic"] {
        let mut out = vec![0f32; 32 * 50];
        launch_on(kernel, [50, 1, 1], [32, 1, 1], 128, &mut out).unwrap();
        for (i, value) in out.iter().enumerate() {
            assert_eq!(value.is_nan(), i % 32 == 7, "{kernel}, element {i}");
        }
    }
}

#[test]
fn a_write_past_dynamic_shared_memory_is_found() {
    let message = failure("writes_past_dynamic_shared", [1; 3], 32);
    assert!(message.contains("write outside its 128 bytes"), "{message}");
}

#[test]
fn a_barrier_not_reached_by_all_threads_is_reported() {
    let message = failure("leaves_before_barrier", [3, 2, 1], 32);
    let line = line_of(WRONG, "    __syncthreads();\n    out[threadIdx.x] = 1.0f;") + 1;
    assert_eq!(
        message,
        format!(
            "leaves_before_barrier, block (2,1,0): the barrier in line {line} was reached by 16 of 32 threads; \
             the others have exited"
        )
    );
}

#[test]
fn threads_at_different_barriers_are_found() {
    let message = failure("different_barriers", [1; 3], 32);
    assert!(message.contains("wait at different barriers"), "{message}");
}

#[test]
fn a_deadlock_of_warp_and_barrier_is_found() {
    let message = failure("deadlock", [1; 3], 32);
    assert!(
        message.contains("deadlock: 16 threads wait in a warp function (line")
            && message.contains("16 at a barrier (line"),
        "{message}"
    );
}

#[test]
fn a_wrong_mask_is_found() {
    let message = failure("mask_without_caller", [1; 3], 32);
    assert!(
        message.contains("with mask 0x0000ffff, which does not include it"),
        "{message}"
    );
    let mut out = vec![0f32; 32];
    launch_on("shuffle_from_absent_lane", [1; 3], [32, 1, 1], 0, &mut out).unwrap();
    assert!(out[..16].iter().all(|value| value.is_nan()), "{out:?}");
}

#[test]
fn a_stack_overflow_is_found() {
    // Twice, because the stack is used again.
    for (kernel, threads) in [
        ("big_frame", 32),
        ("big_frame", 32),
        ("big_frame_beside_waiting_threads", 1000),
    ] {
        let message = failure(kernel, [1; 3], threads);
        assert!(
            message.contains("overflows its stack of 64 KiB"),
            "{kernel}: {message}"
        );
    }
}

#[test]
fn a_failed_launch_does_not_affect_the_next() {
    for _ in 0..3 {
        failure("deadlock", [100, 1, 1], 64);
        let mut out = vec![0f32; 64];
        launch_on("good", [100, 1, 1], [64, 1, 1], 0, &mut out).unwrap();
        assert_eq!(out, [1.0; 64]);
    }
}

#[test]
fn impossible_launches_are_refused() {
    let code = |grid, block, shared_bytes| {
        let mut out = vec![0f32; 2048];
        match launch_on("good", grid, block, shared_bytes, &mut out) {
            Ok(()) => 0,
            Err(CpuError::Launch { code, message, .. }) => {
                assert!(!message.is_empty());
                code
            }
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(code([1, 1, 1], [1024, 1, 1], 227 << 10), 0);
    for grid in [[0, 1, 1], [1, 0, 1], [1 << 31, 1, 1], [1, 65536, 1]] {
        assert_eq!(code(grid, [32, 1, 1], 0), 9, "{grid:?}");
    }
    for block in [[0, 1, 1], [1025, 1, 1], [1, 1, 65], [32, 33, 1]] {
        assert_eq!(code([1, 1, 1], block, 0), 9, "{block:?}");
    }
    assert_eq!(code([1, 1, 1], [32, 1, 1], (227 << 10) + 1), 1);
}

#[test]
fn thread_order_is_shuffled_by_block_and_interval_but_repeatable() {
    let run = || {
        let mut out = vec![-1i32; 2 * 20];
        launch_on("last_writer", [20, 1, 1], [64, 1, 1], 0, &mut out).unwrap();
        out
    };
    let first = run();
    assert_eq!(first, run());
    let distinct: std::collections::BTreeSet<_> = first.iter().collect();
    assert!(distinct.len() > 10, "{first:?}");
    assert!((0..20).any(|block| first[block] != first[20 + block]));
}

#[test]
fn concurrent_launches_work() {
    // Built before, so that the launches of the threads coincide.
    LazyLock::force(&MODULE);
    std::thread::scope(|scope| {
        for i in 0..6 {
            scope.spawn(move || {
                for _ in 0..10 {
                    if i % 3 == 0 {
                        let message = failure("deadlock", [4, 1, 1], 64);
                        assert!(message.contains("deadlock"), "{message}");
                    } else {
                        assert!(multiply_error("tiled_multiply", [33, 40 + i, 21]) < 1e-6);
                    }
                }
            });
        }
    });
}

#[test]
fn errors_say_what_failed() {
    let error = CpuModule::build("extern \"C\" __global__ void k() { missing(); }", &["k"]);
    let message = error.unwrap_err().to_string();
    assert!(message.contains("unit 0 (k)"), "{message}");
    assert!(message.contains("missing"), "{message}");
    assert!(message.contains("unit0.cu:1:"), "{message}");

    let error = launch_on("absent", [1; 3], [1; 3], 0, &mut [0f32]).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("no kernel `absent`") && message.contains("tiled_multiply"),
        "{message}"
    );
}

// ---- whole files, host code and all -------------------------------------------------------------------------------------------

fn compiler() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned())
}

/// Builds `driver.cu` as a user would, without warnings.
fn build_driver(folder: &Path, flags: &[&str]) -> PathBuf {
    write_headers(folder).unwrap();
    let program = folder.join("driver");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpu_emulation/driver.cu");
    let output = Command::new(compiler())
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(flags)
        .args(["-x", "c++", "-I"])
        .arg(folder)
        .arg(source)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

fn run(program: &Path, part: &str) -> Output {
    Command::new(program).arg(part).output().unwrap()
}

fn assert_passes(program: &Path, parts: &[&str]) {
    for part in parts {
        let output = run(program, part);
        assert!(
            output.status.success(),
            "{part}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn an_emitted_file_with_host_code_builds_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let program = build_driver(folder.path(), &["-O2"]);
    assert_passes(
        &program,
        &[
            "results", "graph", "events", "device", "memory", "launches", "clusters",
        ],
    );
    assert_eq!(run(&program, "unknown").status.code(), Some(2));
    for (part, arch) in [("device_override", "121"), ("older", "80")] {
        let disguised = Command::new(&program)
            .arg(part)
            .env("TDC_CPU_DEVICE", "NVIDIA Something")
            .env("TDC_CPU_ARCH", arch)
            .output()
            .unwrap();
        assert!(
            disguised.status.success(),
            "{part}: {}",
            String::from_utf8_lossy(&disguised.stdout)
        );
    }
}

#[test]
fn ucontext_fibers_work() {
    let folder = tempfile::tempdir().unwrap();
    let program = build_driver(folder.path(), &["-O1", "-DTDC_CPU_UCONTEXT"]);
    assert_passes(&program, &["results", "launches", "clusters"]);
}

/// The address sanitizer supports fibers and allocations: correct programs pass, a write past an allocation
/// is reported.
#[test]
#[cfg(target_os = "linux")]
fn address_sanitizer_works_with_the_emulation() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [
        "-O0",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    ];
    let program = build_driver(folder.path(), &flags);
    assert_passes(
        &program,
        &[
            "results", "graph", "events", "device", "launches", "clusters",
        ],
    );
    let output = run(&program, "memory");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        message.contains("use-after-poison") && message.contains("unchecked_kernel"),
        "{message}"
    );
}
