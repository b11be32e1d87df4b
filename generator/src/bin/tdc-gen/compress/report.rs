//! The report of `tdc-gen compress`.

use super::{Run, Target};
use crate::failure::Failure;
use tdc_generator::compress::report::{
    Found, GpuReport, RelativeTimes, Report, TableReport, TargetReport, Totals, page,
    target_reports,
};
use tdc_generator::compress::{Choice, Compression, LowerBound};

impl Run<'_> {
    /// The report's page and data. `table` has the measured times, if there are any.
    pub(super) fn report(
        &self,
        compression: &mut Compression,
        found: Found,
        lower_bound: LowerBound,
        table: Option<TableReport>,
    ) -> Result<(String, String), Failure> {
        let (dense, choice) = (found.dense, found.chosen.unwrap_or(found.dense));
        let layers = self.planned(compression.layer_reports(choice, found.compared))?;
        let targets = self.target_reports(choice, dense);
        let relative = RelativeTimes::of(&targets);
        let compared = found.compared.iter().map(|other| other.name.clone());
        let report = Report {
            generator: env!("CARGO_PKG_VERSION"),
            network: self.network.name.clone(),
            gpu: self.target_names(),
            input: self.network.input_shapes(),
            times: times(table.is_some()),
            gpus: self.gpu_reports(),
            table,
            criterion: self.losses.criterion().to_owned(),
            weights: self.losses_name(),
            step: self.args.step.get(),
            compared: compared.collect(),
            targets,
            relative: relative.expect("there is at least one target"),
            lower_bound,
            over_floor: lower_bound.distance(choice),
            series: compression.series(found, self.args.theta),
            layers,
            totals: Totals::new(dense, choice),
        };
        let data = serde_json::to_string_pretty(&report).map_err(Failure::input)?;
        Ok((page(&report).map_err(Failure::input)?, data + "\n"))
    }

    /// The times of a choice on all targets.
    pub(super) fn target_reports(&self, choice: &Choice, dense: &Choice) -> Vec<TargetReport> {
        target_reports(self.targets.iter().map(Target::name), choice, dense)
    }

    /// The GPU, or with several targets all of them.
    pub(super) fn target_names(&self) -> String {
        match &self.targets[..] {
            [target] => target.gpu.name.to_owned(),
            targets => targets
                .iter()
                .map(Target::name)
                .collect::<Vec<_>>()
                .join("; "),
        }
    }

    /// Each GPU once.
    fn gpu_reports(&self) -> Vec<GpuReport> {
        let mut reports: Vec<GpuReport> = Vec::new();
        for target in &self.targets {
            let report = GpuReport::from(target.gpu);
            if !reports.contains(&report) {
                reports.push(report);
            }
        }
        reports
    }
}

/// Where times come from.
fn times(is_tuned: bool) -> &'static str {
    match is_tuned {
        true => {
            "measured, or predicted by the cost model and corrected by measured launches, for the network as a whole"
        }
        false => "predicted by the cost model, for the network as a whole",
    }
}
