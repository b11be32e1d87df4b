//! The frontier of time and loss.

use super::{Choice, Compression, Limit, with_forms};
use crate::plan::{PlanError, plan_network};

impl Compression<'_> {
    /// The choices of least loss at times from the least possible one to that of the dense network: `points` of them at most, without
    /// equal ones, the fastest first. Of predicted times, those whose [plan](Self::planned_us) is slower than that of the dense network are left out.
    pub fn frontier(
        &mut self,
        dense: &Choice,
        points: u32,
        mut progress: impl FnMut(u32, &Choice),
    ) -> Vec<Choice> {
        let fastest = self.fastest();
        let fastest_us = fastest.us;
        let mut frontier: Vec<Choice> = Vec::new();
        for point in 0..points {
            let at = f64::from(point) / f64::from(points.max(2) - 1);
            let us = fastest_us + at * (dense.us - fastest_us).max(0.0);
            let choice = match self.choose(&[Limit::Us(us)]) {
                Ok(choice) => choice,
                // For several targets the search rounds times, so it may not find that of the fastest choice.
                Err(_) if point == 0 => fastest.clone(),
                Err(_) => continue,
            };
            progress(point, &choice);
            if frontier.last() != Some(&choice) {
                frontier.push(choice);
            }
        }
        // A plan does not know the measured times of this search.
        if !self.first().clock.is_corrected()
            && let Ok(dense_us) = self.planned_us(dense)
        {
            frontier.retain(|choice| self.planned_us(choice).is_ok_and(|us| us <= dense_us));
        }
        frontier
    }

    /// The predicted time of the plan of a choice, in microseconds, of several targets as [`Choice::us`] is: that which `tdc-gen plan` has. Unlike
    /// the search, the plan has branches, and the measured tiles of the GPU's table, which more often has the launches of the dense network than
    /// those of the ranks that are compared.
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
