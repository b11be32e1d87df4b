//! Tier 5: the device header on the CPU emulation: copies, clusters and matrix products are correct, and
//! violations are detected.

use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use tdc_generator::compile::cpu::{CpuError, CpuModule, TranslationUnit, write_headers};
use tdc_runtime::{Transform, WeightLayout};
use tdc_templates::device::{BF16, MMA};

const COPIES: &str = include_str!("cpu_emulation/copies.cu");
const CLUSTERS: &str = include_str!("cpu_emulation/clusters.cu");
const CONVERSIONS: &str = include_str!("cpu_emulation/conversions.cu");
const PRODUCTS: &str = include_str!("cpu_emulation/products.cu");

/// Variants of `staged_sums` and `cluster_sums` with one error each: name, replaced text, replacement.
const PLANTED: [(&str, &str, &str, &str); 7] = [
    (
        "staged_sums",
        "no_wait",
        "tdc_wait_copies<1>();  // this",
        "// ",
    ),
    ("staged_sums", "short_wait", "<1>", "<2>"),
    (
        "staged_sums",
        "some_wait",
        "tdc_wait_copies<1>();",
        "if (threadIdx.x < 32) tdc_wait_copies<1>();",
    ),
    (
        "staged_sums",
        "no_barrier_behind_wait",
        "__syncthreads();  // and",
        "// ",
    ),
    (
        "staged_sums",
        "overwrites",
        "__syncthreads();  // the stage",
        "// ",
    ),
    (
        "cluster_sums",
        "no_first_sync",
        "tdc_cluster_sync();  // all tiles are there",
        "",
    ),
    (
        "cluster_sums",
        "no_second_sync",
        "tdc_cluster_sync();  // all tiles have been read",
        "",
    ),
];

static MODULE: LazyLock<CpuModule> = LazyLock::new(|| {
    let unit = |source: String, kernels: &[&str]| TranslationUnit {
        source,
        kernels: kernels.iter().map(|&kernel| kernel.to_owned()).collect(),
    };
    let mut units = vec![
        unit(
            COPIES.to_owned(),
            &[
                "staged_sums",
                "wide_copies",
                "uncommitted_copy",
                "misaligned_copy",
                "copy_to_global",
                "chunks",
                "misaligned_chunk",
                "chunk_to_global",
                "chunk_not_begun",
                "chunk_not_awaited",
            ],
        ),
        unit(
            CLUSTERS.to_owned(),
            &[
                "cluster_sums",
                "reads_too_late",
                "halves",
                "waits_only",
                "arrives_twice",
                "arrives_only",
                "block_leaves",
                "threads_leave",
                "two_barriers",
                "no_such_block",
                "not_shared",
                "exchange",
                "relay",
                "roles",
                "sends_too_little",
                "sends_between_vectors",
                "static_shared",
            ],
        ),
        unit(
            PRODUCTS.to_owned(),
            &["product", "lane_returned", "lane_elsewhere", "small_warp"],
        ),
        unit(shuffled_product(), &["product_by_shuffles"]),
        unit(CONVERSIONS.to_owned(), &["to_bf16"]),
        unit(conversion_by_integers(), &["to_bf16_by_integers"]),
    ];
    for (kernel, name, statement, instead) in PLANTED {
        let source = if kernel == "staged_sums" {
            COPIES
        } else {
            CLUSTERS
        };
        let alone = kernel_source(source, kernel);
        assert_eq!(alone.matches(statement).count(), 1, "{statement}");
        let text = alone.replace(statement, instead).replace(kernel, name);
        units.push(unit(text, &[name]));
    }
    CpuModule::build_units(&units).unwrap_or_else(|error| panic!("{error}"))
});

/// The source of one kernel.
fn kernel_source<'a>(source: &'a str, kernel: &str) -> &'a str {
    let head = format!("extern \"C\" __global__ void {kernel}(");
    let start = source.find(&head).unwrap();
    &source[start..][..source[start..].find("\n}\n").unwrap() + 3]
}

