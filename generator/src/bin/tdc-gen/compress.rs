//! `tdc-gen compress`.

mod report;

use crate::args::CompressArgs;
use crate::config::{Source, load};
use crate::failure::Failure;
use crate::inputs::{in_file, reject_overwriting};
use crate::output::{note, print};
use crate::tuned_launches::TunedLaunches;
use crate::tuning_session::TuningSession;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tdc_generator::compress::loss::{Factorising, LossTable};
use tdc_generator::compress::report::{Compared, Found, RelativeTimes};
use tdc_generator::compress::{
    Budget, Choice, Compression, Form, Limit, Losses, LowerBound, MAX_TARGETS, Method, Scope,
    TuneError, has_ranks, incomparable, with_forms, without_ranks,
};
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::emit::write_all_atomic;
use tdc_generator::gpu::{DEFAULT_GPU, Gpu, Targets};
use tdc_generator::ir::{Batches, Network, OpId};
use tdc_generator::plan::PlanError;
use tdc_weights::Checkpoint;

/// Chooses forms, prints them, and writes the config and the report.
pub fn run(args: &CompressArgs) -> Result<(), Failure> {
    let (html, json) = match &args.report {
        Some(folder) => (
            Some(folder.join("report.html")),
            Some(folder.join("report.json")),
        ),
        None => (None, None),
    };
    let outputs = [args.out.as_ref(), html.as_ref(), json.as_ref()];
    let inputs = [args.weights.as_deref(), args.sensitivity.as_deref()];
    let inputs = inputs.into_iter().flatten();
    let inputs = inputs.chain(args.compare.iter().map(PathBuf::as_path));
    let inputs = inputs.chain([args.config.as_path()]);
    reject_overwriting(inputs, outputs.into_iter().flatten().map(PathBuf::as_path))?;
    let budgets = budgets(args);
    if budgets.is_empty() && args.out.is_some() {
        return Err(Failure::Input(
            "a config can be written for a budget only; give one, such as --latency-us, or leave out -o for the frontier"
                .to_owned(),
        ));
    }
    if args.tune && (budgets.is_empty() || args.method != Method::Optimal) {
        return Err(Failure::Input(
            "--tune measures the choice of the exact search within a budget; give a budget, such as --latency-us, and no other --method"
                .to_owned(),
        ));
    }
    let gpus = gpus(args)?;
    let (network, source) = network(args, &args.config)?;
    let targets = targets(args, &gpus)?;
    // Ranks that are not kept make no difference.
    let scope_errors = scope(args).check(&without_ranks(&network, args.keep_ranks));
    scope_errors.map_err(|errors| Failure::in_file(&args.config, &errors))?;
    let compared = compared(args, &network)?;
    let others: Vec<&Network> = compared.iter().map(|(_, other)| other).collect();
    let losses = losses(args, &network, &others, source)?;
    check_known(args, &losses, &network, &compared)?;
    let run = Run {
        args,
        network,
        compared,
        losses,
        targets,
    };
    let mut launches = match args.tune {
        true => {
            let session = TuningSession::open(args.device, args.table.clone())?;
            Some(TunedLaunches::new(session, gpus[0])?)
        }
        false => None,
    };
    let files = run.files(&budgets, launches.as_mut())?;
    let mut written: Vec<(&Path, &[u8])> = Vec::new();
    let table = launches.as_ref().map(TunedLaunches::table);
    if let Some((path, table)) = &table {
        written.push((path, table.as_bytes()));
    }
    if let (Some(path), Some(config)) = (&args.out, &files.config) {
        written.push((path, config.as_bytes()));
    }
    if let (Some(html), Some(json), Some((page, data))) = (&html, &json, &files.report) {
        if let Some(folder) = &args.report {
            std::fs::create_dir_all(folder).map_err(|error| Failure::in_file(folder, &[error]))?;
        }
        written.push((html, page.as_bytes()));
        written.push((json, data.as_bytes()));
    }
    write_all_atomic(&written).map_err(Failure::input)?;
    for (path, _) in written {
        print(format_args!("wrote {}\n", path.display()))?;
    }
    Ok(())
}

