//! The compilers that the tests need.

use tdc_generator::compile::Component;
use tdc_generator::compile::cache::cache_dir;
use tdc_generator::compile::install::Installer;
use tdc_generator::compile::toolkit::Toolkit;

/// The compilers of this machine. Missing ones are installed in their pinned versions.
pub fn toolkit() -> Toolkit {
    let installer = Installer::new(&cache_dir().unwrap());
    let found = Toolkit::find();
    for (missing, component) in [
        (found.nvrtc13.is_none(), Component::Nvrtc13),
        (found.nvrtc12.is_none(), Component::Nvrtc12),
        (found.nvcc.is_none(), Component::Nvcc),
    ] {
        if missing {
            installer
                .install(component, |progress| eprintln!("{progress}"))
                .unwrap_or_else(|error| panic!("{error}"));
        }
    }
    Toolkit::find()
}
