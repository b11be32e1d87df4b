//! Registers of the kernels that are chosen by default: none spills, and the planner knows how many there are.
//!
//! The tests of `vendor_compiler.rs` compile the same kernels at low effort. In one process with these, NVRTC gives some kernels other
//! registers, so these have a process of their own.

mod committed_units;
mod compiled_units;
mod toolkit;

use committed_units::{sample, units};
use compiled_units::compiled;
use tdc_generator::compile::nvrtc::Options;
use tdc_generator::plan::{PlannedUnit, known_resources};
use tdc_runtime::Arch;
use toolkit::toolkit;

/// The layer sets that are neither networks nor measured.
const UNTUNED_CONFIGS: [&str; 4] = [
    "held_out_",
    "beyond_paper_",
    "stride_fixed_",
    "tvm_problem_",
];

/// Kernels chosen by default must not spill on the GPU that they are planned for. The plan's registers, from
/// the resource table or estimated, must be at most an eighth below the compiler's, because otherwise the
/// planner overestimates the occupancy.
fn assert_nothing_spills(units: &[PlannedUnit]) {
    let compiler = toolkit().compiler(Options::default()).unwrap();
    // For lists of layers that were not tuned the choices are those of the cost model.
    let is_tuned = |unit: &&PlannedUnit| {
        !UNTUNED_CONFIGS
            .iter()
            .any(|name| unit.kernels[0].symbol.starts_with(name))
    };
    let units: Vec<_> = units.iter().filter(is_tuned).collect();
    let images = compiled(&compiler, &units, |_| Arch::new(90));
    let mut failures = Vec::new();
    for (unit, image) in units.into_iter().zip(images) {
        for kernel in &unit.kernels {
            let symbol = &kernel.symbol;
            let used = image.kernel(symbol).unwrap();
            if used.stack_bytes + used.spill_stores + used.spill_loads > 0 {
                failures.push(format!(
                    "{symbol}: {} bytes of local memory",
                    used.stack_bytes
                ));
            }
            let (guessed, role) = (kernel.blueprint.work.registers, kernel.blueprint.role);
            let known = known_resources(&unit.unit.name, role, Arch::new(90));
            let planned = known.map_or(guessed, |known| known.registers);
            if used.registers * 7 > planned * 8 {
                failures.push(format!(
                    "{symbol}: {} registers, not {planned}; `tdc-gen compile CONFIG --resources generated/resources.txt` notes them",
                    used.registers
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn kernels_of_most_schemes_do_not_spill() {
    assert_nothing_spills(&sample());
}

mod deep {
    use super::*;

    #[test]
    #[ignore = "deep tier"]
    fn no_kernel_chosen_by_default_spills() {
        assert_nothing_spills(&units());
    }
}
