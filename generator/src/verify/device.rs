//! Something that runs launches: the CPU emulation or a GPU.

use tdc_runtime::{Bindings, Launch, Step, Variant};
use thiserror::Error;

/// A device refused an allocation, a copy or a launch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

/// Memory, copies and launches. Addresses are the device's own.
pub trait Device {
    /// Name for reports.
    fn name(&self) -> String;
    /// Allocates so many floats, aligned to 256 bytes; the content is undefined. Freed with the device.
    fn alloc(&mut self, floats: usize) -> Result<u64, DeviceError>;
    /// Gives all memory back.
    fn free_all(&mut self);
    /// Copies floats to the device.
    fn write(&mut self, address: u64, values: &[f32]) -> Result<(), DeviceError>;
    /// Copies floats from the device, after all work before has ended.
    fn read(&mut self, address: u64, values: &mut [f32]) -> Result<(), DeviceError>;
    /// Sets bytes to zero.
    fn zero(&mut self, address: u64, bytes: u64) -> Result<(), DeviceError>;
    /// Launches a kernel; each argument is the 8 bytes of a pointer or a `long long`.
    fn launch(&mut self, launch: &Launch, args: &[u64]) -> Result<(), DeviceError>;
}

/// Puts all steps of a variant on the device.
///
/// # Errors
/// The first that the device reports.
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
