//! The resources of kernels in a compile log of ptxas (`--ptxas-options=-v`).

use crate::plan::Resources;

/// The resources of a kernel, as reported by ptxas.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct KernelResources {
    /// The kernel's symbol.
    pub name: String,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Local memory per thread for its stack in bytes, called functions included.
    pub stack_bytes: u32,
    /// Bytes of registers spilled to local memory.
    pub spill_stores: u32,
    /// Bytes of them that are loaded back.
    pub spill_loads: u32,
    /// Constant memory in bytes, parameters included. ptxas reports none for sm_90 and later: 0 then.
    pub constant_bytes: u32,
    /// Named barriers.
    pub barriers: u32,
}

impl From<&KernelResources> for Resources {
    fn from(kernel: &KernelResources) -> Self {
        Self {
            registers: kernel.registers,
            shared_bytes: kernel.shared_bytes,
            spill_stores: kernel.spill_stores,
            spill_loads: kernel.spill_loads,
        }
    }
}

/// The kernels of a log, in the log's order. Functions that are called and not launched have no entry of their own.
pub fn kernel_resources(log: &str) -> Vec<KernelResources> {
    let mut kernels = Vec::new();
    let mut current: Option<KernelResources> = None;
    let mut properties_of = "";
    for line in log.lines() {
        let Some(text) = ptxas_text(line) else {
            continue;
        };
        if let Some(name) = text.strip_prefix("Compiling entry function '") {
            current = name
                .split_once('\'')
                .map(|(name, _)| KernelResources::unknown(name));
        } else if let Some(name) = text.strip_prefix("Function properties for ") {
            properties_of = name;
        } else if text.contains("bytes stack frame") {
            if let Some(kernel) = current
                .as_mut()
                .filter(|kernel| kernel.name == properties_of)
            {
                for (amount, what) in amounts(text) {
                    match what {
                        "bytes stack frame" => kernel.stack_bytes = amount,
                        "bytes spill stores" => kernel.spill_stores = amount,
                        "bytes spill loads" => kernel.spill_loads = amount,
                        _ => {}
                    }
                }
            }
        } else if let Some(used) = text.strip_prefix("Used ")
            && let Some(mut kernel) = current.take()
        {
            for (amount, what) in amounts(used) {
                match what {
                    "registers" => kernel.registers = amount,
                    "barriers" => kernel.barriers = amount,
                    "bytes smem" => kernel.shared_bytes = amount,
                    "bytes cumulative stack size" => kernel.stack_bytes = amount,
                    what if what.starts_with("bytes cmem[") => kernel.constant_bytes += amount,
                    _ => {}
                }
            }
            kernels.push(kernel);
        }
    }
    kernels
}

impl KernelResources {
    fn unknown(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            registers: 0,
            shared_bytes: 0,
            stack_bytes: 0,
            spill_stores: 0,
            spill_loads: 0,
            constant_bytes: 0,
            barriers: 0,
        }
    }
}

/// The text of an information line, without `ptxas info    : ` or `ptxas         .     `.
fn ptxas_text(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("ptxas")?.trim_start();
    let rest = rest.strip_prefix("info").unwrap_or(rest).trim_start();
    Some(rest.strip_prefix([':', '.'])?.trim())
}

/// The pairs of a list such as `8 registers, used 1 barriers, 4096 bytes smem`.
fn amounts(list: &str) -> impl Iterator<Item = (u32, &str)> {
    list.split(", ").filter_map(|item| {
        let item = item.strip_prefix("used ").unwrap_or(item);
        let (amount, what) = item.split_once(' ')?;
        Some((amount.parse().ok()?, what))
    })
}

/// The first warning of a log, if any.
///
/// NVRTC has no option that turns warnings into errors (13.0 rejects every spelling of `-Werror`), so the log
/// is parsed. Ignored are quoted source lines, which are indented; information lines of ptxas, which may
/// quote a kernel named `warning`; and NVRTC 12's remark on the age of sm_70, for which that version is used.
pub(super) fn first_warning(log: &str) -> Option<&str> {
    log.lines().find(|line| {
        let from_source = line.contains("): warning") && !line.starts_with([' ', '\t']);
        let from_nvrtc = line.starts_with("nvrtc: warning")
            && !line.contains("are deprecated and may be removed in a future release");
        let from_ptxas = line.strip_prefix("ptxas").is_some_and(|rest| {
            let before_colon = rest.split(':').next().unwrap_or(rest).trim_end();
            before_colon.ends_with("warning")
        });
        from_source || from_nvrtc || from_ptxas
    })
}

