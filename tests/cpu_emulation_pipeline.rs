//! Tier 5: pipelines between warps of different roles, and asynchronous products of a warpgroup, on the CPU emulation: they are correct, and
//! violations are detected.

use std::ffi::c_void;
use std::sync::LazyLock;

use tdc_generator::compile::cpu::{CpuError, CpuModule, TranslationUnit};

const PIPELINE: &str = include_str!("cpu_emulation/pipeline.cu");

/// Variants of `ring_products` with one error each: name, replaced text, replacement.
const PLANTED: [(&str, &str, &str); 6] = [
    (
        "no_wait_for_weights",
        "tdc_wait_phase(full + 2 * stage, static_cast<unsigned>(step / STAGES));",
        "",
    ),
    (
        "no_wait_for_a_buffer",
        "if (step >= STAGES) tdc_wait_phase(empty + 2 * stage, static_cast<unsigned>(step / STAGES - 1));",
        "",
    ),
    (
        "no_wait_for_products",
        "tdc_wgmma_wait<0>();  // the buffer may be filled again",
        "",
    ),
    (
        "operands_replaced_too_early",
        "tdc_wgmma_wait<0>();  // the buffer may be filled again",
        "tdc_wgmma_wait<2>(); if (step + 1 == STEPS) tdc_wgmma_wait<0>();",
    ),
    ("no_commit", "tdc_wgmma_commit();", ""),
    (
        "buffer_released_twice",
        "if (lane == 0) tdc_arrive(empty + 2 * stage);",
        "if (lane < 2) tdc_arrive(empty + 2 * stage);",
    ),
];

/// Variants of `ring_copies`.
const PLANTED_COPIES: [(&str, &str, &str); 3] = [
    (
        "copies_read_before_the_wait",
        "tdc_wait_phase(full + 2 * stage, static_cast<unsigned>(step / STAGES));",
        "",
    ),
    (
        "arrival_before_the_copies",
        "tdc_arrive_when_copied(full + 2 * stage);",
        "tdc_arrive(full + 2 * stage);",
    ),
    (
        "copies_to_a_buffer_that_is_read",
        "if (step >= STAGES) tdc_wait_phase(empty + 2 * stage, static_cast<unsigned>(step / STAGES - 1));",
        "",
    ),
];

/// Variants of `products_of_copies`.
const PLANTED_ROWS: [(&str, &str, &str); 4] = [
    ("no_fence_between_proxies", "tdc_fence_async_proxy();", ""),
    (
        "fence_before_the_copies",
        "tdc_wait_phase(full, 0);\n    tdc_fence_async_proxy();",
        "tdc_fence_async_proxy();\n    tdc_wait_phase(full, 0);",
    ),
    ("rows_without_swizzle", "tdc_swizzled<ROW_RUNS>(run)", "run"),
    (
        "rows_of_another_length",
        "tdc_wgmma_shared<N, ROW_RUNS>",
        "tdc_wgmma_shared<N, 4>",
    ),
];

/// The text of a kernel of `PIPELINE`.
fn kernel_text(name: &str) -> &'static str {
    let start = PIPELINE.find(&format!("extern \"C\" __global__ void {name}("));
    let from = &PIPELINE[start.unwrap()..];
    &from[..from.find("\n}\n").unwrap() + 3]
}

