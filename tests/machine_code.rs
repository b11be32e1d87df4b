//! Compares the machine code of generated kernels with a committed baseline: changes of structure, names or comments must not affect it.
//!
//! `tests/golden/machine_code.txt` has a line for each kernel of the committed configs, planned for the H200: the hash of its code as
//! NVRTC 13.0 compiles it for sm_90, its registers and its shared memory. Configs are planned as written and dense, networks and the
//! core shapes in every precision; every eighth layer of long layer sets is included. The name of the unit identifies a kernel. It contains the
//! problem, the scheme and the tile, so plans are compared as well. The last word of a line is the hash of the unit's text: the deep test does
//! not compile a unit whose text is still the same. The quick one always compiles its sample, which has other code if the compiler's options change.
//!
//! `TDC_BLESS=1 cargo test --test machine_code -- --ignored deep::` rewrites the file. A kernel whose code changes on purpose is
//! listed in `docs/decisions.md` with its times before and after. After a change of texts alone, a new file makes the deep test fast again.

mod compiled_units;
mod toolkit;

use compiled_units::compiled;
use object::{Object, ObjectSection};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use tdc_generator::compile::nvrtc::Options;
use tdc_generator::compile::{Compiler, Image};
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::gpu::gpu;
use tdc_generator::ir::Precision;
use tdc_generator::plan::Planner;
use tdc_generator::plan::{
    KERNEL_PREFIX, PlannedUnit, plan_layer_set, plan_network, plan_problem, resource_key,
};
use tdc_generator::render::unit_text;
use tdc_runtime::Arch;
use toolkit::toolkit;

const BASELINE: &str = "tests/golden/machine_code.txt";

/// The quick test compiles one in `SAMPLE` units of two configs.
const SAMPLE: usize = 6;

/// Names of configs and the units that their plans have, in order.
type Plans = Vec<(String, Vec<PlannedUnit>)>;

/// Every config as written and dense, planned for the H200; networks and the core shapes in every precision.
fn plans() -> Plans {
    let gpu = gpu("h200").unwrap();
    let mut configs: Vec<PathBuf> = std::fs::read_dir("configs")
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    configs.sort();
    let mut plans = Plans::new();
    for path in configs {
        for dense in [false, true] {
            for (word, precision) in Precision::NAMES {
                let overrides = Overrides {
                    dense,
                    precision: (precision != Precision::Fp32).then_some(precision),
                    ..Overrides::default()
                };
                let config = yaml::load(&path, &overrides).unwrap();
                let every_precision =
                    matches!(config, Config::Network(_)) || path.ends_with("core-shapes.yaml");
                if precision != Precision::Fp32 && !every_precision {
                    continue;
                }
                let (name, units) = match config {
                    Config::Network(network) => (
                        network.name.clone(),
                        plan_network(&network, gpu).unwrap().units,
                    ),
                    Config::LayerSet(mut set) => {
                        let step = if set.layers.len() > 20 { 8 } else { 1 };
                        set.layers = set.layers.into_iter().step_by(step).collect();
                        (set.name.clone(), plan_layer_set(&set, gpu).unwrap().units)
                    }
                };
                let name = format!("{name} {word}");
                // A config without ranks has the same plan with `dense`.
                if plans.iter().all(|(known, _)| *known != name) {
                    plans.push((name, units));
                }
            }
        }
    }
    plans
}

/// The distinct units with a neutral prefix of their symbols, by name.
fn distinct(plans: &Plans) -> BTreeMap<String, PlannedUnit> {
    let mut planner = Planner::new(gpu("h200").unwrap());
    let mut units = BTreeMap::new();
    for unit in plans.iter().flat_map(|(_, units)| units) {
        units.entry(unit.unit.name.to_string()).or_insert_with(|| {
            let (scheme, tile) = (Some(unit.scheme), Some(&unit.tile.0[..]));
            plan_problem(&mut planner, KERNEL_PREFIX, "", &unit.problem, scheme, tile).unwrap()
        });
    }
    units
}

/// FNV-1a: stable over versions of Rust, unlike the hashers of the standard library.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// The hash of one kernel's instructions.
fn code_hash(image: &Image, symbol: &str) -> u64 {
    let file = object::File::parse(&image.cubin[..]).unwrap();
    let section = file.section_by_name(&format!(".text.{symbol}")).unwrap();
    let mut hash = Fnv::new();
    hash.write(section.data().unwrap());
    hash.finish()
}

/// The keys of a unit's kernels.
fn keys(unit: &PlannedUnit) -> impl Iterator<Item = String> {
    let kernels = unit.kernels.iter();
    kernels.map(|kernel| resource_key(&unit.unit.name, kernel.blueprint.role))
}

fn text_hash(unit: &PlannedUnit) -> String {
    let mut hash = Fnv::new();
    hash.write(unit_text(unit).unwrap().as_bytes());
    format!("{:016x}", hash.finish())
}

/// A line for each kernel of the units, which are compiled: key, hash of its code, registers, bytes of static and dynamic shared memory, hash
/// of the unit's text.
fn compiled_lines(compiler: &dyn Compiler, units: &[&PlannedUnit]) -> Vec<String> {
    let images = compiled(compiler, units, |_| Arch::new(90));
    let mut lines = Vec::new();
    for (unit, image) in units.iter().zip(images) {
        let text = text_hash(unit);
        for (kernel, key) in unit.kernels.iter().zip(keys(unit)) {
            let used = image.kernel(&kernel.symbol).unwrap();
            lines.push(format!(
                "{key} {:016x} {} {} {} {text}",
                code_hash(&image, &kernel.symbol),
                used.registers,
                used.shared_bytes,
                kernel.blueprint.shared_bytes,
            ));
        }
    }
    lines
}

