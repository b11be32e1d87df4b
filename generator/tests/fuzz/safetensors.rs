//! Mutated checkpoints: reading one gives finite values that can be packed, or an error.

use crate::fuzz;
use crate::random::Random;
use serde_json::{Map, Value, json};
use tdc_generator::config::yaml::parse;
use tdc_generator::config::{Config, Overrides};
use tdc_generator::gpu::gpu;
use tdc_generator::ir::Network;
use tdc_generator::plan::{NetworkPlan, plan_network, recipes};
use tdc_weights::{Checkpoint, SlotRecipe, pack, resolve};

/// All uses of a checkpoint: a bias, folded BatchNorms, a prologue, Tucker factors, a linear layer.
const NETWORK: &str = "\
name: tiny
input: 1x3x5x5
ops:
  - {op: conv, name: a, n: 4, bias: true, bn: a_bn, activation: relu}
  - {op: scale_shift, name: s, activation: relu}
  - {op: conv, name: t, n: 3, ranks: [2, 2], bn: t_bn}
  - {op: global_avg_pool, name: p}
  - {op: linear, name: fc, n: 2}
";

/// JSON values that are error-prone in many contexts.
const AWKWARD: [&str; 22] = [
    "0",
    "1",
    "-1",
    "3",
    "4",
    "0.5",
    "1e400",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "null",
    "true",
    "\"\"",
    "\"F32\"",
    "\"\\ud800\"",
    "[]",
    "[0]",
    "[1,1,1,1]",
    "[4611686018427387904,4]",
    "{}",
    "{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
];

const DTYPES: [&str; 9] = [
    "F16", "BF16", "F32", "F64", "I64", "BOOL", "F8_E4M3", "f32", "U8",
];

/// The components of a safetensors file.
#[derive(Clone)]
struct Parts {
    header: Map<String, Value>,
    payload: Vec<u8>,
}

impl Parts {
    fn of(file: &[u8]) -> Self {
        let (length, rest) = file.split_at(8);
        let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
        let (header, payload) = rest.split_at(length as usize);
        Self {
            header: serde_json::from_slice(header).expect("the header of a valid file"),
            payload: payload.to_vec(),
        }
    }

    fn file(header: &[u8], payload: &[u8]) -> Vec<u8> {
        let length = (header.len() as u64).to_le_bytes();
        [&length, header, payload].concat()
    }

    fn to_file(&self) -> Vec<u8> {
        let header = serde_json::to_vec(&self.header).expect("JSON");
        Self::file(&header, &self.payload)
    }

    /// The same values with a different element type.
    fn with_elements(&self, dtype: &str, bytes_each: usize, convert: fn(f32) -> Vec<u8>) -> Self {
        let values = self.payload.chunks_exact(4).map(|bytes| {
            let bytes = bytes.try_into().expect("four bytes");
            f32::from_le_bytes(bytes)
        });
        let mut header = self.header.clone();
        for info in header.values_mut() {
            info["dtype"] = dtype.into();
            for end in 0..2 {
                let offset = info["data_offsets"][end].as_u64().expect("an offset");
                info["data_offsets"][end] = (offset / 4 * bytes_each as u64).into();
            }
        }
        Self {
            header,
            payload: values.flat_map(convert).collect(),
        }
    }

    /// Appends a tensor.
    fn push(&mut self, name: &str, shape: &[u32]) {
        let elements: u32 = shape.iter().product();
        let start = self.payload.len();
        for index in 0..elements {
            self.payload
                .extend((index as f32 / 8.0 - 0.5).to_le_bytes());
        }
        let offsets = [start, self.payload.len()];
        let info = json!({ "dtype": "F32", "shape": shape, "data_offsets": offsets });
        self.header.insert(name.to_owned(), info);
    }
}

fn network() -> (Network, NetworkPlan) {
    let config = parse(NETWORK, "tiny.yaml", &Overrides::default());
    let Ok(Config::Network(network)) = config else {
        panic!("not a network: {config:?}");
    };
    let plan = plan_network(&network, gpu("h200").expect("a GPU")).expect("a plan");
    (network, plan)
}

/// Valid files: one for each element type, and one with trained factors.
fn seeds(recipes: &[SlotRecipe]) -> Vec<Parts> {
    let single = Checkpoint::random(recipes, 1).to_safetensors();
    let single = Parts::of(&single.expect("a file"));
    let mut trained = single.clone();
    trained.push("t.first.weight", &[2, 4, 1, 1]);
    trained.push("t.core.weight", &[2, 2, 3, 3]);
    trained.push("t.last.weight", &[3, 2, 1, 1]);
    vec![
        single.with_elements("F64", 8, |value| f64::from(value).to_le_bytes().to_vec()),
        single.with_elements("BF16", 2, |value| value.to_le_bytes()[2..].to_vec()),
        trained,
        single,
    ]
}

fn awkward(random: &mut Random) -> Value {
    // Invalid JSON is left to the mutations of text.
    serde_json::from_str(random.pick(&AWKWARD)).unwrap_or(Value::Null)
}

