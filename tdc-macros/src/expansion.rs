//! The tokens of an expansion.

use crate::call::{Call, SpannedError};
use crate::module::Module;
use proc_macro2::{TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use std::path::Path;
use tdc_generator::embed::{Expansion, VARIABLES, placeholder_kernel};

/// An expression of a kernel's type.
pub fn kernel(tdc: &TokenTree, expansion: &Expansion) -> TokenStream {
    let tracked = tracked(expansion);
    let kernel = expression(expansion);
    quote! {{
        use #tdc::__embedded as __tdc;
        #tracked
        #kernel
    }}
}

/// A module with a constant for each layer.
pub fn module(tdc: &TokenTree, module: &Module, kernels: &[(String, Expansion)]) -> TokenStream {
    let Module { head, name, .. } = module;
    let tracked = kernels.first().map(|(_, expansion)| tracked(expansion));
    let statics = kernels.iter().map(|(name, expansion)| {
        let name = format_ident!("{name}");
        let kernel = expression(expansion);
        let kind = parsed(expansion.kind);
        let doc = format!("The layer `{}`.", expansion.layer);
        quote! {
            #[doc = #doc]
            pub static #name: #kind = #kernel;
        }
    });
    quote! {
        #head mod #name {
            use #tdc::__embedded as __tdc;
            #tracked
            #(#statics)*
        }
    }
}

/// The errors, and a kernel without code, so that uses of the call cause no further errors.
pub fn failed(tdc: &TokenTree, call: &Call, call_errors: &[SpannedError]) -> TokenStream {
    let errors = errors(call_errors);
    let kernel = parsed(&placeholder_kernel(call.text()));
    quote! {{
        use #tdc::__embedded as __tdc;
        #errors
        #kernel
    }}
}

/// The errors only.
pub fn errors(call_errors: &[SpannedError]) -> TokenStream {
    let errors = call_errors
        .iter()
        .map(|(span, message)| quote_spanned!(*span=> ::core::compile_error!(#message);));
    errors.collect()
}

/// Items that make the compiler expand the call again if a variable or file changes.
fn tracked(expansion: &Expansion) -> TokenStream {
    let (count, names) = (VARIABLES.len(), VARIABLES);
    let files = expansion.tracked.iter().map(|file| {
        let file = text(file);
        quote!(
            const _: &[u8] = ::core::include_bytes!(#file);
        )
    });
    quote! {
        const _: [::core::option::Option<&str>; #count] = [#(::core::option_env!(#names)),*];
        #(#files)*
    }
}

fn expression(expansion: &Expansion) -> TokenStream {
    match &expansion.kernel {
        Ok(file) => {
            let file = text(file);
            quote!(::core::include!(#file))
        }
        Err(stub) => parsed(stub),
    }
}

/// Parses Rust source from the generator.
fn parsed(text: &str) -> TokenStream {
    text.parse().unwrap_or_default()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
