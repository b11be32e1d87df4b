//! Mutated inputs: reading any file gives a value or reports an error.
//!
//! The four fuzzers run concurrently, each for 2 seconds in the quick tier and for `TDC_FUZZ_SECONDS`
//! (default 60) in the deep one, and are deterministic for a given number of rounds. A failing input is kept
//! in a file that the message names. For ten minutes each:
//!
//! ```text
//! TDC_FUZZ_SECONDS=600 cargo test --release -p tdc-generator --test fuzz -- --ignored --nocapture deep::
//! ```

#![cfg(feature = "weights")]

mod call;
mod config;
#[cfg(feature = "onnx")]
mod memory;
#[cfg(feature = "onnx")]
mod onnx;
mod random;
mod safetensors;

use call::fuzz_calls;
use config::fuzz_configs;
use random::Random;
use safetensors::fuzz_checkpoints;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Seconds of a fuzzer in the quick tier.
const FEW_SECONDS: u64 = 2;

/// Seconds of a fuzzer in the deep tier.
fn many_seconds() -> u64 {
    match std::env::var("TDC_FUZZ_SECONDS") {
        Ok(text) => text.parse().expect("TDC_FUZZ_SECONDS is a whole number"),
        Err(_) => 60,
    }
}

/// Generates inputs until the time is over and reads each of them. `read` returns whether an input is valid,
/// or an error if reading it misbehaved; `extension` is that of the file in which a failing input is kept.
fn fuzz(
    seconds: u64,
    extension: &str,
    make: impl Fn(&mut Random) -> Vec<u8>,
    read: impl Fn(&[u8]) -> Result<bool, String>,
) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random::new(1);
    let (mut rounds, mut valid) = (0u64, 0u64);
    while Instant::now() < deadline {
        let input = make(&mut random);
        let result = catch_unwind(AssertUnwindSafe(|| read(&input)));
        match result.unwrap_or_else(|_| Err("it panicked".to_owned())) {
            Ok(is_valid) => valid += u64::from(is_valid),
            Err(problem) => {
                let path = std::env::temp_dir().join(format!("tdc-fuzz-{rounds}.{extension}"));
                std::fs::write(&path, &input).expect("the failing input kept");
                panic!("{problem}; the input is in {}", path.display());
            }
        }
        rounds += 1;
    }
    println!("{extension}: {rounds} inputs in {seconds} s, {valid} of them valid");
    // A mutator that generates only invalid input would test nothing after the parser.
    assert!(
        rounds < 1000 || valid > rounds / 100,
        "{valid} of {rounds} inputs are valid"
    );
}

#[test]
fn calls_are_read_or_their_mistakes_told() {
    fuzz_calls(FEW_SECONDS);
}

#[test]
fn no_config_is_too_strange() {
    fuzz_configs(FEW_SECONDS);
}

#[test]
fn no_checkpoint_is_too_strange() {
    fuzz_checkpoints(FEW_SECONDS);
}

#[cfg(feature = "onnx")]
#[test]
fn no_onnx_file_is_too_strange() {
    onnx::fuzz_onnx(FEW_SECONDS);
}

mod deep {
    use super::*;

    #[test]
    #[ignore = "deep tier"]
    fn calls_are_read_or_their_mistakes_told() {
        fuzz_calls(many_seconds());
    }

    #[test]
    #[ignore = "deep tier"]
    fn no_config_is_too_strange() {
        fuzz_configs(many_seconds());
    }

    #[test]
    #[ignore = "deep tier"]
    fn no_checkpoint_is_too_strange() {
        fuzz_checkpoints(many_seconds());
    }

    #[cfg(feature = "onnx")]
    #[test]
    #[ignore = "deep tier"]
    fn no_onnx_file_is_too_strange() {
        onnx::fuzz_onnx(many_seconds());
    }
}
