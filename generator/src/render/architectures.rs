//! Architectures in the build files of a folder.

use super::kernel::device_parts;
use crate::gpu::Gpu;
use crate::plan::PlannedUnit;
use crate::scheme::DevicePart;
use std::collections::BTreeSet;

/// The architectures that a folder is built for.
pub(super) struct Architectures {
    /// Those of its GPUs, oldest first.
    archs: BTreeSet<u16>,
    /// Whether a kernel has code for `sm_90a` only, with a fallback for all others.
    uses_wgmma: bool,
}

impl Architectures {
    pub(super) fn new<'a>(gpus: &[&Gpu], units: impl IntoIterator<Item = &'a PlannedUnit>) -> Self {
        Self {
            archs: gpus.iter().map(|gpu| gpu.arch.sm).collect(),
            uses_wgmma: device_parts(units).contains(&DevicePart::Wgmma),
        }
    }

    /// Names of the architectures for machine code: `90a` runs on the same GPUs as `90`, but its PTX runs on no newer ones.
    fn machine(&self) -> Vec<String> {
        let name = |sm: &u16| match *sm == WGMMA_SM && self.uses_wgmma {
            true => format!("{sm}a"),
            false => sm.to_string(),
        };
        self.archs.iter().map(name).collect()
    }

    fn has_specific_code(&self) -> bool {
        self.uses_wgmma && self.archs.contains(&WGMMA_SM)
    }

    /// Options of nvcc: machine code for every architecture, and PTX of the oldest, which every newer device supports.
    pub(super) fn nvcc(&self) -> String {
        if let ([arch], false) = (&self.machine()[..], self.has_specific_code()) {
            return format!("-arch=sm_{arch}");
        }
        let oldest = self.archs.iter().take(1);
        let ptx = oldest.map(|arch| format!("-gencode arch=compute_{arch},code=compute_{arch}"));
        let machine = self.machine().into_iter();
        let machine = machine.map(|arch| format!("-gencode arch=compute_{arch},code=sm_{arch}"));
        ptx.chain(machine).collect::<Vec<_>>().join(" ")
    }

    /// CMake's list: machine code and PTX for each architecture.
    pub(super) fn cmake(&self) -> String {
        let machine = self.machine().into_iter();
        let archs = machine
            .zip(&self.archs)
            .map(|(name, sm)| match name == sm.to_string() {
                true => name,
                false => format!("{name}-real {sm}-virtual"),
            });
        archs.collect::<Vec<_>>().join(" ")
    }
}

/// The compute capability, times ten, with `wgmma`.
const WGMMA_SM: u16 = 90;
