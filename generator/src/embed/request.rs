//! Resolves a request to everything that determines its kernels.

use super::Settings;
use super::expand::CallError;
use crate::config::{Config, KernelRequest, LayerSource, Overrides};
use crate::gpu::{Gpu, Targets, gpu_for_arch};
use crate::import;
use crate::ir::{LayerSpec, Layout, TilePolicy};
use crate::plan::{TuningTable, network_layers};
use crate::suggest::nearest;
use std::path::{Path, PathBuf};
use tdc_runtime::Arch;

/// A requested kernel: its layer and its targets.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestedKernel {
    /// The layer.
    pub layer: LayerSpec,
    /// The GPUs to plan for.
    pub gpus: Vec<&'static Gpu>,
    /// The architectures to compile machine code for, ascending, each with the index of the GPU whose plan it
    /// uses.
    pub images: Vec<(Arch, usize)>,
    /// The tile policy.
    pub tiles: TilePolicy,
    /// A tuning table that replaces the built-in one, as text.
    pub table: Option<String>,
    /// Absolute paths of the files that it was read from.
    pub tracked: Vec<PathBuf>,
}

impl RequestedKernel {
    /// The tuning table that replaces the built-in one.
    pub fn tuning_table(&self) -> Option<TuningTable> {
        self.table.as_deref().and_then(|text| text.parse().ok())
    }
}

/// Resolves a request to one kernel, or to one for each convolution and linear layer of a config.
///
/// # Errors
/// All errors that are found only in its files or in the combination of its targets.
pub fn requested_kernels(
    request: &KernelRequest,
    settings: &Settings,
) -> Result<Vec<RequestedKernel>, Vec<CallError>> {
    let call_error = |key: Option<&str>, message: String| {
        vec![CallError {
            at: Some(request.position(key)),
            message,
        }]
    };
    match &request.source {
        LayerSource::Inline(layer) => {
            let requested = of_layer(layer.clone(), None, None, Vec::new(), request, settings)?;
            Ok(vec![requested])
        }
        LayerSource::Config { file, layer } => {
            let path = settings.base.join(file);
            let config = import::load(&path, &Overrides::default())
                .map_err(|errors| call_error(None, errors))?;
            let (gpus, tiles) = targets(&config);
            let layers = layers(&config);
            let of_layer = |found: &LayerSpec| {
                let (gpus, tracked) = (Some(gpus.clone()), import::files(&path));
                of_layer(found.clone(), gpus, Some(tiles), tracked, request, settings)
            };
            let Some(layer) = layer else {
                return layers.iter().map(of_layer).collect();
            };
            let Some(found) = layers.iter().find(|known| known.name == *layer) else {
                let names = || layers.iter().map(|known| &known.name[..]);
                let help = match nearest(layer, names()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("it has {}", names().collect::<Vec<_>>().join(", ")),
                };
                let message =
                    format!("{file} has no convolution or linear layer named `{layer}`; {help}");
                return Err(call_error(Some("layer"), message));
            };
            Ok(vec![of_layer(found)?])
        }
    }
}

fn layers(config: &Config) -> Vec<LayerSpec> {
    match config {
        Config::Network(network) => network_layers(network),
        // Kernels in Rust programs have NCHW activations, and no CP factors.
        Config::LayerSet(set) => {
            let layers = set.layers.iter();
            layers
                .filter(|layer| layer.layout == Layout::Nchw && layer.cp_rank.is_none())
                .cloned()
                .collect()
        }
    }
}

fn targets(config: &Config) -> (Targets, TilePolicy) {
    match config {
        Config::Network(network) => (network.gpus.clone(), network.tiles),
        Config::LayerSet(set) => (Targets::one(set.gpu), set.tiles),
    }
}

fn of_layer(
    layer: LayerSpec,
    config_gpus: Option<Targets>,
    config_tiles: Option<TilePolicy>,
    mut tracked: Vec<PathBuf>,
    request: &KernelRequest,
    settings: &Settings,
) -> Result<RequestedKernel, Vec<CallError>> {
    let at = |key| Some(request.position(Some(key)));
    let mut call_errors = Vec::new();
    let own = request.gpus.as_ref().map_or(&[][..], Targets::gpus);
    if let Some(archs) = &request.archs
        && let Some(idle) = own.iter().find(|gpu| !archs.contains(&gpu.arch))
    {
        call_errors.push(CallError {
            at: at("gpu"),
            message: format!(
                "`{}` is {}, which is not in `arch`; add it there, or remove the GPU",
                idle.name, idle.arch
            ),
        });
    }
    let config_gpus = config_gpus.as_ref().map_or(&[][..], Targets::gpus);
    let named = if own.is_empty() { config_gpus } else { own };
    let (gpus, images) = resolve_targets(named, request.archs.as_deref(), &settings.archs);
    let table = request.table.as_ref().and_then(|file| {
        let path = settings.base.join(file);
        let text = read_table(&path, file, &gpus).map_err(|message| {
            let at = at("table");
            call_errors.push(CallError { at, message });
        });
        tracked.push(path);
        text.ok()
    });
    if !call_errors.is_empty() {
        return Err(call_errors);
    }
    Ok(RequestedKernel {
        layer,
        gpus,
        images,
        tiles: request.tiles.or(config_tiles).unwrap_or_default(),
        table,
        tracked,
    })
}