/// What is written.
struct Files {
    config: Option<String>,
    /// Page and data.
    report: Option<(String, String)>,
}

struct Run<'a> {
    args: &'a CompressArgs,
    /// As in the config.
    network: Network,
    /// Other configs of the network, each with its name.
    compared: Vec<(String, Network)>,
    losses: LossTable,
    targets: Vec<Target>,
}

/// A GPU and a batch to choose for.
struct Target {
    network: Network,
    gpu: &'static Gpu,
}

impl Target {
    fn name(&self) -> String {
        format!("{}, batch {}", self.gpu.name, self.network.input().batch)
    }
}

impl Run<'_> {
    fn files(
        &self,
        budgets: &[Budget],
        mut launches: Option<&mut TunedLaunches>,
    ) -> Result<Files, Failure> {
        let losses = |op: OpId, form: Form| self.losses.loss(op, form);
        let mut compression = self.compression(&losses)?;
        compression.on_prediction(note_predictions());
        let tuned = match &mut launches {
            Some(launches) => Some(self.tuned(&mut compression, budgets, launches)?),
            None => None,
        };
        let dense = self.planned(compression.dense_choice())?;
        print(format_args!("dense: {dense}\n"))?;
        let own = self.own(&mut compression)?;
        let compared = self.evaluated(&mut compression)?;
        let limits = compression.limits(budgets, &dense);
        let chosen = match tuned {
            Some(choice) => Some(choice),
            None => self.chosen(&mut compression, &limits)?,
        };
        if let Some(choice) = &chosen {
            self.print_choice(choice, &dense)?;
            self.print_plans(&compression, choice, &dense)?;
        }
        let lower_bound = compression.lower_bound();
        print_lower_bound(lower_bound, chosen.as_ref(), &dense)?;
        let frontier = match self.args.report.is_some() || chosen.is_none() {
            true => self.frontier(&mut compression, &dense)?,
            false => Vec::new(),
        };
        let found = Found {
            frontier: &frontier,
            dense: &dense,
            chosen: chosen.as_ref(),
            own: own.as_ref(),
            compared: &compared,
        };
        let table = launches.map(|launches| launches.table_report());
        let report = match self.args.report {
            Some(_) => Some(self.report(&mut compression, found, lower_bound, table)?),
            None => None,
        };
        let config = chosen.map(|choice| self.config(&compression, &choice));
        Ok(Files { config, report })
    }

    fn compression<'a>(&self, losses: &'a Losses<'a>) -> Result<Compression<'a>, Failure> {
        let targets = self.targets.iter();
        let targets: Vec<_> = targets
            .map(|target| (&target.network, target.gpu))
            .collect();
        let scope = scope(self.args);
        let keep_ranks = self.args.keep_ranks;
        self.planned(Compression::for_targets(
            &targets, &scope, keep_ranks, losses,
        ))
    }

    /// A result whose errors are those of the config.
    fn planned<T>(&self, result: Result<T, Vec<PlanError>>) -> Result<T, Failure> {
        result.map_err(|errors| Failure::in_file(&self.args.config, &errors))
    }

    /// The network with the ranks of the config, printed; `None` if it has none, or if their loss is not known.
    fn own(&self, compression: &mut Compression) -> Result<Option<Choice>, Failure> {
        let ops = self.network.ops.len();
        if !(0..ops).any(|op| has_ranks(&self.network, OpId(op))) {
            return Ok(None);
        }
        if let Some(layer) = self.losses.unknown(&self.network) {
            note(format_args!(
                "the config's own ranks are not compared: the loss of `{layer}` at its ranks is not known"
            ));
            return Ok(None);
        }
        let own = self.planned(compression.evaluated(&self.network))?;
        print(format_args!("ranks of the config: {own}\n"))?;
        Ok(Some(own))
    }

    /// The choice by predicted times; `None` without limits.
    fn chosen(
        &self,
        compression: &mut Compression,
        limits: &[Limit],
    ) -> Result<Option<Choice>, Failure> {
        if limits.is_empty() {
            return Ok(None);
        }
        note("searching");
        let choice = compression.by_method(self.args.method, self.args.theta, limits);
        Ok(Some(choice.map_err(Failure::input)?))
    }

    /// The forms of a choice and its times.
    fn print_choice(&self, choice: &Choice, dense: &Choice) -> Result<(), Failure> {
        for &(op, form) in &choice.forms {
            let name = &self.network.op(op).name;
            print(format_args!("  {name:<28} {form}\n"))?;
        }
        print(format_args!("chosen: {choice}\n"))?;
        self.print_targets(choice, dense)
    }

    /// The times of the plans of a choice and of the dense network on one target.
    fn print_plans(
        &self,
        compression: &Compression,
        choice: &Choice,
        dense: &Choice,
    ) -> Result<(), Failure> {
        // The plans that follow `--tune` have a table which is not written yet.
        if self.args.tune || self.targets.len() > 1 {
            return Ok(());
        }
        match [choice, dense].map(|of| compression.planned_us(of)) {
            [Ok(us), Ok(dense_us)] => print(format_args!(
                "plan of the choice: {us:.2} us, of the dense network: {dense_us:.2} us\n"
            )),
            _ => Ok(()),
        }
    }

    /// The times of several targets, with the mean and the worst.
    fn print_targets(&self, choice: &Choice, dense: &Choice) -> Result<(), Failure> {
        let targets = self.target_reports(choice, dense);
        let Some(all) = RelativeTimes::of(&targets).filter(|_| targets.len() > 1) else {
            return Ok(());
        };
        for target in &targets {
            print(format_args!(
                "  {}: {:.2} us, {:.3} of dense\n",
                target.name, target.us, target.relative
            ))?;
        }
        print(format_args!(
            "  mean {:.3} of dense, worst {:.3} ({})\n",
            all.mean, all.worst, all.worst_target
        ))
    }

    /// The choice by measured times.
    fn tuned(
        &self,
        compression: &mut Compression,
        budgets: &[Budget],
        launches: &mut TunedLaunches,
    ) -> Result<Choice, Failure> {
        note("searching");
        let choice = compression.tuned(
            budgets,
            |problems| launches.measure(problems),
            |tuning| note(format_args!("{tuning}")),
        );
        choice.map_err(|error| match error {
            TuneError::Compress(error) => Failure::input(error),
            TuneError::Plan(errors) => Failure::in_file(&self.args.config, &errors),
            TuneError::Measure(failure) => failure,
        })
    }

    /// The other configs, printed.
    fn evaluated(&self, compression: &mut Compression) -> Result<Vec<Compared>, Failure> {
        let mut found = Vec::new();
        for ((name, network), path) in self.compared.iter().zip(&self.args.compare) {
            let choice = compression.evaluated(network);
            let choice = choice.map_err(|errors| Failure::in_file(path, &errors))?;
            print(format_args!("{name}: {choice}\n"))?;
            found.push(Compared {
                name: name.clone(),
                network: network.clone(),
                choice,
            });
        }
        Ok(found)
    }

    /// The frontier, printed as it is found.
    fn frontier(
        &self,
        compression: &mut Compression,
        dense: &Choice,
    ) -> Result<Vec<Choice>, Failure> {
        let points = self.args.points;
        let frontier = compression.frontier(dense, points, |point, choice| {
            note(format_args!("frontier {}/{points}: {choice}", point + 1));
        });
        if frontier.slower > 0 {
            note(format_args!(
                "{} points are left out: their plans are slower than that of the dense network",
                frontier.slower
            ));
        }
        for choice in &frontier.choices {
            print(format_args!("frontier: {choice}\n"))?;
        }
        Ok(frontier.choices)
    }

    fn config(&self, compression: &Compression, choice: &Choice) -> String {
        let network = with_forms(compression.dense(), choice.forms.iter().copied());
        format!(
            "# {}, with ranks by tdc-gen compress for {} ({} of {}).\n# {}: {choice}.\n{}",
            self.network.name,
            self.target_names(),
            self.losses.criterion(),
            self.losses_name(),
            match self.args.tune {
                true => "By measured launches",
                false => "Predicted",
            },
            // The config's own text, unless it is an ONNX file, options override it, or an op has several lines.
            std::fs::read_to_string(&self.args.config)
                .ok()
                .and_then(|text| yaml::with_ranks(&text, &network))
                .unwrap_or_else(|| yaml::network_text(&network))
        )
    }

    /// The file of the weights, or of their losses, without its folder: outputs do not depend on the machine.
    fn losses_name(&self) -> String {
        let files = [&self.args.sensitivity, &self.args.weights];
        let file = files.into_iter().flatten().next();
        let file = file.unwrap_or(&self.args.config);
        let name = file.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// Notes now and then how many launches were predicted.
fn note_predictions() -> impl Fn() + Send + Sync {
    const INTERVAL: Duration = Duration::from_secs(3);
    let state = Mutex::new((0, Instant::now()));
    move || {
        if let Ok(mut state) = state.lock() {
            let (count, noted) = &mut *state;
            *count += 1;
            if noted.elapsed() >= INTERVAL {
                note(format_args!("searching: {count} launches predicted"));
                *noted = Instant::now();
            }
        }
    }
}

/// The lower bounds, and the distance of the choice, or else of the dense network, from them.
fn print_lower_bound(
    bound: LowerBound,
    chosen: Option<&Choice>,
    dense: &Choice,
) -> Result<(), Failure> {
    let (name, choice) = match chosen {
        Some(choice) => ("the choice", choice),
        None => ("the dense network", dense),
    };
    print(format_args!(
        "lower bounds: {:.2} us with any ranks of the grid, {:.2} us with any kernels; {name} takes {:.2} times the latter\n",
        bound.fastest_us,
        bound.floor_us,
        bound.distance(choice)
    ))
}

fn scope(args: &CompressArgs) -> Scope {
    Scope {
        step: args.step.get(),
        decompositions: args.forms.clone(),
        keep: args.keep.clone(),
        only: args.only.clone(),
        most_loss: args.layer_error,
    }
}

fn budgets(args: &CompressArgs) -> Vec<Budget> {
    let limit = |limit: Limit| Budget::Limit(limit);
    let all = [
        args.latency_us.map(|us| limit(Limit::Us(us))),
        args.speedup.map(Budget::Speedup),
        args.flops_cut.map(Budget::FlopsCut),
        args.weights_mb
            .map(|mb| limit(Limit::WeightBytes((mb * 1e6) as u64))),
        args.loss.map(|loss| limit(Limit::Loss(loss))),
    ];
    all.into_iter().flatten().collect()
}

fn gpus(args: &CompressArgs) -> Result<Vec<&'static Gpu>, Failure> {
    let names = match &args.gpu[..] {
        [] => vec![DEFAULT_GPU.to_owned()],
        names => names.to_vec(),
    };
    let targets = Targets::named(&names).map_err(|errors| Failure::list(&errors))?;
    Ok(targets.gpus().to_vec())
}