/// The same as [`compiled_lines`], with the lines of `baseline` for units whose text it has.
fn lines(compiler: &dyn Compiler, units: &[&PlannedUnit], baseline: &[String]) -> Vec<String> {
    let mut known: HashMap<&str, (&str, &String)> = by_key(baseline).collect();
    let has_other_text = |unit: &PlannedUnit| {
        let text = text_hash(unit);
        keys(unit).any(|key| known.get(&key[..]).is_none_or(|(known, _)| *known != text))
    };
    let others = units.iter().copied().filter(|unit| has_other_text(unit));
    let others: Vec<&PlannedUnit> = others.collect();
    println!(
        "{} of {} units have another text",
        others.len(),
        units.len()
    );
    let compiled = compiled_lines(compiler, &others);
    known.extend(by_key(&compiled));
    let kernels = units.iter().flat_map(|unit| keys(unit).zip(&unit.kernels));
    kernels
        .map(|(key, kernel)| with_dynamic_shared(known[&key[..]].1, kernel.blueprint.shared_bytes))
        .collect()
}

/// The line of a kernel with its dynamic shared memory, which is a part of its launch and not of its text.
fn with_dynamic_shared(line: &str, bytes: u32) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    let bytes = bytes.to_string();
    words[4] = &bytes;
    words.join(" ")
}

/// The key and the hash of the text of a kernel's line; `None` for that of a plan.
fn key_and_text(line: &str) -> Option<(&str, &str)> {
    let (key, rest) = line.split_once(' ')?;
    let (_, text) = rest.rsplit_once(' ')?;
    (key != "plan").then_some((key, text))
}

fn compiler() -> impl Compiler {
    let compiler = toolkit().compiler(Options::default()).unwrap();
    let version = compiler.version_for(Arch::new(90)).unwrap();
    assert_eq!(
        (version.major, version.minor),
        (13, 0),
        "the baseline is by NVRTC 13.0"
    );
    compiler
}

/// The committed lines; those of plans start with `plan`.
fn baseline() -> Vec<String> {
    let text = std::fs::read_to_string(BASELINE).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// A line for each plan: the number of its units, and a hash of their names in order.
fn plan_lines(plans: &Plans) -> Vec<String> {
    let line = |(name, units): &(String, Vec<PlannedUnit>)| {
        let mut hash = Fnv::new();
        for unit in units {
            hash.write(unit.unit.name.as_bytes());
            hash.write(b"\n");
        }
        format!("plan {name} {} {:016x}", units.len(), hash.finish())
    };
    plans.iter().map(line).collect()
}

/// Text hashes and lines of kernels by key.
fn by_key(lines: &[String]) -> impl Iterator<Item = (&str, (&str, &String))> {
    lines.iter().filter_map(|line| {
        let (key, text) = key_and_text(line)?;
        Some((key, (text, line)))
    })
}

/// A line without the hash of the unit's text.
fn code(line: &str) -> &str {
    match key_and_text(line) {
        Some((_, text)) => line.trim_end_matches(text),
        None => line,
    }
}

/// Fails with the lines that the baseline lacks, whatever their texts.
fn assert_same(found: &[String], baseline: &[String]) {
    let known: HashSet<&str> = baseline.iter().map(|line| code(line)).collect();
    let differing = found.iter().filter(|line| !known.contains(code(line)));
    let differing: Vec<_> = differing.map(String::as_str).collect();
    assert!(
        differing.is_empty(),
        "{} of {} lines are not in {BASELINE}:\n{}",
        differing.len(),
        found.len(),
        differing.join("\n")
    );
}

#[test]
fn a_sample_of_kernels_is_the_same_machine_code() {
    assert!(
        Path::new("configs").is_dir(),
        "runs in the root of the tree"
    );
    let set = yaml::load(Path::new("configs/core-shapes.yaml"), &Overrides::default());
    let Config::LayerSet(set) = set.unwrap() else {
        panic!("the core shapes are a layer set");
    };
    let network = yaml::load(Path::new("configs/resnet18.yaml"), &Overrides::default());
    let Config::Network(network) = network.unwrap() else {
        panic!("ResNet-18 is a network");
    };
    let gpu = gpu("h200").unwrap();
    let plans = vec![
        (
            "core_shapes".to_owned(),
            plan_layer_set(&set, gpu).unwrap().units,
        ),
        (
            "resnet18".to_owned(),
            plan_network(&network, gpu).unwrap().units,
        ),
    ];
    let units = distinct(&plans);
    let units: Vec<_> = units.values().step_by(SAMPLE).collect();
    assert!(units.len() >= 4);
    assert_same(&compiled_lines(&compiler(), &units), &baseline());
}

mod deep {
    use super::*;

    #[test]
    #[ignore = "deep tier"]
    fn every_kernel_is_the_same_machine_code() {
        let plans = plans();
        let units = distinct(&plans);
        let units: Vec<_> = units.values().collect();
        let is_blessed = std::env::var_os("TDC_BLESS").is_some();
        // A new file is compiled as a whole.
        let baseline = if is_blessed { Vec::new() } else { baseline() };
        let mut found = plan_lines(&plans);
        found.extend(lines(&compiler(), &units, &baseline));
        if is_blessed {
            let mut text = String::from(
                "# Machine code of every kernel, sm_90, NVRTC 13.0: key, hash of its code, registers, static and dynamic shared memory in bytes, hash of the unit's text.\n\
                 # Plans: config, precision, units, hash of their names. Written by TDC_BLESS=1 cargo test --test machine_code -- --ignored deep::\n",
            );
            for line in &found {
                writeln!(text, "{line}").unwrap();
            }
            std::fs::write(BASELINE, text).unwrap();
            return;
        }
        assert_same(&found, &baseline);
        assert_same(&baseline, &found);
    }
}
