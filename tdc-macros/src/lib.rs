//! The procedural macro behind `tdc::kernel!`: tokens in, plan, text, tokens out.
//!
//! Use it through the crate `tdc`; an expansion refers to what is defined there.

mod call;
mod expansion;

use call::Call;
use tdc_generator::plan::plan_kernel;
use tdc_generator::render::unit_text;
use tdc_generator::spec::text;

/// A constant of type `tdc::Kernel`. The first token is the path of the crate `tdc`, the others are the call.
#[proc_macro]
pub fn kernel_impl(tokens: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let mut tokens = proc_macro2::TokenStream::from(tokens).into_iter();
    let Some(tdc) = tokens.next() else {
        return proc_macro::TokenStream::new();
    };
    let call = Call::new(tokens);
    match expand(&tdc, &call) {
        Ok(kernel) => kernel.into(),
        Err(mistakes) => expansion::refused(&tdc, &call, &mistakes).into(),
    }
}

fn expand(
    tdc: &proc_macro2::TokenTree,
    call: &Call,
) -> Result<proc_macro2::TokenStream, Vec<call::Mistake>> {
    let request = text::parse(call.text(), "kernel!").map_err(|errors| call.mistakes(&errors))?;
    let unit = plan_kernel(&request).map_err(|error| {
        let at = call.span(Some(request.position(error.key)));
        vec![(at, format!("{}; {}", error.message, error.help))]
    })?;
    let source = unit_text(&unit).map_err(|error| vec![(call.span(None), error.to_string())])?;
    Ok(expansion::kernel(tdc, &request, &unit, &source))
}
