//! `tdc-gen sequence`.

use crate::args::{SequenceArgs, SequenceCost};
use crate::failure::Failure;
use crate::output::print;
use std::fs;
use tdc_generator::gpu::gpu;
use tdc_generator::render::{order_table, order_tree};
use tdc_generator::sequence::{Cost, cheapest_order, parse_network};

/// Finds the cheapest order and prints it as a table and as a tree.
pub fn run(args: &SequenceArgs) -> Result<(), Failure> {
    let (name, text) = match (&args.network, &args.file) {
        (Some(text), _) => ("network".to_owned(), text.clone()),
        (None, Some(path)) => {
            let text = fs::read_to_string(path).map_err(|error| {
                Failure::Input(format!("cannot read {}: {error}", path.display()))
            })?;
            (path.display().to_string(), text)
        }
        (None, None) => {
            return Err(Failure::Input(
                "no network was given; write one or use --file".to_owned(),
            ));
        }
    };
    let network = parse_network(&name, &text).map_err(Failure::input)?;
    let gpu = gpu(&args.gpu).map_err(Failure::input)?;
    let cost = match args.minimize {
        SequenceCost::Multiplications => Cost::Multiplications,
        SequenceCost::Bytes => Cost::Bytes,
        SequenceCost::Latency => Cost::Latency(gpu),
    };
    let order = cheapest_order(&network, cost, args.max_intermediate).map_err(Failure::input)?;
    let latency = match cost {
        Cost::Latency(gpu) => format!(", {:.3} us on {}", order.cost as f64 / 1e6, gpu.name),
        Cost::Multiplications | Cost::Bytes => String::new(),
    };
    print(format_args!(
        "{} multiply-adds, {} bytes{latency}; largest intermediate: {} elements\n\n{}\n{}",
        order.multiplications(),
        order.bytes(),
        order.largest,
        order_table(&network, &order),
        order_tree(&network, &order)
    ))
}
