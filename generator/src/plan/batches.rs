//! Several batches of a network on one GPU: which plan computes how many images.

use super::network::{NetworkPlan, PlannedTensor};
use crate::cost::copy_us;

/// Alignment of the address of an input or output, bytes: kernels load float4.
pub const TENSOR_ALIGNMENT: u64 = 16;

/// Alignment of a tensor in the arena, bytes.
const ARENA_ALIGNMENT: u64 = 256;

/// How the driver computes any number of images up to the largest batch: by one plan after the other, each for the next images.
///
/// A plan for more images than are left computes copies of them: the caller's memory ends with the last image. So does a plan whose first
/// image is not aligned as kernels need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSchedule {
    /// For 1, 2, ... images that are left, the index of the plan that computes the next ones.
    pub next: Vec<usize>,
    /// Byte offsets in the arena of the copies of inputs; `None` for an input that is never copied.
    pub input_copies: Vec<Option<u64>>,
    /// The same for outputs.
    pub output_copies: Vec<Option<u64>>,
    /// Bytes of the arena: that of the plan that needs most, and the copies.
    pub arena_bytes: u64,
}

impl BatchSchedule {
    /// The schedule with the least predicted time for each number of images. `plans` are those of one network for one GPU, at least one, by
    /// ascending batch, of which the largest has at most [`Batches::MAX_IMAGES`](crate::ir::Batches::MAX_IMAGES) images: there is an entry for each number.
    pub fn new(plans: &[NetworkPlan]) -> Self {
        let first = &plans[0];
        let image_bytes = |tensor: &PlannedTensor| tensor.bytes() / u64::from(tensor.shape.batch);
        let inputs: Vec<u64> = first.inputs.iter().map(image_bytes).collect();
        let outputs: Vec<u64> = first.outputs.iter().map(image_bytes).collect();
        let times: Vec<(u32, f64)> = plans
            .iter()
            .map(|plan| (plan.batch(), plan.network_us()))
            .collect();
        let tensors = || inputs.iter().chain(&outputs);
        let next = next_plans(&times, |images| {
            let copies = tensors().map(|bytes| copy_us(bytes * u64::from(images), first.gpu));
            copies.sum()
        });
        let batches: Vec<u32> = times.iter().map(|(batch, _)| *batch).collect();
        let mut end = plans.iter().map(|plan| plan.arena_bytes).max().unwrap_or(0);
        let mut copies = |image_bytes: &u64| {
            let bytes = copied_images(&batches, &next, *image_bytes) * image_bytes;
            (bytes > 0).then(|| {
                let start = end.next_multiple_of(ARENA_ALIGNMENT);
                end = start + bytes;
                start
            })
        };
        Self {
            input_copies: inputs.iter().map(&mut copies).collect(),
            output_copies: outputs.iter().map(&mut copies).collect(),
            next,
            arena_bytes: end,
        }
    }
}

/// For 1, 2, ... images that are left, up to the largest batch, the plan to continue with. `plans` are batches and times; `copy_us` is the
/// time that a plan takes longer if it computes copies of this number of images.
fn next_plans(plans: &[(u32, f64)], copy_us: impl Fn(u32) -> f64) -> Vec<usize> {
    let largest = plans.last().map_or(0, |(batch, _)| *batch);
    // The time of 0, 1, ... images.
    let mut times = vec![0.0];
    let mut next = Vec::new();
    for left in 1..=largest {
        let us = |&(batch, us): &(u32, f64)| match left.checked_sub(batch) {
            Some(rest) => us + times[rest as usize],
            None => us + copy_us(left),
        };
        let all = plans.iter().map(us).enumerate();
        // Of equal times the larger plan's: it leaves fewer launches.
        let best = all.min_by(|(i, a), (j, b)| a.total_cmp(b).then(j.cmp(i)));
        let (index, us) = best.unwrap_or_default();
        times.push(us);
        next.push(index);
    }
    next
}

