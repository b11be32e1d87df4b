//! Charts of a report.

use super::{ProblemReport, Report};
use std::fmt::Write;

/// Colours of the series, distinguishable with red-green colour blindness.
const COLOURS: [&str; 5] = ["#0072b2", "#56b4e9", "#e69f00", "#cc79a7", "#009e73"];

/// Margins in pixels: left, right, bottom, top. Labels of problems are long and slanted.
const MARGIN: [f64; 4] = [100.0, 20.0, 120.0, 64.0];
/// Height of the longest bar in pixels.
const HEIGHT: f64 = 260.0;

/// Minimal width of the axis in pixels; the legend fits in it.
const MIN_WIDTH: f64 = 640.0;

/// The charts of a report with their file names: a group of bars for each problem, or lines over N if the
/// problems differ in N only.
pub fn charts(report: &Report) -> Vec<(String, String)> {
    let series = series(report);
    let mut charts = vec![(format!("{}.svg", report.name), bars(report, &series))];
    if let Some(n) = sweep_axis(report) {
        charts.push((
            format!("{}-over-n.svg", report.name),
            lines(report, &series, &n),
        ));
    }
    charts
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

/// The axis of times in microseconds.
struct Axis {
    least: f64,
    most: f64,
    logarithmic: bool,
}

impl Axis {
    /// An axis for all times; logarithmic if the longest is more than ten times the shortest.
    fn new(times: impl Iterator<Item = f64>) -> Self {
        let (least, most) = times.fold((f64::INFINITY, 0.0_f64), |(least, most), us| {
            (least.min(us), most.max(us))
        });
        if most > 10.0 * least {
            let decade = 10_f64.powf(least.log10().floor());
            let steps = [5.0, 2.0, 1.0].map(|step| step * decade);
            Self {
                least: steps
                    .into_iter()
                    .find(|step| *step < least)
                    .unwrap_or(decade),
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

    /// Height above the axis in pixels.
    fn height(&self, us: f64) -> f64 {
        let share = match self.logarithmic {
            true => (us / self.least).ln() / (self.most / self.least).ln(),
            false => us / self.most,
        };
        share.clamp(0.0, 1.0) * HEIGHT
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
}

/// A drawing of a given width, with title, legend and axis of times.
struct Drawing {
    text: String,
    foot: f64,
}

impl Drawing {
    fn new(report: &Report, series: &[Series], axis: &Axis, width: f64) -> Self {
        let [left, right, bottom, top] = MARGIN;
        let (full_width, full_height) = (left + width + right, top + HEIGHT + bottom);
        let mut drawing = Self {
            text: format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{full_width:.0}\" height=\"{full_height:.0}\" \
                 viewBox=\"0 0 {full_width:.0} {full_height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
                 <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
            ),
            foot: top + HEIGHT,
        };
        let scale = if axis.logarithmic {
            ", logarithmic"
        } else {
            ""
        };
        let title = format!(
            "{} on {}: time in microseconds{scale}",
            report.name, report.environment.device
        );
        drawing.label(left, 20.0, &title, "font-size=\"14\"");
        let mut x = left;
        for (index, series) in series.iter().enumerate() {
            drawing.bar(x, 32.0, 12.0, 12.0, COLOURS[index]);
            drawing.label(x + 16.0, 43.0, series.title, "");
            x += 30.0 + 7.0 * series.title.len() as f64;
        }
        drawing.line(
            [x, 38.0],
            [x + 12.0, 38.0],
            "stroke=\"black\" stroke-width=\"2\"",
        );
        drawing.label(x + 16.0, 43.0, "floor", "");
        for tick in axis.ticks() {
            let y = drawing.foot - axis.height(tick);
            drawing.line([left, y], [left + width, y], "stroke=\"#dddddd\"");
            let figure = format!("{}", (tick * 1000.0).round() / 1000.0);
            drawing.label(left - 6.0, y + 4.0, &figure, "text-anchor=\"end\"");
        }
        drawing
    }

    fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], style: &str) {
        self.put(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>"
        ));
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ));
    }

    fn label(&mut self, x: f64, y: f64, text: &str, style: &str) {
        let text = text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>"
        ));
    }

    fn put(&mut self, element: std::fmt::Arguments) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{element}");
    }

    fn finished(mut self) -> String {
        self.text += "</svg>\n";
        self.text
    }
}

fn times<'a>(report: &'a Report, series: &'a [Series]) -> impl Iterator<Item = f64> + 'a {
    let floors = report.problems.iter().map(|problem| problem.floor_us);
    let us = series.iter().flat_map(|series| series.us.iter().flatten());
    floors.chain(us.copied())
}

fn bars(report: &Report, series: &[Series]) -> String {
    const BAR: f64 = 10.0;
    let group = BAR * (series.len() as f64 + 1.5);
    let axis = Axis::new(times(report, series));
    let width = (group * report.problems.len() as f64).max(MIN_WIDTH);
    let mut drawing = Drawing::new(report, series, &axis, width);
    let foot = drawing.foot;
    for (index, problem) in report.problems.iter().enumerate() {
        let left = MARGIN[0] + group * index as f64 + 0.75 * BAR;
        for (place, series) in series.iter().enumerate() {
            if let Some(us) = series.us[index] {
                let height = axis.height(us);
                let x = left + BAR * place as f64;
                drawing.bar(x, foot - height, BAR - 1.0, height, COLOURS[place]);
            }
        }
        let floor = foot - axis.height(problem.floor_us);
        let right = left + BAR * series.len() as f64;
        let style = "stroke=\"black\" stroke-width=\"2\"";
        drawing.line([left - 2.0, floor], [right + 1.0, floor], style);
        let (x, y) = ((left + right) / 2.0, foot + 14.0);
        let turned = format!("text-anchor=\"end\" transform=\"rotate(-45 {x:.1} {y:.1})\"");
        drawing.label(x, y, &problem.label, &turned);
    }
    drawing.finished()
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

fn lines(report: &Report, series: &[Series], n: &[f64]) -> String {
    const WIDTH: f64 = MIN_WIDTH;
    let axis = Axis::new(times(report, series));
    let mut drawing = Drawing::new(report, series, &axis, WIDTH);
    let foot = drawing.foot;
    let last = n.last().copied().unwrap_or(1.0);
    let x = |n: f64| MARGIN[0] + WIDTH * n / last;
    let floors = report.problems.iter().map(|problem| Some(problem.floor_us));
    let floors: Vec<Option<f64>> = floors.collect();
    let coloured = series.iter().map(|series| &series.us).zip(COLOURS);
    for (us, colour) in coloured.chain([(&floors, "black")]) {
        let points = n.iter().zip(us).filter_map(|(&n, us)| {
            let y = foot - axis.height((*us)?);
            Some(format!("{:.1},{y:.1}", x(n)))
        });
        let points = points.collect::<Vec<_>>().join(" ");
        drawing.put(format_args!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        ));
    }
    for &value in n {
        drawing.label(
            x(value),
            foot + 16.0,
            &format!("{value}"),
            "text-anchor=\"middle\"",
        );
    }
    let shape = report.problems[0].shape;
    let axis_title = format!(
        "output channels N ({}x{} filter, C {}, H {}, W {}, batch {})",
        shape.r, shape.s, shape.c, shape.h, shape.w, shape.batch
    );
    drawing.label(MARGIN[0], foot + 40.0, &axis_title, "");
    drawing.finished()
}
