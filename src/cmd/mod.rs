//! The command line: one file a subcommand.

mod failure;
mod logging;
mod options;
mod progress;
mod remote;
mod render;
mod terminal;

mod brake;
mod calibrate;
mod config;
mod doctor;
mod eval;
mod import;
mod lint;
mod report;
mod route;
mod serve;
mod tune;
mod why;

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use failure::Failure;

/// A two-stage tool router: from what a user said to the right tool, validated arguments and an honest confidence.
#[derive(Parser)]
#[command(
    name = "pointsman",
    version,
    propagate_version = true,
    after_help = "Exit codes: 0 done, 1 failed, 2 unusable configuration or input.\n\
                  Environment: POINTSMAN_SECTION__KEY, such as POINTSMAN_LLM__BASE_URL, sets any configuration key.\n\n\
                  Examples:\n  \
                  pointsman serve --registry examples/shop/registry.yaml\n  \
                  pointsman route --registry examples/shop/registry.yaml \"where is my parcel\"\n  \
                  pointsman config print --config pointsman.toml"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the router over gRPC, with metrics and probes over HTTP
    Serve(serve::Args),
    /// Route one utterance, in process or by a running server
    Route(route::Args),
    /// Say what is wrong with tool cards: wording, schemas, side effects, cards that say the same
    Lint(lint::Args),
    /// Explain at which stage a tool dropped out for an utterance
    Why(why::Args),
    /// Take tools of a running server out of service, or set the mode in which it chooses
    Brake(brake::Args),
    /// Score a labelled set, as docs/SCORING.md describes
    Eval(eval::Args),
    /// Score every labelled set below a folder and write a document with the figures
    Report(report::Args),
    /// Fit the confidence of each encoder to labelled sets, as docs/CALIBRATION.md describes
    Calibrate(calibrate::Args),
    /// Find the weights of the encoders' signals, as docs/TUNING.md describes
    Tune(tune::Args),
    /// Turn tools in another form (OpenAI, Anthropic, MCP, OpenAPI) into a registry file
    Import(import::Args),
    /// Check or print the effective configuration
    Config(config::Args),
    /// Find out what the configured LLM endpoint can do, and print the settings to use
    Doctor(doctor::Args),
}

/// Parses the command line and runs it. Flags that cannot be used end in clap's own message and exit code 2.
pub fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(args),
        Command::Route(args) => route::run(args),
        Command::Lint(args) => lint::run(args),
        Command::Why(args) => why::run(args),
        Command::Brake(args) => brake::run(args),
        Command::Eval(args) => eval::run(args),
        Command::Report(args) => report::run(args),
        Command::Calibrate(args) => calibrate::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Import(args) => import::run(args),
        Command::Config(args) => config::run(args),
        Command::Doctor(args) => doctor::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Runs `work` to its end on a runtime of its own.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|err| Failure::failed(err).context("cannot start the async runtime"))?;
    let result = runtime.block_on(work);
    // A blocking task that hangs must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// The flags of one command, as clap reads them.
#[cfg(test)]
fn parse<A: clap::Args>(flags: &str) -> Result<A, clap::error::ErrorKind> {
    #[derive(Parser)]
    struct Flags<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }
    let words = std::iter::once("command").chain(flags.split_whitespace());
    Flags::try_parse_from(words).map(|flags| flags.args).map_err(|err| err.kind())
}
