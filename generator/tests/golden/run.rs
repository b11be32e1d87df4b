//! Generated folders compile without warnings with the host's compiler and compute correct results on the CPU
//! emulation.

use crate::networks::{folders, layers, mixed, pair, plan, plan_set, plans};
use crate::{nhwc_activations, several_batches, several_inputs, several_outputs};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use tdc_generator::compile::cpu::write_headers;
use tdc_generator::emit::write;
use tdc_generator::ir::{DType, Layout, Problem};
use tdc_generator::plan::{PlannedTensor, recipes};
use tdc_generator::verify::reference::evaluate_network;
use tdc_generator::verify::{CheckpointParameters, Deviation, Random};
use tdc_runtime::{Transform, bf16_value, fp16_value};
use tdc_weights::{Checkpoint, pack, resolve};

const FLAGS: &[&str] = &[
    "-std=c++17",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    // Only for the host's compiler: CUDA supports `#pragma unroll`.
    "-Wno-unknown-pragmas",
    "-pthread",
];

/// The compiled programs by name, and the folder with all files.
pub struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    /// Writes and compiles all folders, two at a time.
    fn new() -> Self {
        let built = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        write_headers(&built.path("cuda")).unwrap();
        let mut objects: Vec<(PathBuf, PathBuf, Option<PathBuf>)> = Vec::new();
        let mut links: HashMap<&str, Vec<PathBuf>> = HashMap::new();
        let pyramids = [several_outputs::PLAIN, several_outputs::FORMATS];
        let pyramids = pyramids.map(|name| (name, several_outputs::files(name)));
        let siamese = (several_inputs::NAME, several_inputs::files());
        let batches = (several_batches::TWO, several_batches::files_of_two());
        let halves = (several_batches::HALVES, several_batches::files_of_halves());
        let stored = nhwc_activations::EXAMPLES;
        let stored = stored.map(|example| (example.name, example.files()));
        let others = [siamese, batches, halves].into_iter();
        let others = others.chain(pyramids).chain(stored);
        for (name, files) in folders().into_iter().chain(others) {
            let folder = built.path(name);
            write(&files, &folder, false).unwrap();
            for path in files.keys().filter(|path| path.ends_with(".cu")) {
                let object = built.path(&format!("{name}-{}.o", path.replace('/', "-")));
                objects.push((
                    folder.join(path),
                    object.clone(),
                    Some(folder.join("include")),
                ));
                links.entry(name).or_default().push(object.clone());
                let host = match name {
                    "mixed" | "tiny" => "two_networks",
                    "pair" => "variants",
                    "some-layers" => "packers",
                    several_batches::TWO => "several_batches",
                    _ => continue,
                };
                if path != "main.cu" {
                    links.entry(host).or_default().push(object);
                }
            }
        }
        std::fs::write(built.path("packers.cpp"), packers()).unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        for (host, source) in [
            ("two_networks", sources.join("two_networks.cpp")),
            ("variants", sources.join("variants.cpp")),
            ("several_batches", sources.join("several_batches.cpp")),
            ("packers", built.path("packers.cpp")),
        ] {
            let object = built.path(&format!("{host}.o"));
            links.entry(host).or_default().push(object.clone());
            objects.push((source, object, None));
        }

        let pending = Mutex::new(objects);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let next = pending.lock().unwrap().pop();
                        let Some((source, object, include)) = next else {
                            break;
                        };
                        built.compile(&source, &object, include);
                    }
                });
            }
        });
        for (name, objects) in links {
            let mut command = compiler();
            command.arg("-pthread").args(objects).arg("-o");
            succeed(command.arg(built.path(&format!("run-{name}"))));
        }
        built
    }

    fn compile(&self, source: &Path, object: &Path, include: Option<PathBuf>) {
        let mut command = compiler();
        command.args(FLAGS).arg("-I").arg(self.path("cuda"));
        let includes = match include {
            Some(folder) => vec![folder],
            None => ["mixed", "tiny", "pair", "some-layers", several_batches::TWO]
                .map(|name| self.path(&format!("{name}/include")))
                .to_vec(),
        };
        for folder in includes {
            command.arg("-I").arg(folder);
        }
        // The emulation's engine is needed once per program: in the file with `main`.
        let has_main = source.ends_with("main.cu") || source.extension() == Some("cpp".as_ref());
        if !has_main {
            command.arg("-DTDC_CPU_ENGINE_ELSEWHERE");
        }
        command
            .args(["-x", "c++", "-c"])
            .arg(source)
            .arg("-o")
            .arg(object);
        succeed(&mut command);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn program(&self, name: &str) -> Command {
        Command::new(self.path(&format!("run-{name}")))
    }
}

