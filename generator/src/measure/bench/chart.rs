//! Charts of a report.

use super::{ProblemReport, Report};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

/// An error of the drawing library.
type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// A chart could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the chart {file} cannot be drawn: {why}")]
pub struct ChartError {
    file: String,
    why: String,
}

/// An SVG under construction.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Colours of the series, distinguishable with red-green colour blindness, on the white background that every
/// chart has.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x00, 0x9e, 0x73),
];
/// The two floors: the physical limit, and that of the fp32 lanes.
const FLOORS: [(&str, RGBColor); 2] = [
    ("floor", BLACK),
    ("fp32 lanes' floor", RGBColor(0x88, 0x88, 0x88)),
];
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// Length in pixels of the axis of times, or of N.
const LENGTH: u32 = 720;
/// Margin around the chart in pixels.
const MARGIN: u32 = 12;
/// Height of a line of text in pixels.
const LINE: u32 = 20;
/// Upper limit of the width of a character in pixels; the viewer chooses the font.
const LETTER: u32 = 8;
/// The font size in Plotters' units: 12 pixels in the SVG.
const FONT: (&str, f64) = ("sans-serif", 12.0 * 1.24);

/// The charts of a report with their file names: a group of bars for each problem, or lines over N if the
/// problems differ in N only.
///
/// # Errors
/// [`ChartError`], if the drawing library fails; no such case is known.
pub fn charts(report: &Report) -> Result<Vec<(String, String)>, ChartError> {
    let series = series(report);
    let mut charts = vec![(format!("{}.svg", report.name), bars(report, &series))];
    if let Some(n) = sweep_axis(report) {
        let file = format!("{}-over-n.svg", report.name);
        charts.push((file, lines(report, &series, &n)));
    }
    let charts = charts.into_iter().map(|(file, chart)| match chart {
        Ok(chart) => Ok((file, chart)),
        Err(why) => Err(ChartError {
            file,
            why: why.to_string(),
        }),
    });
    charts.collect()
}

/// The times of one series for all problems.
struct Series {
    title: &'static str,
    us: Vec<Option<f64>>,
}

fn series(report: &Report) -> Vec<Series> {
    type Time = fn(&ProblemReport) -> Option<f64>;
    let all: [(&str, Time); 5] = [
        ("plan", ProblemReport::planned_us),
        ("best candidate", ProblemReport::best_us),
        ("cuDNN fp32", |problem| {
            Some(problem.cudnn_best(|cudnn| &cudnn.same_bound)?.timed.us)
        }),
        ("cuDNN fp32 data", |problem| {
            Some(problem.cudnn_best(|cudnn| &cudnn.fp32_data)?.timed.us)
        }),
        ("cuDNN fp16", |problem| {
            Some(problem.cudnn_best(|cudnn| &cudnn.fp16)?.timed.us)
        }),
    ];
    let series = all.into_iter().map(|(title, time)| Series {
        title,
        us: report.problems.iter().map(time).collect(),
    });
    series
        .filter(|series| series.us.iter().any(Option::is_some))
        .collect()
}

/// The two floors of each problem, in the order of [`FLOORS`].
fn floors(report: &Report) -> [Vec<f64>; 2] {
    let of = |floor: fn(&ProblemReport) -> f64| report.problems.iter().map(floor).collect();
    [
        of(|problem| problem.floor_us),
        of(|problem| problem.fp32_lanes_floor_us),
    ]
}

/// The axis of times in microseconds.
#[derive(Clone, Copy)]
struct Axis {
    least: f64,
    most: f64,
    logarithmic: bool,
}

impl Axis {
    /// An axis for all times and floors; logarithmic if the longest is more than ten times the shortest.
    fn new(report: &Report, series: &[Series]) -> Self {
        let floors = floors(report);
        let times = series.iter().flat_map(|series| series.us.iter().flatten());
        let all = times.chain(floors.iter().flatten()).copied();
        let (least, most) = all.fold((f64::INFINITY, 0.0_f64), |(least, most), us| {
            (least.min(us), most.max(us))
        });
        if most > 10.0 * least {
            let decade = 10_f64.powf(least.log10().floor());
            let steps = [5.0, 2.0, 1.0].map(|step| step * decade);
            Self {
                least: steps
                    .into_iter()
                    .find(|step| *step < least)
                    .unwrap_or(decade / 2.0),
                most: most * 1.1,
                logarithmic: true,
            }
        } else {
            Self {
                least: 0.0,
                most: if most > 0.0 { most * 1.1 } else { 1.0 },
                logarithmic: false,
            }
        }
    }