/// Every GPU with every batch.
fn targets(args: &CompressArgs, gpus: &[&'static Gpu]) -> Result<Vec<Target>, Failure> {
    let batches: Vec<Option<u32>> = match &args.batch {
        Some(batches) => batches.as_slice().iter().copied().map(Some).collect(),
        None => vec![None],
    };
    let count = gpus.len() * batches.len();
    if count > MAX_TARGETS {
        return Err(Failure::Input(format!(
            "{count} combinations of GPUs and batches; ranks are chosen for at most {MAX_TARGETS}"
        )));
    }
    if count > 1 && (args.latency_us.is_some() || args.tune) {
        return Err(Failure::Input(
            "--latency-us and --tune are for one GPU and one batch; give --speedup, which is relative to the dense network, for several"
                .to_owned(),
        ));
    }
    let mut targets = Vec::new();
    for &gpu in gpus {
        for &batch in &batches {
            let (network, _) = network_of_batch(args, &args.config, batch)?;
            targets.push(Target { network, gpu });
        }
    }
    Ok(targets)
}

/// The configs to compare with, named by their files.
fn compared(args: &CompressArgs, network: &Network) -> Result<Vec<(String, Network)>, Failure> {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for path in &args.compare {
        let (other, _) = self::network(args, path)?;
        if let Some(problem) = incomparable(network, &other) {
            errors.push(format!("{}: {problem}", path.display()));
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        found.push((name.into_owned(), other));
    }
    match errors.is_empty() {
        true => Ok(found),
        false => Err(Failure::list(&errors)),
    }
}

/// Ranks that are kept or compared must have a known loss.
fn check_known(
    args: &CompressArgs,
    losses: &LossTable,
    network: &Network,
    compared: &[(String, Network)],
) -> Result<(), Failure> {
    let kept = without_ranks(network, args.keep_ranks);
    let compared = compared.iter().map(|(_, other)| other);
    let all = std::iter::once((&args.config, &kept))
        .chain(args.compare.iter().zip(compared))
        .filter_map(|(path, network)| Some((path, losses.unknown(network)?)));
    let errors = all.map(|(path, layer)| {
        format!(
            "{}: the loss of `{layer}` at its ranks is not known; measure it, or remove the ranks",
            path.display()
        )
    });
    let errors: Vec<String> = errors.collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Failure::list(&errors)),
    }
}