/// The kernel `product` with the device header's function for GPUs before sm_80.
fn shuffled_product() -> String {
    let conversion =
        r#"asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(bits)));"#;
    assert_eq!(MMA.matches(conversion).count(), 1);
    let prelude = MMA
        .replace(conversion, "value = tdc_cpu::float_of_f16(bits);")
        .replace("TDC_MMA", "SHUFFLED");
    let kernel =
        kernel_source(PRODUCTS, "product").replace("void product", "void product_by_shuffles");
    let text = format!("{prelude}{kernel}").replace("tdc_mma_", "shuffled_");
    format!("#include \"tdc_cpu/multiply.h\"\n{text}")
}

/// The kernel `to_bf16` with the device header's function for GPUs before sm_80.
fn conversion_by_integers() -> String {
    let text = format!("{}{CONVERSIONS}", BF16.replace("TDC_BF16", "INTEGERS"));
    text.replace("tdc_to_bf16x2", "integers_to_bf16")
        .replace("tdc_bf16x2", "integers_bf16x2")
        .replace("void to_bf16", "void to_bf16_by_integers")
}

fn pointer<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

/// Launches a kernel with the parameters `(const float* x, float* y)` in clusters of `cluster` blocks along x and y.
fn launch(
    kernel: &str,
    grid: [u32; 3],
    threads: u32,
    cluster: [u32; 3],
    x: &[f32],
    y: &mut [f32],
) -> Result<(), CpuError> {
    let (mut x, mut y) = (x.as_ptr(), y.as_mut_ptr());
    let args = &mut [pointer(&mut x), pointer(&mut y)];
    // SAFETY: two pointers to as many values as the kernels read and write.
    unsafe { MODULE.launch(kernel, grid, [threads, 1, 1], cluster, 512, args) }
}

