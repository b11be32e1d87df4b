//! Mutated calls of `kernel!`: parsing gives a request or errors with positions in the call, and a request
//! can be planned or is rejected with a message.

use crate::fuzz;
use crate::random::Random;
use std::path::Path;
use tdc_generator::embed::{KernelMode, Settings, expand, expand_config};

const CALLS: [&str; 6] = [
    "conv 64,32,56,56",
    "conv 12,18,15,13, kernel = [5, 3], stride = [2, 1], pad = [1, 0, 2, 3], dilation = [1, 2], groups = 3, batch = 3, \
     bias = true, prologue = {activation: relu}, gpu = [a100, rtx2080ti], scheme = direct, tile = [64, 2, 1, 1], arch = [sm_80, sm_75]",
    "pointwise 24,16,7,5, residual = true, precision = tf32, tiles = model",
    "depthwise 12,9,7, kernel = 5, activation = relu, tolerance = 5e-6",
    "tucker 13,11,9,7, ranks = [9, 8], stride = 2, reduce = atomic",
    "\"tests/fixtures/none.yaml\", layer = \"a.b\", table = \"none.txt\", arch = 90",
];

const PIECES: [&str; 30] = [
    "0",
    "-1",
    "1",
    "4294967295",
    "99999999999999999999",
    "1.5",
    "1e9",
    "true",
    "same",
    "[",
    "]",
    "{",
    "}",
    ":",
    ",",
    "=",
    "\"",
    "\\",
    "é",
    "\0",
    " ",
    "conv",
    "tucker",
    "ranks = [1, 1]",
    "arch = sm_120",
    "gpu = h100",
    "pad = {top: 1}",
    "groups",
    "kernel = 7",
    ", ",
];

pub fn fuzz_calls(seconds: u64) {
    let settings = Settings {
        base: Path::new(env!("CARGO_MANIFEST_DIR")).to_owned(),
        mode: KernelMode::Stub,
        stub_on_miss: false,
        archs: vec![tdc_runtime::Arch::new(80)],
        prepared: None,
        cache: Err("there is none".to_owned()),
        record: None,
    };
    let make = |random: &mut Random| {
        let mut call = random.pick(&CALLS).as_bytes().to_vec();
        for _ in 0..random.below(4) {
            let at = random.below(call.len() + 1);
            match random.below(3) {
                0 => {
                    let end = (at + random.below(6)).min(call.len());
                    call.drain(at..end);
                }
                1 => {
                    call.splice(at..at, random.pick(&PIECES).bytes());
                }
                _ => {
                    let end = (at + random.below(12)).min(call.len());
                    let piece = call[at..end].to_vec();
                    let to = random.below(call.len() + 1);
                    call.splice(to..to, piece);
                }
            }
        }
        call
    };
    fuzz(seconds, "call", make, |input| {
        let call = String::from_utf8_lossy(input);
        let _ = expand_config(&call, &settings);
        match expand(&call, &settings) {
            Ok(expansion) => match expansion.kernel {
                Err(stub) if stub.contains("::stub(") => Ok(true),
                other => Err(format!("{other:?} is no stub")),
            },
            Err(mistakes) if mistakes.is_empty() => Err("refused without a mistake".to_owned()),
            Err(mistakes) => {
                let lines = call.matches('\n').count() + 1;
                let is_there =
                    |at: tdc_generator::config::Position| at.line <= lines && at.column > 0;
                let wrong = mistakes
                    .iter()
                    .find(|mistake| mistake.message.is_empty() || !mistake.at.is_none_or(is_there));
                match wrong {
                    Some(wrong) => Err(format!("{wrong:?} is no mistake in the call")),
                    None => Ok(false),
                }
            }
        }
    });
}
