//! `tdc-gen calibrate`.

use crate::args::CalibrateArgs;
use crate::failure::Failure;
use crate::inputs::keep_inputs;
use crate::output::{note, print};
use crate::tune;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tdc_generator::config::{Overrides, yaml};
use tdc_generator::cost::Model;
use tdc_generator::emit::write_whole;
use tdc_generator::gpu::{DEFAULT_GPU, Gpu, gpu};
use tdc_generator::measure::tune::{Ended, Fit, Problems, Row, Samples, read_journal};

/// Fits the constants to journals, or to what it measures first; or only tells how well the committed ones do.
pub fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    let inputs = args.configs.iter().chain(&args.journals);
    keep_inputs(inputs.map(PathBuf::as_path), args.out.as_deref())?;
    let problems = problems(&args.configs)?;
    let (gpu, device, rows) = match &args.journals[..] {
        [] => measured(args)?,
        journals => read(journals)?,
    };
    let samples = Samples::new(&problems, rows.iter(), gpu);
    if samples.is_empty() {
        return Err(Failure::Input(
            "no problem of the configs has three rows about tiles of a tiled scheme; name those configs that were measured"
                .to_owned(),
        ));
    }
    let before = Model::of(gpu);
    tell("before", &samples.fit(before));
    if args.check {
        return Ok(());
    }
    let model = samples.calibrate(&Model::START);
    tell("now", &samples.fit(&model));
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("model-{}.txt", gpu.name)));
    let text =
        format!("# Constants of the estimate, by `tdc-gen calibrate` on an {device}.\n{model}");
    write_whole(&out, text.as_bytes()).map_err(Failure::input)?;
    print(format_args!("{}\n", out.display()))
}

/// Those of the configs, with their Tucker ranks and without.
fn problems(configs: &[PathBuf]) -> Result<Problems, Failure> {
    let mut problems = Problems::default();
    for dense in [false, true] {
        let overrides = Overrides {
            dense,
            ..Overrides::default()
        };
        for path in configs {
            problems.add(&yaml::load(path, &overrides).map_err(Failure::input)?);
        }
    }
    Ok(problems)
}

fn tell(when: &str, fit: &Fit) {
    let worst = match &fit.worst_pick {
        (_, none) if none.is_empty() => String::new(),
        (times, problem) => format!(" (at worst {times:.2} x: {problem})"),
    };
    note(format_args!(
        "{when}: {} problems, {} tiles: error {:.1} %, tiles that are picked {:.3} x the best{worst}",
        fit.problems,
        fit.tiles,
        100.0 * fit.error,
        fit.picks
    ));
}

/// A few hundred tiles on the GPU that is there; a journal beside the constants keeps them.
fn measured(args: &CalibrateArgs) -> Result<(&'static Gpu, String, Vec<Row>), Failure> {
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from("calibration.txt"));
    let measured = tune::measure(&args.tune(out))?;
    match measured.summary.ended {
        Ended::Complete => {}
        Ended::Stopped { left } => {
            return Err(Failure::Machine(format!(
                "interrupted with {left} tiles left; the same command goes on with them"
            )));
        }
        Ended::Lost {
            candidate,
            message,
            left,
        } => {
            return Err(Failure::Machine(format!(
                "{candidate} broke the device ({message}); {left} tiles are left, the same command goes on behind it"
            )));
        }
    }
    let rows = measured.journal.rows().cloned().collect();
    Ok((measured.gpu, measured.device, rows))
}

/// The rows of all journals, which must be of one GPU.
fn read(journals: &[PathBuf]) -> Result<(&'static Gpu, String, Vec<Row>), Failure> {
    let mut of = (DEFAULT_GPU.to_owned(), String::new());
    // Of a candidate in several journals, the last.
    let mut all = BTreeMap::new();
    for (index, path) in journals.iter().enumerate() {
        let (environment, rows) = read_journal(path).map_err(Failure::input)?;
        let this = (environment.gpu, environment.device);
        if index > 0 && this != of {
            return Err(Failure::Input(format!(
                "{}: measured on a {} ({}), those before on a {} ({}); calibrate one GPU at a time",
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
