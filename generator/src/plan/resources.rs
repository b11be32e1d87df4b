//! The committed resource table.

use super::name::unit_name_prefix;
use super::resource_table::{ResourceTable, Resources};
use crate::scheme::{KnownRegisters, Scheme, Tile};
use std::sync::OnceLock;
use tdc_runtime::Arch;

/// The key of a kernel in the resource table. It does not depend on the network that the kernel was generated for.
pub fn resource_key(unit: &str, role: &str) -> String {
    format!("{unit}_{role}")
}

fn committed_table() -> &'static ResourceTable {
    static TABLE: OnceLock<ResourceTable> = OnceLock::new();
    TABLE.get_or_init(|| {
        tdc_generated::RESOURCES
            .parse()
            .expect("the committed table is checked by a test")
    })
}

/// Registers, shared memory and spills of a kernel, if the table has them.
pub fn known_resources(unit: &str, role: &str, arch: Arch) -> Option<Resources> {
    committed_table().get(&resource_key(unit, role), arch)
}

/// The registers that the table has for units of a scheme and the problem with this label, whatever their tile.
pub(super) fn known_registers(label: &str, scheme: &dyn Scheme, arch: Arch) -> Vec<KnownRegisters> {
    let prefix = unit_name_prefix(label, scheme);
    let entries = committed_table().with_prefix(&prefix);
    let entries = entries.filter(|(_, entry_arch, _)| *entry_arch == arch);
    let known = entries.filter_map(|(key, _, resources)| {
        let (tile, role) = key[prefix.len()..].split_once('_')?;
        Some(KnownRegisters {
            tile: Tile::from_label(tile, scheme.tile_fields())?,
            role: role.to_owned(),
            registers: resources.registers,
        })
    });
    known.collect()
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
