//! A report as a text table.

use super::{CandidateResult, CudnnBest, ProblemReport, Report, Timed};
use crate::plan::ChosenBy;

/// The report as text: environment, a row for each problem, candidates, geometric means. Times are in
/// microseconds.
pub fn report_table(report: &Report) -> String {
    let mut text = head(report);
    text += "\n";
    text += &aligned(&overview(report));
    text += "\nFastest candidate of each scheme\n";
    text += &aligned(&schemes(report));
    if report.environment.cudnn.is_some() {
        text += "\nFastest cuDNN algorithms\n";
        text += &aligned(&algorithms(report));
    }
    let failures = report.failures();
    let notes = report.cudnn_notes();
    if !failures.is_empty() || !notes.is_empty() {
        text += "\nNot measured\n";
        for line in failures.iter().chain(&notes) {
            text += &format!("{line}\n");
        }
    }
    text += "\nGeometric means\n";
    let means = report.means().into_iter().map(|mean| {
        vec![
            Cell::left(mean.title),
            Cell::right(format!("{:.2}", mean.mean)),
            Cell::left(format!("over {}", mean.problems)),
        ]
    });
    text += &aligned(&means.collect::<Vec<_>>());
    text += "\n";
    text += &summary_lines(report);
    if let Some(reason) = &report.stopped {
        text += &format!("\nRun ended early: {reason}\n");
    }
    text
}

/// Plans near the floor of the fp32 lanes and problems for which others are faster, one line each.
fn summary_lines(report: &Report) -> String {
    let near = report.near_fp32_lanes_floor();
    let mut text = format!(
        "Plans within max(1.8 x floor, floor + 2 us), with the floor of the fp32 lanes: {} of {}",
        near.count, near.total
    );
    if !near.others.is_empty() {
        text += &format!("; all but {}", near.others.join("; "));
    }
    text += "\n";
    for faster in report.faster_than_plan() {
        let where_it_is = match &faster.problems[..] {
            [] => "never".to_owned(),
            labels => labels.join("; "),
        };
        text += &format!("{} faster than the plan: {where_it_is}\n", faster.title);
    }
    text
}

fn head(report: &Report) -> String {
    let environment = &report.environment;
    let cudnn = match &environment.cudnn {
        Some(version) => format!("cuDNN {version}"),
        None => "no cuDNN".to_owned(),
    };
    let mut text = format!(
        "{}: measured on {}, planned for {}; driver {}, NVRTC {}, {cudnn}, tdc-gen {}\n",
        report.name,
        environment.device,
        environment.gpu,
        environment.driver,
        environment.nvrtc,
        environment.generator
    );
    for sentence in &environment.method {
        text += &format!("{sentence}\n");
    }
    text
}

/// A cell of a table.
struct Cell {
    text: String,
    right: bool,
}

impl Cell {
    fn left(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            right: false,
        }
    }

    fn right(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            right: true,
        }
    }

    /// A time or a ratio; `-` if missing.
    fn number(value: Option<f64>) -> Self {
        Self::right(value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}")))
    }

    fn error(timed: Option<&Timed>) -> Self {
        let error = timed.map(|timed| format!("{:.1e}", timed.relative_error));
        Self::right(error.unwrap_or_else(|| "-".to_owned()))
    }
}

/// Rows with columns of equal width, separated by two spaces.
fn aligned(rows: &[Vec<Cell>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| cell.text.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, &width) in row.iter().zip(&widths) {
            line += &match cell.right {
                true => format!("{:>width$}  ", cell.text),
                false => format!("{:<width$}  ", cell.text),
            };
        }
        text += line.trim_end();
        text += "\n";
    }
    text
}

fn titles(titles: &[&str]) -> Vec<Cell> {
    titles.iter().map(|title| Cell::right(*title)).collect()
}

fn ratio(over: Option<f64>, under: Option<f64>) -> Option<f64> {
    Some(over? / under?)
}

fn overview(report: &Report) -> Vec<Vec<Cell>> {
    let with_cudnn = report.environment.cudnn.is_some();
    let mut head = vec![Cell::left("C,N,H,W")];
    head.extend(titles(&["floor", "lanes", "plan", "cold", "error", "best"]));
    let choosers = other_choosers(report);
    head.extend(titles(&choosers));
    if with_cudnn {
        head.extend(titles(&[
            "cuDNN",
            "cold",
            "error",
            "cuDNN/plan",
            "cuDNN/best",
            "fp32 math",
            "fp32 data",
            "fp16",
        ]));
    }
    head.extend(report.published_titles().iter().map(Cell::right));
    head.push(Cell::left("plan: scheme and tile"));
    head.push(Cell::left("best: scheme and tile"));
    head.push(Cell::left("chosen by"));
    let mut rows = vec![head];
    for problem in &report.problems {
        rows.push(overview_row(report, problem, &choosers, with_cudnn));
    }
    rows
}

/// The choosers that differ from the plan for some problem.
fn other_choosers(report: &Report) -> Vec<&'static str> {
    let differs = |chooser: &&str| {
        let mut problems = report.problems.iter();
        problems.any(|problem| {
            let selected = problem.first_selected_by(chooser);
            selected.is_some_and(|candidate| !candidate.is_selected_by("plan"))
        })
    };
    ["tuned", "model"].into_iter().filter(differs).collect()
}

