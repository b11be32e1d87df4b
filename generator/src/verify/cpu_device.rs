//! The CPU emulation as a device: runs the generated source, compiled by the host's C++ compiler.

use super::{Device, DeviceError};
use crate::compile::cpu::{CpuError, CpuModule, TranslationUnit};
use crate::plan::PlannedUnit;
use crate::render::{RenderError, unit_text};
use std::ffi::c_void;
use std::path::Path;
use tdc_runtime::Launch;

/// Kernels of several units, and the emulated device memory.
pub struct CpuDevice {
    module: CpuModule,
    /// Every allocation, as 256-byte blocks, so that addresses are aligned as on a GPU.
    memory: Vec<Vec<Block>>,
}

#[derive(Clone, Copy)]
#[repr(C, align(256))]
struct Block([u8; 256]);

/// Why kernels cannot be run on the CPU.
#[derive(Debug, thiserror::Error)]
pub enum CpuDeviceError {
    /// A template does not match its context.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The host's compiler is missing or reports errors.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

impl CpuDevice {
    /// Compiles the kernels of all units.
    ///
    /// # Errors
    /// [`CpuDeviceError`] with the compiler's output.
    pub fn new(units: &[PlannedUnit]) -> Result<Self, CpuDeviceError> {
        Self::new_in(&std::env::temp_dir(), units)
    }

    /// As [`new`](Self::new), with temporary files in this folder, all of which are removed.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn new_in(temporary: &Path, units: &[PlannedUnit]) -> Result<Self, CpuDeviceError> {
        let units = units
            .iter()
            .map(|unit| {
                Ok(TranslationUnit {
                    source: unit_text(unit)?,
                    kernels: unit.kernels.iter().map(|k| k.symbol.clone()).collect(),
                })
            })
            .collect::<Result<Vec<_>, RenderError>>()?;
        Ok(Self {
            module: CpuModule::build_units_in(temporary, &units)?,
            memory: Vec::new(),
        })
    }

    /// A pointer to `bytes` bytes at `address`, which must be inside one allocation.
    fn pointer(&self, address: u64, bytes: usize) -> Result<*mut u8, DeviceError> {
        let inside = self.memory.iter().any(|allocation| {
            let start = allocation.as_ptr() as u64;
            let end = start + size_of_val(&allocation[..]) as u64;
            address >= start && address + bytes as u64 <= end
        });
        if inside {
            Ok(address as *mut u8)
        } else {
            Err(DeviceError(format!(
                "{bytes} bytes at {address:#x} are not inside one allocation"
            )))
        }
    }
}

impl Device for CpuDevice {
    fn name(&self) -> String {
        "CPU emulation".to_owned()
    }

    fn alloc(&mut self, floats: usize) -> Result<u64, DeviceError> {
        let blocks = (4 * floats).div_ceil(size_of::<Block>()).max(1);
        let mut allocation = vec![Block([0; 256]); blocks];
        let address = allocation.as_mut_ptr() as u64;
        self.memory.push(allocation);
        Ok(address)
    }

    fn free_all(&mut self) {
        self.memory.clear();
    }

    fn write(&mut self, address: u64, values: &[f32]) -> Result<(), DeviceError> {
        let to = self.pointer(address, size_of_val(values))?;
        // SAFETY: `pointer` has checked that the bytes are inside one allocation, which `values` cannot
        // overlap.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().cast(), to, size_of_val(values)) };
        Ok(())
    }

    fn read(&mut self, address: u64, values: &mut [f32]) -> Result<(), DeviceError> {
        let from = self.pointer(address, size_of_val(values))?;
        // SAFETY: as in `write`; any bits are a valid float.
        unsafe {
            std::ptr::copy_nonoverlapping(from, values.as_mut_ptr().cast(), size_of_val(values));
        }
        Ok(())
    }

    fn zero(&mut self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let to = self.pointer(address, bytes as usize)?;
        // SAFETY: `pointer` has checked that the bytes are inside one allocation.
        unsafe { to.write_bytes(0, bytes as usize) };
        Ok(())
    }

    fn launch(&mut self, launch: &Launch, args: &[u64]) -> Result<(), DeviceError> {
        let mut values = args.to_vec();
        let mut pointers: Vec<*mut c_void> = values
            .iter_mut()
            .map(|value| std::ptr::from_mut(value).cast())
            .collect();
        // SAFETY: the planner passes exactly the parameters with which the kernel's source was rendered, each
        // of 8 bytes: a pointer or a `long long`. Whether the kernel stays inside its memory is what the
        // check is for.
        unsafe {
            self.module.launch(
                &launch.kernel,
                launch.grid,
                launch.block,
                launch.cluster,
                launch.shared_bytes,
                &mut pointers,
            )
        }
        .map_err(|error| DeviceError(error.to_string()))
    }
}