static MODULE: LazyLock<CpuModule> = LazyLock::new(|| {
    let unit = |source: String, kernels: &[&str]| TranslationUnit {
        source,
        kernels: kernels.iter().map(|&kernel| kernel.to_owned()).collect(),
    };
    let mut units = vec![unit(
        PIPELINE.to_owned(),
        &[
            "pack_columns",
            "ring_products",
            "ring_copies",
            "products_of_copies",
            "two_warps_meet",
            "named_barrier_of_too_many",
            "phase_without_arrivals",
            "phase_of_two_rounds_ago",
            "phase_that_was_not_initialised",
            "arrival_beyond_the_phase",
            "prefetch_from_within_16_bytes",
            "prefetch_of_12_bytes",
        ],
    )];
    let start = PIPELINE.find("// The packed columns").unwrap();
    let planted = PLANTED
        .map(|planted| ("ring_products", planted))
        .into_iter();
    let copies = PLANTED_COPIES.map(|planted| ("ring_copies", planted));
    let rows = PLANTED_ROWS.map(|planted| ("products_of_copies", planted));
    for (kernel, (name, text, replacement)) in planted.chain(copies).chain(rows) {
        let source = format!("{}{}", &PIPELINE[..start], kernel_text(kernel));
        assert_eq!(source.matches(text).count(), 1, "{text}");
        let source = source.replace(text, replacement).replace(kernel, name);
        units.push(unit(source, &[name]));
    }
    CpuModule::build_units(&units).unwrap_or_else(|error| panic!("{error}"))
});

const STEPS: usize = 6;
/// Dynamic shared memory of all kernels.
const SHARED_BYTES: u32 = 67 * 128 + 1024 + 16;
const N: usize = 32;

fn launch(kernel: &str, threads: u32, pointers: &mut [*mut f32]) -> Result<(), CpuError> {
    let mut args: Vec<*mut c_void> = pointers
        .iter_mut()
        .map(|pointer| std::ptr::from_mut(pointer).cast())
        .collect();
    // SAFETY: the kernels have pointer parameters only, and access no more than the tests allocate.
    unsafe {
        MODULE.launch(
            kernel,
            [1; 3],
            [threads, 1, 1],
            [1; 3],
            SHARED_BYTES,
            &mut args,
        )
    }
}

/// The products of a variant of `ring_products`.
fn products(kernel: &str) -> Result<Vec<f32>, CpuError> {
    let mut packed = vec![0.0f32; STEPS * 2 * N * 4];
    launch("pack_columns", 64, &mut [packed.as_mut_ptr()]).unwrap();
    let mut sums = vec![f32::NAN; 64 * N];
    launch(kernel, 160, &mut [packed.as_mut_ptr(), sums.as_mut_ptr()])?;
    Ok(sums)
}

fn expected() -> Vec<f32> {
    let a = |row: usize, k: usize| ((2 * row + k) % 5) as i32 - 2;
    let b = |k: usize, column: usize| ((3 * k + 5 * column) % 7) as i32 - 3;
    let at = |i: usize| {
        (0..16 * STEPS)
            .map(|k| a(i / N, k) * b(k, i % N))
            .sum::<i32>() as f32
    };
    (0..64 * N).map(at).collect()
}

#[test]
fn a_pipeline_multiplies() {
    assert_eq!(products("ring_products").unwrap(), expected());
}

#[test]
fn a_missing_wait_is_found() {
    for (kernel, _, _) in PLANTED {
        if let Ok(sums) = products(kernel) {
            assert_ne!(sums, expected(), "{kernel}");
        }
    }
}

/// The sums of a variant of `ring_copies`, and the right ones.
fn copied_sums(kernel: &str) -> Result<[Vec<f32>; 2], CpuError> {
    let mut from: Vec<f32> = (0..STEPS * 128)
        .map(|i| (i * i % 31) as f32 + 1.0)
        .collect();
    let mut sums = vec![f32::NAN; 32];
    launch(kernel, 64, &mut [from.as_mut_ptr(), sums.as_mut_ptr()])?;
    let of_lane = |lane: usize| from.iter().skip(lane).step_by(32).sum();
    Ok([sums, (0..32).map(of_lane).collect()])
}

#[test]
fn copies_of_a_warp_arrive() {
    let [sums, expected] = copied_sums("ring_copies").unwrap();
    assert_eq!(sums, expected);
}

#[test]
fn a_read_of_copies_that_have_not_arrived_is_found() {
    for (kernel, _, _) in PLANTED_COPIES {
        if let Ok([sums, expected]) = copied_sums(kernel) {
            assert_ne!(sums, expected, "{kernel}");
        }
    }
}

