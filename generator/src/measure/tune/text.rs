//! Checksums of measured kernels: a time is valid for one source and its launches only.

use crate::gpu::Gpu;
use crate::ir::Problem;
use crate::plan::{KERNEL_PREFIX, PlanError, PlannedUnit, Planner, plan_problem, problem_of_label};
use crate::render::unit_text;
use crate::scheme::{Tile, scheme};
use std::fmt::Write;
use tdc_runtime::{Checksum, Step};

use super::{Candidate, TuneError};

/// The checksum of the kernels that this version generates for a row of a table or journal; `None` if it
/// generates none, because the problem's label is unknown, the scheme no longer exists, or the tile is no
/// longer valid for the problem.
///
/// # Errors
/// A candidate that cannot be planned or rendered: a defect of this crate.
pub fn present_text(
    problem: &str,
    scheme: &str,
    tile: &str,
    gpu: &'static Gpu,
) -> Result<Option<u64>, TuneError> {
    match problem_of_label(problem) {
        Some(known) => text_of(problem, &known, scheme, tile, gpu),
        None => Ok(None),
    }
}

/// As [`present_text`], for a given problem.
pub(super) fn text_of(
    key: &str,
    problem: &Problem,
    scheme_name: &str,
    tile: &str,
    gpu: &'static Gpu,
) -> Result<Option<u64>, TuneError> {
    let Some(scheme) = scheme(scheme_name) else {
        return Ok(None);
    };
    let Some(tile) = Tile::from_label(tile, scheme.tile_fields()) else {
        return Ok(None);
    };
    if !scheme.supports(problem, &tile, gpu) {
        return Ok(None);
    }
    let unit = planned(key, problem, &Candidate { scheme, tile }, gpu)?;
    Ok(Some(text_checksum(&unit, &unit_text(&unit)?)))
}

/// The planned unit of a candidate.
pub(super) fn planned(
    key: &str,
    problem: &Problem,
    candidate: &Candidate,
    gpu: &'static Gpu,
) -> Result<PlannedUnit, PlanError> {
    let (scheme, tile) = (candidate.scheme.name(), &candidate.tile.0);
    plan_problem(
        &mut Planner::new(gpu),
        KERNEL_PREFIX,
        key,
        problem,
        Some(scheme),
        Some(tile),
    )
}

/// The checksum of a unit's source and launches. Comments, the amount of white space and the unit's name are
/// left out, because they do not change the machine code.
pub(super) fn text_checksum(unit: &PlannedUnit, text: &str) -> u64 {
    let name = format!("{}_{}", unit.prefix, unit.unit.name);
    let mut content = tokens(&text.replace(&name, "unit"));
    for step in unit.variant().steps.iter() {
        // Writing to a string does not fail.
        let _ = match step {
            Step::Launch(launch) => write!(
                content,
                "\n{:?} {:?} {:?} {} {}",
                launch.grid, launch.block, launch.cluster, launch.shared_bytes, launch.pdl
            ),
            Step::Memset { bytes, .. } => write!(content, "\nmemset {bytes}"),
        };
    }
    Checksum::of(content.as_bytes())
}

/// C++ source without comments; white space is reduced to one character between words and to line ends around
/// directives.
fn tokens(text: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = String::with_capacity(text.len());
    let mut directive = false;
    // White space that was skipped, and whether it contained a line end.
    let (mut space, mut line_end) = (false, true);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(comment) = rest.strip_prefix("//") {
            rest = &comment[comment.find('\n').unwrap_or(comment.len())..];
            space = true;
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, behind)| behind);
            space = true;
        } else if let Some(joined) = rest.strip_prefix("\\\n") {
            (space, rest) = (true, joined);
        } else if c.is_whitespace() {
            (space, line_end) = (true, line_end || c == '\n');
            rest = &rest[c.len_utf8()..];
        } else {
            if line_end && (directive || c == '#') {
                found.push('\n');
                directive = c == '#';
            } else if space && is_word(c) && found.ends_with(is_word) {
                found.push(' ');
            }
            (space, line_end) = (false, false);
            let len = if c == '"' {
                literal_len(rest)
            } else {
                c.len_utf8()
            };
            found.push_str(&rest[..len]);
            rest = &rest[len..];
        }
    }
    found
}

/// Length in bytes of the string literal at the start of a text.
fn literal_len(text: &str) -> usize {
    let mut escaped = false;
    for (place, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return place + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;

    #[test]
    fn comments_and_white_space_do_not_count() {
        let text = "// A kernel.\n#if X > 1 // newer\n  int  a = b /* c */ + 2;\n#endif\nasm(\"a // \\\" b\"  :: \"r\"(x));\n";
        let same = "#if X > 1\nint a=b+2;\n\n#endif /* X */\nasm(\"a // \\\" b\" ::\n    \"r\"(x)); // done";
        assert_eq!(tokens(text), tokens(same));
        for other in [
            text.replace("+ 2", "+ 3"),
            text.replace("int  a", "inta"),
            text.replace("a // \\\"", "a //  \\\""),
            text.replace("#if X > 1 // newer\n", "#if X > 1 "),
            text.replace("#endif\n", "#endif "),
        ] {
            assert_ne!(tokens(text), tokens(&other), "{other}");
        }
    }

    #[test]
    fn a_checksum_is_of_text_and_launches_and_not_of_names() {
        let h200 = gpu("h200").unwrap();
        let key = "conv_c64_n32_h56_w56_k3x3_p1_bias_relu";
        let (direct, problem) = (scheme("direct").unwrap(), problem_of_label(key).unwrap());
        let tiles = direct.tiles(&problem, h200);
        let unit = |prefix: &str, tile: usize| {
            let tile = &tiles[tile].0;
            let planner = &mut Planner::new(h200);
            plan_problem(planner, prefix, key, &problem, Some("direct"), Some(tile)).unwrap()
        };
        let sum = |unit: &PlannedUnit| text_checksum(unit, &unit_text(unit).unwrap());
        let ours = unit(KERNEL_PREFIX, 0);
        assert_eq!(sum(&ours), sum(&unit("other", 0)));
        assert_ne!(sum(&ours), sum(&unit(KERNEL_PREFIX, 1)));
        let label = tiles[0].label(direct.tile_fields()).to_string();
        let present = |problem: &str, scheme: &str, tile: &str| {
            present_text(problem, scheme, tile, h200).unwrap()
        };
        assert_eq!(present(key, "direct", &label), Some(sum(&ours)));
        assert_eq!(present("conv_x", "direct", &label), None);
        assert_eq!(present(key, "fft", &label), None);
        assert_eq!(present(key, "direct", "p31rn8xn1sk1"), None);
        assert_eq!(present(key, "direct", "nonsense"), None);

        let mut wider = unit(KERNEL_PREFIX, 0);
        let variant = &mut wider.unit.variants.to_mut()[0];
        let Step::Launch(launch) = &mut variant.steps.to_mut()[0] else {
            panic!("no launch");
        };
        launch.grid[0] += 1;
        assert_ne!(sum(&ours), sum(&wider));
    }
}
