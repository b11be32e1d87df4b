//! From plans to text. All arithmetic is done before: the templates only place finished numbers.

mod activation;
mod architectures;
mod banner;
mod columns;
mod constants;
mod cuda_version;
mod device_header;
mod engine;
mod kernel;
mod layer_set;
mod margin;
mod network;
mod plan_json;
mod plan_table;
mod profile;
mod sequence;
mod text;
mod timeline;
mod unit;
mod wrap;

pub use device_header::{device_header, device_header_name};
pub use engine::RenderError;
pub use kernel::{kernel_text, unit_text, units_text};
pub use layer_set::{LayerSetFile, layer_set_text};
pub use network::{NetworkFile, network_text};
pub use plan_json::{layer_set_json, network_json};
pub use plan_table::{layer_set_table, layer_set_terms, network_table, network_terms};
pub use profile::Profile;
pub use sequence::{order_table, order_tree};
pub use timeline::network_timeline;
pub use unit::{unit_header, unit_source};
