//! Other ways to choose ranks, to compare with: the published one, and the same fraction of all channels.

mod tdc;
mod uniform;

use super::{Choice, CompressError, Compression, Form, LOSS_UNIT, Limit, units, with_forms};
use crate::ir::OpId;
use crate::plan::PlanError;

/// How ranks are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// The best forms of all, by an exact search.
    #[default]
    Optimal,
    /// As in section 6 of the TDC paper: a reduction of the operations of each layer, then the fastest core.
    Tdc,
    /// The same fraction of the channels in all layers.
    Uniform,
}

impl Method {
    /// Every method with its name.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("optimal", Self::Optimal),
        ("tdc", Self::Tdc),
        ("uniform", Self::Uniform),
    ];
}

/// The forms of layers.
type Forms = Vec<(OpId, Form)>;

impl Compression<'_> {
    /// The choice of a method other than the search at a reduction of the operations, or of the channels, from 0 to 1.
    ///
    /// # Errors
    /// One for each layer that cannot be planned.
    pub fn at_reduction(
        &mut self,
        method: Method,
        reduction: f64,
        theta: f64,
    ) -> Result<Choice, Vec<PlanError>> {
        let forms = match method {
            Method::Tdc => self.tdc_forms(reduction, theta),
            Method::Uniform | Method::Optimal => self.uniform_forms(reduction),
        };
        self.evaluated(&with_forms(&self.first().network, forms))
    }

    /// The choice of a method within the limits. Of methods other than the search, all reductions in whole per cents are tried: with a limit
    /// of the loss the fastest is chosen, else the one with the least loss.
    ///
    /// # Errors
    /// [`CompressError`] if it keeps them with no reduction.
    pub fn by_method(
        &mut self,
        method: Method,
        theta: f64,
        limits: &[Limit],
    ) -> Result<Choice, CompressError> {
        if method == Method::Optimal {
            return self.with_fastest_plan(limits);
        }
        let mut choices = Vec::new();
        for percent in 0..100 {
            let reduction = f64::from(percent) / 100.0;
            let choice = self.at_reduction(method, reduction, theta);
            choices.extend(choice.ok().filter(|choice| choice.loss.is_finite()));
        }
        let has_loss = limits.iter().any(|limit| matches!(limit, Limit::Loss(_)));
        let value = |choice: &&Choice| match has_loss {
            true => choice.us,
            false => choice.loss,
        };
        let kept = choices
            .iter()
            .filter(|choice| is_kept_by_all(limits, choice));
        if let Some(best) = kept.min_by(|a, b| value(a).total_cmp(&value(b))) {
            return Ok(best.clone());
        }
        let excess = |choice: &&Choice| {
            let limits = limits.iter().map(|limit| limit.excess_of(choice));
            limits.fold(0.0, f64::max)
        };
        let nearest = choices
            .iter()
            .min_by(|a, b| excess(a).total_cmp(&excess(b)));
        Err(CompressError::Method {
            nearest: nearest.map_or(String::new(), Choice::to_string),
        })
    }
}

/// Whether a choice keeps all limits.
pub(super) fn is_kept_by_all(limits: &[Limit], choice: &Choice) -> bool {
    limits.iter().all(|limit| limit.is_kept_by(choice))
}

impl Limit {
    fn is_kept_by(&self, choice: &Choice) -> bool {
        match *self {
            Self::Us(us) => units(choice.us, 1e-3) <= units(us, 1e-3),
            Self::Flops(flops) => choice.flops <= flops,
            Self::WeightBytes(bytes) => choice.weight_bytes <= bytes,
            Self::Loss(loss) => units(choice.loss, LOSS_UNIT) <= units(loss, LOSS_UNIT),
        }
    }

    /// What a choice takes, as a multiple of the limit.
    fn excess_of(&self, choice: &Choice) -> f64 {
        match *self {
            Self::Us(us) => choice.us / us,
            Self::Flops(flops) => choice.flops as f64 / flops as f64,
            Self::WeightBytes(bytes) => choice.weight_bytes as f64 / bytes as f64,
            Self::Loss(loss) => choice.loss / loss,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sum of units is rounded otherwise than the number that a user writes.
    #[test]
    fn a_loss_of_as_many_units_keeps_its_limit() {
        let choice = |units: u64| Choice {
            forms: Vec::new(),
            us: 1.0,
            target_us: vec![1.0],
            loss: units as f64 * LOSS_UNIT,
            flops: 0,
            weight_bytes: 0,
        };
        let equal = choice(300_000_000);
        assert!(equal.loss > 0.3);
        assert!(Limit::Loss(0.3).is_kept_by(&equal));
        assert!(!Limit::Loss(0.3).is_kept_by(&choice(300_000_001)));
    }
}
