//! The trait of devices that run launches: the CPU emulation or a GPU.

use tdc_runtime::{Bindings, Launch, Step, Variant};
use thiserror::Error;

/// A failed allocation, copy or launch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

/// Memory, copies and launches. Addresses are device addresses.
pub trait Device {
    /// Name for reports.
    fn name(&self) -> String;
    /// Allocates `floats` floats, aligned to 256 bytes and uninitialised. Freed with the device.
    fn alloc(&mut self, floats: usize) -> Result<u64, DeviceError>;
    /// Frees all memory.
    fn free_all(&mut self);
    /// Copies floats to the device.
    fn write(&mut self, address: u64, values: &[f32]) -> Result<(), DeviceError>;
    /// Copies floats from the device, after all earlier work has ended.
    fn read(&mut self, address: u64, values: &mut [f32]) -> Result<(), DeviceError>;
    /// Sets bytes to zero.
    fn zero(&mut self, address: u64, bytes: u64) -> Result<(), DeviceError>;
    /// Launches a kernel; each argument is the 8 bytes of a pointer or a `long long`.
    fn launch(&mut self, launch: &Launch, args: &[u64]) -> Result<(), DeviceError>;
}

/// Launches all steps of a variant.
///
/// # Errors
/// The first error that the device reports.
pub fn run_variant(
    device: &mut dyn Device,
    variant: &Variant,
    bindings: &Bindings,
) -> Result<(), DeviceError> {
    for step in variant.steps.iter() {
        match step {
            Step::Launch(launch) => {
                let args: Vec<u64> = launch.args.iter().map(|&arg| bindings.get(arg)).collect();
                device.launch(launch, &args)?;
            }
            Step::Memset { target, bytes } => device.zero(bindings.get(*target), *bytes)?,
        }
    }
    Ok(())
}
