//! Mutated ONNX files: reading one gives a network that can be written as a config, or errors, within bounded memory.

use crate::fuzz;
use crate::memory::peak_of;
use crate::random::Random;
use std::path::{Path, PathBuf};
use tdc_generator::config::yaml::{network_text, parse};
use tdc_generator::config::{Config, Overrides};
use tdc_generator::import::onnx;

/// A message of the format, whose fields are mutated.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    /// Anything else: bytes.
    Bytes,
}

impl Kind {
    fn of_field(self, number: u64) -> Self {
        match (self, number) {
            (Self::Model, 7) => Self::Graph,
            (Self::Graph, 1) => Self::Node,
            (Self::Graph, 5) | (Self::Attribute, 5) => Self::Tensor,
            (Self::Node, 5) => Self::Attribute,
            _ => Self::Bytes,
        }
    }
}

/// The value of a field.
#[derive(Clone)]
enum Value {
    Number(u64),
    /// Four or eight bytes.
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
    Message(Message),
}

/// A message as a list of fields.
#[derive(Clone)]
struct Message {
    kind: Kind,
    fields: Vec<(u64, Value)>,
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn write_number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

impl Message {
    /// `None` if the bytes are malformed, or have what no exporter writes.
    fn read(kind: Kind, mut bytes: &[u8]) -> Option<Self> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = read_number(&mut bytes)?;
            let (number, wire) = (tag >> 3, tag & 7);
            let value = match wire {
                0 => Value::Number(read_number(&mut bytes)?),
                1 | 5 => {
                    let size = if wire == 1 { 8 } else { 4 };
                    Value::Fixed(bytes.split_off(..size)?.to_vec())
                }
                2 => {
                    let length = usize::try_from(read_number(&mut bytes)?).ok()?;
                    let content = bytes.split_off(..length)?;
                    match kind.of_field(number) {
                        Kind::Bytes => Value::Bytes(content.to_vec()),
                        inner => Value::Message(Self::read(inner, content)?),
                    }
                }
                _ => return None,
            };
            fields.push((number, value));
        }
        Some(Self { kind, fields })
    }

    fn write(&self, out: &mut Vec<u8>) {
        for (number, value) in &self.fields {
            let wire = match value {
                Value::Number(_) => 0,
                Value::Fixed(bytes) if bytes.len() == 8 => 1,
                Value::Fixed(_) => 5,
                Value::Bytes(_) | Value::Message(_) => 2,
            };
            write_number(number << 3 | wire, out);
            match value {
                Value::Number(value) => write_number(*value, out),
                Value::Fixed(bytes) => out.extend(bytes),
                Value::Bytes(bytes) => {
                    write_number(bytes.len() as u64, out);
                    out.extend(bytes);
                }
                Value::Message(message) => {
                    let mut content = Vec::new();
                    message.write(&mut content);
                    write_number(content.len() as u64, out);
                    out.extend(content);
                }
            }
        }
    }

    /// A random message inside this one, mostly a deep one.
    fn pick(&mut self, random: &mut Random) -> &mut Self {
        let inner: Vec<usize> = self
            .fields
            .iter()
            .enumerate()
            .filter_map(|(index, (_, value))| matches!(value, Value::Message(_)).then_some(index))
            .collect();
        if inner.is_empty() || random.below(8) == 0 {
            return self;
        }
        let index = inner[random.below(inner.len())];
        match &mut self.fields[index].1 {
            Value::Message(message) => message.pick(random),
            _ => unreachable!("a message"),
        }
    }

    /// The bytes of all tensors by their sizes, with eight bytes for an element, and of those that a list of sizes would fill with one
    /// number (`ConstantOfShape`).
    fn declared_bytes(&self) -> u64 {
        let own = match self.kind {
            Kind::Tensor => {
                let mut dims = Vec::new();
                for (_, value) in self.fields.iter().filter(|(number, _)| *number == 1) {
                    match value {
                        Value::Number(dim) => dims.push(*dim),
                        Value::Bytes(packed) => {
                            let mut packed = &packed[..];
                            dims.extend(std::iter::from_fn(|| read_number(&mut packed)));
                        }
                        _ => {}
                    }
                }
                let elements = dims.into_iter().fold(1u64, u64::saturating_mul);
                let list = self.fields.iter().find_map(|(number, value)| match value {
                    Value::Bytes(raw) if *number == 9 => Some(raw.as_chunks::<8>().0),
                    _ => None,
                });
                let sizes = list.unwrap_or_default().iter();
                let filled = sizes.fold(1u64, |all, &size| {
                    all.saturating_mul(u64::from_le_bytes(size))
                });
                // Larger ones are refused.
                let bytes = |elements: u64| if elements > 1 << 30 { 0 } else { 8 * elements };
                bytes(elements) + bytes(filled)
            }
            _ => 0,
        };
        let inner = self.fields.iter().map(|(_, value)| match value {
            Value::Message(message) => message.declared_bytes(),
            _ => 0,
        });
        own + inner.sum::<u64>()
    }
}

