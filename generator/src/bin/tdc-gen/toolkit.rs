//! `tdc-gen toolkit`.

use crate::args::{ToolkitAction, ToolkitArgs};
use crate::failure::Failure;
use crate::output::{note, print};
use tdc_generator::compile::cache::cache_dir;
use tdc_generator::compile::install::Installer;
use tdc_generator::compile::toolkit::Toolkit;

/// Installs the requested components, then shows what was found.
pub fn run(args: &ToolkitArgs) -> Result<(), Failure> {
    if let Some(ToolkitAction::Install { components }) = &args.action {
        let installer = Installer::new(&cache_dir().map_err(Failure::machine)?);
        for &component in components {
            installer
                .install(component, note)
                .map_err(Failure::machine)?;
        }
    }
    let toolkit = Toolkit::find();
    if args.json {
        let json = serde_json::to_string_pretty(&toolkit).map_err(Failure::machine)?;
        print(format_args!("{json}\n"))
    } else {
        print(toolkit)
    }
}
