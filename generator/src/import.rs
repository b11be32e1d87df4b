//! Networks from the files of other programs.

#[cfg(feature = "onnx")]
pub mod onnx;

#[cfg(feature = "onnx")]
use crate::config::ConfigErrors;
use crate::config::yaml::ModelOptions;
#[cfg(feature = "onnx")]
use crate::config::yaml::Places;
use crate::config::{Config, Overrides, yaml};
use std::path::{Path, PathBuf};

/// Whether a path is that of an ONNX file, by its name.
pub fn is_onnx(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("onnx"))
}

/// A network of an ONNX file with the options of the file beside it.
#[cfg(feature = "onnx")]
#[derive(Debug)]
pub struct ImportedModel {
    /// The network and its weights.
    pub imported: onnx::Imported,
    /// The positions in the options; `None` without such a file.
    pub places: Option<Places>,
}

/// Errors of an ONNX file, or of its options.
#[cfg(feature = "onnx")]
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// In the file itself.
    #[error(transparent)]
    Model(#[from] onnx::ImportErrors),
    /// In its options.
    #[error(transparent)]
    Options(#[from] ConfigErrors),
}

/// Reads an ONNX file with its [options](ModelOptions); the caller's overrides come before these.
///
/// # Errors
/// All errors of the options that do not depend on the network, else all errors of the file, else all errors of the options of its layers.
#[cfg(feature = "onnx")]
pub fn load_model(path: &Path, overrides: &Overrides) -> Result<ImportedModel, ModelError> {
    let Some(options) = ModelOptions::beside(path)? else {
        let imported = onnx::load(path, overrides)?;
        return Ok(ImportedModel {
            imported,
            places: None,
        });
    };
    let mut imported = onnx::load(path, &options.overrides(overrides))?;
    let (network, places) = options.apply(imported.network, overrides)?;
    imported.network = network;
    Ok(ImportedModel {
        imported,
        places: Some(places),
    })
}

/// The files that a config consists of: itself, and the options of an ONNX file.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let options = ModelOptions::path(path);
    let options = Some(options).filter(|options| is_onnx(path) && options.exists());
    std::iter::once(path.to_owned()).chain(options).collect()
}

/// Reads a config, or the network of an ONNX file without its weights.
///
/// # Errors
/// All errors of the file, as text.
pub fn load(path: &Path, overrides: &Overrides) -> Result<Config, String> {
    if !is_onnx(path) {
        return yaml::load(path, overrides).map_err(|errors| errors.to_string());
    }
    #[cfg(feature = "onnx")]
    {
        let model = load_model(path, overrides).map_err(|errors| errors.to_string())?;
        Ok(Config::Network(model.imported.network))
    }
    #[cfg(not(feature = "onnx"))]
    Err(format!(
        "{}: ONNX files are read with the feature `onnx` of `tdc`; enable it in Cargo.toml",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_by_their_names() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/onnx");
        let imported = load(&folder.join("default.onnx"), &Overrides::default());
        if cfg!(feature = "onnx") {
            assert!(
                matches!(imported, Ok(Config::Network(network)) if network.name == "net_default")
            );
        } else {
            assert!(imported.is_err_and(|error| error.contains("the feature `onnx`")));
        }
        let error = load(Path::new("none.yaml"), &Overrides::default()).unwrap_err();
        assert!(error.contains("none.yaml: no such file"), "{error}");
    }
}