/// Numbers that are error-prone as sizes, axes, counts and types.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    3,
    5,
    7,
    16,
    255,
    1 << 20,
    u32::MAX as u64,
    1 << 40,
    i64::MAX as u64,
    i64::MIN as u64,
    u64::MAX,
];

/// Operations and names.
const WORDS: [&str; 24] = [
    "",
    "Add",
    "Mul",
    "Max",
    "Conv",
    "Relu",
    "Clip",
    "Reshape",
    "Concat",
    "Flatten",
    "Shape",
    "Gather",
    "Cast",
    "Slice",
    "Transpose",
    "ConstantOfShape",
    "BatchNormalization",
    "Gemm",
    "MatMul",
    "Pad",
    "Identity",
    "axis",
    "../x",
    "é",
];

/// Makes one change in a message.
fn mutate(message: &mut Message, words: &[Vec<u8>], random: &mut Random) {
    if message.fields.is_empty() {
        return;
    }
    let (at, other) = (
        random.below(message.fields.len()),
        random.below(message.fields.len()),
    );
    match random.below(8) {
        0 => drop(message.fields.remove(at)),
        1 => {
            let copy = message.fields[at].clone();
            message.fields.insert(other, copy);
        }
        2 => message.fields.swap(at, other),
        3 => message.fields[at].0 = random.below(32) as u64,
        _ => match &mut message.fields[at].1 {
            Value::Number(number) => *number = NUMBERS[random.below(NUMBERS.len())],
            Value::Fixed(bytes) => {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            Value::Bytes(bytes) => match random.below(4) {
                0 => *bytes = random.pick(&WORDS).as_bytes().to_vec(),
                1 => *bytes = words[random.below(words.len())].clone(),
                2 => bytes.truncate(random.below(bytes.len() + 1)),
                _ => {
                    let at = random.below(bytes.len());
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << random.below(8);
                    }
                }
            },
            Value::Message(inner) => mutate(inner, words, random),
        },
    }
}

/// The names and operations of a model's nodes.
fn words(message: &Message) -> Vec<Vec<u8>> {
    let own = message.fields.iter().flat_map(|(_, value)| match value {
        Value::Bytes(bytes) if message.kind == Kind::Node => vec![bytes.clone()],
        Value::Message(inner) => words(inner),
        _ => Vec::new(),
    });
    own.collect()
}

fn make(seeds: &[(Message, Vec<Vec<u8>>)], random: &mut Random) -> Vec<u8> {
    let (seed, words) = &seeds[random.below(seeds.len())];
    let mut model = seed.clone();
    for _ in 0..=random.below(4) {
        mutate(model.pick(random), words, random);
    }
    let mut file = Vec::new();
    model.write(&mut file);
    if random.below(8) == 0 {
        // Damage without regard to the format.
        let at = random.below(file.len());
        match random.below(3) {
            0 => file.truncate(at),
            1 => drop(file.splice(at..at, [random.below(256) as u8])),
            _ => {
                if let Some(byte) = file.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
    file
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/onnx")
}

/// Whether a file is imported; an error if reading it misbehaved.
fn read(file: &[u8]) -> Result<bool, String> {
    let bytes = file.to_vec().into();
    let (imported, peak) =
        peak_of(|| onnx::parse(bytes, "m.onnx", "m", Some(&folder()), &Overrides::default()));
    if let Some(model) = Message::read(Kind::Model, file) {
        let limit = (64 << 20) + 10 * (file.len() as u64 + model.declared_bytes());
        if peak as u64 > limit {
            return Err(format!(
                "{peak} bytes of memory were used, {limit} are allowed"
            ));
        }
    }
    match imported {
        Err(errors) if errors.to_string().is_empty() => {
            Err("an error without a message".to_owned())
        }
        Err(_) => Ok(false),
        Ok(imported) => {
            let text = network_text(&imported.network);
            match parse(&text, "m.yaml", &Overrides::default()) {
                Ok(Config::Network(network)) if network == imported.network => Ok(true),
                other => Err(format!("the config is another network: {other:?}")),
            }
        }
    }
}

pub fn fuzz_onnx(seconds: u64) {
    let seed = |name: &str| {
        let file = std::fs::read(folder().join(name)).expect("a fixture");
        assert_eq!(read(&file), Ok(true), "{name}");
        let model = Message::read(Kind::Model, &file).expect("a model");
        let words = words(&model);
        (model, words)
    };
    let seeds = [seed("default.onnx"), seed("legacy.onnx")];
    fuzz(seconds, "onnx", |random| make(&seeds, random), read);
}