/// The network of a config with the first batch.
fn network(args: &CompressArgs, path: &Path) -> Result<(Network, Source), Failure> {
    let batches = args.batch.as_ref();
    let first = batches.and_then(|batches| batches.as_slice().first());
    network_of_batch(args, path, first.copied())
}

fn network_of_batch(
    args: &CompressArgs,
    path: &Path,
    batch: Option<u32>,
) -> Result<(Network, Source), Failure> {
    let overrides = Overrides {
        batches: batch.map(Batches::one),
        precision: args.types.precision,
        activations: args.types.activations,
        ..Overrides::default()
    };
    let overrides = overrides
        .with_input_shapes(&args.input)
        .map_err(Failure::Input)?;
    let (config, source) = load(path, &overrides)?;
    let Config::Network(network) = config else {
        return Err(Failure::Input(format!(
            "{}: a layer set has no weights to compress; give the config of a network",
            path.display()
        )));
    };
    Ok((network, source))
}

fn losses(
    args: &CompressArgs,
    network: &Network,
    others: &[&Network],
    source: Source,
) -> Result<LossTable, Failure> {
    if let Some(path) = &args.sensitivity {
        let text =
            std::fs::read_to_string(path).map_err(|error| Failure::in_file(path, &[error]))?;
        return LossTable::measured(&text, network)
            .map_err(|errors| Failure::in_file(path, &errors));
    }
    let checkpoint = match (&args.weights, source) {
        (Some(path), _) => Checkpoint::open(path).map_err(Failure::input)?,
        (None, Source::Onnx(checkpoint, _)) => checkpoint,
        (None, Source::Config(_)) => {
            return Err(Failure::Input(
                "the loss of a layer needs the network's weights; give a safetensors file by --weights, or measured losses by --sensitivity"
                    .to_owned(),
            ));
        }
    };
    let progress = |now: Factorising| {
        let Factorising {
            layer,
            number,
            count,
        } = now;
        note(format_args!("factorising {number}/{count}: {layer}"));
    };
    let scope = scope(args);
    LossTable::new(
        network,
        others,
        &checkpoint,
        args.criterion,
        &scope,
        progress,
    )
    .map_err(|errors| in_file(args.weights.as_deref(), &errors))
}
