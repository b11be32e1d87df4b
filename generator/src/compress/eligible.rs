//! Which layers may be decomposed, and into what.

use super::form::Form;
use crate::ir::{Conv, Layout, Network, OpId, OpKind, Reduce};
use tdc_runtime::ConvShape;

/// What may be decomposed.
#[derive(Debug, Clone, PartialEq)]
pub struct Scope {
    /// Ranks are multiples of this, or all channels.
    pub step: u32,
    /// Names of layers that stay as they are.
    pub keep: Vec<String>,
    /// If not empty: names of the only layers that may be decomposed.
    pub only: Vec<String>,
    /// The largest loss of a layer.
    pub most_loss: Option<f64>,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            step: 8,
            keep: Vec::new(),
            only: Vec::new(),
            most_loss: None,
        }
    }
}

/// Why a layer stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ineligible {
    /// Its filter is 1x1, or it is a linear layer.
    Pointwise,
    /// It has groups.
    Grouped,
    /// It has a rank already that is no Tucker rank.
    Decomposed,
    /// The config requests its scheme or layout.
    Requested,
    /// By [`Scope::keep`] or [`Scope::only`].
    Kept,
    /// Every form needs as many operations as the dense layer.
    NoSmallerForm,
}

impl Ineligible {
    /// The reason in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pointwise => "1x1 or linear",
            Self::Grouped => "has groups",
            Self::Decomposed => "has a CP rank",
            Self::Requested => "the config requests its scheme or layout",
            Self::Kept => "kept by request",
            Self::NoSmallerForm => "no ranks need fewer operations",
        }
    }
}

impl Scope {
    /// The forms of a layer, [`Form::Dense`] first; `None` if the op has no weight.
    pub(super) fn forms(
        &self,
        network: &Network,
        op: OpId,
    ) -> Option<Result<Vec<Form>, Ineligible>> {
        let named = network.op(op);
        let conv = match &named.kind {
            OpKind::Conv(conv) => conv,
            OpKind::Linear(_) => return Some(Err(Ineligible::Pointwise)),
            _ => return None,
        };
        let is_kept = self.keep.contains(&named.name)
            || !self.only.is_empty() && !self.only.contains(&named.name);
        let reason = match ineligible(conv) {
            None if is_kept => Some(Ineligible::Kept),
            reason => reason,
        };
        Some(match reason {
            Some(reason) => Err(reason),
            None => match self.smaller_forms(&conv.shape) {
                forms if forms.is_empty() => Err(Ineligible::NoSmallerForm),
                forms => Ok(std::iter::once(Form::Dense).chain(forms).collect()),
            },
        })
    }

    /// Whether a layer may have this loss.
    pub(super) fn allows(&self, loss: f64) -> bool {
        self.most_loss.is_none_or(|most| loss <= most)
    }

    /// The Tucker forms that need fewer operations than the dense layer.
    fn smaller_forms(&self, shape: &ConvShape) -> Vec<Form> {
        let ranks = |channels: u32| {
            let multiples = (1..).map(|index| index * self.step);
            multiples
                .take_while(move |&rank| rank < channels)
                .chain([channels])
        };
        let forms = ranks(shape.c)
            .flat_map(|d1| ranks(shape.n).map(move |d2| Form::Tucker([d1, d2])))
            .filter(|form| form.flops(shape) < Form::Dense.flops(shape));
        forms.collect()
    }
}

fn ineligible(conv: &Conv) -> Option<Ineligible> {
    let (shape, options) = (&conv.shape, &conv.options);
    if options.cp_rank.is_some() {
        Some(Ineligible::Decomposed)
    } else if shape.groups > 1 {
        Some(Ineligible::Grouped)
    } else if (shape.r, shape.s) == (1, 1) {
        Some(Ineligible::Pointwise)
    } else if options.scheme.is_some()
        || options.layout != Layout::Nchw
        || options.reduce != Reduce::default()
    {
        Some(Ineligible::Requested)
    } else {
        None
    }
}