/// Makes one change in a header, which remains valid JSON.
fn mutate_header(random: &mut Random, header: &mut Map<String, Value>) {
    let names: Vec<String> = header.keys().cloned().collect();
    if names.is_empty() {
        return;
    }
    let name = &names[random.below(names.len())];
    let other = &names[random.below(names.len())];
    let Some(info) = header.get_mut(name).filter(|info| info.is_object()) else {
        return;
    };
    match random.below(9) {
        0 => info["dtype"] = random.pick(&DTYPES).into(),
        1 => {
            let at = random.below(4);
            if let Some(size) = info["shape"].get_mut(at) {
                *size = awkward(random);
            }
        }
        2 => {
            // The same number of elements with a different shape.
            if let Some(shape) = info["shape"].as_array_mut() {
                match random.below(3) {
                    0 => shape.push(1.into()),
                    1 => shape.reverse(),
                    _ => shape.retain(|size| *size != 1),
                }
            }
        }
        3 => {
            if let Some(offset) = info["data_offsets"].get_mut(random.below(2)) {
                *offset = awkward(random);
            }
        }
        4 => {
            let info = info.clone();
            let place = header.insert(other.clone(), info);
            header.insert(name.clone(), place.unwrap_or_default());
        }
        5 => {
            header.remove(name);
        }
        6 => {
            let info = header.remove(name).unwrap_or_default();
            header.insert(format!("{other}x"), info);
        }
        7 => {
            header.insert("__metadata__".to_owned(), json!({ "format": "pt" }));
        }
        _ => *info = awkward(random),
    }
}

/// Replaces a number of the payload by one that is difficult for folding and factorisation.
fn mutate_payload(random: &mut Random, payload: &mut [u8]) {
    const NUMBERS: [f32; 8] = [
        0.0,
        -1.0,
        f32::MAX,
        f32::MIN_POSITIVE / 4.0,
        f32::NAN,
        f32::NEG_INFINITY,
        1e-30,
        3e38,
    ];
    let element = random.below(payload.len() / 4);
    let Some(bytes) = payload.get_mut(4 * element..4 * element + 4) else {
        return;
    };
    match random.below(3) {
        0 => bytes[random.below(4)] ^= 1 << random.below(8),
        _ => bytes.copy_from_slice(&NUMBERS[random.below(NUMBERS.len())].to_le_bytes()),
    }
}

/// Damages bytes without regard to the format.
fn mutate_bytes(random: &mut Random, file: &mut Vec<u8>) {
    let at = random.below(file.len() + 1);
    match random.below(4) {
        0 => file.truncate(at),
        1 => {
            if let Some(byte) = file.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        2 => {
            let end = (at + random.below(20)).min(file.len());
            file.drain(at..end);
        }
        _ => {
            file.splice(at..at, random.pick(&AWKWARD).bytes());
        }
    }
}

fn make(random: &mut Random, seeds: &[Parts]) -> Vec<u8> {
    let mut parts = seeds[random.below(seeds.len())].clone();
    for _ in 0..random.below(3) {
        mutate_header(random, &mut parts.header);
    }
    for _ in 0..random.below(3) {
        mutate_payload(random, &mut parts.payload);
    }
    let mut file = parts.to_file();
    match random.below(4) {
        0 => mutate_bytes(random, &mut file),
        1 => {
            // Damages the header's text; its length stays correct.
            let mut header = serde_json::to_vec(&parts.header).expect("JSON");
            for _ in 0..=random.below(3) {
                mutate_bytes(random, &mut header);
            }
            file = Parts::file(&header, &parts.payload);
        }
        _ => {}
    }
    file
}

/// Whether a file is a checkpoint of the network; an error if reading it misbehaved.
fn read(file: &[u8], plan: &NetworkPlan, recipes: &[SlotRecipe]) -> Result<bool, String> {
    let told = |message: String| match message.is_empty() {
        true => Err("an error without a message".to_owned()),
        false => Ok(false),
    };
    let checkpoint = match Checkpoint::from_bytes(file.to_vec()) {
        Ok(checkpoint) => checkpoint,
        Err(error) => return told(error.to_string()),
    };
    let values = match resolve(recipes, &checkpoint) {
        Ok(resolved) => resolved.values,
        Err(errors) => return told(errors.to_string()),
    };
    let finite = values.iter().all(|slot| {
        let parts = [&slot.weight, &slot.bias, &slot.scale, &slot.shift];
        parts.into_iter().flatten().all(|value| value.is_finite())
    });
    if !finite {
        return Err("values that are not finite".to_owned());
    }
    match pack(&plan.weights, &values) {
        Ok(_) => Ok(true),
        Err(error) => Err(format!("what was resolved cannot be packed: {error}")),
    }
}

pub fn fuzz_checkpoints(seconds: u64) {
    let (network, plan) = network();
    let recipes = recipes(&network, &plan);
    let seeds = seeds(&recipes);
    for seed in &seeds {
        assert_eq!(read(&seed.to_file(), &plan, &recipes), Ok(true));
    }
    fuzz(
        seconds,
        "safetensors",
        |random| make(random, &seeds),
        |file| read(file, &plan, &recipes),
    );
}
