//! Units by name. Units of the same name have the same problem, scheme and tile, so one of them is enough.

use super::unit::PlannedUnit;
use std::collections::HashMap;

/// Distinct units, in the order in which they were added.
#[derive(Default)]
pub(super) struct DistinctUnits {
    units: Vec<PlannedUnit>,
    index_of_name: HashMap<String, usize>,
}

impl DistinctUnits {
    /// Adds a unit if there is none of its name. Returns the index of the unit of that name, and whether it was added.
    pub(super) fn add(&mut self, unit: PlannedUnit) -> (usize, bool) {
        let end = self.units.len();
        let name = unit.unit.name.to_string();
        let index = *self.index_of_name.entry(name).or_insert(end);
        let is_new = index == end;
        if is_new {
            self.units.push(unit);
        }
        (index, is_new)
    }

    /// Adds the variants of `unit` to those of the unit at `index`.
    pub(super) fn add_variants(&mut self, index: usize, unit: &PlannedUnit) {
        let variants = self.units[index].unit.variants.to_mut();
        variants.extend(unit.unit.variants.iter().cloned());
    }

    /// The units.
    pub(super) fn into_vec(self) -> Vec<PlannedUnit> {
        self.units
    }
}
