//! The arguments of every command.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;
use tdc_generator::compile::Component;
use tdc_generator::compress::loss::Criterion;
use tdc_generator::compress::{Decomposition, Method};
use tdc_generator::config::InputShape;
use tdc_generator::config::schema::{Flag, Key};
use tdc_generator::embed::PREPARED_DIR;
use tdc_generator::gpu::DEFAULT_GPU;
use tdc_generator::ir::{Batches, DType, Precision, TilePolicy, Tolerance};
use tdc_generator::measure::bench::Sweep;
use tdc_generator::measure::tune::{GROUPS, Shard};
use tdc_generator::scheme::SCHEMES;
use tdc_runtime::Arch;

const EXAMPLES: &str = "\
Examples:
  tdc-gen configs/resnet18.yaml                      C++ project in generated/resnet18
  tdc-gen configs/resnet18.yaml --dense --out dense  the same network without Tucker ranks
  tdc-gen configs/resnet18.yaml --check              check whether generated/resnet18 is up to date
  tdc-gen configs/resnet18.yaml --gpu h200,rtx4090   kernels for both GPUs in one folder; the driver picks one when it loads the weights
  tdc-gen plan configs/resnet18.yaml --gpu a100      the plan for another GPU, with predicted times
  tdc-gen compress configs/resnet18.yaml --weights resnet18.safetensors --latency-us 90 -o resnet18-90us.yaml
  tdc-gen pack configs/resnet18.yaml resnet18.safetensors -o weights.bin
  tdc-gen verify configs/resnet18.yaml --input 1x3x64x64
  tdc-gen compile configs/resnet18.yaml --arch sm_80,sm_90
  tdc-gen tune configs/*.yaml --top 40 --random 10   measures schemes and tiles on the local GPU, writes a table
  tdc-gen prepare                                    compiles this crate's kernel! calls into a folder to commit
  tdc-gen bench configs/core-shapes.yaml             times generated kernels and cuDNN on the local GPU
  tdc-gen sequence 'A[i:9, j:2] B[j, k:9] C[k, l:2] -> D[i, l]'  the cheapest order of pairwise contractions

Exit codes:
  0  success
  1  a check failed: a folder is out of date or a result is wrong
  2  invalid input or arguments, or a file cannot be read or written
  3  no compiler or no GPU on this machine";

/// Generates specialised CUDA code for convolutional networks, on a machine with or without a GPU.
#[derive(Debug, Parser)]
#[command(
    name = "tdc-gen",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    after_help = EXAMPLES
)]
pub struct Cli {
    /// Command; without one, code is generated for the configs.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Arguments of the default command.
    #[command(flatten)]
    pub generate: GenerateArgs,
}

/// All commands except the default one.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Writes the config of an ONNX file, to read and to edit, and its weights
    Import(ImportArgs),
    /// Prints the plan: one row per launch with scheme, tile, occupancy and predicted time
    Plan(PlanArgs),
    /// Chooses which layers to factorise, and at which ranks, by the latency of the generated code, and writes a config with them
    Compress(CompressArgs),
    /// Packs weights from a checkpoint, or random ones, into the file that a generated network loads
    Pack(PackArgs),
    /// Runs the generated code and compares it with a float64 reference, on the emulated GPU or on a local one
    Verify(VerifyArgs),
    /// Compiles the kernels to cubins with NVRTC and prints registers, shared memory and spills
    Compile(CompileArgs),
    /// Measures schemes and tiles for every problem of the configs on the local GPU and writes a tuning table for the planner
    Tune(TuneArgs),
    /// Fits the constants of the cost model to measured times
    Calibrate(CalibrateArgs),
    /// Merges tuning tables: of shards, or of other problems on the same GPU
    Merge(MergeArgs),
    /// Times generated kernels and cuDNN on the local GPU, in one process and with one method
    Bench(BenchArgs),
    /// Compiles the kernels of all `kernel!` calls of a crate or workspace into a folder to commit, so that it builds without a
    /// CUDA compiler
    Prepare(PrepareArgs),
    /// Finds the cheapest order of pairwise contractions of a tensor network
    Sequence(SequenceArgs),
    /// Shows which compilers were found, or installs the pinned versions (no root needed)
    Toolkit(ToolkitArgs),
    /// Prints shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Options that override how products are rounded, and how activations are stored.
#[derive(Debug, Clone, Default, Args)]
pub struct TypeArgs {
    #[arg(
        long,
        help = help(Key::Precision),
        value_name = value_name(Key::Precision),
        value_parser = precision(),
    )]
    pub precision: Option<Precision>,
    #[arg(
        long,
        help = help(Key::Activations),
        value_name = value_name(Key::Activations),
        value_parser = choice(&DType::NAMES),
    )]
    pub activations: Option<DType>,
}

/// Options that override the convolutions of the config.
#[derive(Debug, Clone, Default, Args)]
pub struct ConvolutionArgs {
    #[arg(
        long,
        help = help(Key::Batch),
        value_name = value_name(Key::Batch),
    )]
    pub batch: Option<Batches>,
    #[arg(long, help = help(Key::Ranks))]
    pub dense: bool,
    #[command(flatten)]
    pub types: TypeArgs,
    #[arg(
        long,
        help = help(Key::Tolerance),
        value_name = value_name(Key::Tolerance),
        value_parser = tolerance,
    )]
    pub tolerance: Option<Tolerance>,
}

/// Options that override the config; the same for every command that plans.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    #[arg(long, help = help(Key::Input), value_name = value_name(Key::Input))]
    pub input: Vec<InputShape>,
    #[command(flatten)]
    pub convolutions: ConvolutionArgs,
    #[arg(
        long,
        help = help(Key::Tiles),
        value_name = value_name(Key::Tiles),
        value_parser = tiles(),
    )]
    pub tiles: Option<TilePolicy>,
    #[arg(long, help = help(Key::Table), value_name = value_name(Key::Table))]
    pub table: Option<PathBuf>,
}

/// The help of an option that overrides a key.
fn help(key: Key) -> String {
    key.flag().map(Flag::help).unwrap_or_default()
}

/// The name of the value of an option that overrides a key.
fn value_name(key: Key) -> &'static str {
    key.flag().map_or("", |flag| flag.value)
}

/// The values of `--tiles`.
fn tiles() -> impl TypedValueParser<Value = TilePolicy> {
    choice(&TilePolicy::NAMES)
}

/// The values of `--precision`.
fn precision() -> impl TypedValueParser<Value = Precision> {
    choice(&Precision::NAMES)
}

/// Parses a relative error.
fn tolerance(text: &str) -> Result<Tolerance, String> {
    let [least, most] = Tolerance::RANGE;
    text.parse()
        .ok()
        .and_then(Tolerance::new)
        .ok_or_else(|| format!("must be a relative error from {least:e} to {most}, such as 5e-6"))
}

/// A value parser for one of several names.
fn choice<T>(words: &'static [(&'static str, T)]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Default + Send + Sync + 'static,
{
    PossibleValuesParser::new(words.iter().map(|(word, _)| *word)).map(|word| {
        let found = words.iter().find(|(known, _)| *known == word);
        found.map_or_else(T::default, |(_, value)| *value)
    })
}

/// The GPUs to plan for.
#[derive(Debug, Args)]
pub struct TargetArgs {
    #[arg(long, help = gpu_help(), value_name = value_name(Key::Gpu), value_delimiter = ',')]
    pub gpu: Option<Vec<String>>,
}

fn gpu_help() -> String {
    format!("{} [default: {DEFAULT_GPU}]", help(Key::Gpu))
}

/// Arguments of the default command.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Networks and layer sets
    #[arg(required = true, value_name = "CONFIG")]
    pub configs: Vec<PathBuf>,
    /// Output folder [default: generated/<name>]; only with a single config
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write nothing; print a diff and exit with 1 if the folder is not up to date
    #[arg(long, conflicts_with_all = ["force", "stdout"])]
    pub check: bool,
    /// Overwrite files that were edited or not written by the generator
    #[arg(long)]
    pub force: bool,
    /// Write nothing; print all files to standard output
    #[arg(long, conflicts_with_all = ["force", "out"])]
    pub stdout: bool,
    /// Also write a Python module that runs the network on PyTorch's tensors
    #[arg(long)]
    pub python: bool,
    /// Print the plan of each config as JSON instead of a summary
    #[arg(long, conflicts_with = "stdout")]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigArgs,
    #[command(flatten)]
    pub target: TargetArgs,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Networks and layer sets
    #[arg(required = true, value_name = "CONFIG")]
    pub configs: Vec<PathBuf>,
    /// Print the plan of each config as JSON, as in its plan.json
    #[arg(long)]
    pub json: bool,
    /// Show the terms of the predicted time of each launch
    #[arg(long, conflicts_with = "json")]
    pub terms: bool,
    /// Also draw when the layers of the network run, as predicted, as an SVG file; only with a single network and GPU
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// Draw measured times beside the predicted ones: what the network's program printed with --profile
    #[arg(long, value_name = "FILE", requires = "timeline")]
    pub profile: Option<PathBuf>,
    #[command(flatten)]
    pub options: ConfigArgs,
    #[command(flatten)]
    pub target: TargetArgs,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The ONNX file
    pub model: PathBuf,
    /// The config to write [default: the name of the model with `.yaml`]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Also write the weights as safetensors, for `pack`
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Replace a config that differs
    #[arg(long)]
    pub force: bool,
    #[arg(long, help = help(Key::Input), value_name = value_name(Key::Input))]
    pub input: Vec<InputShape>,
    #[arg(
        long,
        help = help(Key::Batch),
        value_name = value_name(Key::Batch),
    )]
    pub batch: Option<Batches>,
}

/// Arguments of `compress`.
#[derive(Debug, Args)]
pub struct CompressArgs {
    /// The network; ranks that it has are ignored
    pub config: PathBuf,
    /// A safetensors file with PyTorch's state-dict names [default: the weights of an ONNX file]
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Time of the network; the loss is minimised
    #[arg(long, value_name = "US", value_parser = positive)]
    pub latency_us: Option<f64>,
    /// Times as fast as the dense network; the loss is minimised
    #[arg(long, value_name = "FACTOR", value_parser = positive)]
    pub speedup: Option<f64>,
    /// Fraction of the operations to save, of convolutions and linear layers; the loss is minimised
    #[arg(long, value_name = "FRACTION", value_parser = fraction)]
    pub flops_cut: Option<f64>,
    /// Megabytes (10^6 bytes) of weights in fp32; the loss is minimised
    #[arg(long, value_name = "MB", value_parser = positive)]
    pub weights_mb: Option<f64>,
    /// Loss of the network; the time is minimised
    #[arg(long, value_name = "LOSS", value_parser = positive)]
    pub loss: Option<f64>,
    /// Largest loss of a layer
    #[arg(long, value_name = "LOSS", value_parser = positive)]
    pub layer_error: Option<f64>,
    /// How ranks are chosen: `optimal`, by an exact search; `tdc`, as in section 6 of the TDC paper; `uniform`, the same fraction of
    /// all channels
    #[arg(long, value_name = "METHOD", default_value = "optimal", value_parser = choice(&Method::NAMES))]
    pub method: Method,
    /// How a layer's loss is computed: `bn-moments`, by the moments of its input that the network's BatchNorms imply; `weights`, by
    /// the relative error of its weight
    #[arg(long, value_name = "CRITERION", default_value = "bn-moments", value_parser = choice(&Criterion::NAMES))]
    pub criterion: Criterion,
    /// A JSON file with the measured losses of layers at some ranks, instead of a criterion; no weights are read
    #[arg(long, value_name = "FILE", conflicts_with_all = ["criterion", "weights"])]
    pub sensitivity: Option<PathBuf>,
    /// Ranks are multiples of this, or all channels
    #[arg(long, value_name = "N", default_value = "8")]
    pub step: NonZeroU32,
    /// Decompositions to choose from: `tucker`, Tucker factors of filters larger than 1x1; `rank`, two factors of 1x1 convolutions and
    /// linear layers; `cp`, CP factors of filters larger than 1x1, which take long to compute
    #[arg(
        long,
        value_name = "FORM,...",
        value_delimiter = ',',
        default_value = "tucker,rank",
        value_parser = choice(&Decomposition::NAMES)
    )]
    pub forms: Vec<Decomposition>,
    /// With `--method tdc`: a layer stays dense unless it saves this fraction of its time
    #[arg(long, value_name = "FRACTION", default_value = "0.15", value_parser = fraction)]
    pub theta: f64,
    /// Layers that stay dense
    #[arg(long, value_name = "LAYER,...", value_delimiter = ',')]
    pub keep: Vec<String>,
    /// The only layers that may be factorised
    #[arg(long, value_name = "LAYER,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Keep the ranks that the config has, and choose forms for the other layers
    #[arg(long)]
    pub keep_ranks: bool,
    /// The config to write
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write a report to this folder: report.html and report.json
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Other configs of the network, whose ranks are compared
    #[arg(long, value_name = "CONFIG", num_args = 1..)]
    pub compare: Vec<PathBuf>,
    /// Measure the launches of the choice and of its neighbours on the local GPU, and choose again until the answer stands
    #[arg(long)]
    pub tune: bool,
    /// With --tune: table of measured times to write, for the option --table of other commands; results are kept in TABLE.journal, from
    /// which an interrupted run resumes [default: tuning-<gpu>.txt]
    #[arg(long, value_name = "TABLE", requires = "tune")]
    pub table: Option<PathBuf>,
    /// With --tune: ordinal of the local GPU to measure on, counted from 0 as CUDA does
    #[arg(long, value_name = "ORDINAL", default_value_t = 0)]
    pub device: u32,
    /// Points of the frontier of time and loss that a report, or a run without a budget, has
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub points: u32,
    /// The GPUs to choose for: the mean of the times relative to the dense network counts [default: h200]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub gpu: Vec<String>,
    #[arg(long, help = help(Key::Input), value_name = value_name(Key::Input))]
    pub input: Vec<InputShape>,
    /// The batch sizes to choose for, on each GPU [default: that of the config]
    #[arg(long, value_name = "N,...")]
    pub batch: Option<Batches>,
    #[command(flatten)]
    pub types: TypeArgs,
}

/// Parses a number above 0.
fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "must be a number above 0".to_owned())
}

/// Parses a number from 0 to 1, without 1.
fn fraction(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| (0.0..1.0).contains(number));
    number.ok_or_else(|| "must be a number from 0 to 1, without 1".to_owned())
}

/// Arguments of `pack`.
#[derive(Debug, Args)]
pub struct PackArgs {
    /// The network
    pub config: PathBuf,
    /// A safetensors file with PyTorch's state-dict names [default: the weights of an ONNX file]
    #[arg(conflicts_with = "random")]
    pub weights: Option<PathBuf>,
    /// Random weights and BatchNorm statistics instead of a file
    #[arg(long, value_name = "SEED")]
    pub random: Option<u64>,
    /// The packed file to write
    #[arg(short, long, value_name = "FILE", default_value = "weights.bin")]
    pub out: PathBuf,
    /// Also write the unpacked weights as safetensors, for another framework
    #[arg(long, value_name = "FILE", requires = "random")]
    pub safetensors: Option<PathBuf>,
    /// Print a report as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub options: ConfigArgs,
    #[command(flatten)]
    pub target: TargetArgs,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Networks and layer sets
    #[arg(required = true, value_name = "CONFIG")]
    pub configs: Vec<PathBuf>,
    /// Run on a local GPU instead of the CPU emulation
    #[arg(long)]
    pub local_gpu: bool,
    /// Weights of a network, as safetensors [default: random]
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Seed of random weights and inputs
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Number of runs of each unit; all must give the same bits
    #[arg(long, value_name = "N", default_value = "2")]
    pub runs: NonZeroU32,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub options: ConfigArgs,
    #[command(flatten)]
    pub target: TargetArgs,
}

/// Arguments of `compile`.
#[derive(Debug, Args)]
pub struct CompileArgs {
    /// Networks and layer sets
    #[arg(required = true, value_name = "CONFIG")]
    pub configs: Vec<PathBuf>,
    /// Architectures to compile for
    #[arg(
        long,
        value_name = "SM,...",
        value_delimiter = ',',
        default_value = "sm_90"
    )]
    pub arch: Vec<Arch>,
    /// Write the cubins to DIR/<arch>/<unit>.cubin
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resource table to add the results to; the planner uses generated/resources.txt, which is built in
    #[arg(long, value_name = "FILE", conflicts_with = "fast")]
    pub resources: Option<PathBuf>,
    /// Only check that the code compiles, at a tenth of the time; registers and spills are then meaningless
    #[arg(long)]
    pub fast: bool,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub options: ConfigArgs,
    #[command(flatten)]
    pub target: TargetArgs,
}

/// Arguments of `tune`.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// Networks and layer sets
    #[arg(required = true, value_name = "CONFIG")]
    pub configs: Vec<PathBuf>,
    /// Tuning table to write; results are kept in TABLE.journal, from which an interrupted run resumes [default: tuning-<gpu>.txt]
    #[arg(long, value_name = "TABLE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub convolutions: ConvolutionArgs,
    /// Scheme to measure, default or opt-in; may be repeated [default: all default schemes]
    #[arg(long = "scheme", value_name = "SCHEME", value_parser = schemes())]
    pub schemes: Vec<String>,
    /// Only the problems of the plans as they are now, without those of other candidates
    #[arg(long)]
    pub planned: bool,
    /// Tiles of each scheme with the least predicted times [default: all, or 0 with --random]
    #[arg(long, value_name = "K")]
    pub top: Option<usize>,
    /// Further tiles of each scheme, chosen at random [default: 0 with --top]
    #[arg(long, value_name = "K")]
    pub random: Option<usize>,
    /// Measure one shard of the problems, such as 1/4, 2/4, 3/4 and 4/4 on four GPUs
    #[arg(long, value_name = "I/N", default_value_t = Shard::WHOLE)]
    pub shard: Shard,
    /// Stop after this many minutes and write what was measured
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    pub budget: Option<Duration>,
    /// Ordinal of the local GPU to measure on, counted from 0 as CUDA does
    #[arg(long, value_name = "ORDINAL", default_value_t = 0)]
    pub device: u32,
    /// Threads that compile [default: all cores but one, which is left to timing]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

/// Parses a time in minutes; fractions are allowed.
fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse::<f64>().ok();
    minutes
        .and_then(|minutes| Duration::try_from_secs_f64(60.0 * minutes).ok())
        .ok_or_else(|| "must be a number of minutes, 0 or more, such as 90 or 0.5".to_owned())
}

/// Arguments of `calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Networks and layer sets whose problems are measured or are in the journals
    #[arg(required = true, value_name = "CONFIG")]
    pub configs: Vec<PathBuf>,
    /// Journal of `tune` to fit to instead of measuring, so that no GPU is needed; may be repeated
    #[arg(long = "journal", value_name = "FILE")]
    pub journals: Vec<PathBuf>,
    /// Group of constants to fit; may be repeated [default: every group with measured tiles]
    #[arg(long = "group", value_name = "GROUP", value_parser = groups())]
    pub groups: Vec<String>,
    /// Only evaluate the built-in constants: the error of predicted times, and how much slower the selected tiles are than
    /// the fastest measured ones
    #[arg(long)]
    pub evaluate: bool,
    /// File to write the constants to [default: model-<gpu>.txt]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Ordinal of the local GPU to measure on, counted from 0 as CUDA does
    #[arg(long, value_name = "ORDINAL", default_value_t = 0)]
    pub device: u32,
    /// Threads that compile [default: all cores but one, which is left to timing]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

impl CalibrateArgs {
    /// The arguments of `tune` for its measurements: tiles of the default schemes, the best predicted ones and
    /// random ones.
    pub fn tune(&self, out: PathBuf) -> TuneArgs {
        TuneArgs {
            configs: self.configs.clone(),
            out: Some(out),
            convolutions: ConvolutionArgs::default(),
            planned: false,
            schemes: Vec::new(),
            top: Some(10),
            random: Some(10),
            shard: Shard::WHOLE,
            budget: None,
            device: self.device,
            threads: self.threads,
        }
    }
}

/// Arguments of `merge`.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Tuning tables of one GPU model, driver, compiler and generator version
    #[arg(required = true, value_name = "TABLE")]
    pub tables: Vec<PathBuf>,
    /// Table to write; may be one of the inputs
    #[arg(long, value_name = "TABLE")]
    pub out: PathBuf,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Network or layer set; each of its distinct convolutions is timed alone, without prologue and epilogue
    #[arg(required_unless_present = "sweep", value_name = "CONFIG")]
    pub config: Option<PathBuf>,
    /// Time the complete network instead, with each batch of `--batch`, and PyTorch on the same network; needs nvcc
    #[arg(
        long,
        conflicts_with_all = ["sweep", "scheme", "tiles_per_scheme", "cudnn", "runtime_compiled_engines", "no_fp16", "no_cudnn", "published", "json", "journal", "svg"]
    )]
    pub network: bool,
    /// With --network: what to compare with, which must be installed: `torch`, `compile` (torch.compile in mode reduce-overhead), `compile-max`
    /// (in mode max-autotune-no-cudagraphs, which may take minutes to start), or some of torch-fp32, torch-tf32, torch-fp16, compile-tf32,
    /// compile-fp16, compile-max-tf32, compile-max-fp16 [default: torch and compile, if PyTorch is installed]
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        requires = "network"
    )]
    pub against: Vec<String>,
    /// With --network: time generated code only
    #[arg(long, requires = "network", conflicts_with = "against")]
    pub no_torch: bool,
    /// With --network: the Python interpreter that has PyTorch
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "python3",
        requires = "network"
    )]
    pub python: PathBuf,
    /// With --network: the longest time in which PyTorch is ready to be timed, compilation included; what is not is listed in the report, and
    /// not tried with larger batches
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "120",
        value_parser = clap::value_parser!(u32).range(1..),
        requires = "network"
    )]
    pub start_limit: u32,
    /// With --network: how often everything is timed in turn
    #[arg(long, value_name = "N", default_value = "5", requires = "network")]
    pub rounds: NonZeroUsize,
    /// With --network: folder for report.html, report.json, the journal from which the same command resumes, and the folder `work` of
    /// generated code [default: bench-<name>]
    #[arg(short, long, value_name = "DIR", requires = "network")]
    pub out: Option<PathBuf>,
    /// Sweep over output channels N = 32, 64, ... instead of a config; R is the filter's height and width [default: 3]
    #[arg(
        long,
        value_name = "C,H,W[,R]",
        conflicts_with_all = ["config", "input", "dense", "tiles"]
    )]
    pub sweep: Option<Sweep>,
    /// Largest N of a sweep
    #[arg(long, value_name = "N", default_value_t = 512, requires = "sweep")]
    pub sweep_max_n: u32,
    /// GPU to plan for, instead of that of the config [default: h200]
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,
    /// Ordinal of the local GPU to measure on, counted from 0 as CUDA does
    #[arg(long, value_name = "ORDINAL", default_value_t = 0)]
    pub device: u32,
    /// Time only these schemes
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = schemes())]
    pub scheme: Vec<String>,
    /// Tiles of each scheme to time in addition to the planner's: three quarters by predicted time, the rest
    /// at random
    #[arg(long, value_name = "TILES", default_value_t = NonZeroUsize::MIN)]
    pub tiles_per_scheme: NonZeroUsize,
    /// The cuDNN library or its directory
    #[arg(long, value_name = "PATH", conflicts_with = "no_cudnn")]
    pub cudnn: Option<PathBuf>,
    /// Also time cuDNN's runtime-compiled engines; takes seconds for each engine and shape
    #[arg(long, conflicts_with = "no_cudnn")]
    pub runtime_compiled_engines: bool,
    /// Skip cuDNN's fp16 algorithms, three quarters of all
    #[arg(long, conflicts_with = "no_cudnn")]
    pub no_fp16: bool,
    /// Time generated kernels only
    #[arg(long)]
    pub no_cudnn: bool,
    /// Table of published times, scaled by the ratio of cuDNN's times here and there
    #[arg(long, value_name = "FILE", conflicts_with = "no_cudnn")]
    pub published: Option<PathBuf>,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Journal of finished problems, from which the same command resumes; problems whose kernels and
    /// environment are unchanged are not measured again [default with --json: <FILE>.journal]
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Also write charts
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub options: ConfigArgs,
}

/// Parses the name of a group of constants.
fn groups() -> PossibleValuesParser {
    PossibleValuesParser::new(GROUPS.iter().map(|group| group.name))
}

/// Parses the name of a scheme.
fn schemes() -> PossibleValuesParser {
    PossibleValuesParser::new(SCHEMES.iter().map(|scheme| scheme.name()))
}

/// Arguments of `prepare`.
#[derive(Debug, Args)]
pub struct PrepareArgs {
    /// Folder to write; the macro looks for it in the crate and in its parent folders
    #[arg(long, value_name = "DIR", default_value = PREPARED_DIR)]
    pub out: PathBuf,
    /// Write nothing; exit with 1 if the folder is not up to date
    #[arg(long)]
    pub check: bool,
    /// Overwrite edited files
    #[arg(long, conflicts_with = "check")]
    pub force: bool,
    /// Further arguments for `cargo check --all-targets`, which finds the calls
    #[arg(last = true, value_name = "CARGO ARGUMENTS")]
    pub cargo: Vec<String>,
}

/// Arguments of `sequence`.
#[derive(Debug, Args)]
pub struct SequenceArgs {
    /// Tensors with labelled modes, such as 'U[s:3, y:9, x:9] S[s, r:4] H[y:3, r] T[t:8, r] -> V[t, y, x]; convolve y: same, stride 2'.
    /// Labels of the result are kept, all others are summed over
    #[arg(value_name = "NETWORK", required_unless_present = "file")]
    pub network: Option<String>,
    /// Read the network from a file; # starts a comment
    #[arg(long, value_name = "FILE", conflicts_with = "network")]
    pub file: Option<PathBuf>,
    /// What to minimise
    #[arg(long, value_name = "COST", value_enum, default_value_t = SequenceCost::Multiplications)]
    pub minimize: SequenceCost,
    /// Most elements of an intermediate tensor; inputs and result are exempt
    #[arg(long, value_name = "ELEMENTS")]
    pub max_intermediate: Option<u64>,
    /// GPU for --minimize latency
    #[arg(long, value_name = "NAME", default_value = DEFAULT_GPU)]
    pub gpu: String,
}

/// The cost of an order.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SequenceCost {
    /// Multiply-adds
    Multiplications,
    /// Bytes read and written (fp32)
    Bytes,
    /// Sum of the floors of one launch per operation on the fp32 lanes
    Latency,
}

/// Arguments of `toolkit`.
#[derive(Debug, Args)]
pub struct ToolkitArgs {
    /// Action [default: show what was found]
    #[command(subcommand)]
    pub action: Option<ToolkitAction>,
    /// Print what was found as JSON
    #[arg(long)]
    pub json: bool,
}

/// The actions of `toolkit`.
#[derive(Debug, Subcommand)]
pub enum ToolkitAction {
    /// Installs pinned compiler packages into the cache: nvrtc (13.0), nvrtc12 (12.9, for sm_70), nvcc (13.0)
    Install {
        /// Components to install
        #[arg(required = true, value_name = "COMPONENT")]
        components: Vec<Component>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_option_has_a_help() {
        let cli = Cli::command();
        for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string);
                let name = argument.get_id();
                assert!(
                    help.is_some_and(|help| !help.is_empty()),
                    "{command}: {name}"
                );
            }
        }
    }
}