fn compiler() -> Command {
    Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned()))
}

/// The output of a command, which must succeed.
pub fn succeed(command: &mut Command) -> String {
    let (code, text) = outcome(command);
    assert_eq!(code, Some(0), "{command:?}\n{text}");
    text
}

pub fn outcome(command: &mut Command) -> (Option<i32>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [stdout, stderr].concat();
    (status.code(), String::from_utf8(text).unwrap())
}

pub fn floats(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    let values = bytes.chunks_exact(4);
    values
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

#[test]
fn generated_folders_compile_and_compute_correctly() {
    let built = Built::new();
    random_weights_give_the_same_bits_twice(&built);
    invalid_command_lines_are_reported(&built);
    layer_sets_check_themselves(&built);
    for name in [several_outputs::PLAIN, several_outputs::FORMATS] {
        several_outputs::all_outputs_are_written(&built, name);
    }
    several_inputs::all_inputs_are_read(&built);
    for name in [several_batches::ONE, several_batches::HALVES] {
        several_batches::programs_take_any_batch(&built, name);
    }
    several_batches::memory_beyond_the_batch_is_not_touched(&built);
    for example in &nhwc_activations::EXAMPLES {
        nhwc_activations::outputs_of_layers_are_copied(&built, example);
    }
    let (weights, input) = numbers_are_right(&built);
    two_networks_link_into_one_program(&built, &weights, &input);
    variants_are_chosen_at_load(&built);
    packers_give_the_same_bits(&built);
}

/// A program that runs the packer of every unit of the layer set: it reads weights, scales and shifts of each
/// in turn, and writes the packed weights.
fn packers() -> String {
    let plan = plan_set(&layers());
    let (mut headers, mut calls) = (String::new(), String::new());
    for unit in &plan.units {
        let (name, prefix) = (&unit.unit.name, &unit.prefix);
        headers += &format!("#include \"{prefix}/{name}.h\"\n");
        let parts = match unit.problem {
            Problem::Cp(_) => &["_first", "_vertical", "_horizontal", "_last"][..],
            _ => &[""],
        };
        for ((_, layout), part) in unit.variant().packed_layouts().zip(parts) {
            let (weights, channels) = (layout.source_len(), layout.prologue_channels);
            let packed = layout.len();
            calls += &format!(
                "    pack({prefix}::{name}_pack{part}, {weights}, {channels}, {packed});\n"
            );
        }
    }
    format!(
        "{headers}\n#include <cuda_runtime.h>\n\n#include <cstdio>\n#include <vector>\n
static void pack(void (*pack)(const float*, const float*, const float*, float*), std::size_t weights, std::size_t channels,
                 std::size_t packed) {{
    std::vector<float> in(weights + 2 * channels), out(packed);
    if (std::fread(in.data(), 4, in.size(), stdin) != in.size()) return;
    pack(in.data(), in.data() + weights, in.data() + weights + channels, out.data());
    std::fwrite(out.data(), 4, out.size(), stdout);
}}

int main() {{
{calls}}}
"
    )
}

/// The emitted packers and the one in Rust give the same bits, for weights of all magnitudes and for NaNs and
/// infinities.
fn packers_give_the_same_bits(built: &Built) {
    let awkward = [
        0.0,
        -0.0,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MIN_POSITIVE,
        1e-44,
        // Ties of fp16 and of bf16, in both directions.
        1.0 + 1.0 / 2048.0,
        1.0 + 3.0 / 2048.0,
        1.0 + 1.0 / 256.0,
        1.0 + 3.0 / 256.0,
        65520.0,
        -65519.0,
    ];
    let mut random = Random::new(23);
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    let mut transforms = Vec::new();
    let units = plan_set(&layers()).units;
    let layouts = units.iter().flat_map(|unit| {
        let layouts = unit.variant().packed_layouts();
        layouts.map(move |(_, layout)| (unit, layout))
    });
    for (unit, layout) in layouts {
        transforms.push(layout.transform);
        let [n, ..] = layout.source;
        let row = layout.source_len() / n as usize;
        let mut weight = random.values(layout.source_len());
        for (o, row) in weight.chunks_mut(row).enumerate() {
            // From subnormal to nearly infinite; the last rows have special values, one kind each.
            let size = 2f32.powi(-140 + 260 / n as i32 * o as i32);
            row.iter_mut().for_each(|value| *value *= size);
            match n as usize - 1 - o {
                0 => row.fill(0.0),
                1 => row
                    .iter_mut()
                    .zip(awkward.iter().cycle())
                    .for_each(|(value, &awkward)| *value = awkward),
                2 => row
                    .iter_mut()
                    .zip(awkward[6..].iter().cycle())
                    .for_each(|(value, &awkward)| *value = awkward),
                _ => {}
            }
        }
        let channels = layout.prologue_channels as usize;
        let (scale, shift) = (random.values(channels), random.values(channels));
        let mut packed = vec![0.0; layout.len()];
        layout.pack(&weight, &scale, &shift, &mut packed).unwrap();
        let in_order = weight.iter().chain(&scale).chain(&shift);
        bytes.extend(in_order.flat_map(|value| value.to_le_bytes()));
        expected.push((unit.unit.name.to_string(), packed));
    }
    for transform in [
        Transform::Fp16 { run: 256, terms: 2 },
        Transform::Fp16 { run: 256, terms: 1 },
        Transform::Bf16,
    ] {
        assert!(transforms.contains(&transform), "{transform:?}");
    }
    let input = built.path("packers.bin");
    std::fs::write(&input, bytes).unwrap();
    let mut program = built.program("packers");
    program.stdin(std::fs::File::open(&input).unwrap());
    let found = program.output().unwrap().stdout;
    let mut found = found.chunks_exact(4);
    for (unit, packed) in &expected {
        for (index, value) in packed.iter().enumerate() {
            let bits = found
                .next()
                .map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
            assert_eq!(bits, Some(value.to_bits()), "{unit}, {index}: {value}");
        }
    }
    assert!(found.next().is_none());
}

fn random_weights_give_the_same_bits_twice(built: &Built) {
    let outputs = ["a", "b"].map(|name| {
        let output = built.path(name);
        let text = succeed(
            built
                .program("mixed")
                .args(["--random", "1", "--runs", "2", "--profile", "--output"])
                .arg(&output),
        );
        assert!(text.contains("us per run (CUDA graph, median)"), "{text}");
        assert!(text.contains("   added     alone  layer\n"), "{text}");
        assert!(text.contains("tucker.core"), "{text}");
        std::fs::read(output).unwrap()
    });
    assert_eq!(outputs[0].len(), 4 * 2 * 7);
    assert_eq!(outputs[0], outputs[1]);
    let finite = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap()).is_finite();
    assert!(outputs[0].chunks_exact(4).all(finite));
    succeed(
        built
            .program("tiny")
            .args(["--runs", "1", "--no-graph", "--top", "99"]),
    );
}