/// Code and message of a launch of one cluster of two blocks that must fail.
fn failure(kernel: &str) -> String {
    let (x, mut y) = (vec![1f32; 4096], vec![0f32; 4096]);
    match launch(kernel, [2, 1, 1], 32, [2, 1, 1], &x, &mut y) {
        Err(CpuError::Launch {
            code: 719, message, ..
        }) => message,
        other => panic!("{kernel}: {other:?}"),
    }
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

// ---- copies -------------------------------------------------------------------------------------------------------------------

/// Whether `kernel` sums `count` values correctly.
fn sums_are_right(kernel: &str, count: usize) -> bool {
    let x = noise(count, 3);
    let mut y = vec![f32::NAN; 64];
    let (mut x_pointer, mut y_pointer, mut count_arg) = (x.as_ptr(), y.as_mut_ptr(), count as i32);
    let args = &mut [
        pointer(&mut x_pointer),
        pointer(&mut y_pointer),
        pointer(&mut count_arg),
    ];
    // SAFETY: the arguments are those of the kernel, and the buffers have the sizes that it is passed.
    unsafe { MODULE.launch(kernel, [1; 3], [64, 1, 1], [1; 3], 0, args) }.unwrap();
    (0..64).all(|thread| {
        let exact: f32 = x.iter().skip(63 - thread).step_by(64).sum();
        y[thread] == exact
    })
}

#[test]
fn copies_arrive_and_tails_are_zeros() {
    for count in [1, 63, 64, 65, 500, 640] {
        assert!(sums_are_right("staged_sums", count), "{count}");
    }
    let x = noise(128, 4);
    let mut y = vec![f32::NAN; 128];
    launch("wide_copies", [1; 3], 32, [1; 3], &x, &mut y).unwrap();
    assert_eq!(y[..124], x[..124]);
    assert_eq!(y[124..], [0.0; 4]);
}

#[test]
fn copies_are_invisible_until_waited_for() {
    for (kernel, name, ..) in PLANTED {
        if kernel == "staged_sums" {
            assert!(!sums_are_right(name, 500), "{name}");
        }
    }
    let mut y = vec![0f32; 32];
    launch(
        "uncommitted_copy",
        [1; 3],
        32,
        [1; 3],
        &noise(32, 5),
        &mut y,
    )
    .unwrap();
    assert!(y.iter().all(|value| value.is_nan()), "{y:?}");
}

#[test]
fn misaligned_copies_are_rejected() {
    let message = failure("misaligned_copy");
    assert!(message.contains("misaligned"), "{message}");
    let message = failure("copy_to_global");
    assert!(
        message.contains("not in the block's shared memory"),
        "{message}"
    );
}

#[test]
fn bulk_copies_arrive_when_awaited() {
    let x = noise(256, 11);
    let mut y = vec![f32::NAN; 256];
    launch("chunks", [1, 1, 1], 32, [1, 1, 1], &x, &mut y).unwrap();
    for (from, to) in x.chunks(32).zip(y.chunks(32)) {
        assert!(from.iter().eq(to.iter().rev()));
    }
}

#[test]
fn misused_bulk_copies_are_reported() {
    for (kernel, expected) in [
        ("misaligned_chunk", "must be multiples of 16"),
        ("chunk_to_global", "not in the block's shared memory"),
        ("chunk_not_begun", "awaits a bulk copy that was not started"),
        (
            "chunk_not_awaited",
            "still used by an earlier copy that was not awaited",
        ),
    ] {
        let message = failure(kernel);
        assert!(message.contains(expected), "{kernel}: {message}");
    }
}

// ---- clusters -----------------------------------------------------------------------------------------------------------------

/// Launches `cluster_sums` or a variant; returns whether the sums are correct.
fn cluster_sums_are_right(kernel: &str) -> Result<bool, CpuError> {
    let grid = [4usize, 6, 3];
    let x = noise(grid.iter().product::<usize>() * 32, 6);
    let mut y = vec![f32::NAN; x.len()];
    launch(
        kernel,
        grid.map(|size| size as u32),
        32,
        [2, 2, 1],
        &x,
        &mut y,
    )?;
    let mut right = true;
    for (block, values) in y.chunks(32).enumerate() {
        let [column, row, layer] = [
            block % grid[0],
            block / grid[0] % grid[1],
            block / grid[0] / grid[1],
        ];
        let rank = column % 2 + row % 2 * 2;
        let of_rank = |rank: usize| {
            let (column, row) = (column / 2 * 2 + rank % 2, row / 2 * 2 + rank / 2);
            column + grid[0] * (row + grid[1] * layer)
        };
        for (thread, &value) in values.iter().enumerate() {
            let mut sum = 0f32;
            for i in 1..4 {
                sum += i as f32 * x[of_rank((rank + i) % 4) * 32 + 31 - thread];
            }
            right &= (value - sum).abs() < 1e-5;
        }
    }
    Ok(right)
}

#[test]
fn blocks_read_the_shared_memory_of_their_cluster() {
    assert!(cluster_sums_are_right("cluster_sums").unwrap());
}

#[test]
fn reading_before_the_others_have_written_is_found() {
    assert!(!cluster_sums_are_right("no_first_sync").is_ok_and(|right| right));
}

#[test]
fn reading_from_an_exited_block_is_found() {
    let message = cluster_sums_are_right("no_second_sync")
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("has exited; its shared memory is no longer accessible"),
        "{message}"
    );
    // Through an address that was computed before.
    let mut y = vec![0f32; 64 * 32];
    launch(
        "reads_too_late",
        [64, 1, 1],
        32,
        [2, 1, 1],
        &[1.0; 32],
        &mut y,
    )
    .unwrap();
    assert!(y.iter().any(|value| value.is_nan()));
}

#[test]
fn blocks_run_between_arrive_and_wait() {
    let x = noise(32, 7);
    let mut y = vec![f32::NAN; 8 * 32];
    launch("halves", [8, 1, 1], 32, [2, 1, 1], &x, &mut y).unwrap();
    for (block, values) in y.chunks(32).enumerate() {
        for (thread, &value) in values.iter().enumerate() {
            let own = x[31 - thread] + block as f32;
            assert_eq!(value, own + (x[thread] + (block ^ 1) as f32), "{block}");
        }
    }
}

