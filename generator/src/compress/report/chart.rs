//! The geometry of the chart of time and loss, in SVG units.

use super::{Point, Series};
use serde::Serialize;

/// Size of the plotted area, and the margin for labels on its left and below.
pub(super) const WIDTH: f64 = 640.0;
pub(super) const HEIGHT: f64 = 360.0;
pub(super) const MARGIN: f64 = 56.0;
/// Names in a row of the legend, and the distance of its rows.
const LEGEND_COLUMNS: usize = 4;
const LEGEND_ROW: f64 = 20.0;
/// Colours of the page's style.
const COLOURS: usize = 10;

/// The chart as a template draws it.
#[derive(Debug, Serialize)]
pub(super) struct Chart {
    pub width: f64,
    pub height: f64,
    /// With the legend.
    pub whole_height: f64,
    pub margin: f64,
    /// Number of colours.
    pub colours: usize,
    pub x_ticks: Vec<Tick>,
    pub y_ticks: Vec<Tick>,
    pub series: Vec<DrawnSeries>,
}

/// A position on an axis with its label.
#[derive(Debug, Serialize)]
pub(super) struct Tick {
    pub at: f64,
    pub label: String,
}

/// Points of one kind.
#[derive(Debug, Serialize)]
pub(super) struct DrawnSeries {
    pub name: String,
    /// Index of its colour.
    pub colour: usize,
    /// Centre of its mark in the legend.
    pub legend_x: f64,
    pub legend_y: f64,
    /// The points as the `points` of a polyline.
    pub line: String,
    pub points: Vec<DrawnPoint>,
}

/// A point with what is shown when it is pointed at.
#[derive(Debug, Serialize)]
pub(super) struct DrawnPoint {
    pub x: f64,
    pub y: f64,
    pub title: String,
}

impl Chart {
    pub(super) fn new(series: &[Series]) -> Self {
        let points = || series.iter().flat_map(|series| &series.points);
        let most = |value: fn(&Point) -> f64| points().map(value).fold(0.0, f64::max);
        let least_us = points().map(|point| point.us).fold(f64::INFINITY, f64::min);
        let x = Axis::new(least_us, most(|point| point.us), WIDTH);
        let y = Axis::new(0.0, most(|point| point.loss), HEIGHT);
        let legend = |index: usize| {
            let (row, column) = (index / LEGEND_COLUMNS, index % LEGEND_COLUMNS);
            let width = WIDTH / LEGEND_COLUMNS as f64;
            let x = MARGIN + 10.0 + column as f64 * width;
            [x, HEIGHT + MARGIN + 10.0 + row as f64 * LEGEND_ROW].map(rounded)
        };
        let rows = series.len().div_ceil(LEGEND_COLUMNS);
        let drawn = series.iter().enumerate().map(|(index, series)| {
            let [legend_x, legend_y] = legend(index);
            let points = series.points.iter().map(|point| DrawnPoint {
                x: rounded(MARGIN + x.at(point.us)),
                y: rounded(HEIGHT - y.at(point.loss)),
                title: format!(
                    "{}: {:.2} us, loss {:.4}, {:.3} GFLOP, {:.2} MB",
                    series.name,
                    point.us,
                    point.loss,
                    point.flops as f64 / 1e9,
                    point.weight_bytes as f64 / 1e6
                ),
            });
            let points: Vec<DrawnPoint> = points.collect();
            let line: Vec<_> = points.iter().map(|p| format!("{},{}", p.x, p.y)).collect();
            DrawnSeries {
                name: series.name.clone(),
                colour: index % COLOURS,
                legend_x,
                legend_y,
                line: line.join(" "),
                points,
            }
        });
        Self {
            width: WIDTH + 2.0 * MARGIN,
            height: HEIGHT + MARGIN,
            whole_height: HEIGHT + MARGIN + LEGEND_ROW * rows as f64,
            margin: MARGIN,
            colours: COLOURS,
            x_ticks: x.ticks(|at| MARGIN + at),
            y_ticks: y.ticks(|at| HEIGHT - at),
            series: drawn.collect(),
        }
    }
}

/// An axis from a round number to a round number.
struct Axis {
    first: f64,
    step: f64,
    steps: usize,
    length: f64,
}

impl Axis {
    fn new(least: f64, most: f64, length: f64) -> Self {
        let span = (most - least).max(most.abs() * 1e-3).max(1e-12);
        let power = 10f64.powf((span / 6.0).log10().floor());
        let mut steps = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power);
        let step = steps.find(|step| span / step <= 6.0).unwrap_or(span);
        let first = (least / step).floor();
        let last = (most / step).ceil().max(first + 1.0);
        Self {
            first: first * step,
            step,
            steps: (last - first) as usize,
            length,
        }
    }

    /// The distance of a value from the start.
    fn at(&self, value: f64) -> f64 {
        (value - self.first) / (self.step * self.steps as f64) * self.length
    }

    fn ticks(&self, place: impl Fn(f64) -> f64) -> Vec<Tick> {
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        let tick = |index: usize| {
            let value = self.first + self.step * index as f64;
            Tick {
                at: rounded(place(self.at(value))),
                label: format!("{value:.digits$}"),
            }
        };
        (0..=self.steps).map(tick).collect()
    }
}

/// To a tenth of a unit.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers_around_all_values() {
        for (least, most) in [(87.3, 123.4), (0.0, 0.031), (5.0, 5.0), (0.0, 0.0)] {
            let axis = Axis::new(least, most, 100.0);
            assert!((2..=9).contains(&(axis.steps + 1)), "{least} {most}");
            for value in [least, most] {
                let at = axis.at(value);
                assert!((-1e-6..=100.000_001).contains(&at), "{least} {most}: {at}");
            }
        }
        let labels: Vec<_> = Axis::new(87.3, 123.4, 100.0).ticks(|at| at);
        let labels: Vec<_> = labels.iter().map(|tick| &tick.label[..]).collect();
        assert_eq!(labels, ["80", "90", "100", "110", "120", "130"]);
    }
}
