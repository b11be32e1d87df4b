//! The batches of a network, and what their number changes in the interface and the driver.

use crate::plan::NetworkPlan;
use serde::Serialize;

/// The batches that there are plans for.
#[derive(Serialize)]
pub(super) struct BatchContext {
    /// The largest batch.
    batch: u32,
    /// Whether there are plans for several batches.
    multi_batch: bool,
    /// The batches in a list.
    batches: String,
    #[serde(flatten)]
    terms: Terms,
}

impl BatchContext {
    /// `plans` are those of one variant, by ascending batch.
    pub(super) fn new(plans: &[NetworkPlan], multi_variant: bool) -> Self {
        let batches: Vec<_> = plans.iter().map(|plan| plan.batch().to_string()).collect();
        let multi_batch = is_multi_batch(plans);
        Self {
            batch: plans.last().map_or(1, NetworkPlan::batch),
            multi_batch,
            batches: batches.join(", "),
            terms: Terms::new(multi_batch, multi_variant),
        }
    }
}

/// Whether there are plans for several batches.
pub(super) fn is_multi_batch(plans: &[NetworkPlan]) -> bool {
    plans.windows(2).any(|pair| pair[0].gpu == pair[1].gpu)
}

/// What C++ needs to name a plan and a batch: nothing if there is only one. Parameters and arguments end with a comma.
#[derive(Serialize)]
struct Terms {
    /// Before the name of a table of the variant `variant`, of the variant of the weights, of the plan `plan`, and of the plan at the
    /// index `plan` in that variant.
    variant_prefix: &'static str,
    weights_variant_prefix: &'static str,
    plan_prefix: &'static str,
    weights_plan_prefix: String,
    /// A plan, as the first parameter, as the first argument, as the only parameter, and as the only argument.
    plan_parameter: &'static str,
    plan_argument: &'static str,
    only_plan_parameter: &'static str,
    only_plan_argument: &'static str,
    /// A batch.
    batch_parameter: &'static str,
    batch_argument: &'static str,
    /// The same as arguments in the program, which keeps them.
    own_plan_argument: &'static str,
    own_only_plan_argument: &'static str,
    own_batch_argument: &'static str,
    /// The elements of the tensor `info` in the program.
    element_count: &'static str,
}

impl Terms {
    fn new(multi_batch: bool, multi_variant: bool) -> Self {
        let if_multi_batch = |term| if multi_batch { term } else { "" };
        let if_multi_variant = |term| if multi_variant { term } else { "" };
        let variant_prefix = if_multi_variant("variant.");
        let weights_variant_prefix = if_multi_variant("variants[weights_->variant_].");
        Self {
            variant_prefix,
            weights_variant_prefix,
            plan_prefix: if multi_batch { "plan." } else { variant_prefix },
            weights_plan_prefix: format!(
                "{weights_variant_prefix}{}",
                if_multi_batch("plans[plan].")
            ),
            plan_parameter: if_multi_batch("int plan, "),
            plan_argument: if_multi_batch("plan, "),
            only_plan_parameter: if_multi_batch("int plan"),
            only_plan_argument: if_multi_batch("plan"),
            batch_parameter: if_multi_batch("int batch, "),
            batch_argument: if_multi_batch("batch, "),
            own_plan_argument: if_multi_batch("plan_, "),
            own_only_plan_argument: if_multi_batch("plan_"),
            own_batch_argument: if_multi_batch("batch_, "),
            element_count: if multi_batch {
                "size_of(info, options.batch)"
            } else {
                "info.size"
            },
        }
    }
}
