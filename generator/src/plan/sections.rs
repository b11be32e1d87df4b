//! Sections of a weight file: one for each list of weight layouts that the variants of a network need.

use super::network::NetworkPlan;
use tdc_runtime::WeightFile;

/// A section, and the plans whose kernels read it.
#[derive(Debug, Clone)]
pub struct WeightSection<'a> {
    /// At least one; their layouts are the same.
    pub plans: Vec<&'a NetworkPlan>,
}

impl WeightSection<'_> {
    /// The structure of the section.
    pub fn file(&self) -> &WeightFile {
        &self.plans[0].weights
    }

    /// Names of the GPUs of its plans, each once.
    pub fn gpus(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.plans.iter().map(|plan| plan.gpu.name).collect();
        names.dedup();
        names
    }
}

/// One section for each distinct list of layouts, in the order of the plans.
pub fn weight_sections(plans: &[NetworkPlan]) -> Vec<WeightSection<'_>> {
    let mut sections: Vec<WeightSection<'_>> = Vec::new();
    for plan in plans {
        let layouts = plan.weights.layouts_checksum();
        let known = sections
            .iter_mut()
            .find(|section| section.file().layouts_checksum() == layouts);
        match known {
            Some(section) => section.plans.push(plan),
            None => sections.push(WeightSection { plans: vec![plan] }),
        }
    }
    sections
}
