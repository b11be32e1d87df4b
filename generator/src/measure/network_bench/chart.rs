//! The geometry of a chart over the batch, in SVG units.

use super::Row;
use super::report::Line;
use serde::Serialize;

/// Size of the plotted area, and the margin for labels on its left and below.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const MARGIN: f64 = 64.0;
/// Names in a row of the legend, and the distance of its rows.
const LEGEND_COLUMNS: usize = 3;
const LEGEND_ROW: f64 = 20.0;

/// What a chart shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Microseconds of a run, on a logarithmic axis.
    Time,
    /// Images per second, from zero.
    ImagesPerSecond,
}

impl Quantity {
    fn of(self, row: &Row) -> f64 {
        match self {
            Self::Time => row.us,
            Self::ImagesPerSecond => row.images_per_second,
        }
    }
}

/// A chart as the template draws it.
#[derive(Debug, Serialize)]
pub struct Chart {
    title: &'static str,
    y_title: &'static str,
    width: f64,
    height: f64,
    /// With the legend.
    whole_height: f64,
    margin: f64,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
    series: Vec<Series>,
}

/// A position on an axis with its label.
#[derive(Debug, Serialize)]
struct Tick {
    at: f64,
    label: String,
}

/// A line with its marks.
#[derive(Debug, Serialize)]
struct Series {
    name: String,
    /// Index of its colour.
    colour: usize,
    /// Centre of its mark in the legend.
    legend_x: f64,
    legend_y: f64,
    /// The points as the `points` of a polyline.
    line: String,
    points: Vec<Point>,
}

/// A point with what is shown when it is pointed at.
#[derive(Debug, Serialize)]
struct Point {
    x: f64,
    y: f64,
    title: String,
}

impl Chart {
    /// The chart of some lines, with a tick for each batch.
    pub fn new(quantity: Quantity, lines: &[Line<'_>], batches: &[u32]) -> Self {
        let x = Axis::logarithmic(batches.iter().map(|&batch| f64::from(batch)), WIDTH);
        let values = lines.iter().flat_map(|line| &line.rows);
        let values = values.map(|row| quantity.of(row));
        let y = match quantity {
            Quantity::Time => Axis::logarithmic(values, HEIGHT),
            Quantity::ImagesPerSecond => Axis::from_zero(values, HEIGHT),
        };
        let ticks = y.ticks.iter().map(|&value| Tick {
            at: rounded(HEIGHT - y.at(value)),
            label: format!("{value}"),
        });
        let (title, y_title) = match quantity {
            Quantity::Time => ("Time of a run", "time, us, logarithmic"),
            Quantity::ImagesPerSecond => ("Images per second", "images per second"),
        };
        let rows = lines.len().div_ceil(LEGEND_COLUMNS);
        Self {
            title,
            y_title,
            width: WIDTH + 2.0 * MARGIN,
            height: HEIGHT + MARGIN,
            whole_height: HEIGHT + MARGIN + LEGEND_ROW * rows as f64,
            margin: MARGIN,
            y_ticks: ticks.collect(),
            x_ticks: batches
                .iter()
                .map(|&batch| Tick {
                    at: rounded(MARGIN + x.at(f64::from(batch))),
                    label: batch.to_string(),
                })
                .collect(),
            series: lines
                .iter()
                .enumerate()
                .map(|(index, line)| series(index, line, quantity, [&x, &y]))
                .collect(),
        }
    }
}

fn series(index: usize, line: &Line<'_>, quantity: Quantity, [x, y]: [&Axis; 2]) -> Series {
    let (row, column) = (index / LEGEND_COLUMNS, index % LEGEND_COLUMNS);
    let width = WIDTH / LEGEND_COLUMNS as f64;
    let points = line.rows.iter().map(|row| Point {
        x: rounded(MARGIN + x.at(f64::from(row.batch))),
        y: rounded(HEIGHT - y.at(quantity.of(row))),
        title: format!(
            "{}, batch {}: {:.2} us, {:.0} images/s",
            row.subject, row.batch, row.us, row.images_per_second
        ),
    });
    let points: Vec<Point> = points.collect();
    let places: Vec<_> = points.iter().map(|p| format!("{},{}", p.x, p.y)).collect();
    Series {
        name: line.title.clone(),
        colour: index,
        legend_x: rounded(MARGIN + 10.0 + column as f64 * width),
        legend_y: HEIGHT + MARGIN + row as f64 * LEGEND_ROW,
        line: places.join(" "),
        points,
    }
}

/// A range of values on a length.
struct Axis {
    is_logarithmic: bool,
    /// The ends, or their logarithms.
    ends: [f64; 2],
    length: f64,
    /// Values with a label.
    ticks: Vec<f64>,
}

impl Axis {
    /// An axis over positive values, with ticks at 1, 2 and 5 times powers of ten.
    fn logarithmic(values: impl Iterator<Item = f64>, length: f64) -> Self {
        let (least, most) = values.fold((f64::INFINITY, 0.0f64), |(least, most), value| {
            (least.min(value), most.max(value))
        });
        // Without values, or with a single one, there is still a range.
        let (least, most) = if least <= most {
            (least, most)
        } else {
            (1.0, 1.0)
        };
        let (least, most) = (least / 1.15, most * 1.15);
        let powers = least.log10().floor() as i32..=most.log10().ceil() as i32;
        let ticks = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|n| n * 10f64.powi(power)));
        Self {
            is_logarithmic: true,
            ends: [least.ln(), most.ln()],
            length,
            ticks: ticks.filter(|tick| (least..=most).contains(tick)).collect(),
        }
    }

    /// An axis from zero to a round number.
    fn from_zero(values: impl Iterator<Item = f64>, length: f64) -> Self {
        let most = values.fold(0.0, f64::max).max(1e-9);
        let power = 10f64.powf((most / 5.0).log10().floor());
        let mut steps = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power);
        let step = steps.find(|step| most / step <= 5.0).unwrap_or(most);
        let count = (most / step).ceil();
        Self {
            is_logarithmic: false,
            ends: [0.0, count * step],
            length,
            ticks: (0..=count as u32)
                .map(|index| f64::from(index) * step)
                .collect(),
        }
    }

    /// The distance of a value from the start.
    fn at(&self, value: f64) -> f64 {
        let value = if self.is_logarithmic {
            value.ln()
        } else {
            value
        };
        let [first, last] = self.ends;
        (value - first) / (last - first) * self.length
    }
}

/// To a tenth of a unit.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