/// The products of a variant of `products_of_copies`, and the right ones: 64 rows from the third on of an image of 67, its columns 32 to 47.
fn row_products(kernel: &str) -> Result<[Vec<f32>; 2], CpuError> {
    let value = |row: usize, k: usize| ((5 * row + 3 * k) % 11) as i32 - 5;
    let pair = |row: usize, k: usize| {
        let [low, high] = [k, k + 1].map(|k| u32::from(f16_bits(value(row, k))));
        f32::from_bits(high << 16 | low)
    };
    let pairs = (0..67).flat_map(|row| (0..64).step_by(2).map(move |k| (row, k)));
    let mut image: Vec<f32> = pairs.map(|(row, k)| pair(row, k)).collect();
    let mut packed = vec![0.0f32; STEPS * 2 * N * 4];
    launch("pack_columns", 64, &mut [packed.as_mut_ptr()]).unwrap();
    let mut sums = vec![f32::NAN; 64 * N];
    let pointers = &mut [image.as_mut_ptr(), packed.as_mut_ptr(), sums.as_mut_ptr()];
    launch(kernel, 160, pointers)?;
    let b = |k: usize, column: usize| ((3 * k + 5 * column) % 7) as i32 - 3;
    let at = |i: usize| {
        let terms = (0..16).map(|k| value(i / N + 3, 32 + k) * b(k, i % N));
        terms.sum::<i32>() as f32
    };
    Ok([sums, (0..64 * N).map(at).collect()])
}

/// The fp16 number of a small integer.
fn f16_bits(value: i32) -> u16 {
    if value == 0 {
        return 0;
    }
    let magnitude = value.unsigned_abs();
    let exponent = magnitude.ilog2();
    let fraction = (magnitude << (10 - exponent)) & 0x3ff;
    (u32::from(value < 0) << 15 | (exponent + 15) << 10 | fraction) as u16
}

#[test]
fn products_read_rows_that_were_copied() {
    let [sums, expected] = row_products("products_of_copies").unwrap();
    assert_eq!(sums, expected);
}

#[test]
fn a_missing_proxy_fence_and_other_layouts_are_found() {
    for (kernel, _, _) in PLANTED_ROWS {
        match row_products(kernel) {
            Ok([sums, expected]) => assert_ne!(sums, expected, "{kernel}"),
            Err(error) => assert!(
                error.to_string().contains("tdc_fence_async_proxy"),
                "{error}"
            ),
        }
    }
}

#[test]
fn some_warps_of_a_block_meet() {
    let mut out = vec![0.0f32; 96];
    launch("two_warps_meet", 96, &mut [out.as_mut_ptr()]).unwrap();
    assert!((0..64).all(|i| out[i] == (63 - i) as f32), "{out:?}");
}

#[test]
fn misused_barriers_are_reported() {
    for (kernel, expected) in [
        ("named_barrier_of_too_many", "at which no thread arrives"),
        ("phase_without_arrivals", "at which no thread arrives"),
        (
            "phase_of_two_rounds_ago",
            "waits for phase 0 of an mbarrier, of which 3 are complete",
        ),
        (
            "phase_that_was_not_initialised",
            "the mbarrier was not initialised",
        ),
        (
            "arrival_beyond_the_phase",
            "more threads arrive at an mbarrier than its phase has arrivals",
        ),
        (
            "prefetch_from_within_16_bytes",
            "a prefetch of 16 bytes; address and size must be multiples of 16",
        ),
        (
            "prefetch_of_12_bytes",
            "a prefetch of 12 bytes; address and size must be multiples of 16",
        ),
    ] {
        let mut out = vec![0.0f32; 96];
        let message = launch(kernel, 96, &mut [out.as_mut_ptr()])
            .unwrap_err()
            .to_string();
        assert!(message.contains(expected), "{kernel}: {message}");
    }
}
