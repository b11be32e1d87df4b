//! Other ways to choose ranks, to compare with: the published one, and the same fraction of all channels.

mod tdc;
mod uniform;

use super::{Choice, CompressError, Compression, Form, Limit, Losses, units};
use crate::ir::OpId;
use crate::plan::{NetworkTime, PlanError, Planner, TaskGraph};

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

impl Compression {
    /// Time, loss and size of the network with these forms; layers that are not listed are dense.
    ///
    /// # Errors
    /// One for each layer that cannot be planned.
    pub fn evaluated(&self, forms: Forms, losses: &Losses) -> Result<Choice, Vec<PlanError>> {
        self.evaluated_by(&mut Planner::new(self.clock.gpu()), forms, losses)
    }

    fn evaluated_by(
        &self,
        planner: &mut Planner,
        forms: Forms,
        losses: &Losses,
    ) -> Result<Choice, Vec<PlanError>> {
        let network = super::with_forms(&self.network, forms.iter().copied());
        let time = NetworkTime::of_graph(planner, TaskGraph::new(&network))?;
        let constant = self.problem.constant;
        let mut choice = Choice {
            forms: Vec::with_capacity(self.structure.layers.len()),
            us: time.ns() as f64 / 1e3,
            loss: 0.0,
            flops: constant.flops,
            weight_bytes: constant.weight_bytes,
        };
        for layer in &self.structure.layers {
            let mut given = forms.iter();
            let given = given.find(|(op, _)| *op == layer.op);
            let form = given.map_or(Form::Dense, |(_, form)| *form);
            let problem = &layer.contexts[0].problem;
            choice.forms.push((layer.op, form));
            choice.flops += problem.flops(form);
            choice.weight_bytes += problem.weight_bytes(form);
            if form != Form::Dense {
                choice.loss += losses(layer.op, form);
            }
        }
        Ok(choice)
    }

    /// The choice of a method other than the search at a reduction of the operations, or of the channels, from 0 to 1.
    ///
    /// # Errors
    /// One for each layer that cannot be planned.
    pub fn at_reduction(
        &self,
        method: Method,
        reduction: f64,
        theta: f64,
        losses: &Losses,
    ) -> Result<Choice, Vec<PlanError>> {
        let mut planner = Planner::new(self.clock.gpu());
        let forms = match method {
            Method::Tdc => self.tdc_forms(reduction, theta, &mut planner),
            Method::Uniform | Method::Optimal => self.uniform_forms(reduction),
        };
        self.evaluated_by(&mut planner, forms, losses)
    }

    /// The choice of another method within the limits, of all reductions in whole per cents: with a limit of the loss the fastest, else the
    /// one with the least loss.
    ///
    /// # Errors
    /// [`CompressError`] if it keeps them with no reduction.
    pub fn by_method(
        &mut self,
        method: Method,
        theta: f64,
        limits: &[Limit],
        losses: &Losses,
    ) -> Result<Choice, CompressError> {
        let mut planner = Planner::new(self.clock.gpu());
        let mut choices = Vec::new();
        for percent in 0..100 {
            let reduction = f64::from(percent) / 100.0;
            let forms = match method {
                Method::Optimal => return self.choose(limits),
                Method::Tdc => self.tdc_forms(reduction, theta, &mut planner),
                Method::Uniform => self.uniform_forms(reduction),
            };
            choices.extend(self.evaluated_by(&mut planner, forms, losses));
        }
        let has_loss = limits.iter().any(|limit| matches!(limit, Limit::Loss(_)));
        let value = |choice: &&Choice| match has_loss {
            true => choice.us,
            false => choice.loss,
        };
        let kept = choices.iter().filter(|choice| {
            let mut limits = limits.iter();
            limits.all(|limit| limit.is_kept_by(choice))
        });
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

impl Limit {
    fn is_kept_by(&self, choice: &Choice) -> bool {
        match *self {
            Self::Us(us) => units(choice.us, 1e-3) <= units(us, 1e-3),
            Self::Flops(flops) => choice.flops <= flops,
            Self::WeightBytes(bytes) => choice.weight_bytes <= bytes,
            Self::Loss(loss) => choice.loss <= loss,
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
