//! The report as one HTML file without scripts or links.

use super::chart::Chart;
use super::{LayerReport, Report, TimeSource, Totals};
use serde::Serialize;

/// A layer's row as text.
#[derive(Serialize)]
struct Row {
    name: String,
    weight: String,
    form: String,
    dense_us: String,
    us: String,
    flops: String,
    parameters: String,
    loss: String,
    compared: Vec<String>,
    why_dense: String,
}

/// The row of the whole network as text.
#[derive(Serialize)]
struct TotalsRow {
    dense_us: String,
    us: String,
    flops: String,
    parameters: String,
    loss: String,
}

#[derive(Serialize)]
struct Page<'a> {
    report: &'a Report,
    chart: Chart,
    rows: Vec<Row>,
    totals: TotalsRow,
    /// Whether the time of a layer was measured.
    is_measured: bool,
}

/// A time, marked if it was measured.
fn time(us: f64, source: TimeSource) -> String {
    match source {
        TimeSource::Measured => format!("{us:.2}*"),
        TimeSource::Predicted => format!("{us:.2}"),
    }
}

/// A number in the dense and in the chosen network, in multiples of `unit`; once if both are the same.
fn dense_and_chosen(numbers: [u64; 2], unit: f64) -> String {
    let [dense, chosen] = numbers.map(|number| format!("{:.1}", number as f64 / unit));
    match numbers[0] == numbers[1] {
        true => dense,
        false => format!("{dense} → {chosen}"),
    }
}

fn mflop(flops: [u64; 2]) -> String {
    dense_and_chosen(flops, 1e6)
}

fn thousands(parameters: [u64; 2]) -> String {
    dense_and_chosen(parameters, 1e3)
}

fn row(layer: &LayerReport) -> Row {
    Row {
        name: layer.name.clone(),
        weight: layer.weight.clone(),
        form: layer.form.clone(),
        dense_us: time(layer.dense_us, layer.dense_source),
        us: time(layer.us, layer.source),
        flops: mflop(layer.flops),
        parameters: thousands(layer.parameters),
        loss: format!("{:.4}", layer.loss),
        compared: layer.compared.clone(),
        why_dense: layer.why_dense.clone().unwrap_or_default(),
    }
}

fn totals_row(totals: &Totals) -> TotalsRow {
    TotalsRow {
        dense_us: format!("{:.2}", totals.dense_us),
        us: format!("{:.2}", totals.us),
        flops: mflop(totals.flops),
        parameters: thousands(totals.parameters),
        loss: format!("{:.4}", totals.loss),
    }
}

/// The page of a report.
///
/// # Errors
/// If the template does not fit the report; no such case is known.
pub fn page(report: &Report) -> Result<String, tera::Error> {
    let is_measured =
        |layer: &LayerReport| [layer.source, layer.dense_source].contains(&TimeSource::Measured);
    let page = Page {
        report,
        chart: Chart::new(&report.series),
        rows: report.layers.iter().map(row).collect(),
        totals: totals_row(&report.totals),
        is_measured: report.layers.iter().any(is_measured),
    };
    let context = tera::Context::from_serialize(&page)?;
    tera::Tera::one_off(tdc_templates::COMPRESSION_REPORT, &context, true)
}

#[cfg(test)]
mod tests;
