//! The table of schemes and their tiles for the reference, from the declarations.

use super::{SCHEMES, Source};
use crate::ir::Layout;
use std::fmt::Write;

/// Markdown: a section for each scheme with its facts and the numbers of its tile.
pub fn scheme_reference() -> String {
    let mut text = String::from(
        "# Schemes and their tiles\n\n\
         Generated from the declarations in `generator/src/scheme`. In a config, `tile` gives the numbers of a scheme's tile by name, \
         `tile: {th: 4, tw: 16, ...}`, or as a list in this order. A label is the name's short form in file names, kernel symbols and \
         measured tables. A name means the same in every scheme.\n",
    );
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
            "\n## {}\n\n{}: {}. Arithmetic: {}.{}{source}\n\n| name | label | meaning |\n|---|---|---|\n",
            scheme.name(),
            if info.is_default { "Default" } else { "Opt-in" },
            info.problems,
            precisions.join(", "),
            match info.layout {
                Layout::Hwcn => " Activations: HWCN.",
                Layout::Nchw => "",
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