#[test]
fn a_block_resumes_when_its_bytes_have_arrived() {
    let x = noise(8 * 32, 8);
    let mut y = vec![f32::NAN; x.len()];
    launch("relay", [8, 1, 1], 32, [2, 1, 1], &x, &mut y).unwrap();
    for (pair, values) in y.chunks(64).enumerate() {
        for (thread, &value) in values.iter().enumerate() {
            let sent = x[pair * 64 + 31 - thread % 32];
            let rank = thread / 32;
            assert_eq!(value, sent + rank as f32, "{pair}");
        }
    }
}

#[test]
fn some_threads_of_a_block_wait_for_bytes() {
    let x = noise(8 * 32, 9);
    let mut y = vec![f32::NAN; x.len()];
    launch("roles", [8, 1, 1], 64, [2, 1, 1], &x, &mut y).unwrap();
    for (index, &value) in y.iter().enumerate() {
        let (block, lane) = (index / 32, index % 32);
        let expected = match lane % 3 {
            1 => 1.0,
            _ => x[(block ^ 1) * 32 + lane],
        };
        assert_eq!(value, expected, "{index}");
    }
}

#[test]
fn misused_cluster_barriers_are_reported() {
    for (kernel, expected) in [
        ("waits_only", "without having arrived"),
        ("arrives_twice", "twice without waiting"),
        (
            "arrives_only",
            "between arrive and wait of a cluster barrier",
        ),
        (
            "block_leaves",
            "was reached by 32 of 64 threads; the others have exited",
        ),
        (
            "threads_leave",
            "was reached by 16 of 32 threads; the others have exited",
        ),
        (
            "two_barriers",
            "deadlock: 16 threads wait at the barrier in line",
        ),
        ("no_such_block", "cluster rank 2 in a cluster of 2"),
        ("not_shared", "not in the block's dynamic shared memory"),
        ("sends_too_little", "bytes that no block sends"),
        (
            "sends_between_vectors",
            "stores to a misaligned remote address",
        ),
    ] {
        let message = failure(kernel);
        assert!(message.contains(expected), "{kernel}: {message}");
    }
}

#[test]
fn static_shared_memory_does_not_survive_in_a_cluster() {
    let mut y = vec![0f32; 32 * 32];
    launch(
        "static_shared",
        [32, 1, 1],
        32,
        [2, 1, 1],
        &[1.0; 32],
        &mut y,
    )
    .unwrap();
    assert!(y.iter().any(|value| value.is_nan()));
}

#[test]
fn blocks_of_a_cluster_send_each_other_values() {
    let x = noise(6 * 32, 9);
    let mut y = vec![f32::NAN; x.len()];
    launch("exchange", [6, 1, 1], 32, [2, 1, 1], &x, &mut y).unwrap();
    for (block, values) in y.chunks(32).enumerate() {
        for (i, &value) in values.iter().enumerate() {
            let (own, other) = (x[block * 32 + i], x[(block ^ 1) * 32 + i]);
            let expected = match block % 2 {
                0 => 2.0 * own - other,
                _ => other - 2.0 * own,
            };
            assert_eq!(value, expected, "block {block}, thread {i}");
        }
    }
}

