//! Rust expressions for ops, and kernels without code.
//!
//! `__tdc` is the name of the runtime's crate in the including source.

use crate::plan::KernelOp;
use tdc_runtime::{
    Activation, ActivationParameter, Conv, ConvShape, FusedOps, LowRank, Padding, Tucker,
};

/// The type of a kernel.
pub fn kernel_type(op: &KernelOp) -> &'static str {
    match op {
        KernelOp::Conv(_) => "__tdc::Kernel<__tdc::Conv>",
        KernelOp::Tucker(_) => "__tdc::Kernel<__tdc::Tucker>",
        KernelOp::LowRank(_) => "__tdc::Kernel<__tdc::LowRank>",
    }
}

/// A kernel without code.
pub fn stub(name: &str, op: &KernelOp) -> String {
    let kind = kernel_type(op).replace("Kernel<", "Kernel::<");
    format!("{kind}::stub({name:?}, {})", self::op(op))
}

/// The expression of an op.
pub(super) fn op(op: &KernelOp) -> String {
    match op {
        KernelOp::Conv(Conv { shape, fused }) => format!(
            "__tdc::Conv {{ shape: {}, fused: {} }}",
            self::shape(shape),
            self::fused(fused)
        ),
        KernelOp::Tucker(Tucker {
            shape,
            ranks: [d1, d2],
            fused,
        }) => format!(
            "__tdc::Tucker {{ shape: {}, ranks: [{d1}, {d2}], fused: {} }}",
            self::shape(shape),
            self::fused(fused)
        ),
        KernelOp::LowRank(LowRank { shape, rank, fused }) => format!(
            "__tdc::LowRank {{ shape: {}, rank: {rank}, fused: {} }}",
            self::shape(shape),
            self::fused(fused)
        ),
    }
}

fn fused(fused: &FusedOps) -> String {
    let FusedOps {
        prologue,
        bias,
        residual,
        activation,
    } = fused;
    format!(
        "__tdc::FusedOps {{ prologue: {prologue}, bias: {bias}, residual: {residual}, activation: {} }}",
        self::activation(*activation)
    )
}

fn activation(activation: Activation) -> String {
    let number = |parameter: ActivationParameter| {
        let bits = parameter.get().to_bits();
        format!("__tdc::ActivationParameter::new(f32::from_bits({bits:#010x}))")
    };
    match activation {
        Activation::Clip { min, max } => format!(
            "__tdc::Activation::Clip {{ min: {}, max: {} }}",
            number(min),
            number(max)
        ),
        Activation::LeakyRelu { slope } => {
            format!(
                "__tdc::Activation::LeakyRelu {{ slope: {} }}",
                number(slope)
            )
        }
        other => format!("__tdc::Activation::{other:?}"),
    }
}

fn shape(shape: &ConvShape) -> String {
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
    format!(
        "__tdc::ConvShape {{ batch: {batch}, c: {c}, n: {n}, h: {h}, w: {w}, r: {r}, s: {s}, stride: {stride:?}, \
         padding: __tdc::Padding {{ top: {top}, left: {left}, bottom: {bottom}, right: {right} }}, \
         dilation: {dilation:?}, groups: {groups} }}"
    )
}