fn invalid_command_lines_are_reported(built: &Built) {
    for (args, code, part) in [
        (&["--runs"][..], 2, "needs a value"),
        (&["--runs", "x"], 2, "whole number"),
        (&["--random", "18446744073709551616"], 2, "whole number"),
        (&["--bogus"], 2, "unknown argument `--bogus`"),
        (
            &["--dump", "nothing"],
            2,
            "no layer and no output `nothing`",
        ),
        (&["--dump-file", "x"], 2, "--dump LAYER"),
        (&["--random", "1", "--weights", "x"], 2, "exclude"),
        (
            &["--weights", "no/such"],
            1,
            "load_file: cannot read no/such",
        ),
        (&["--weights", "/"], 1, "load_file: cannot read /"),
        (&["--input", "no/such"], 1, "cannot read no/such"),
        (&["--input", "/dev/null"], 1, "must have exactly 3432 bytes"),
        (&["--output", "/no/such"], 1, "cannot write /no/such"),
        (&["--help"], 0, "exit codes"),
    ] {
        let (found, text) = outcome(built.program("mixed").args(args));
        assert_eq!(found, Some(code), "{args:?}: {text}");
        assert!(text.contains(part), "{args:?}: {text}");
    }
}

fn layer_sets_check_themselves(built: &Built) {
    let text = succeed(built.program("some-layers").args(["--runs", "1"]));
    assert_eq!(text.matches("ok  ").count(), 21, "{text}");
    let (code, _) = outcome(built.program("some-layers").arg("--bogus"));
    assert_eq!(code, Some(2));
}

