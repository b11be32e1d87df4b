//! What a generated program prints with `--profile`.

use crate::plan::NetworkPlan;

/// The measured time of each layer of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// What each layer adds to the time of the network, in the order of its layers, microseconds. Noise can make one negative.
    pub added_us: Vec<f64>,
}

impl Profile {
    /// Reads the table of a program that was generated from this plan; other lines are ignored.
    ///
    /// # Errors
    /// What the text lacks, or the first layer that is not that of the plan.
    pub fn read(text: &str, plan: &NetworkPlan) -> Result<Self, String> {
        // A program of several batches says which of its plans it timed.
        let batch = text.lines().find_map(images);
        if let Some(batch) = batch.filter(|batch| *batch != plan.batch()) {
            return Err(format!(
                "it is of the plan for {batch} images, not for {}; plan with --batch {batch}",
                plan.batch()
            ));
        }
        let mut lines = text.lines();
        if !lines.any(|line| line.split_whitespace().eq(["added", "alone", "layer"])) {
            return Err("it has no table of layers; write the output of the network's program with --profile to it".to_owned());
        }
        let mut rows: Vec<(f64, &str)> = lines.map_while(row).collect();
        // The sum.
        rows.pop();
        let names = plan.layers.iter().map(|layer| &layer.name[..]);
        let other = names.clone().zip(&rows).find(|(name, row)| *name != row.1);
        if let Some((name, (_, found))) = other {
            return Err(format!(
                "it has the layer `{}` where the plan has `{name}`; plan with the options with which the program was generated",
                found.escape_debug()
            ));
        }
        match rows.len() == plan.layers.len() {
            true => Ok(Self {
                added_us: rows.into_iter().map(|(us, _)| us).collect(),
            }),
            false => Err(format!(
                "it has {} layers, the plan has {}; plan with the options with which the program was generated",
                rows.len(),
                plan.layers.len()
            )),
        }
    }
}

/// The number in `Plan for 8 images.`.
fn images(line: &str) -> Option<u32> {
    let (images, _) = line.strip_prefix("Plan for ")?.split_once(" images")?;
    images.parse().ok()
}

/// The time that a layer adds, and its name.
fn row(line: &str) -> Option<(f64, &str)> {
    let mut words = line.split_whitespace();
    let added = words
        .next()?
        .parse()
        .ok()
        .filter(|us: &f64| us.is_finite())?;
    let _alone: f64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    words.next().is_none().then_some((added, name))
}
