//! Networks from the files of other programs.

#[cfg(feature = "onnx")]
pub mod onnx;

use crate::config::{Config, Overrides, yaml};
use std::path::Path;

/// Whether a path is that of an ONNX file, by its name.
pub fn is_onnx(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("onnx"))
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
        let imported = onnx::load(path, overrides).map_err(|errors| errors.to_string())?;
        Ok(Config::Network(imported.network))
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
