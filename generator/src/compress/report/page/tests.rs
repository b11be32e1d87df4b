use super::super::{
    GpuReport, Point, RelativeTimes, Series, TableReport, TargetReport, target_reports,
};
use super::*;
use crate::compress::{Choice, LowerBound};

/// A report with this number of series and targets.
fn report(series: usize, targets: usize) -> Report {
    let choice = |us: f64| Choice {
        forms: Vec::new(),
        us,
        target_us: vec![us; targets],
        loss: 0.25,
        flops: 3_000_000,
        weight_bytes: 8_000,
    };
    let (dense, chosen) = (choice(10.0), choice(8.0));
    let names = (0..targets).map(|index| format!("gpu{index}"));
    let targets: Vec<TargetReport> = target_reports(names, &chosen, &dense);
    Report {
        generator: "1.2.3",
        network: "small".to_owned(),
        gpu: "h200".to_owned(),
        input: "1x3x8x8".to_owned(),
        times: "predicted",
        gpus: vec![GpuReport {
            name: "h200",
            title: "NVIDIA H200",
            cost_model: "h200",
        }],
        table: None,
        criterion: "weights".to_owned(),
        weights: "w.safetensors".to_owned(),
        step: 8,
        compared: Vec::new(),
        relative: RelativeTimes::of(&targets).expect("a target"),
        targets,
        lower_bound: LowerBound {
            fastest_us: 7.0,
            floor_us: 4.0,
        },
        over_floor: 2.0,
        series: (0..series).map(|index| drawn(index, &dense)).collect(),
        layers: vec![layer()],
        totals: Totals::new(&dense, &chosen),
    }
}

fn drawn(index: usize, choice: &Choice) -> Series {
    Series {
        name: format!("series {index}"),
        points: vec![Point::from(choice)],
    }
}

fn layer() -> LayerReport {
    LayerReport {
        name: "conv1".to_owned(),
        weight: "16x16x3x3".to_owned(),
        form: "[8, 8]".to_owned(),
        dense_us: 3.0,
        dense_source: TimeSource::Predicted,
        us: 2.0,
        source: TimeSource::Measured,
        flops: [2_000_000, 1_000_000],
        parameters: [2_304, 832],
        loss: 0.25,
        compared: Vec::new(),
        why_dense: None,
    }
}

/// The variables that a style sets after a text: names and values.
fn variables<'a>(page: &'a str, start: &str) -> Vec<(&'a str, &'a str)> {
    let (_, style) = page.split_once(start).expect("the scheme");
    let (style, _) = style.split_once('}').expect("its end");
    let declarations = style.split(';').filter_map(|part| part.split_once(':'));
    let all = declarations.map(|(name, value)| (name.trim(), value.trim()));
    all.filter(|(name, _)| name.starts_with("--")).collect()
}

/// The part of a text between two others, everywhere.
fn between<'a>(text: &'a str, start: &str, end: char) -> Vec<&'a str> {
    let parts = text.split(start).skip(1);
    parts
        .filter_map(|part| Some(part.split_once(end)?.0))
        .collect()
}

#[test]
fn both_schemes_have_every_colour() {
    let page = page(&report(13, 1)).expect("a page");
    let light = variables(&page, "<style>\n:root {");
    let dark = variables(&page, "@media (prefers-color-scheme: dark) { :root {");
    let used = between(&page, "var(", ')');
    let classes = between(&page, "class=\"s", '"');
    let numbers = classes.iter().filter(|class| class.parse::<u32>().is_ok());
    let of_series: Vec<String> = numbers.map(|number| format!("--s{number}")).collect();
    assert!(of_series.len() >= 13, "{page}");
    for name in of_series.iter().map(String::as_str).chain(used) {
        let value = |scheme: &[(&str, &str)]| {
            let found = scheme.iter().find(|(known, _)| *known == name);
            let (_, value) = found.unwrap_or_else(|| panic!("no {name} in {scheme:?}"));
            (*value).to_owned()
        };
        assert_ne!(value(&light), value(&dark), "{name}");
        if name.starts_with("--s") {
            let class = format!(".{} {{ stroke: var({name})", &name[2..]);
            assert!(page.contains(&class), "{name}");
        }
    }
}

#[test]
fn the_page_has_no_scripts_and_no_links() {
    let page = page(&report(3, 2)).expect("a page");
    let page = page.replace("http://www.w3.org/2000/svg", "");
    for forbidden in ["<script", "http", "<link", "@import", "url("] {
        assert!(!page.contains(forbidden), "{forbidden}: {page}");
    }
}

#[test]
fn a_series_without_points_is_named() {
    let mut report = report(2, 1);
    report.series[1].points.clear();
    let page = page(&report).expect("a page");
    assert!(page.contains(">series 0</text>"), "{page}");
    assert!(page.contains(">series 1: none</text>"), "{page}");
}

#[test]
fn totals_and_sources_are_shown() {
    let mut report = report(1, 2);
    report.table = Some(TableReport {
        file: "measured.txt".to_owned(),
        device: "NVIDIA H200 NVL".to_owned(),
        driver: "580.1".to_owned(),
        nvrtc: "13.0".to_owned(),
        generator: "1.2.2".to_owned(),
    });
    let page = page(&report).expect("a page");
    for expected in [
        "<td>2.0 → 1.0</td><td>2.3 → 0.8</td><td>0.2500</td>",
        "network, with launches that are no layers</td><td>10.00</td><td>8.00</td><td>3.0</td><td>2.0</td><td>0.2500</td>",
        "<td>tdc-gen</td><td class=\"text\">1.2.3</td>",
        "NVIDIA H200; cost model with the constants of h200",
        "table measured.txt</td><td class=\"text\">measured on NVIDIA H200 NVL; driver 580.1, NVRTC 13.0, tdc-gen 1.2.2",
        "mean</td><td>0.8</td>",
        "Times are those on gpu0. ",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
}
