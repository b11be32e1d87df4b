//! Plain data as the constant expressions that make it.

use crate::call::{Call, Mistake};
use proc_macro2::{TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use tdc_generator::plan::PlannedUnit;
use tdc_generator::spec::KernelRequest;
use tdc_runtime::{
    Arch, Arg, ConvShape, Filter, Launch, LayoutDim, Padding, Step, Transform, Unit, Variant,
    WeightLayout,
};

/// An expression of type `Kernel`.
pub fn kernel(
    tdc: &TokenTree,
    request: &KernelRequest,
    planned: &PlannedUnit,
    source: &str,
) -> TokenStream {
    let unit = unit(tdc, &planned.unit);
    let shape = shape(tdc, &request.layer.problem.shape);
    let (scheme, estimate_us) = (planned.scheme, planned.estimate_us);
    quote! {
        #tdc::Kernel {
            unit: #unit,
            shape: #shape,
            scheme: #scheme,
            source: #source,
            estimate_us: #estimate_us,
        }
    }
}

/// The errors, and a kernel of nothing so that what uses the call gives no errors of its own.
pub fn refused(tdc: &TokenTree, call: &Call, mistakes: &[Mistake]) -> TokenStream {
    let errors = mistakes
        .iter()
        .map(|(span, message)| quote_spanned!(*span=> ::core::compile_error!(#message);));
    let unit = unit(
        tdc,
        &Unit {
            name: "".into(),
            variants: Vec::new().into(),
        },
    );
    let shape = shape(tdc, &ConvShape::new(1, 1, 1, 1, 1, 1));
    let source = call.text();
    quote! {{
        #(#errors)*
        #tdc::Kernel { unit: #unit, shape: #shape, scheme: "", source: #source, estimate_us: 0.0 }
    }}
}

/// A borrowed slice. The constant in the block lets it live for ever wherever the expression stands.
fn slice<T>(
    tdc: &TokenTree,
    element: &str,
    items: &[T],
    tokens: impl Fn(&TokenTree, &T) -> TokenStream,
) -> TokenStream {
    let element = format_ident!("{element}");
    let items = items.iter().map(|item| tokens(tdc, item));
    quote! {
        ::std::borrow::Cow::Borrowed({
            const ITEMS: &[#tdc::#element] = &[#(#items),*];
            ITEMS
        })
    }
}

fn text(text: &str) -> TokenStream {
    quote!(::std::borrow::Cow::Borrowed(#text))
}

fn unit(tdc: &TokenTree, unit: &Unit) -> TokenStream {
    let Unit { name, variants } = unit;
    let name = text(name);
    let variants = slice(tdc, "Variant", variants, variant);
    quote!(#tdc::Unit { name: #name, variants: #variants })
}

fn variant(tdc: &TokenTree, variant: &Variant) -> TokenStream {
    let Variant {
        gpu,
        min_arch: Arch { sm },
        steps,
        workspace_bytes,
        weights,
        more_weights,
        bias_len,
    } = variant;
    let gpu = text(gpu);
    let steps = slice(tdc, "Step", steps, step);
    let weights = layout(tdc, weights);
    let more_weights = slice(tdc, "WeightLayout", more_weights, layout);
    quote! {
        #tdc::Variant {
            gpu: #gpu,
            min_arch: #tdc::Arch { sm: #sm },
            steps: #steps,
            workspace_bytes: #workspace_bytes,
            weights: #weights,
            more_weights: #more_weights,
            bias_len: #bias_len,
        }
    }
}

fn step(tdc: &TokenTree, step: &Step) -> TokenStream {
    match step {
        Step::Launch(Launch {
            kernel,
            grid,
            block,
            cluster,
            shared_bytes,
            overlaps,
            args,
        }) => {
            let kernel = text(kernel);
            let args = slice(tdc, "Arg", args, arg);
            quote! {
                #tdc::Step::Launch(#tdc::Launch {
                    kernel: #kernel,
                    grid: [#(#grid),*],
                    block: [#(#block),*],
                    cluster: [#(#cluster),*],
                    shared_bytes: #shared_bytes,
                    overlaps: #overlaps,
                    args: #args,
                })
            }
        }
        Step::Memset { target, bytes } => {
            let target = arg(tdc, target);
            quote!(#tdc::Step::Memset { target: #target, bytes: #bytes })
        }
    }
}

fn arg(tdc: &TokenTree, arg: &Arg) -> TokenStream {
    if let Arg::Workspace { offset } = arg {
        return quote!(#tdc::Arg::Workspace { offset: #offset });
    }
    // The others are words without values.
    let word = format_ident!("{arg:?}");
    quote!(#tdc::Arg::#word)
}

fn layout(tdc: &TokenTree, layout: &WeightLayout) -> TokenStream {
    let WeightLayout {
        source,
        dims,
        filter,
        transform,
        prologue_channels,
    } = layout;
    let filter = match filter {
        Filter::Taps => quote!(Taps),
        Filter::Winograd(winograd) => {
            let winograd = format_ident!("{winograd:?}");
            quote!(Winograd(#tdc::Winograd::#winograd))
        }
    };
    let transform = match transform {
        Transform::None => quote!(None),
        Transform::Halves { run, parts } => quote!(Halves { run: #run, parts: #parts }),
        Transform::Bf16 => quote!(Bf16),
    };
    let dims = slice(tdc, "LayoutDim", dims, |tdc, dim| {
        let LayoutDim { axis, count, step } = dim;
        let axis = format_ident!("{axis:?}");
        quote!(#tdc::LayoutDim { axis: #tdc::Axis::#axis, count: #count, step: #step })
    });
    quote! {
        #tdc::WeightLayout {
            source: [#(#source),*],
            dims: #dims,
            filter: #tdc::Filter::#filter,
            transform: #tdc::Transform::#transform,
            prologue_channels: #prologue_channels,
        }
    }
}

fn shape(tdc: &TokenTree, shape: &ConvShape) -> TokenStream {
    let ConvShape {
        batch,
        c,
        n,
        h,
        w,
        r,
        s,
        stride,
        padding:
            Padding {
                top,
                left,
                bottom,
                right,
            },
        dilation,
        groups,
    } = shape;
    quote! {
        #tdc::ConvShape {
            batch: #batch,
            c: #c,
            n: #n,
            h: #h,
            w: #w,
            r: #r,
            s: #s,
            stride: [#(#stride),*],
            padding: #tdc::Padding { top: #top, left: #left, bottom: #bottom, right: #right },
            dilation: [#(#dilation),*],
            groups: #groups,
        }
    }
}
