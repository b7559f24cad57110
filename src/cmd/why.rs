//! `pointsman why`: the stage at which a tool dropped out for an utterance, and by how much.

mod view;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::anyhow;
use pointsman::identity;
use pointsman::pipeline::{self, Narrowing, RouteError, RouteRequest, Router, Why, WhyError};
use pointsman::types::Deadline;

use super::failure::Failure;
use super::options::{Format, Options};
use super::route::{invalid, turns};
use super::{block_on, logging, progress};

#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 explained, whatever the stage; 2 there is no such tool.\n\n\
                        Examples:\n  \
                        pointsman why get_order \"我的快递到哪了\" --registry examples/shop/registry.yaml\n  \
                        pointsman why cancel_order \"ok do it\" --registry r.yaml --history turns.jsonl --format json")]
pub struct Args {
    /// Name of the tool
    tool: String,
    /// What the user said
    utterance: String,
    #[command(flatten)]
    options: Options,
    /// How to print the explanation
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Earlier turns, oldest first: a JSON array or JSON lines of {"role": "user|assistant|tool", "content": "…"}
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Only tools of this domain; may be given several times
    #[arg(long, value_name = "DOMAIN")]
    domain: Vec<String>,
    /// Only tools with this tag; may be given several times
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Only this tool; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    if args.utterance.trim().is_empty() {
        return Err(Failure::unusable(anyhow!("the utterance is empty")).remedy("say what the user said, in quotes"));
    }
    let format = args.format;
    let why = explain(args)?;
    let text = match format {
        Format::Text => view::text(&why, colour()),
        Format::Json => view::json(&why),
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|err| Failure::failed(err).context("cannot write to standard output"))
}

fn explain(args: Args) -> Result<Why, Failure> {
    let history = args.history.as_deref().map(turns).transpose()?.unwrap_or_default();
    // An explanation is no decision anyone asked for.
    let settings = args.options.load(vec![("log.decisions".into(), "off".into())])?.settings;
    logging::init(&settings)?;
    let caller = identity::local(&settings.server.identity);
    let request = RouteRequest {
        utterance: args.utterance,
        history,
        narrowing: Narrowing { domains: args.domain, tags: args.tag, tools: args.only },
        ..RouteRequest::default()
    };
    block_on(async {
        let deadline = settings.pipeline.deadline;
        // A single answer is no version of what a server serves.
        let settings = pipeline::Settings { history: 0, ..settings.pipeline };
        let router = Router::start(settings, &progress::embedding()).await?;
        if router.registry().1.cards.is_empty() {
            return Err(Failure::unusable(anyhow!("there is no registry to explain with"))
                .remedy("give one with --registry FILE"));
        }
        let why = router.why(&args.tool, request, &caller, Deadline::after(deadline)).await;
        router.shutdown().await;
        why.map_err(failure)
    })
}

fn failure(error: WhyError) -> Failure {
    match &error {
        WhyError::UnknownTool { nearest, .. } => {
            let names = nearest.join(", ");
            let failure = Failure::unusable(error);
            if names.is_empty() { failure } else { failure.remedy(format!("the nearest names are {names}")) }
        }
        WhyError::Route(RouteError::Invalid(problem)) => invalid(problem),
        WhyError::Route(RouteError::Deadline | RouteError::Overloaded | RouteError::Internal(_)) => {
            Failure::failed(error)
        }
    }
}

/// Whether standard output may be coloured.
#[allow(clippy::disallowed_methods, reason = "NO_COLOR belongs to the terminal, not to the configuration")]
pub(super) fn colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