fn overview_row(
    report: &Report,
    problem: &ProblemReport,
    choosers: &[&str],
    with_cudnn: bool,
) -> Vec<Cell> {
    let planned = problem.planned().and_then(|candidate| candidate.timed());
    let (planned_us, best_us) = (problem.planned_us(), problem.best_us());
    let mut row = vec![
        Cell::left(&problem.label),
        Cell::number(Some(problem.floor_us)),
        Cell::number(Some(problem.fp32_lanes_floor_us)),
        Cell::number(planned_us),
        Cell::number(planned.and_then(|timed| timed.cold_us)),
        Cell::error(planned),
        Cell::number(best_us),
    ];
    row.extend(choosers.iter().map(|chooser| {
        let selected = problem
            .first_selected_by(chooser)
            .and_then(CandidateResult::timed);
        Cell::number(selected.map(|timed| timed.us))
    }));
    if with_cudnn {
        let fp32 = problem
            .cudnn_best(|cudnn| &cudnn.same_bound)
            .map(|cudnn_best| &cudnn_best.timed);
        let us = |cudnn_best: Option<&CudnnBest>| cudnn_best.map(|cudnn_best| cudnn_best.timed.us);
        let fp32_us = fp32.map(|timed| timed.us);
        row.extend([
            Cell::number(fp32_us),
            Cell::number(fp32.and_then(|timed| timed.cold_us)),
            Cell::error(fp32),
            Cell::number(ratio(fp32_us, planned_us)),
            Cell::number(ratio(fp32_us, best_us)),
            Cell::number(us(problem.cudnn_best(|cudnn| &cudnn.fp32_arithmetic))),
            Cell::number(us(problem.cudnn_best(|cudnn| &cudnn.fp32_data))),
            Cell::number(us(problem.cudnn_best(|cudnn| &cudnn.fp16))),
        ]);
    }
    let published = report.published_us(problem);
    for index in 0..report.published_titles().len() {
        let us = published.as_ref().and_then(|times| times[index]);
        row.push(Cell::number(us));
    }
    for candidate in [problem.planned(), problem.best()] {
        let text = candidate.map(|candidate| format!("{} {}", candidate.kind(), candidate.tile));
        row.push(Cell::left(text.unwrap_or_else(|| "-".to_owned())));
    }
    let chooser = problem.plan_chosen_by.map_or("-", ChosenBy::as_str);
    row.push(Cell::left(chooser));
    row
}

/// The fastest candidate of each scheme, with the choices of the cost model, the tuning table and the paper
/// within it.
fn schemes(report: &Report) -> Vec<Vec<Cell>> {
    let mut head = vec![
        Cell::left("C,N,H,W"),
        Cell::left("scheme"),
        Cell::left("tile"),
    ];
    head.extend(titles(&[
        "us",
        "predicted",
        "model",
        "tuned",
        "paper",
        "error",
    ]));
    let mut rows = vec![head];
    for problem in &report.problems {
        for best in problem.best_of_kinds() {
            let of_pick = |pick: &str| {
                let mut of_kind = problem
                    .candidates
                    .iter()
                    .filter(|o| o.kind() == best.kind());
                let selected = of_kind.find(|candidate| candidate.is_selected_by(pick))?;
                Some(selected.timed()?.us)
            };
            let timed = best.timed();
            rows.push(vec![
                Cell::left(&problem.label),
                Cell::left(best.kind()),
                Cell::left(&best.tile),
                Cell::number(timed.map(|timed| timed.us)),
                Cell::number(best.predicted_us),
                Cell::number(of_pick("scheme_model")),
                Cell::number(of_pick("scheme_tuned")),
                Cell::number(of_pick("scheme_paper")),
                Cell::error(timed),
            ]);
        }
    }
    rows
}

/// The algorithm behind each of cuDNN's times.
fn algorithms(report: &Report) -> Vec<Vec<Cell>> {
    let mut rows = vec![vec![
        Cell::left("C,N,H,W"),
        Cell::left("error bound"),
        Cell::right("us"),
        Cell::right("cold"),
        Cell::right("error"),
        Cell::left("algorithm"),
    ]];
    for problem in &report.problems {
        let Some(cudnn) = &problem.cudnn else {
            continue;
        };
        for (title, cudnn_best) in [
            ("same bound", &cudnn.same_bound),
            ("2e-5", &cudnn.fp32_arithmetic),
            ("1e-3", &cudnn.fp32_data),
            ("5e-3, fp16", &cudnn.fp16),
        ] {
            let timed = cudnn_best.as_ref().map(|cudnn_best| &cudnn_best.timed);
            let algorithm = cudnn_best
                .as_ref()
                .map(|cudnn_best| cudnn_best.algorithm.clone());
            rows.push(vec![
                Cell::left(&problem.label),
                Cell::left(title),
                Cell::number(timed.map(|timed| timed.us)),
                Cell::number(timed.and_then(|timed| timed.cold_us)),
                Cell::error(timed),
                Cell::left(algorithm.unwrap_or_else(|| "-".to_owned())),
            ]);
        }
    }
    rows
}
