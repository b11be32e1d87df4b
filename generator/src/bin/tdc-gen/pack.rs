//! `tdc-gen pack`.

use crate::args::PackArgs;
use crate::failure::Failure;
use crate::inputs::{in_file, reject_overwriting};
use crate::output::{note, print};
use serde_json::json;
use std::path::{Path, PathBuf};
use tdc_generator::emit::write_all_atomic;
use tdc_generator::ir::Network;
use tdc_generator::plan::{WeightSection, section_recipes, weight_sections};
use tdc_runtime::Decomposition;
use tdc_runtime::WeightFile;
use tdc_weights::{Checkpoint, Resolved, SlotRecipe, pack, resolve};

/// Reads or generates weights, packs them, and reports the factorisations.
pub fn run(args: &PackArgs) -> Result<(), Failure> {
    let inputs = [args.weights.as_deref(), args.options.table.as_deref()];
    let outputs = [Some(&args.out), args.safetensors.as_ref()];
    reject_overwriting(
        inputs.into_iter().flatten().chain([args.config.as_path()]),
        outputs.into_iter().flatten().map(PathBuf::as_path),
    )?;
    let gpus = args.target.gpu.as_deref();
    let (network, plans, imported) = args.options.plan_network(&args.config, gpus)?;
    let sections = weight_sections(&plans);
    let checkpoint = match (&args.weights, args.random, imported) {
        (Some(path), ..) => Checkpoint::open(path).map_err(Failure::input)?,
        (None, Some(seed), _) => Checkpoint::random(&slots(&network, &sections), seed),
        (None, None, Some(imported)) => imported,
        (None, None, None) => {
            return Err(Failure::Input(
                "weights are missing; give a safetensors file, or --random SEED".to_owned(),
            ));
        }
    };
    let source = args.weights.as_deref();
    let (bytes, resolved) = packed(&network, &sections, &checkpoint, source)?;
    let mut files: Vec<(&Path, &[u8])> = vec![(&args.out, &bytes)];
    let unpacked;
    if let Some(path) = &args.safetensors {
        unpacked = checkpoint.to_safetensors().map_err(Failure::input)?;
        files.push((path, &unpacked));
    }
    write_all_atomic(&files).map_err(Failure::input)?;
    if args.json {
        print_json(&args.out, bytes.len(), &sections, &resolved)
    } else {
        print_text(&args.out, bytes.len(), &sections, &resolved)
    }
}

/// The slots of all sections: a tensor that several of them use is read and factorised once.
fn slots(network: &Network, sections: &[WeightSection<'_>]) -> Vec<SlotRecipe> {
    let slots = sections.iter();
    slots
        .flat_map(|section| section_recipes(network, section))
        .collect()
}

/// The content of a weight file; `source` is the file of the checkpoint, for messages.
pub fn packed(
    network: &Network,
    sections: &[WeightSection<'_>],
    checkpoint: &Checkpoint,
    source: Option<&Path>,
) -> Result<(Vec<u8>, Resolved), Failure> {
    let slots = slots(network, sections);
    let resolved = resolve(&slots, checkpoint).map_err(|error| in_file(source, &error))?;
    let mut bytes = Vec::new();
    let mut values = &resolved.values[..];
    for section in sections {
        let file = section.file();
        let (own, others) = values.split_at(file.iter().count().min(values.len()));
        bytes.extend(pack(file, own).map_err(Failure::input)?.bytes);
        values = others;
    }
    Ok((bytes, resolved))
}

/// Ratio of the largest rank-one term of a CP factorisation to the weight, above which a decimal digit of
/// fp32 is lost.
const ILL_CONDITIONED: f64 = 10.0;

fn print_text(
    output: &Path,
    bytes: usize,
    sections: &[WeightSection<'_>],
    resolved: &Resolved,
) -> Result<(), Failure> {
    for factorisation in &resolved.factorizations {
        let error = match factorisation.relative_error {
            Some(error) => format!("relative error {error:.4}"),
            None => "no dense weight to compare with (factors from the checkpoint)".to_owned(),
        };
        let form = factorisation.decomposition;
        let origin = match form {
            _ if factorisation.trained => "factors from the checkpoint",
            Decomposition::Tucker(_) => "truncated HOSVD",
            Decomposition::Cp(_) => "alternating least squares",
            Decomposition::LowRank(_) => "truncated SVD",
        };
        let layer = &factorisation.layer;
        print(format_args!("{layer:<24} {form}  {origin}, {error}\n"))?;
        if let Some(times) = factorisation
            .cancellation
            .filter(|&times| times > ILL_CONDITIONED)
        {
            note(format_args!(
                "note: the CP factorisation of `{layer}` is ill-conditioned: its rank-one terms are {times:.0} times as large as their sum, \
                 which amplifies rounding errors by that factor; choose another rank or provide trained factors"
            ));
        }
    }
    for name in &resolved.unused {
        note(format_args!(
            "note: the tensor `{}` is not used",
            name.escape_debug()
        ));
    }
    print(format_args!("{}: {bytes} bytes", output.display()))?;
    if sections.len() > 1 || sections.iter().any(|section| section.gpus().len() > 1) {
        let gpus: Vec<_> = sections
            .iter()
            .map(|section| section.gpus().join(", "))
            .collect();
        print(format_args!(", sections for {}", gpus.join("; ")))?;
    }
    print("\n")
}

fn print_json(
    output: &Path,
    bytes: usize,
    sections: &[WeightSection<'_>],
    resolved: &Resolved,
) -> Result<(), Failure> {
    let factorizations: Vec<_> = resolved
        .factorizations
        .iter()
        .map(|f| {
            let (ranks, cp_rank, rank) = match f.decomposition {
                Decomposition::Tucker(ranks) => (Some(ranks), None, None),
                Decomposition::Cp(rank) => (None, Some(rank), None),
                Decomposition::LowRank(rank) => (None, None, Some(rank)),
            };
            json!({
                "layer": f.layer,
                "ranks": ranks,
                "cp_rank": cp_rank,
                "rank": rank,
                "factors_from_checkpoint": f.trained,
                "relative_error": f.relative_error,
                "cancellation": f.cancellation,
            })
        })
        .collect();
    let sections: Vec<_> = sections
        .iter()
        .map(|section| {
            let file = section.file();
            json!({
                "gpus": section.gpus(),
                "layouts_checksum": format!("{:016x}", file.layouts_checksum()),
                "bytes": WeightFile::HEADER_BYTES + file.payload_bytes(),
            })
        })
        .collect();
    let report = json!({
        "file": output.display().to_string(),
        "bytes": bytes,
        "sections": sections,
        "factorizations": factorizations,
        "unused_tensors": resolved.unused,
    });
    print(format_args!("{report:#}\n"))
}
