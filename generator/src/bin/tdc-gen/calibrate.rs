//! `tdc-gen calibrate`.

use crate::args::CalibrateArgs;
use crate::config::load;
use crate::failure::Failure;
use crate::inputs::reject_overwriting;
use crate::output::{note, print};
use crate::tune;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tdc_generator::emit::write_atomic;
use tdc_generator::gpu::{DEFAULT_GPU, Gpu, gpu};
use tdc_generator::measure::tune::{Fit, GROUPS, Problems, Row, RunEnd, Samples, read_journal};
use tdc_generator::wording::counted;

/// Fits the constants to journals or to new measurements, or only evaluates the built-in ones.
pub fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    let inputs = args.configs.iter().chain(&args.journals);
    reject_overwriting(inputs.map(PathBuf::as_path), args.out.as_deref())?;
    let problems = problems(&args.configs)?;
    let (gpu, device, rows) = match &args.journals[..] {
        [] => measure_samples(args)?,
        journals => read_journals(journals)?,
    };
    let before = gpu.cost_model();
    let mut model = *before;
    let mut any = false;
    for group in GROUPS {
        let samples = Samples::new(*group, &problems, rows.iter(), gpu);
        let requested = args.groups.is_empty() || args.groups.iter().any(|name| name == group.name);
        if samples.is_empty() || !requested {
            continue;
        }
        any = true;
        print_fit(group.name, "built-in constants", &samples.fit(before));
        if !args.evaluate {
            model = samples.calibrate(&model);
            print_fit(group.name, "fitted constants", &samples.fit(&model));
        }
    }
    if !any {
        return Err(Failure::Input(
            "no problem of the configs has three measured tiles of a scheme; give the configs that the journals were made with"
                .to_owned(),
        ));
    }
    if args.evaluate {
        return Ok(());
    }
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("model-{}.txt", gpu.name)));
    let text = format!(
        "# Constants of the cost model, fitted by `tdc-gen calibrate` for {device}.\n{model}"
    );
    write_atomic(&out, text.as_bytes()).map_err(Failure::input)?;
    print(format_args!("{}\n", out.display()))
}

/// The problems of the configs in every form.
fn problems(configs: &[PathBuf]) -> Result<Problems, Failure> {
    let mut problems = Problems::default();
    for overrides in Problems::measured_forms() {
        for path in configs {
            problems.add(&load(path, &overrides)?.0);
        }
    }
    Ok(problems)
}

fn print_fit(group: &str, when: &str, fit: &Fit) {
    let worst = match &fit.worst_selection {
        (_, none) if none.is_empty() => String::new(),
        (times, problem) => format!(" (worst {times:.2}x: {problem})"),
    };
    note(format_args!(
        "{group}, {when}: {}, {}: error {:.1} %, selected tiles {:.3}x the fastest{worst}",
        counted(fit.problems, "problem"),
        counted(fit.tiles, "tile"),
        100.0 * fit.error,
        fit.selection_ratio
    ));
}

/// Measures a few hundred tiles on the local GPU; a journal next to the constants has the results.
fn measure_samples(args: &CalibrateArgs) -> Result<(&'static Gpu, String, Vec<Row>), Failure> {
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from("calibration.txt"));
    let measured = tune::measure(&args.tune(out))?;
    match measured.summary.ended {
        RunEnd::Complete => {}
        RunEnd::Interrupted { left } => {
            return Err(Failure::Machine(format!(
                "interrupted with {} left; run the same command to resume",
                counted(left, "tile")
            )));
        }
        RunEnd::DeviceLost {
            candidate,
            message,
            left,
        } => {
            return Err(Failure::Machine(format!(
                "{candidate} made the GPU unusable ({message}); {} left; run the same command to resume after it",
                counted(left, "tile")
            )));
        }
    }
    let rows = measured.journal.rows().cloned().collect();
    Ok((measured.gpu, measured.device, rows))
}

/// The rows of all journals, which must be of one GPU.
fn read_journals(journals: &[PathBuf]) -> Result<(&'static Gpu, String, Vec<Row>), Failure> {
    let mut of = (DEFAULT_GPU.to_owned(), String::new());
    // The last row of a candidate counts, over all journals.
    let mut all = BTreeMap::new();
    for (index, path) in journals.iter().enumerate() {
        let (environment, rows) = read_journal(path).map_err(Failure::input)?;
        let this = (environment.gpu, environment.device);
        if index > 0 && this != of {
            return Err(Failure::Input(format!(
                "{}: measured on {} ({}), but the journals before it on {} ({}); calibrate one GPU at a time",
                path.display(),
                this.0,
                this.1,
                of.0,
                of.1
            )));
        }
        of = this;
        all.extend(rows.into_iter().map(|row| (row.candidate(), row)));
    }
    let gpu = gpu(&of.0).map_err(Failure::input)?;
    Ok((gpu, of.1, all.into_values().collect()))
}