    /// Values of the grid lines.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let first = 10_f64.powf(self.least.log10().floor());
            let decades = (0..9).map(|decade| first * 10_f64.powi(decade));
            let ticks = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * decade));
            // Tolerates rounding errors.
            let least = self.least * (1.0 - 1e-9);
            let shown = ticks.filter(|tick| (least..=self.most).contains(tick));
            return shown.collect();
        }
        let magnitude = 10_f64.powf(self.most.log10().floor());
        let step = [0.1, 0.2, 0.5, 1.0]
            .into_iter()
            .map(|step| step * magnitude)
            .find(|step| self.most / step <= 8.0)
            .unwrap_or(2.0 * magnitude);
        let count = (self.most / step) as usize;
        (0..=count).map(|tick| tick as f64 * step).collect()
    }

    /// Position of a time on the axis, from 0 to 1.
    fn share(&self, us: f64) -> f64 {
        let share = match self.logarithmic {
            true => (us / self.least).ln() / (self.most / self.least).ln(),
            false => us / self.most,
        };
        share.clamp(0.0, 1.0)
    }

    fn title(&self) -> &'static str {
        match self.logarithmic {
            true => "microseconds, logarithmic",
            false => "microseconds",
        }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, us: &f64, (begin, end): (i32, i32)) -> i32 {
        begin + (f64::from(end - begin) * self.share(*us)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks()
    }

    fn range(&self) -> Range<f64> {
        self.least..self.most
    }
}

/// Groups of bars, one below another, counted in bars.
#[derive(Clone, Copy)]
struct Groups {
    count: usize,
    /// Bars of a group, including the gap.
    height: f64,
}

impl Groups {
    fn end(self) -> f64 {
        self.height * self.count as f64
    }
}

impl Ranged for Groups {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    /// Index of the group from the top.
    fn map(&self, row: &f64, (bottom, top): (i32, i32)) -> i32 {
        top + (f64::from(bottom - top) * row / self.end()).round() as i32
    }

    /// The centres of the groups, where their labels are.
    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        let groups = 0..self.count;
        groups
            .map(|index| self.height * (index as f64 + 0.5))
            .collect()
    }

    fn range(&self) -> Range<f64> {
        0.0..self.end()
    }
}

/// Label of a value on an axis.
fn figure(value: &f64) -> String {
    format!("{}", (value * 1000.0).round() / 1000.0)
}

/// Upper limit of the width of a text in pixels.
fn width_of(text: &str) -> u32 {
    LETTER * text.chars().count() as u32
}

fn text_style(pos: (HPos, VPos)) -> TextStyle<'static> {
    FONT.into_font().color(&BLACK).pos(Pos::new(pos.0, pos.1))
}

/// An entry of the legend.
struct Entry {
    title: &'static str,
    colour: RGBColor,
    is_floor: bool,
}

fn legend(series: &[Series]) -> Vec<Entry> {
    let bars = series.iter().zip(COLOURS).map(|(series, colour)| Entry {
        title: series.title,
        colour,
        is_floor: false,
    });
    let floors = FLOORS.iter().map(|&(title, colour)| Entry {
        title,
        colour,
        is_floor: true,
    });
    bars.chain(floors).collect()
}

/// The entries of a legend of the given width, by line.
fn legend_lines(entries: &[Entry], width: u32) -> Vec<Vec<(u32, &Entry)>> {
    const MARK: u32 = 18;
    const GAP: u32 = 14;

    let mut lines = vec![Vec::new()];
    let mut x = 0;
    for entry in entries {
        let taken = MARK + width_of(entry.title);
        if x > 0 && x + taken > width {
            lines.push(Vec::new());
            x = 0;
        }
        if let Some(line) = lines.last_mut() {
            line.push((x, entry));
        }
        x += taken + GAP;
    }
    lines
}

/// Draws background, title and legend, then `body` on the remaining area.
fn drawing(
    report: &Report,
    series: &[Series],
    [width, height]: [u32; 2],
    body: impl FnOnce(&Area<'_>) -> Result<(), DrawError>,
) -> Result<String, DrawError> {
    const MARK: i32 = 12;

    let entries = legend(series);
    let legend = legend_lines(&entries, width);
    let head = MARGIN + LINE * (legend.len() as u32 + 1);
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, (width + 2 * MARGIN, head + height + MARGIN))
        .into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("{} on {}", report.name, report.environment.device);
    let left = MARGIN as i32;
    let line = |index: u32| (MARGIN + LINE * index + LINE / 2) as i32;
    let style = text_style((HPos::Left, VPos::Center));
    root.draw(&Text::new(title, (left, line(0)), style.clone()))?;
    for (index, entries) in (1..).zip(&legend) {
        let y = line(index);
        for (x, entry) in entries {
            let x = left + *x as i32;
            let (half, colour) = (MARK / 2, entry.colour);
            if entry.is_floor {
                root.draw(&PathElement::new(
                    [(x, y), (x + MARK, y)],
                    colour.stroke_width(2),
                ))?;
            } else {
                let corners = [(x, y - half), (x + MARK, y + half)];
                root.draw(&Rectangle::new(corners, colour.filled()))?;
            }
            root.draw(&Text::new(entry.title, (x + MARK + 6, y), style.clone()))?;
        }
    }
    let below = root.margin(head, MARGIN, MARGIN, MARGIN);
    body(&below)?;
    root.present()?;
    drop((below, root));
    Ok(text)
}

