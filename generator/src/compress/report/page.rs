//! The report as one HTML file without scripts or links.

use super::chart::Chart;
use super::{Report, TimeSource};
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
            dense_us: time(layer.dense_us, layer.dense_source),
            us: time(layer.us, layer.source),
            flops: match layer.why_dense {
                Some(_) => format!("{dense:.1}"),
                None => format!("{dense:.1} → {chosen:.1}"),
            },
            loss: format!("{:.4}", layer.loss),
            compared: layer.compared.clone(),
            why_dense: layer.why_dense.clone().unwrap_or_default(),
        }
    });
    let page = Page {
        report,
        chart: Chart::new(&report.series),
        rows: rows.collect(),
        is_measured: report
            .layers
            .iter()
            .any(|layer| [layer.source, layer.dense_source].contains(&TimeSource::Measured)),
    };
    let context = tera::Context::from_serialize(&page)?;
    tera::Tera::one_off(tdc_templates::COMPRESSION_REPORT, &context, true)
}