/// The GPUs to plan for, and the architectures with the index of the GPU whose plan each uses.
type Plans = (Vec<&'static Gpu>, Vec<(Arch, usize)>);

/// Each architecture uses the plans of the named GPUs that have it, else that of its representative GPU.
/// Without architectures those of the GPUs are used; without either, the default ones.
fn resolve_targets(gpus: &[&'static Gpu], archs: Option<&[Arch]>, default: &[Arch]) -> Plans {
    let mut own: Vec<Arch> = gpus.iter().map(|gpu| gpu.arch).collect();
    own.sort_unstable();
    own.dedup();
    let archs = archs.unwrap_or(match own.is_empty() {
        true => default,
        false => &own,
    });
    let mut plans = Plans::default();
    for &arch in archs {
        let named: Vec<_> = gpus.iter().filter(|gpu| gpu.arch == arch).collect();
        let default_gpu = named.is_empty().then(|| gpu_for_arch(arch)).flatten();
        for gpu in named.into_iter().copied().chain(default_gpu) {
            plans.1.push((arch, plans.0.len()));
            plans.0.push(gpu);
        }
    }
    plans
}

fn read_table(path: &Path, file: &str, gpus: &[&'static Gpu]) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{}: no such file; check the path", path.display()),
        _ => format!("{}: {error}", path.display()),
    })?;
    let table: TuningTable = text.parse().map_err(|error| format!("{file}: {error}"))?;
    let of = &table.environment().gpu;
    match gpus.iter().any(|gpu| gpu.name == *of) {
        true => Ok(text),
        false => Err(format!(
            "{file} has the times of `{of}`, which is not planned for; set `gpu = {of}`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "onnx")]
    #[test]
    fn an_onnx_file_is_a_config() {
        let settings = Settings {
            base: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/onnx"),
            mode: super::super::KernelMode::Stub,
            stub_on_miss: true,
            archs: vec![Arch::new(90)],
            prepared: None,
            cache: Err("none".to_owned()),
            record: None,
        };
        let kernels = |call: &str| {
            let request = crate::config::text::parse_config(call, "kernels!").unwrap();
            requested_kernels(&request, &settings).unwrap()
        };
        let names = |kernels: &[RequestedKernel]| -> Vec<String> {
            let names = kernels.iter().map(|kernel| kernel.layer.name.clone());
            names.collect()
        };
        let found = kernels("\"legacy.onnx\"");
        assert!(
            names(&found).contains(&"blocks.0.conv1".to_owned()),
            "{:?}",
            names(&found)
        );
        assert_eq!(names(&kernels("\"default.onnx\"")).len(), found.len());
    }

    fn images(gpus: &[&str], archs: &[u16]) -> (Vec<&'static str>, Vec<(u16, usize)>) {
        let gpus: Vec<_> = gpus
            .iter()
            .map(|name| crate::gpu::gpu(name).unwrap())
            .collect();
        let archs: Vec<_> = archs.iter().map(|&sm| Arch::new(sm)).collect();
        let archs = (!archs.is_empty()).then_some(&archs[..]);
        let (gpus, images) = resolve_targets(&gpus, archs, &[Arch::new(80), Arch::new(90)]);
        let names = gpus.iter().map(|gpu| gpu.name).collect();
        let images = images.iter().map(|(arch, gpu)| (arch.sm, *gpu));
        (names, images.collect())
    }

    #[test]
    fn each_architecture_has_a_plan() {
        let found = images(&[], &[]);
        assert_eq!(found, (vec!["a100", "h200"], vec![(80, 0), (90, 1)]));
        let found = images(&[], &[75, 120]);
        assert_eq!(
            found,
            (vec!["rtx2080ti", "rtx5090"], vec![(75, 0), (120, 1)])
        );
        let found = images(&["h200", "h100", "l4"], &[]);
        assert_eq!(
            found,
            (vec!["l4", "h200", "h100"], vec![(89, 0), (90, 1), (90, 2)])
        );
        let found = images(&["h100", "l4"], &[80, 90]);
        assert_eq!(found, (vec!["a100", "h100"], vec![(80, 0), (90, 1)]));
    }
}
