//! Prints what `kernel!` embeds, for comparison with the generator; on a GPU kernels are also checked and
//! timed.

mod calls;
mod check;
mod latency;
mod report;

use calls::*;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        None => print_all(),
        Some("check") => check::all(),
        Some("latency") => latency::measure(),
        Some(other) => Err(format!("unknown command `{other}`; use check, latency or no argument").into()),
    }
}

fn print_all() -> Result<(), Box<dyn Error>> {
    report::kernel("plain", &PLAIN);
    report::kernel("relu", &RELU);
    report::kernel("odd", &ODD);
    report::kernel("pointwise", &POINTWISE);
    report::kernel("depthwise", &DEPTHWISE);
    report::kernel("one_launch", &ONE_LAUNCH);
    report::kernel("separate", &SEPARATE);
    report::kernel("symmetric", &SYMMETRIC);
    report::kernel("low_rank", &LOW_RANK);
    report::kernel("linear_low_rank", &LINEAR_LOW_RANK);
    report::kernel("tf32", &TF32);
    report::kernel("bf16", &BF16);
    report::kernel("winograd", &WINOGRAD);
    report::kernel("square", &square());
    report::kernel("set::_1X1", &set::_1X1);
    report::kernel("set::C6_N5_H9_W8", &set::C6_N5_H9_W8);
    report::kernel("network::TUCKER", &network::TUCKER);
    report::kernel("network::BLOCK_CONV", &network::BLOCK_CONV);
    report::kernel("network::LOW", &network::LOW);
    report::kernel("network::HEAD", &network::HEAD);
    report::kernel("network::FEATURES", &network::FEATURES);
    report::kernel("of_network", &OF_NETWORK);
    Ok(())
}
