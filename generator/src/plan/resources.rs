//! The committed resource table.

use super::resource_table::{ResourceTable, Resources};
use std::sync::OnceLock;
use tdc_runtime::Arch;

/// The key of a kernel in the resource table. It does not depend on the network that the kernel was generated for.
pub fn resource_key(unit: &str, role: &str) -> String {
    format!("{unit}_{role}")
}

/// Registers, shared memory and spills of a kernel, if the table has them.
pub fn known_resources(unit: &str, role: &str, arch: Arch) -> Option<Resources> {
    static TABLE: OnceLock<ResourceTable> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        tdc_generated::RESOURCES
            .parse()
            .expect("the committed table is checked by a test")
    });
    if table.is_empty() {
        return None;
    }
    table.get(&resource_key(unit, role), arch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_can_be_read() {
        tdc_generated::RESOURCES.parse::<ResourceTable>().unwrap();
        assert_eq!(
            known_resources("no such unit", "kernel", Arch::new(90)),
            None
        );
    }
}