/// The largest number of images of which a tensor is copied, for any number of images of the caller; 0 if none ever is.
fn copied_images(batches: &[u32], next: &[usize], image_bytes: u64) -> u64 {
    let mut most = 0;
    for images in 1..=next.len() {
        let mut left = images;
        while left > 0 {
            let batch = batches[next[left - 1]] as usize;
            let start = (images - left) as u64 * image_bytes;
            if batch > left || !start.is_multiple_of(TENSOR_ALIGNMENT) {
                most = most.max(batch as u64);
            }
            left = left.saturating_sub(batch);
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides, yaml};
    use crate::plan::plan_variants;
    use crate::plan::shared_weights::tests::network;

    #[test]
    fn the_fastest_plans_are_taken() {
        let plans = [(1, 10.0), (4, 22.0), (8, 30.0)];
        // Two images: twice one image, 20, or a plan for four with copies, 24. Three: four with copies. Five: 4 + 1 takes 32, eight with
        // copies as long, and the larger plan is taken.
        assert_eq!(next_plans(&plans, |_| 2.0), [0, 0, 1, 1, 2, 2, 2, 2]);
        // Copies that take longer: 4 + 1, and 4 + 1 + 1 instead of eight.
        assert_eq!(next_plans(&plans, |_| 13.0), [0, 0, 0, 1, 1, 1, 2, 2]);
        // One plan computes everything.
        assert_eq!(next_plans(&[(3, 5.0)], |_| 1.0), [0, 0, 0]);
    }

    #[test]
    fn images_are_copied_where_they_end_early_or_are_not_aligned() {
        // Three plans for 1, 4 and 8 images; 6 images are 4 + 1 + 1.
        let next = [0, 0, 0, 1, 1, 1, 2, 2];
        let batches = [1, 4, 8];
        // Seven images are computed by eight.
        assert_eq!(copied_images(&batches, &next, 64), 8);
        let next = [0, 0, 0, 1, 1, 1, 1, 2];
        assert_eq!(copied_images(&batches, &next, 64), 0);
        // The second image begins at byte 20.
        assert_eq!(copied_images(&batches, &next, 20), 1);
        // Three images of a plan for two: 2 + 1, and the third begins at byte 24.
        assert_eq!(copied_images(&[1, 2, 3], &[0, 1, 1], 12), 1);
        assert_eq!(copied_images(&[1, 2, 3], &[0, 1, 1], 8), 0);
    }

    /// Three images of 3x30x30 are computed by a plan for four, which copies them.
    #[test]
    fn copies_of_bytes_have_the_size_of_bytes() {
        let distance = |dtype: &str| {
            let text = format!(
                "{{name: net, input: {{shape: 1x3x30x30, dtype: {dtype}}}, batch: [1, 4], ops: [{{op: conv, name: a, n: 8}}]}}"
            );
            let network = match yaml::parse(&text, "net.yaml", &Overrides::default()) {
                Ok(Config::Network(network)) => network,
                other => panic!("{other:?}"),
            };
            let schedule = BatchSchedule::new(&plan_variants(&network).unwrap());
            assert_eq!(schedule.next[2], 1, "{dtype}");
            let [input, output] = [&schedule.input_copies, &schedule.output_copies];
            output[0].unwrap() - input[0].unwrap()
        };
        let copies = |image_bytes: u64| (4 * image_bytes).next_multiple_of(ARENA_ALIGNMENT);
        assert_eq!(distance("uint8"), copies(2700));
        assert_eq!(distance("fp32"), copies(4 * 2700));
    }

    #[test]
    fn copies_are_behind_the_arena_of_the_largest_plan() {
        let mut plans = plan_variants(&network(&[1, 64])).unwrap();
        let schedule = BatchSchedule::new(&plans);
        assert_eq!(schedule.next.len(), 64);
        assert_eq!((schedule.next[0], schedule.next[63]), (0, 1));
        // A plan for 64 images that takes hardly longer than one for one image computes 63 images.
        assert_eq!(schedule.next[62], 1);
        let arena = plans[1].arena_bytes;
        let (x, y) = (4 * 3 * 20 * 22 * 64, 4 * 64 * 64);
        assert_eq!(schedule.input_copies, [Some(arena)]);
        assert_eq!(schedule.output_copies, [Some(arena + x)]);
        assert_eq!(schedule.arena_bytes, arena + x + y);
        // One plan alone needs its own arena, and copies for fewer images.
        plans.remove(0);
        assert_eq!(BatchSchedule::new(&plans).next, [0; 64]);
    }
}