/// Every layer's output, through views and reused memory, against float64. Returns the files of weights and
/// input.
fn numbers_are_right(built: &Built) -> (PathBuf, PathBuf) {
    let network = mixed();
    let plan = plan(&network);
    let recipes = recipes(&network, &plan);
    let checkpoint = Checkpoint::random(&recipes, 5);
    let resolved = resolve(&recipes, &checkpoint).unwrap();
    let file = pack(&plan.weights, &resolved.values).unwrap();
    let parameters = CheckpointParameters::new(&network, &plan, &checkpoint, &resolved).unwrap();
    let x = Random::new(9).values(plan.inputs[0].shape.len() as usize);
    let x64: Vec<_> = x.iter().map(|&value| f64::from(value)).collect();
    let x64 = [x64];
    let expected = evaluate_network(&network, &parameters, &x64);

    let (weights, input) = (built.path("weights.bin"), built.path("input.bin"));
    std::fs::write(&weights, file.bytes).unwrap();
    let bytes: Vec<u8> = x.iter().flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(&input, bytes).unwrap();
    let (output, dumped) = (built.path("output.bin"), built.path("dump.bin"));
    let mut compared = 0;
    for (op, expected) in network.ops.iter().zip(&expected) {
        if !plan.layers.iter().any(|layer| layer.output_op == op.name) {
            continue;
        }
        let mut command = built.program("mixed");
        command
            .arg("--weights")
            .arg(&weights)
            .arg("--input")
            .arg(&input);
        command
            .arg("--output")
            .arg(&output)
            .args(["--runs", "0", "--dump", &op.name]);
        succeed(command.arg("--dump-file").arg(&dumped));
        let deviation = Deviation::between(op.y, &floats(&dumped), expected);
        assert!(deviation.relative < 1e-6, "{}: {deviation}", op.name);
        compared += 1;
    }
    assert!(compared >= 8, "{compared}");
    let deviation = Deviation::between(
        plan.outputs[0].shape,
        &floats(&output),
        expected.last().unwrap(),
    );
    assert!(deviation.relative < 1e-6, "{deviation}");
    (weights, input)
}

fn two_networks_link_into_one_program(built: &Built, weights: &Path, input: &Path) {
    let output = built.path("two.bin");
    let mut program = built.program("two_networks");
    let text = succeed(program.arg(weights).arg(input).arg(&output));
    assert_eq!(floats(&output), floats(&built.path("output.bin")));
    let lines: Vec<_> = text.lines().collect();
    let expected = [
        "mixed: run: the network has no weights yet",
        "mixed: run: input `input` is a null pointer",
        "mixed: capture: output `scores` is a null pointer",
        "mixed: run_layer: input `input` is not aligned to 16 bytes",
        "mixed: run: input `input` is not aligned to 16 bytes",
        "mixed: run: output `scores` is not aligned to 16 bytes",
        "mixed: replay: no graph was captured",
        "mixed: load_file: cannot read no/such/file",
        "mixed: load_memory: the block is not a whole file of weights: a header has 256 bytes, 100 of 100 are left",
        "mixed: load_memory: the block is not a file of packed weights: no header begins at byte 0",
        "mixed: load_memory: the block has version 0 of the format, this driver reads 1",
        "mixed: load_memory: the block was packed for another network or other kernels",
        "mixed: load_memory: the block is truncated or damaged:",
        "mixed: load_memory: the block is truncated or damaged:",
        "mixed: load_memory: the block is damaged: its checksum does not fit its content",
        "mixed: load_memory: the block is damaged: its checksum does not fit its content",
        "mixed: load_memory: the block is truncated or damaged:",
        "mixed: load_memory: the block is not a whole file of weights: a header has 256 bytes, 255 of",
        "mixed: load_memory: the block is not a file of packed weights: no header begins at byte",
        "mixed: load_memory: the block is not a whole file of weights: a header has 256 bytes, 0 of 0 are left",
        "mixed: load_file: there is no variant `a100`; there is only h200",
        "mixed: run_layer: there is no layer 20, there are 20",
        "mixed: copy_layer_output: layer `stem` writes 672 elements, 1 were requested",
        "mixed: use: there are no weights",
        "tiny: run: the network has no weights yet",
        "tiny: the network is a null pointer",
        "tiny: run: input `input` is a null pointer",
        "a\"quoted\\name\\",
    ];
    assert_eq!(lines.len(), expected.len(), "{text}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(
            line.starts_with(expected),
            "{line}\nshould begin with\n{expected}"
        );
    }
}

