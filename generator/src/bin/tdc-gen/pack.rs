//! `tdc-gen pack`.

use crate::args::PackArgs;
use crate::failure::Failure;
use serde_json::json;
use std::path::Path;
use tdc_generator::emit::write_whole;
use tdc_generator::plan::recipes;
use tdc_weights::{Checkpoint, Resolved, pack, resolve};

/// Reads or makes weights, packs them and says what was factorised.
pub fn run(args: &PackArgs) -> Result<(), Failure> {
    let (network, plan) = args.options.plan_network(&args.config, &args.target.gpu)?;
    let recipes = recipes(&network, &plan);
    let checkpoint = match (&args.weights, args.random) {
        (Some(path), _) => Checkpoint::open(path).map_err(Failure::input)?,
        (None, seed) => Checkpoint::random(&recipes, seed.unwrap_or_default()),
    };
    let resolved = resolve(&recipes, &checkpoint).map_err(Failure::input)?;
    let file = pack(&plan.weights, &resolved.values).map_err(Failure::input)?;
    write_whole(&args.output, &file.bytes).map_err(Failure::input)?;
    if let Some(path) = &args.safetensors {
        let bytes = checkpoint.to_safetensors().map_err(Failure::input)?;
        write_whole(path, &bytes).map_err(Failure::input)?;
    }
    if args.json {
        print_json(&args.output, file.bytes.len(), &resolved);
    } else {
        print(&args.output, file.bytes.len(), &resolved);
    }
    Ok(())
}

fn print(output: &Path, bytes: usize, resolved: &Resolved) {
    for factorisation in &resolved.factorisations {
        let [d1, d2] = factorisation.ranks;
        let error = match factorisation.relative_error {
            Some(error) => format!("relative error {error:.4}"),
            None => "no dense weight to compare with".to_owned(),
        };
        let origin = if factorisation.trained {
            "trained factors"
        } else {
            "truncated HOSVD"
        };
        println!(
            "{:<24} ranks [{d1}, {d2}]  {origin}, {error}",
            factorisation.layer
        );
    }
    for name in &resolved.unused {
        eprintln!("note: nothing reads the tensor `{name}`");
    }
    println!("{}: {bytes} bytes", output.display());
}

fn print_json(output: &Path, bytes: usize, resolved: &Resolved) {
    let factorisations: Vec<_> = resolved
        .factorisations
        .iter()
        .map(|f| {
            json!({
                "layer": f.layer,
                "ranks": f.ranks,
                "trained": f.trained,
                "relative_error": f.relative_error,
            })
        })
        .collect();
    let report = json!({
        "file": output,
        "bytes": bytes,
        "factorisations": factorisations,
        "unused": resolved.unused,
    });
    println!("{report:#}");
}
