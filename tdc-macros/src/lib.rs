//! The procedural macros of `tdc::kernel!` and `tdc::kernels!`: shells around `tdc_generator::embed`.
//!
//! Use them through the crate `tdc`; an expansion refers to items defined there.

mod call;
mod expansion;
mod module;

use call::{Call, SpannedError};
use module::Module;
use proc_macro2::{TokenStream, TokenTree};
use std::path::PathBuf;
use tdc_generator::embed::{Expansion, Settings, expand, expand_config};

/// A constant of type `tdc::Kernel`. The first token is the path of the crate `tdc`, the others are the call.
#[proc_macro]
pub fn kernel_impl(tokens: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let mut tokens = TokenStream::from(tokens).into_iter();
    let Some(tdc) = tokens.next() else {
        return proc_macro::TokenStream::new();
    };
    let call = Call::new(tokens);
    match kernel(&call) {
        Ok(expansion) => expansion::kernel(&tdc, &expansion).into(),
        Err(call_errors) => expansion::failed(&tdc, &call, &call_errors).into(),
    }
}

/// Modules of constants. The first token is the path of the crate `tdc`.
#[proc_macro]
pub fn kernels_impl(tokens: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let mut tokens = TokenStream::from(tokens).into_iter();
    let Some(tdc) = tokens.next() else {
        return proc_macro::TokenStream::new();
    };
    let modules = Module::all(tokens).into_iter();
    let modules = modules.map(
        |module| match module.and_then(|module| kernels(&tdc, &module)) {
            Ok(tokens) => tokens,
            Err(call_errors) => expansion::errors(&call_errors),
        },
    );
    modules.collect::<TokenStream>().into()
}

fn kernel(call: &Call) -> Result<Expansion, Vec<SpannedError>> {
    expand(call.text(), &settings(call)?).map_err(|call_errors| call.spanned(call_errors))
}

fn kernels(tdc: &TokenTree, module: &Module) -> Result<TokenStream, Vec<SpannedError>> {
    let call = &module.call;
    let kernels = expand_config(call.text(), &settings(call)?);
    let kernels = kernels.map_err(|call_errors| call.spanned(call_errors))?;
    Ok(expansion::module(tdc, module, &kernels))
}

fn settings(call: &Call) -> Result<Settings, Vec<SpannedError>> {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| ".".into(), PathBuf::from);
    Settings::from_env(&folder).map_err(|message| vec![(call.span(None), message)])
}
