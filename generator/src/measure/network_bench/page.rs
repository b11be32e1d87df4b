//! The report as one HTML file without scripts or links.

use super::Report;
use super::chart::{Chart, Quantity};
use serde::Serialize;

#[derive(Serialize)]
struct Page<'a> {
    report: &'a Report,
    torch: Option<String>,
    charts: [Chart; 2],
    /// Indices of the colours.
    colours: Vec<usize>,
    rows: Vec<TableRow>,
}

/// A time as text.
#[derive(Serialize)]
struct TableRow {
    batch: u32,
    subject: String,
    us: String,
    images_per_second: String,
    /// The time over that of the generated code.
    ratio: String,
    rounds: String,
    check: String,
}

/// The page of a report.
///
/// # Errors
/// If the template does not fit the report; no such case is known.
pub fn page(report: &Report) -> Result<String, tera::Error> {
    let (lines, batches) = (report.lines(), report.batches());
    let generated_us = |batch: u32| {
        let mut rows = report.rows.iter();
        let is_generated = |subject| subject == super::Subject::Generated;
        let row = rows.find(|row| row.batch == batch && is_generated(row.subject));
        row.map(|row| row.us)
    };
    let rows = report.rows.iter().map(|row| TableRow {
        batch: row.batch,
        subject: row.subject.to_string(),
        us: format!("{:.2}", row.us),
        images_per_second: format!("{:.0}", row.images_per_second),
        ratio: generated_us(row.batch).map_or_else(String::new, |us| format!("{:.2}", row.us / us)),
        rounds: row
            .rounds_us
            .iter()
            .map(|us| format!("{us:.1}"))
            .collect::<Vec<_>>()
            .join(" "),
        check: row.check.as_ref().map_or_else(String::new, |check| {
            format!(
                "{:.1e} (bound {:.1e}) against {}",
                check.relative_error, check.tolerance, check.reference
            )
        }),
    });
    let torch = report.environment.torch.as_ref();
    let page = Page {
        report,
        torch: torch.map(|versions| match versions.cudnn {
            Some(cudnn) => format!("PyTorch {}, cuDNN {cudnn}", versions.torch),
            None => format!("PyTorch {}", versions.torch),
        }),
        charts: [Quantity::Time, Quantity::ImagesPerSecond]
            .map(|quantity| Chart::new(quantity, &lines, &batches)),
        colours: (0..lines.len()).collect(),
        rows: rows.collect(),
    };
    let context = tera::Context::from_serialize(&page)?;
    tera::Tera::one_off(tdc_templates::NETWORK_TIMES_REPORT, &context, true)
}