/// The devices to emulate, with the variant that each must use.
const DEVICES: [(&str, &str, &str); 9] = [
    ("NVIDIA H200", "90", "h200"),
    ("NVIDIA GeForce RTX 2080 Ti", "75", "rtx2080ti"),
    // The name has precedence over the compute capability.
    ("NVIDIA GeForce RTX 2080 Ti", "90", "rtx2080ti"),
    ("NVIDIA H200 NVL", "75", "h200"),
    // Part of a word does not match, so the capability decides.
    ("NVIDIA GH200 480GB", "90", "h200"),
    ("NVIDIA H2000", "75", "rtx2080ti"),
    ("NVIDIA RTX 2080 Titan", "90", "h200"),
    ("Tesla T4", "75", "rtx2080ti"),
    // No match: the first variant.
    ("NVIDIA A100-SXM4-80GB", "80", "h200"),
];

fn variants_are_chosen_at_load(built: &Built) {
    let network = pair();
    let plans = plans(&network);
    let x = Random::new(11).values(plans[0].inputs[0].shape.len() as usize);
    let x64: Vec<_> = x.iter().map(|&value| f64::from(value)).collect();
    let x64 = [x64];
    let bytes: Vec<u8> = x.iter().flat_map(|value| value.to_le_bytes()).collect();
    let input = built.path("pair-input.bin");
    std::fs::write(&input, bytes).unwrap();

    let mut expected = Vec::new();
    let sections: Vec<Vec<u8>> = plans
        .iter()
        .map(|plan| {
            let recipes = recipes(&network, plan);
            let checkpoint = Checkpoint::random(&recipes, 5);
            let resolved = resolve(&recipes, &checkpoint).unwrap();
            let parameters =
                CheckpointParameters::new(&network, plan, &checkpoint, &resolved).unwrap();
            expected = evaluate_network(&network, &parameters, &x64).pop().unwrap();
            pack(&plan.weights, &resolved.values).unwrap().bytes
        })
        .collect();
    let [first, second] = &sections[..] else {
        panic!("two sections");
    };
    let file = |name: &str, content: &[u8]| {
        let path = built.path(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let both = file("both.bin", &[&first[..], second].concat());
    let output = built.path("pair-output.bin");
    let run = |weights: &Path, device: &str, arch: &str, args: &[&str]| {
        let mut program = built.program("pair");
        program
            .env("TDC_CPU_DEVICE", device)
            .env("TDC_CPU_ARCH", arch);
        program.arg("--weights").arg(weights);
        program.arg("--input").arg(&input);
        program.arg("--output").arg(&output);
        outcome(program.args(["--runs", "0"]).args(args))
    };
    let succeeds = |weights: &Path, device: &str, arch: &str, args: &[&str], variant: &str| {
        let (code, text) = run(weights, device, arch, args);
        assert_eq!(code, Some(0), "{device}, {args:?}: {text}");
        let head = format!("variant {variant}\n");
        assert!(text.starts_with(&head), "{device}, {args:?}: {text}");
        let deviation = Deviation::between(plans[0].outputs[0].shape, &floats(&output), &expected);
        assert!(deviation.relative < 1e-6, "{device}: {deviation}");
    };
    let fails = |weights: &Path, arch: &str, args: &[&str], message: &str| {
        let (code, text) = run(weights, "NVIDIA H200", arch, args);
        assert_eq!(code, Some(1), "{args:?}: {text}");
        assert!(text.contains(message), "{args:?}: {text}\n{message}");
    };

    let swapped = file("swapped.bin", &[&second[..], first].concat());
    for (device, arch, variant) in DEVICES {
        succeeds(&both, device, arch, &[], variant);
        // Random weights do not depend on a file.
        let mut program = built.program("pair");
        program
            .env("TDC_CPU_DEVICE", device)
            .env("TDC_CPU_ARCH", arch);
        let text = succeed(program.args(["--runs", "0"]));
        assert!(text.starts_with(&format!("variant {variant}\n")), "{text}");
    }
    succeeds(&swapped, "NVIDIA H200", "90", &[], "h200");
    for variant in ["h200", "rtx2080ti"] {
        succeeds(&both, "NVIDIA H200", "90", &["--gpu", variant], variant);
    }
    fails(
        &both,
        "90",
        &["--gpu", "h20"],
        "load_file: there is no variant `h20`; there are h200, rtx2080ti",
    );
    fails(
        &both,
        "61",
        &[],
        "load_file: device 0 has compute capability 6.1, the kernels need 7.0",
    );

    // A file with the weights of one variant.
    let one = file("one.bin", second);
    succeeds(&one, "NVIDIA H200", "90", &[], "rtx2080ti");
    succeeds(&one, "Tesla T4", "75", &[], "rtx2080ti");
    let layouts = |index: usize| format!("{:016x}", plans[index].weights.layouts_checksum());
    fails(
        &one,
        "90",
        &["--gpu", "h200"],
        &format!(
            "was packed for another network or other kernels: its layouts are {}; needed are {} (h200)",
            layouts(1),
            layouts(0)
        ),
    );
    let mut foreign = second.clone();
    foreign[16] ^= 1;
    fails(
        &file("foreign.bin", &foreign),
        "90",
        &[],
        &format!(
            "needed are {} (h200), {} (rtx2080ti)",
            layouts(0),
            layouts(1)
        ),
    );

    // Truncated files, whichever section is used.
    let whole = [&first[..], second].concat();
    for (cut, message) in [
        (1, "is truncated or damaged: "),
        (256, "is truncated or damaged: "),
        (
            second.len() - 255,
            "is not a whole file of weights: a header has 256 bytes, 255 of",
        ),
        (
            second.len() - 1,
            "is not a whole file of weights: a header has 256 bytes, 1 of",
        ),
    ] {
        let file = file("cut.bin", &whole[..whole.len() - cut]);
        fails(&file, "90", &[], message);
        fails(&file, "90", &["--gpu", "rtx2080ti"], message);
    }
    let start = first.len();
    for (at, message) in [
        (start, &*format!("no header begins at byte {start}")),
        (start + 8, "has version 0 of the format"),
        (start + 24, "is truncated or damaged"),
        (start + 31, "is truncated or damaged"),
    ] {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fails(&file("changed.bin", &changed), "90", &[], message);
    }
    // Only the checksum of the section that is used is computed.
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let damaged = file("damaged.bin", &damaged);
    succeeds(&damaged, "NVIDIA H200", "90", &[], "h200");
    fails(
        &damaged,
        "90",
        &["--gpu", "rtx2080ti"],
        "is damaged: its checksum does not fit its content",
    );

    let text = succeed(built.program("variants").arg(&both));
    assert_eq!(
        text,
        "pair: load_memory: there is no variant `h2000`; there are h200, rtx2080ti\n"
    );
}

/// The dense NCHW values of an output, from the file that a program wrote.
pub fn stored_output(output: &PlannedTensor, path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len() as u64, output.bytes(), "{}", output.name);
    let halves = |value: fn(u16) -> f32| {
        let halves = bytes.chunks_exact(2);
        let bits = halves.map(|bytes| u16::from_le_bytes(bytes.try_into().unwrap()));
        bits.map(value).collect()
    };
    let stored: Vec<f32> = match output.format.dtype {
        DType::Fp16 => halves(fp16_value),
        DType::Bf16 => halves(bf16_value),
        _ => bytes
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect(),
    };
    let shape = output.shape;
    let [images, channels, pixels] = [shape.batch, shape.c, shape.h * shape.w].map(|n| n as usize);
    let layout = output.format.layout;
    (0..images * channels * pixels)
        .map(|i| {
            let place = [i / (channels * pixels), i / pixels % channels, i % pixels];
            stored[layout.index(shape, place)]
        })
        .collect()
}

/// The bytes of an input: fp32 in NCHW, or uint8 in either layout.
pub fn stored_input(input: &PlannedTensor, x: &[f32]) -> Vec<u8> {
    match (input.format.dtype, input.format.layout) {
        (DType::Fp32, _) => return x.iter().flat_map(|value| value.to_le_bytes()).collect(),
        (_, Layout::Nchw) => return x.iter().map(|&value| value as u8).collect(),
        _ => {}
    }
    let (channels, pixels) = (input.shape.c as usize, input.shape.pixels() as usize);
    let pixel = |image: &'_ [f32], pixel: usize| -> Vec<u8> {
        let values = image.iter().skip(pixel).step_by(pixels);
        values.map(|&value| value as u8).collect()
    };
    x.chunks(channels * pixels)
        .flat_map(|image| (0..pixels).flat_map(move |at| pixel(image, at)))
        .collect()
}
