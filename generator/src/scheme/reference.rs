//! The tables of schemes and their tiles in docs/reference/tiles.md, from the declarations.

use super::{SCHEMES, Source};
use crate::ir::Layout;
use std::fmt::Write;

/// Markdown: a section "Per scheme" with the facts of each scheme and the numbers of its tile.
pub fn scheme_reference() -> String {
    let mut text = String::from("## Per scheme\n");
    for scheme in SCHEMES {
        let info = scheme.info();
        let source = match info.source {
            Source::Own => String::new(),
            Source::Published(source) => format!(" From: {source}."),
        };
        let precisions: Vec<_> = info
            .precisions
            .iter()
            .map(|precision| precision.as_str())
            .collect();
        let _ = write!(
            text,
            "\n### `{}`\n\n{}: {}. Arithmetic: {}.{}{source}\n\n| name | label | meaning |\n|---|---|---|\n",
            scheme.name(),
            if info.is_default { "Default" } else { "Opt-in" },
            info.problems,
            precisions.join(", "),
            match info.layout {
                Layout::Hwcn => " Activations: HWCN.",
                Layout::Nchw | Layout::Nhwc => "",
            },
        );
        for field in scheme.tile_fields() {
            let _ = writeln!(
                text,
                "| `{}` | `{}` | {} |",
                field.name, field.label, field.meaning
            );
        }
    }
    text
}