/// The log without compile times, the only lines in which two compilations of the same source differ.
pub(super) fn without_times(log: &str) -> String {
    log.lines()
        .filter(|line| !line.starts_with("ptxas info    : Compile time"))
        .flat_map(|line| [line, "\n"])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NVRTC 13.0.88 on a module with a called function, a template and two plain kernels.
    const SM_90: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z2tkILi3EEvPf' for 'sm_90'
ptxas info    : Function properties for _Z2tkILi3EEvPf
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
ptxas info    : Compile time = 36.469 ms
ptxas info    : Compiling entry function 'conv_b' for 'sm_90'
ptxas info    : Function properties for conv_b
ptxas         .     128 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 20 registers, used 0 barriers, 128 bytes cumulative stack size
ptxas info    : Compile time = 5.273 ms
ptxas info    : Function properties for _Z6helperfi
ptxas         .     48 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Compiling entry function 'conv_a' for 'sm_90'
ptxas info    : Function properties for conv_a
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 4096 bytes smem
ptxas info    : Compile time = 1.710 ms
";

    /// NVRTC 12.9.86 on a kernel that spills.
    const SM_70: &str = "\
nvrtc: warning: Architectures prior to '<compute/sm>_75' are deprecated and may be removed in a future release
ptxas info    : 0 bytes gmem, 64 bytes cmem[3]
ptxas info    : Compiling entry function 'spilly' for 'sm_70'
ptxas info    : Function properties for spilly
ptxas         .     648 bytes stack frame, 892 bytes spill stores, 900 bytes spill loads
ptxas info    : Used 64 registers, used 0 barriers, 648 bytes cumulative stack size, 372 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 39.492 ms
";

    #[test]
    fn several_kernels_of_one_module_are_kept_apart() {
        let kernels = kernel_resources(SM_90);
        let names: Vec<_> = kernels.iter().map(|kernel| &kernel.name[..]).collect();
        assert_eq!(names, ["_Z2tkILi3EEvPf", "conv_b", "conv_a"]);
        assert_eq!(kernels[1].stack_bytes, 128);
        assert_eq!(kernels[1].spill_stores, 0, "the called function's own");
        assert_eq!((kernels[2].registers, kernels[2].barriers), (10, 1));
        assert_eq!(kernels[2].shared_bytes, 4096);
        assert_eq!(kernels[2].constant_bytes, 0);
    }

    #[test]
    fn spills_and_all_constant_banks_are_counted() {
        assert_eq!(
            kernel_resources(SM_70),
            [KernelResources {
                name: "spilly".to_owned(),
                registers: 64,
                shared_bytes: 0,
                stack_bytes: 648,
                spill_stores: 892,
                spill_loads: 900,
                constant_bytes: 380,
                barriers: 0,
            }]
        );
    }

    #[test]
    fn other_logs_have_no_kernels() {
        for log in [
            "",
            "ptxas",
            "ptxas info    : Used 8 registers",
            "ptxas info    : Compiling entry function 'cut",
        ] {
            assert_eq!(kernel_resources(log), [], "{log}");
        }
    }

    #[test]
    fn warnings_are_found_and_nothing_else_is() {
        for (log, expected) in [
            (SM_90, false),
            (SM_70, false),
            (
                "w.cu(1): warning #177-D: variable \"unused\" was declared but never referenced",
                true,
            ),
            ("ptxas warning : Unresolved extern", true),
            (
                "ptxas application ptx input, line 23; warning : Instruction is deprecated",
                true,
            ),
            ("nvrtc: warning: something else", true),
            (
                "ptxas info    : Compiling entry function 'warning' for 'sm_90'",
                false,
            ),
            ("  // f(x): warning in quoted source", false),
            ("Remark: The warnings can be suppressed", false),
        ] {
            assert_eq!(first_warning(log).is_some(), expected, "{log}");
        }
    }

    #[test]
    fn times_are_dropped_and_no_other_line() {
        let log = without_times(SM_90);
        assert_eq!(log.lines().count(), SM_90.lines().count() - 3);
        assert_eq!(kernel_resources(&log), kernel_resources(SM_90));
    }
}
