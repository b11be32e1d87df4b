//! The arguments of every command.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;
use tdc_generator::compile::Component;
use tdc_generator::embed::PREPARED;
use tdc_generator::gpu::DEFAULT_GPU;
use tdc_generator::ir::{Precision, TensorShape, Tiles, Tolerance};
use tdc_generator::measure::bench::Sweep;
use tdc_generator::measure::tune::Shard;
use tdc_generator::scheme::SCHEMES;
use tdc_runtime::Arch;

const EXAMPLES: &str = "\
Examples:
  tdc-gen configs/resnet18.yaml                      C++ project in generated/resnet18
  tdc-gen configs/resnet18.yaml --dense --out dense  the same network without Tucker ranks
  tdc-gen configs/resnet18.yaml --check              is generated/resnet18 up to date?
  tdc-gen configs/resnet18.yaml --gpu h200,rtx4090   kernels for both in one folder, chosen when weights are loaded
  tdc-gen plan configs/resnet18.yaml --gpu a100      what would run on another GPU, and how long it should take
  tdc-gen pack configs/resnet18.yaml resnet18.safetensors -o weights.bin
  tdc-gen verify configs/resnet18.yaml --input 1x3x64x64
  tdc-gen compile configs/resnet18.yaml --arch sm_80,sm_90
  tdc-gen tune configs/*.yaml --top 40 --random 10   the best tile of every scheme on the GPU that is here, as a table
  tdc-gen prepare                                    the kernels of this crate's kernel! calls, to be committed
  tdc-gen bench configs/core-shapes.yaml             our kernels and cuDNN's on the GPU of this machine
  tdc-gen sequence 'A[i:9, j:2] B[j, k:9] C[k, l:2] -> D[i, l]'  which two tensors to multiply first

Exit codes:
  0  done
  1  a check failed: the folder is stale, a result is wrong
  2  wrong input or arguments, or a file that cannot be read or written
  3  this machine lacks a compiler or a GPU";

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
    /// What to do; without a command the configs are generated.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Arguments of the default command.
    #[command(flatten)]
    pub generate: GenerateArgs,
}

/// The commands beside generating.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Prints what would run: a row for each launch with scheme, tile, occupancy and predicted time
    Plan(PlanArgs),
    /// Packs trained or random weights into the file that a generated network loads
    Pack(PackArgs),
    /// Runs the generated text against a float64 reference, on the CPU or on a GPU
    Verify(VerifyArgs),
    /// Compiles the kernels to cubins with NVRTC and prints registers, shared memory and spills
    Compile(CompileArgs),
    /// Measures schemes and tiles for every problem of the configs on a GPU and writes a table that planning reads
    Tune(TuneArgs),
    /// Fits the constants of the estimate to measured times
    Calibrate(CalibrateArgs),
    /// Joins tables of measured times: shards, or other problems on the same GPU
    Merge(MergeArgs),
    /// Times our kernels and cuDNN's on the GPU that is there, in one process and by one method
    Bench(BenchArgs),
    /// Compiles the kernels of all `kernel!` calls of a crate or workspace into a folder to be committed, so that it builds without a
    /// compiler of CUDA
    Prepare(PrepareArgs),
    /// Finds the cheapest order of pairwise operations for a network of tensors
    Sequence(SequenceArgs),
    /// Shows which compilers were found, or installs the pinned ones without root
    Toolkit(ToolkitArgs),
    /// Prints completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// What to read instead of what the config says; the same for every command.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Another input shape, such as 1x3x480x640; every size is inferred from it
    #[arg(long, value_name = "BxCxHxW")]
    pub input: Option<TensorShape>,
    /// Another batch size
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: Option<u32>,
    /// Ignore the Tucker ranks; the network's name gets `_dense` behind it
    #[arg(long)]
    pub dense: bool,
    /// Another precision of all convolutions: how their products may be rounded. Tensors and sums stay fp32
    #[arg(long, value_name = "WORD", value_parser = precision())]
    pub precision: Option<Precision>,
    /// Another tolerance of all convolutions: the relative error that each may have where its precision allows less
    #[arg(long, value_name = "ERROR", value_parser = tolerance)]
    pub tolerance: Option<Tolerance>,
    /// How tiles are chosen: `tuned`, by the committed table of measured times where it has the problem, else by the estimate;
    /// `model`, our estimate of time among our own schemes; or `paper`, the TDC paper's equations for its kernel
    #[arg(long, value_name = "WAY", value_parser = tiles())]
    pub tiles: Option<Tiles>,
    /// Measured times that `tune` wrote, for --tiles tuned on their GPU instead of the committed ones
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
}

/// The words for ways to choose tiles.
fn tiles() -> impl TypedValueParser<Value = Tiles> {
    choice(&Tiles::WORDS)
}

/// The words for precisions.
fn precision() -> impl TypedValueParser<Value = Precision> {
    choice(&Precision::WORDS)
}

/// A relative error.
fn tolerance(text: &str) -> Result<Tolerance, String> {
    let [least, most] = Tolerance::RANGE;
    text.parse()
        .ok()
        .and_then(Tolerance::new)
        .ok_or_else(|| format!("write a relative error from {least:e} to {most}, such as 5e-6"))
}

/// One of some words, and what it stands for.
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
    /// The GPUs to plan for instead of those of the config; a network gets a variant for each [default: h200]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub gpu: Option<Vec<String>>,
}

/// Arguments of the default command.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Networks and layer sets
    #[arg(required = true, value_name = "CONFIG")]
    pub configs: Vec<PathBuf>,
    /// Where to write [default: generated/<name>]; one config only
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write nothing; exit with 1 and a diff when the folder is not up to date
    #[arg(long, conflicts_with_all = ["force", "stdout"])]
    pub check: bool,
    /// Overwrite files that the generator did not write or that were edited since
    #[arg(long)]
    pub force: bool,
    /// Write nothing; print all files to standard output
    #[arg(long, conflicts_with_all = ["force", "out"])]
    pub stdout: bool,
    /// Print the plan of each config as a JSON document instead of a summary
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
    /// Print the plan of each config as a JSON document, the plan.json of its folder
    #[arg(long)]
    pub json: bool,
    /// Show where the estimate sees the time of each launch go
    #[arg(long, conflicts_with = "json")]
    pub terms: bool,
    #[command(flatten)]
    pub options: ConfigArgs,
    #[command(flatten)]
    pub target: TargetArgs,
}

/// Arguments of `pack`.
#[derive(Debug, Args)]
pub struct PackArgs {
    /// The network
    pub config: PathBuf,
    /// A safetensors file with PyTorch's state-dict names
    #[arg(required_unless_present = "random", conflicts_with = "random")]
    pub weights: Option<PathBuf>,
    /// Random weights and BatchNorm statistics instead of a file
    #[arg(long, value_name = "SEED")]
    pub random: Option<u64>,
    /// The packed file to write
    #[arg(short, long, value_name = "FILE", default_value = "weights.bin")]
    pub output: PathBuf,
    /// Also write the unpacked weights as safetensors, for another framework
    #[arg(long, value_name = "FILE", requires = "random")]
    pub safetensors: Option<PathBuf>,
    /// Print what was done as JSON
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
    /// Run on the local GPU instead of the CPU
    #[arg(long)]
    pub local_gpu: bool,
    /// Weights of a network, as safetensors; random ones without it
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Seed of random weights and inputs
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Run each unit so many times, all of which must give the same bits
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
    /// Architectures
    #[arg(
        long,
        value_name = "SM,...",
        value_delimiter = ',',
        default_value = "sm_90"
    )]
    pub arch: Vec<Arch>,
    /// Where to write cubins, as DIR/<arch>/<unit>.cubin; none are written without it
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// A resource table to add the results to; `plan` reads generated/resources.txt of the generator's source
    #[arg(long, value_name = "FILE", conflicts_with = "fast")]
    pub resources: Option<PathBuf>,
    /// Only check that it compiles: ten times as quick, figures mean nothing
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
    /// The table to write; every result is kept in TABLE.journal, from which a run that ended early goes on [default: tuning-<gpu>.txt]
    #[arg(long, value_name = "TABLE")]
    pub out: Option<PathBuf>,
    /// Ignore the Tucker ranks
    #[arg(long)]
    pub dense: bool,
    /// Another precision of all convolutions
    #[arg(long, value_name = "WORD", value_parser = precision())]
    pub precision: Option<Precision>,
    /// Another tolerance of all convolutions
    #[arg(long, value_name = "ERROR", value_parser = tolerance)]
    pub tolerance: Option<Tolerance>,
    /// Another batch size
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: Option<u32>,
    /// Measure a scheme, also one that the planner takes only when it is named; may be repeated [default: those taken unasked]
    #[arg(long = "scheme", value_name = "SCHEME", value_parser = schemes())]
    pub schemes: Vec<String>,
    /// Of each scheme, only so many tiles that the estimate likes best, and those of --random
    #[arg(long, value_name = "K")]
    pub top: Option<usize>,
    /// Of each scheme, only so many tiles taken at random, and those of --top
    #[arg(long, value_name = "K")]
    pub random: Option<usize>,
    /// Measure one part of the problems, such as 1/4, 2/4, 3/4 and 4/4 on four GPUs
    #[arg(long, value_name = "I/N", default_value_t = Shard::WHOLE)]
    pub shard: Shard,
    /// Stop after so many minutes with what was measured so far
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    pub budget: Option<Duration>,
    /// The GPU to measure on, as CUDA counts them from 0
    #[arg(long, value_name = "ORDINAL", default_value_t = 0)]
    pub device: u32,
    /// Threads that compile [default: the cores but one, which times]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

/// A time in minutes, parts of one too.
fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse::<f64>().ok();
    minutes
        .and_then(|minutes| Duration::try_from_secs_f64(60.0 * minutes).ok())
        .ok_or_else(|| "write minutes as a number from 0, such as 90 or 0.5".to_owned())
}

/// Arguments of `calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Networks and layer sets whose problems are measured, or were
    #[arg(required = true, value_name = "CONFIG")]
    pub configs: Vec<PathBuf>,
    /// A journal of `tune`, of whatever problems, instead of measuring now; may be repeated. No GPU is needed then
    #[arg(long = "journal", value_name = "FILE")]
    pub journals: Vec<PathBuf>,
    /// Only tell how well the committed constants do: how far estimates are off, and how much longer the tiles with the least
    /// estimates take than the best
    #[arg(long)]
    pub check: bool,
    /// Where to write the constants [default: model-<gpu>.txt]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The GPU to measure on, as CUDA counts them from 0
    #[arg(long, value_name = "ORDINAL", default_value_t = 0)]
    pub device: u32,
    /// Threads that compile [default: the cores but one, which times]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

impl CalibrateArgs {
    /// What is measured: tiles of the tiled schemes, good ones and others.
    pub fn tune(&self, out: PathBuf) -> TuneArgs {
        TuneArgs {
            configs: self.configs.clone(),
            out: Some(out),
            dense: false,
            precision: None,
            tolerance: None,
            batch: None,
            schemes: vec!["implicit_gemm".to_owned(), "direct_tiled".to_owned()],
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
    /// Tables that `tune` wrote on one kind of GPU, with the same driver, compiler and generator
    #[arg(required = true, value_name = "TABLE")]
    pub tables: Vec<PathBuf>,
    /// The table to write; may be one of those read
    #[arg(long, value_name = "TABLE")]
    pub out: PathBuf,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// A network or layer set: each of its distinct convolutions is timed alone, without what is fused to it
    #[arg(required_unless_present = "sweep_n", value_name = "CONFIG")]
    pub config: Option<PathBuf>,
    /// Convolutions of one image size with N = 32, 64 and so on instead of a config; R is the filter's height and width, 3 without it
    #[arg(
        long,
        value_name = "C,H,W[,R]",
        conflicts_with_all = ["config", "input", "dense", "tiles"]
    )]
    pub sweep_n: Option<Sweep>,
    /// The last N of a series
    #[arg(long, value_name = "N", default_value_t = 512, requires = "sweep_n")]
    pub sweep_to: u32,
    /// The GPU to plan for instead of that of the config [default: h200]
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,
    /// The GPU to measure on, as CUDA counts them from 0
    #[arg(long, value_name = "ORDINAL", default_value_t = 0)]
    pub device: u32,
    /// Only these of our schemes
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = schemes())]
    pub scheme: Vec<String>,
    /// Time so many tiles of each scheme beside the planners' picks: three quarters by their estimates, the others at random
    #[arg(long, value_name = "TILES", default_value_t = NonZeroUsize::MIN)]
    pub best_of: NonZeroUsize,
    /// cuDNN's library, or the directory that it is in
    #[arg(long, value_name = "PATH", conflicts_with = "no_cudnn")]
    pub cudnn: Option<PathBuf>,
    /// Also time cuDNN's engines that compile a kernel for each shape; seconds for each engine and shape
    #[arg(long, conflicts_with = "no_cudnn")]
    pub compiled_engines: bool,
    /// Leave out cuDNN's algorithms on halves, three quarters of all
    #[arg(long, conflicts_with = "no_cudnn")]
    pub no_fp16: bool,
    /// Time our kernels alone
    #[arg(long)]
    pub no_cudnn: bool,
    /// A table of published times; they are scaled by cuDNN's times there and here
    #[arg(long, value_name = "FILE", conflicts_with = "no_cudnn")]
    pub reference: Option<PathBuf>,
    /// Also write all results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Keep each problem's times in a file as they are known, so that the same command goes on where a run was cut off; what is in it
    /// and would be the same today is not measured again [default with --json: <FILE>.journal]
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Also write charts
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub options: ConfigArgs,
}

/// The names of schemes.
fn schemes() -> PossibleValuesParser {
    PossibleValuesParser::new(SCHEMES.iter().map(|scheme| scheme.name()))
}

/// Arguments of `prepare`.
#[derive(Debug, Args)]
pub struct PrepareArgs {
    /// The folder to write, where the macro looks in the folder of a crate and of those above it
    #[arg(long, value_name = "DIR", default_value = PREPARED)]
    pub out: PathBuf,
    /// Compile and write nothing; fail when the folder is not up to date
    #[arg(long)]
    pub check: bool,
    /// Overwrite files that were edited
    #[arg(long, conflicts_with = "check")]
    pub force: bool,
    /// More arguments of the `cargo check --all-targets` by which the calls are found
    #[arg(last = true, value_name = "CARGO ARGUMENTS")]
    pub cargo: Vec<String>,
}

/// Arguments of `sequence`.
#[derive(Debug, Args)]
pub struct SequenceArgs {
    /// Tensors with labelled modes, such as 'U[s:3, y:9, x:9] S[s, r:4] H[y:3, r] T[t:8, r] -> V[t, y, x]; convolve y: same, stride 2'.
    /// Labels that the result has are kept, the others summed over
    #[arg(value_name = "NETWORK", required_unless_present = "file")]
    pub network: Option<String>,
    /// Read the network from a file; # begins a comment
    #[arg(long, value_name = "FILE", conflicts_with = "network")]
    pub file: Option<PathBuf>,
    /// What the order should have least of
    #[arg(long, value_name = "COST", value_enum, default_value_t = SequenceCost::Multiplications)]
    pub by: SequenceCost,
    /// Elements that an intermediate may have at most; the tensors and the result are exempt
    #[arg(long, value_name = "ELEMENTS")]
    pub cap: Option<u64>,
    /// The GPU of --by latency
    #[arg(long, value_name = "NAME", default_value = DEFAULT_GPU)]
    pub gpu: String,
}

/// What an order costs.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SequenceCost {
    /// Multiplications, each with its addition
    Multiplications,
    /// Bytes read and written, fp32
    Bytes,
    /// The floor of a launch for each operation
    Latency,
}

/// Arguments of `toolkit`.
#[derive(Debug, Args)]
pub struct ToolkitArgs {
    /// What to do; shows what was found without it
    #[command(subcommand)]
    pub action: Option<ToolkitAction>,
    /// Print what was found as JSON
    #[arg(long)]
    pub json: bool,
}

/// What `toolkit` can do.
#[derive(Debug, Subcommand)]
pub enum ToolkitAction {
    /// Installs pinned compiler packages into the cache: nvrtc (13.0), nvrtc12 (12.9, for sm_70), nvcc (13.0)
    Install {
        /// What to install
        #[arg(required = true, value_name = "COMPONENT")]
        components: Vec<Component>,
    },
}
