//! The report as one HTML file without scripts or links.

use super::Report;
use super::chart::Chart;
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
    loss: String,
    compared: Vec<String>,
    why_dense: String,
}

#[derive(Serialize)]
struct Page<'a> {
    report: &'a Report,
    chart: Chart,
    rows: Vec<Row>,
}

/// The page of a report.
///
/// # Errors
/// If the template does not fit the report; no such case is known.
pub fn page(report: &Report) -> Result<String, tera::Error> {
    let rows = report.layers.iter().map(|layer| {
        let [dense, chosen] = layer.flops.map(|flops| flops as f64 / 1e6);
        Row {
            name: layer.name.clone(),
            weight: layer.weight.clone(),
            form: layer.form.clone(),
            dense_us: format!("{:.2}", layer.dense_us),
            us: format!("{:.2}", layer.us),
            flops: format!("{dense:.1} → {chosen:.1}"),
            loss: format!("{:.4}", layer.loss),
            compared: layer.compared.clone(),
            why_dense: layer.why_dense.clone().unwrap_or_default(),
        }
    });
    let page = Page {
        report,
        chart: Chart::new(&report.series),
        rows: rows.collect(),
    };
    let context = tera::Context::from_serialize(&page)?;
    tera::Tera::one_off(tdc_templates::COMPRESSION_REPORT, &context, true)
}
