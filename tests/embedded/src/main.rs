//! What `kernel!` embeds, told in text that can be compared with what the generator says; on a GPU also checked and timed.

mod calls;
mod check;
mod latency;
mod tell;

use calls::*;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        None => tell(),
        Some("check") => check::all(),
        Some("latency") => latency::measure(),
        Some(other) => Err(format!("`{other}` is unknown; write nothing, check or latency").into()),
    }
}

fn tell() -> Result<(), Box<dyn Error>> {
    tell::kernel("plain", &PLAIN);
    tell::kernel("relu", &RELU);
    tell::kernel("odd", &ODD);
    tell::kernel("pointwise", &POINTWISE);
    tell::kernel("depthwise", &DEPTHWISE);
    tell::kernel("one_launch", &ONE_LAUNCH);
    tell::kernel("separate", &SEPARATE);
    tell::kernel("symmetric", &SYMMETRIC);
    tell::kernel("tf32", &TF32);
    tell::kernel("bf16", &BF16);
    tell::kernel("winograd", &WINOGRAD);
    tell::kernel("square", &square());
    tell::kernel("set::_1X1", &set::_1X1);
    tell::kernel("set::C6_N5_H9_W8", &set::C6_N5_H9_W8);
    tell::kernel("network::TUCKER", &network::TUCKER);
    tell::kernel("network::BLOCK_CONV", &network::BLOCK_CONV);
    tell::kernel("of_network", &OF_NETWORK);
    Ok(())
}
