//! `pointsman route`: one utterance, in process or by a running server.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use pointsman::identity;
use pointsman::pipeline::{self, RouteError, Router};
use pointsman::server::proto::{self, Narrowing, RouteOptions, RouteRequest, RouteResponse};
use pointsman::server::wire;
use pointsman::types::{Deadline, Problem, Role, Turn};

use super::failure::Failure;
use super::options::{Format, Options};
use super::remote::Remote;
use super::{block_on, logging, progress, render};

#[derive(clap::Args)]
#[command(after_help = "All four outcomes (call, clarify, no_tool, handoff) exit with 0.\n\n\
                        Examples:\n  \
                        pointsman route --registry examples/shop/registry.yaml \"我的快递到哪了\"\n  \
                        pointsman route --addr http://127.0.0.1:50051 --format json \"where is my parcel\"\n  \
                        pointsman route --addr https://tools.example:50051 --token-file token --ca ca.pem \"where is my parcel\"\n  \
                        pointsman route --registry r.yaml --domain refunds --history turns.jsonl \"ok do it\"")]
pub struct Args {
    /// What the user said
    utterance: String,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    remote: Remote,
    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Earlier turns, oldest first: a JSON array or JSON lines of {"role": "user|assistant|tool", "content": "…"}
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Session the utterance belongs to
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// The pending handle of an earlier clarify answer
    #[arg(long, value_name = "HANDLE")]
    pending: Option<String>,
    /// Only tools of this domain; may be given several times
    #[arg(long, value_name = "DOMAIN")]
    domain: Vec<String>,
    /// Only tools with this tag; may be given several times
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Only this tool; may be given several times
    #[arg(long, value_name = "NAME")]
    tool: Vec<String>,
    /// Neither read nor write the decision cache
    #[arg(long)]
    no_cache: bool,
    /// Most calls the answer may hold
    #[arg(long, value_name = "N", default_value_t = 1)]
    max_calls: u32,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let request = request(&args)?;
    let response = match args.remote.server()? {
        Some(server) => block_on(server.route(request))?,
        None => local(&args.options, request)?,
    };
    let text = match args.format {
        Format::Text => render::text(response),
        Format::Json => render::json(response),
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|err| Failure::failed(err).context("cannot write to standard output"))
}

fn request(args: &Args) -> Result<RouteRequest, Failure> {
    // Before an encoder is loaded for nothing.
    if args.utterance.trim().is_empty() {
        return Err(Failure::unusable(anyhow!("the utterance is empty")).remedy("say what the user said, in quotes"));
    }
    let history = args.history.as_deref().map(history).transpose()?.unwrap_or_default();
    Ok(RouteRequest {
        utterance: args.utterance.clone(),
        history,
        session_id: args.session_id.clone().unwrap_or_default(),
        session_state: None,
        narrowing: Some(Narrowing { domains: args.domain.clone(), tags: args.tag.clone(), tools: args.tool.clone() }),
        options: Some(RouteOptions { no_cache: args.no_cache, max_calls: args.max_calls }),
        pending: args.pending.clone().unwrap_or_default(),
    })
}

/// The turns in a file.
pub(super) fn turns(path: &Path) -> Result<Vec<Turn>, Failure> {
    let place = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|err| Failure::unusable(err).context(format!("cannot read the history {place}")))?;
    parse_history(&text).map_err(|message| {
        Failure::unusable(anyhow!("{place}:{message}"))
            .remedy(r#"a turn is {"role": "user", "content": "…"}; roles are user, assistant and tool"#)
    })
}

fn history(path: &Path) -> Result<Vec<proto::Turn>, Failure> {
    let turns = turns(path)?;
    let role = |role| match role {
        Role::User => proto::turn::Role::User,
        Role::Assistant => proto::turn::Role::Assistant,
        Role::Tool => proto::turn::Role::Tool,
    };
    Ok(turns.into_iter().map(|turn| proto::Turn { role: role(turn.role).into(), content: turn.content }).collect())
}

/// Errors begin with line and column.
fn parse_history(text: &str) -> Result<Vec<Turn>, String> {
    let describe = |before: usize, err: &serde_json::Error| format!("{}:{}: {err}", before + err.line(), err.column());
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(|err| describe(0, &err));
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(i, line)| serde_json::from_str(line).map_err(|err| describe(i, &err))).collect()
}

fn local(options: &Options, request: RouteRequest) -> Result<RouteResponse, Failure> {
    let settings = options.load(Vec::new())?.settings;
    logging::init(&settings)?;
    let names_files = !settings.pipeline.registries.is_empty();
    let request = wire::route_request(request).map_err(|problem| invalid(&problem))?;
    let caller = identity::local(&settings.server.identity);
    block_on(async {
        let deadline = settings.pipeline.deadline;
        // A single answer is no version of what a server serves.
        let settings = pipeline::Settings { history: 0, ..settings.pipeline };
        let router = Router::start(settings, &progress::embedding()).await?;
        // The store may hold cards that were put.
        if !names_files && router.registry().1.cards.is_empty() {
            return Err(Failure::unusable(anyhow!("there is no registry to route with"))
                .remedy("give one with --registry FILE, or a running server with --addr URL"));
        }
        let decision = router.route(request, &caller, Deadline::after(deadline)).await;
        router.shutdown().await;
        decision.map(|decision| wire::route_response(&decision)).map_err(|error| match error {
            RouteError::Invalid(problem) => invalid(&problem),
            RouteError::Deadline | RouteError::Overloaded | RouteError::Internal(_) => Failure::failed(error),
        })
    })
}

pub(super) fn invalid(problem: &Problem) -> Failure {
    let fields = problem.fields.iter().map(|field| format!("\n  {}: expected {}", field.path, field.expected));
    Failure::unusable(anyhow!("{}{}", problem.message, fields.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_an_array_or_lines() {
        let array = r#"[{"role":"user","content":"查一下订单"},{"role":"assistant","content":"哪个？"}]"#;
        let lines =
            "{\"role\":\"user\",\"content\":\"查一下订单\"}\n\n{\"role\":\"assistant\",\"content\":\"哪个？\"}\n";
        assert_eq!(parse_history(array).unwrap(), parse_history(lines).unwrap());
        assert_eq!(parse_history("").unwrap(), []);
    }

    #[test]
    fn a_bad_turn_is_named_by_its_line() {
        let error =
            parse_history("{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"boss\",\"content\":\"b\"}").unwrap_err();
        assert!(error.starts_with("2:"), "{error}");
        assert!(error.contains("boss"), "{error}");
    }
}
