//! `tdc-gen`: the command line. Parses, calls the library, prints.

mod args;
mod bench;
mod calibrate;
mod compile;
mod compress;
mod config;
mod failure;
mod generate;
mod import;
mod inputs;
mod interrupt;
mod merge;
mod network_bench;
mod output;
mod pack;
mod plan;
mod prepare;
mod sequence;
mod toolkit;
mod tune;
mod tuned_launches;
mod tuning_session;
mod verify;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::note(&failure);
            failure.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        None => generate::run(&cli.generate),
        Some(Command::Import(args)) => import::run(&args),
        Some(Command::Plan(args)) => plan::run(&args),
        Some(Command::Compress(args)) => compress::run(&args),
        Some(Command::Pack(args)) => pack::run(&args),
        Some(Command::Verify(args)) => verify::run(&args),
        Some(Command::Compile(args)) => compile::run(&args),
        Some(Command::Tune(args)) => tune::run(&args),
        Some(Command::Calibrate(args)) => calibrate::run(&args),
        Some(Command::Merge(args)) => merge::run(&args),
        Some(Command::Bench(args)) if args.network => network_bench::run(&args),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Prepare(args)) => prepare::run(&args),
        Some(Command::Sequence(args)) => sequence::run(&args),
        Some(Command::Toolkit(args)) => toolkit::run(&args),
        Some(Command::Completions { shell }) => {
            let mut command = Cli::command();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "tdc-gen", &mut script);
            output::print(String::from_utf8_lossy(&script))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