/// A group of bars for each problem, one below another, because labels are long.
fn bars(report: &Report, series: &[Series]) -> Result<String, DrawError> {
    /// Height of a bar in pixels.
    const BAR: u32 = 9;

    let axis = Axis::new(report, series);
    let bars = series.len() as f64;
    let groups = Groups {
        count: report.problems.len(),
        height: bars + 1.5,
    };
    let labels = report
        .problems
        .iter()
        .map(|problem| width_of(&problem.label));
    let label_width = labels.max().unwrap_or(0) + 12;
    let foot = 2 * LINE;
    let size = [
        label_width + LENGTH + MARGIN,
        (groups.end() * f64::from(BAR)).ceil() as u32 + foot,
    ];
    drawing(report, series, size, |area| {
        let mut chart = ChartBuilder::on(area)
            .x_label_area_size(foot)
            .y_label_area_size(label_width)
            .margin_right(MARGIN)
            .build_cartesian_2d(axis, groups)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(GRID)
            .label_style(FONT.into_font().color(&BLACK))
            .x_desc(axis.title())
            .x_label_formatter(&figure)
            .y_label_formatter(&|row| {
                let problem = report.problems.get((row / groups.height) as usize);
                problem.map_or_else(String::new, |problem| problem.label.clone())
            })
            .draw()?;
        for index in 0..groups.count {
            let top = groups.height * index as f64 + 0.75;
            for (place, (series, colour)) in series.iter().zip(COLOURS).enumerate() {
                if let Some(us) = series.us[index] {
                    let y = top + place as f64;
                    let corners = [(axis.least, y), (us, y + 0.9)];
                    chart.draw_series([Rectangle::new(corners, colour.filled())])?;
                }
            }
            for (us, (_, colour)) in floors(report).iter().zip(FLOORS).rev() {
                let ends = [(us[index], top - 0.25), (us[index], top + bars + 0.15)];
                chart.draw_series([PathElement::new(ends, colour.stroke_width(2))])?;
            }
        }
        Ok(())
    })
}

/// N of every problem, if there are several and they differ in N only.
fn sweep_axis(report: &Report) -> Option<Vec<f64>> {
    let first = report.problems.first()?.shape;
    let n: Vec<u32> = report
        .problems
        .iter()
        .map(|problem| problem.shape.n)
        .collect();
    let alike = report.problems.iter().all(|problem| {
        let mut shape = problem.shape;
        shape.n = first.n;
        shape == first
    });
    let ascending = n.is_sorted_by(|a, b| a < b);
    (n.len() > 1 && alike && ascending).then(|| n.into_iter().map(f64::from).collect())
}

/// Times over N.
fn lines(report: &Report, series: &[Series], n: &[f64]) -> Result<String, DrawError> {
    const HEIGHT: u32 = 320;
    const FIGURES: u32 = 70;

    let axis = Axis::new(report, series);
    let foot = 2 * LINE;
    let last = n.last().copied().unwrap_or(1.0);
    let shape = report.problems[0].shape;
    let axis_title = format!(
        "output channels N ({}x{} filter, C {}, H {}, W {}, batch {})",
        shape.r, shape.s, shape.c, shape.h, shape.w, shape.batch
    );
    let size = [FIGURES + LENGTH + MARGIN, HEIGHT + foot];
    drawing(report, series, size, |area| {
        let mut chart = ChartBuilder::on(area)
            .x_label_area_size(foot)
            .y_label_area_size(FIGURES)
            .margin_right(3 * MARGIN)
            .margin_top(MARGIN)
            .build_cartesian_2d(0.0..last, axis)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(GRID)
            .label_style(FONT.into_font().color(&BLACK))
            .x_desc(axis_title)
            .y_desc(axis.title())
            .x_label_formatter(&figure)
            .y_label_formatter(&figure)
            .draw()?;
        let us = series.iter().map(|series| series.us.clone());
        let coloured = us.zip(COLOURS);
        let floors = floors(report).map(|floor| floor.into_iter().map(Some).collect());
        let floors = floors.into_iter().zip(FLOORS.map(|(_, colour)| colour));
        for (us, colour) in coloured.chain(floors) {
            let points = n.iter().zip(us);
            let points = points.filter_map(|(&n, us)| Some((n, us?)));
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        }
        Ok(())
    })
}
