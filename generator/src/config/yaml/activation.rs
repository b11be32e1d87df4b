//! The key `activation`.

use super::fields::Fields;
use super::report::Report;
use crate::ir::Activation;

/// The activation that a mapping has; none if the key is missing or after an error.
pub(super) fn activation(fields: &Fields<'_>, report: &mut Report<'_>) -> Activation {
    let activation = fields.choice("activation", &Activation::NAMES, report);
    activation.unwrap_or_default()
}
