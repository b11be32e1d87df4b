//! The frontier of time and loss, and the times of plans.

use super::method::is_kept_by_all;
use super::{Choice, CompressError, Compression, Limit, with_forms};
use crate::plan::{PlanError, plan_network};

/// The choices of least loss at several times.
#[derive(Debug, Clone, PartialEq)]
pub struct Frontier {
    /// The choices, the fastest first; the last one is the dense network.
    pub choices: Vec<Choice>,
    /// How many were left out, because their plans are slower than that of the dense network.
    pub slower: usize,
}

impl Compression<'_> {
    /// The choices of least loss at times from the least possible one to that of the dense network: `points` of them at most, without
    /// equal ones, and without replacements of single layers. If times are predicted, only those whose [plan](Self::planned_us) is at most as
    /// slow as that of the dense network.
    pub fn frontier(
        &mut self,
        dense: &Choice,
        points: u32,
        mut progress: impl FnMut(u32, &Choice),
    ) -> Frontier {
        let fastest = self.fastest();
        let fastest_us = fastest.us;
        let mut choices: Vec<Choice> = Vec::new();
        for point in 0..points {
            let at = f64::from(point) / f64::from(points.max(2) - 1);
            let us = fastest_us + at * (dense.us - fastest_us).max(0.0);
            // Without replacements, which would take most of the time.
            let choice = match self.found(&[Limit::Us(us)]) {
                Ok(mut found) => found.swap_remove(0),
                // For several targets the search rounds times, so it may not find that of the fastest choice.
                Err(_) if point == 0 => fastest.clone(),
                Err(_) => continue,
            };
            progress(point, &choice);
            if choices.last() != Some(&choice) {
                choices.push(choice);
            }
        }
        let found = choices.len();
        // Plans do not have the measured times of `tuned`.
        if !self.first().clock.is_corrected()
            && let Ok(dense_us) = self.planned_us(dense)
        {
            choices.retain(|choice| self.planned_us(choice).is_ok_and(|us| us <= dense_us));
        }
        let slower = found - choices.len();
        if choices.last().is_none_or(|last| last.forms != dense.forms) {
            choices.push(dense.clone());
        }
        Frontier { choices, slower }
    }

    /// The [best choice](Self::choose) of the search. But if the time is minimised, and predicted, it is the one with the fastest
    /// [plan](Self::planned_us): of those that were found in the formats of different plans, and of the dense network if it keeps the limits.
    ///
    /// # Errors
    /// [`CompressError`] if there are none.
    pub(super) fn with_fastest_plan(&mut self, limits: &[Limit]) -> Result<Choice, CompressError> {
        let mut found = self.found_and_replaced(limits)?;
        let has_loss = limits.iter().any(|limit| matches!(limit, Limit::Loss(_)));
        if !has_loss || self.first().clock.is_corrected() {
            return Ok(found.swap_remove(0));
        }
        let dense = self.dense_choice().ok();
        found.extend(dense.filter(|dense| is_kept_by_all(limits, dense)));
        let planned_us = |choice: &Choice| self.planned_us(choice).unwrap_or(f64::INFINITY);
        let timed = found
            .into_iter()
            .map(|choice| (planned_us(&choice), choice));
        let fastest = timed.min_by(|(a, _), (b, _)| a.total_cmp(b));
        Ok(fastest.expect("at least one choice was found").1)
    }

    /// The predicted time of the plan of a choice, in microseconds: what `tdc-gen plan` prints. Of several targets it is the sum that
    /// [`Choice::us`] is.
    ///
    /// Unlike the search, plans have branches, and the measured tiles of the GPU's table. The table has the launches of the dense network more
    /// often than those of the ranks that are compared.
    ///
    /// # Errors
    /// One for each layer that cannot be planned.
    pub fn planned_us(&self, choice: &Choice) -> Result<f64, Vec<PlanError>> {
        let targets = self.targets.iter().map(|target| {
            let network = with_forms(&target.network, choice.forms.iter().copied());
            Ok(plan_network(&network, target.clock.gpu())?.network_us())
        });
        let target_us = targets.collect::<Result<Vec<f64>, Vec<PlanError>>>()?;
        Ok(self.weighted_us(&target_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::{Form, Method, Scope};
    use crate::gpu::gpu;
    use crate::ir::{
        Activation, ConvOptions, Network, NetworkBuilder, OpId, OpOptions, TensorShape,
    };

    /// The last stage of a ResNet-50, whose dense launches are in the tuning table.
    fn network() -> Network {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 2048, 7, 7));
        let conv = |kernel: u32, n| {
            OpOptions::Conv(ConvOptions {
                kernel: [kernel; 2],
                bias: true,
                activation: Activation::Relu,
                ..ConvOptions::new(n)
            })
        };
        for block in ["a", "b"] {
            builder.op(&format!("{block}1"), None, conv(1, 512));
            builder.op(&format!("{block}2"), None, conv(3, 512));
            builder.op(&format!("{block}3"), None, conv(1, 2048));
        }
        builder.finish().unwrap()
    }

    /// Nothing that is returned has a slower plan than the dense network, though the search expects some of it to be faster.
    #[test]
    fn no_plan_is_slower_than_that_of_the_dense_network() {
        let network = network();
        let losses = |_: OpId, form: Form| match form {
            Form::Dense => 0.0,
            Form::Tucker([d1, d2]) => 1.0 - f64::from(d1 * d2) / (512.0 * 512.0),
            Form::LowRank(rank) | Form::Cp(rank) => 1.0 - f64::from(rank) / 512.0,
        };
        let scope = Scope {
            step: 64,
            ..Scope::default()
        };
        let gpu = gpu("h200").unwrap();
        let mut compression = Compression::new(&network, gpu, &scope, false, &losses).unwrap();
        let dense = compression.dense_choice().unwrap();
        let dense_us = compression.planned_us(&dense).unwrap();
        let Frontier { choices, slower } = compression.frontier(&dense, 12, |_, _| ());
        println!("{} {slower}", choices.len());
        assert_eq!(choices.last().map(|last| &last.forms), Some(&dense.forms));
        for choice in &choices {
            let us = compression.planned_us(choice).unwrap();
            assert!(us <= dense_us, "{us} {dense_us}: {choice}");
        }
        let mut replaced = 0;
        for tenth in 1..15 {
            let limits = [Limit::Loss(0.1 * f64::from(tenth))];
            let searched = compression.choose(&limits).unwrap();
            let found = compression
                .by_method(Method::Optimal, 0.0, &limits)
                .unwrap();
            let [searched_us, us] =
                [&searched, &found].map(|of| compression.planned_us(of).unwrap());
            assert!(
                us <= dense_us && us <= searched_us,
                "{us} {searched_us} {dense_us}"
            );
            replaced += usize::from(us < searched_us);
        }
        println!("replaced {replaced}");
        assert!(slower > 0 && replaced > 0, "{slower} {replaced}");
    }
}