#[test]
fn impossible_clusters_are_refused() {
    let code = |grid, cluster| {
        let (x, mut y) = (vec![1f32; 4096], vec![0f32; 4096]);
        match launch("wide_copies", grid, 32, cluster, &x, &mut y) {
            Ok(()) => 0,
            Err(CpuError::Launch { code, .. }) => code,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(code([16, 1, 1], [16, 1, 1]), 0);
    assert_eq!(code([3, 4, 6], [3, 2, 2]), 0);
    for (grid, cluster) in [
        ([3, 1, 1], [2, 1, 1]),
        ([4, 3, 1], [2, 2, 1]),
        ([4, 4, 1], [2, 2, 2]),
        ([4, 1, 1], [0, 1, 1]),
        ([32, 1, 1], [32, 1, 1]),
    ] {
        assert_eq!(code(grid, cluster), 9, "{grid:?} {cluster:?}");
    }
    // cudaErrorInvalidClusterSize
    assert_eq!(code([8, 4, 1], [8, 4, 1]), 912);
}

// ---- matrix products ----------------------------------------------------------------------------------------------------------

/// The bits of an operand and the value as which a tensor core reads them.
type Operand = (u32, f64);

/// Operands of each kind: `tf32`, whose lower bits are ignored, `f16`, `bf16`.
fn operand(kind: usize, random: f32) -> Operand {
    match kind {
        0 => {
            let seen = f32::from_bits(random.to_bits() & 0xffff_e000);
            (random.to_bits(), f64::from(seen))
        }
        1 => {
            // Ten bits of fraction; exponents from subnormal upwards.
            let scale = [2f64.powi(-24), 2f64.powi(-17), 2f64.powi(-10), 2.0];
            let chosen = (random.abs() * 4096.0) as usize % 4;
            let fraction = (random * 1023.0).trunc();
            let exact = f64::from(fraction) * scale[chosen];
            (f16_bits(exact), exact)
        }
        _ => {
            let bits = random.to_bits() >> 16;
            (bits, f64::from(f32::from_bits(bits << 16)))
        }
    }
}

/// The bits of a value that is exact in fp16.
fn f16_bits(value: f64) -> u32 {
    let sign = u32::from(value.is_sign_negative()) << 15;
    let magnitude = value.abs();
    let subnormal = magnitude * 2f64.powi(24);
    if subnormal < 1024.0 {
        return sign | subnormal as u32;
    }
    let exponent = magnitude.log2().floor() as i32;
    let fraction = (magnitude / 2f64.powi(exponent) - 1.0) * 1024.0;
    sign | ((exponent + 15) as u32) << 10 | fraction as u32
}

/// Multiplies random matrices; checks every element against the definition.
fn check_product(kernel: &str, kind: usize) {
    let depth = if kind == 0 { 8 } else { 16 };
    let a: Vec<Operand> = noise(16 * depth, 8)
        .iter()
        .map(|&x| operand(kind, x))
        .collect();
    let b: Vec<Operand> = noise(depth * 8, 9)
        .iter()
        .map(|&x| operand(kind, x))
        .collect();
    let c = noise(16 * 8, 10);
    let (a_at, b_at) = (
        |row: usize, k: usize| a[row * depth + k],
        |k: usize, n: usize| b[k * 8 + n],
    );
    // Positions of the operands' elements as in the PTX manual.
    let (mut a_lanes, mut b_lanes, mut d_lanes) = (vec![0; 128], vec![0; 64], vec![0f32; 128]);
    for lane in 0..32 {
        let (group, thread) = (lane / 4, lane % 4);
        for i in 0..4 {
            let row = if i % 2 == 0 { group } else { group + 8 };
            a_lanes[4 * lane + i] = if kind == 0 {
                a_at(row, if i < 2 { thread } else { thread + 4 }).0
            } else {
                let k = 2 * thread + if i < 2 { 0 } else { 8 };
                a_at(row, k).0 | a_at(row, k + 1).0 << 16
            };
            let row = if i < 2 { group } else { group + 8 };
            d_lanes[4 * lane + i] = c[row * 8 + 2 * thread + i % 2];
        }
        for i in 0..2 {
            b_lanes[2 * lane + i] = if kind == 0 {
                b_at(thread + 4 * i, group).0
            } else {
                let k = 2 * thread + 8 * i;
                b_at(k, group).0 | b_at(k + 1, group).0 << 16
            };
        }
    }
    let mut kind_arg = kind as i32;
    let (mut a_pointer, mut b_pointer, mut d_pointer) =
        (a_lanes.as_ptr(), b_lanes.as_ptr(), d_lanes.as_mut_ptr());
    let args = &mut [
        pointer(&mut kind_arg),
        pointer(&mut a_pointer),
        pointer(&mut b_pointer),
        pointer(&mut d_pointer),
    ];
    // SAFETY: the kernel's parameters, with as many elements as its 32 lanes read and write.
    unsafe { MODULE.launch(kernel, [1; 3], [32, 1, 1], [1; 3], 0, args) }.unwrap();
    for lane in 0..32 {
        for i in 0..4 {
            let row = lane / 4 + if i < 2 { 0 } else { 8 };
            let column = 2 * (lane % 4) + i % 2;
            let terms = (0..depth).map(|k| a_at(row, k).1 * b_at(k, column).1);
            let (sum, size) = terms.fold(
                (f64::from(c[row * 8 + column]), 1.0),
                |(sum, size), term| (sum + term, size + term.abs()),
            );
            let found = f64::from(d_lanes[4 * lane + i]);
            assert!(
                (found - sum).abs() <= 1e-6 * size,
                "{kernel}, kind {kind}, row {row}, column {column}: {found} instead of {sum}"
            );
        }
    }
}

#[test]
fn products_are_those_of_the_tensor_cores() {
    for kind in 0..3 {
        check_product("product", kind);
    }
}

/// The device header's own functions for GPUs without the instructions.
#[test]
fn products_by_shuffles_are_the_same() {
    for kind in 0..3 {
        check_product("product_by_shuffles", kind);
    }
}

#[test]
fn a_product_without_a_lane_is_found() {
    let message = failure("lane_returned");
    assert!(message.contains("without all 32 lanes"), "{message}");
    let message = failure("lane_elsewhere");
    assert!(message.contains("deadlock: 31 threads wait"), "{message}");
    let (x, mut y) = ([0f32; 1], vec![0f32; 64]);
    let error = launch("small_warp", [1; 3], 40, [1; 3], &x, &mut y).unwrap_err();
    assert!(
        error.to_string().contains("without all 32 lanes"),
        "{error}"
    );
}

// ---- conversions --------------------------------------------------------------------------------------------------------------

/// On the host and in the device header.
#[test]
fn both_bf16_conversions_round_like_the_packer() {
    let mut x = noise(64 * 32, 11);
    for (index, value) in x.iter_mut().enumerate() {
        // Every exponent; every fourth value is a tie or adjacent to one, for both directions of rounding.
        let bits = value.to_bits() & 0x807f_ffff | (index as u32 % 255) << 23;
        *value = f32::from_bits(match index % 8 {
            0 => (bits & 0xffff_0000) + 0x8000,
            4 => (bits & 0xffff_0000) + 0x7fff + index as u32 / 8 % 3,
            _ => bits,
        });
    }
    x[..6].copy_from_slice(&[
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        -f32::NAN,
        f32::MAX,
        -0.0,
    ]);
    let layout = WeightLayout {
        transform: Transform::Bf16,
        ..WeightLayout::oihw([x.len() as u32, 1, 1, 1])
    };
    let mut expected = vec![0.0; x.len() / 2];
    layout.pack(&x, &[], &[], &mut expected).unwrap();
    for kernel in ["to_bf16", "to_bf16_by_integers"] {
        let mut y = vec![0f32; expected.len()];
        launch(kernel, [32, 1, 1], 32, [1; 3], &x, &mut y).unwrap();
        for (index, (found, expected)) in y.iter().zip(&expected).enumerate() {
            assert_eq!(
                found.to_bits(),
                expected.to_bits(),
                "{kernel}, {:?}",
                &x[2 * index..][..2]
            );
        }
    }
}

// ---- on a GPU -----------------------------------------------------------------------------------------------------------------

/// Checks the program that checks the device header on a GPU.
#[test]
fn the_gpu_tier_program_passes_on_the_emulation() {
    let folder = tempfile::tempdir().unwrap();
    write_headers(folder.path()).unwrap();
    let program = folder.path().join("prelude");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new(std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned()))
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"])
        .args(["-pthread", "-x", "c++", "-I"])
        .arg(folder.path())
        .arg("-I")
        .arg(root.join("templates"))
        .arg("-I")
        .arg(root.join("tests/cpu_emulation"))
        .arg(root.join("tests/gpu/prelude/main.cu"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    for arch in ["90", "80"] {
        let output = Command::new(&program).env("TDC_CPU_ARCH", arch).output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{arch}: {text}");
        let overlapping = text.contains("programmatic dependent launches");
        assert_eq!(overlapping, arch == "90", "{text}");
    }
}
