//! Runs tools: over HTTP and at MCP servers, at the targets the operator names.
//!
//! Owns: requests made of arguments, timeouts, retries where repeating does no harm, breakers per tool.
//! Does not know: whether a call may run (`gate`) or what an answer means (`result`).

mod address;
mod attempt;
mod client;
mod http;
mod line;
pub mod mcp;
mod metrics;
mod request;
mod retry;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};

use crate::tool::{Execution, McpRun, Run, ToolCard};
use crate::types::{Deadline, Problem, ProblemCode, ToolAnswer};
use attempt::{Attempt, Loss, Unsent, closed_off, too_late};
use client::Clients;
use line::{Line, Lines};
use mcp::Server;
use retry::Plan;

pub use line::proposed_timeout;

#[derive(Debug, Clone)]
pub struct Settings {
    /// By the name cards use.
    pub targets: BTreeMap<String, Target>,
    /// Timeout of tools whose card names none, until their own times are known.
    pub default_timeout: Duration,
    /// Longest answer that is read.
    pub max_answer_bytes: usize,
    /// Further attempts for tools that may be repeated.
    pub retries: u32,
    pub breaker_failures: u32,
    pub breaker_window: Duration,
}

#[derive(Debug, Clone)]
pub enum Target {
    Http(HttpTarget),
    Mcp(McpTarget),
}

#[derive(Debug, Clone)]
pub struct HttpTarget {
    /// `http` or `https`, a host, perhaps a path; nothing else of a request's address comes from elsewhere.
    pub base_url: String,
    pub headers: Vec<(String, Secret)>,
    /// Addresses of this machine and of private networks may be reached.
    pub allow_private: bool,
}

#[derive(Debug, Clone)]
pub enum McpTarget {
    /// Streamable HTTP.
    Url(HttpTarget),
    /// A program that speaks over its standard streams. Of our environment it gets the variables in `env` alone.
    Command { program: String, args: Vec<String>, env: Vec<(String, Secret)> },
}

/// A value that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// One call to run.
#[derive(Debug, Clone)]
pub struct Job {
    pub card: Arc<ToolCard>,
    pub arguments: Map<String, Value>,
    /// Sent along as `Idempotency-Key`.
    pub key: Option<String>,
    pub deadline: Deadline,
}

/// How it went.
#[derive(Debug)]
pub struct Ran {
    pub end: End,
    /// Requests sent.
    pub attempts: u32,
    pub took: Duration,
}

#[derive(Debug)]
pub enum End {
    /// The tool answered, well or badly.
    Answered(ToolAnswer),
    /// Nothing was sent, so nothing happened: no connection, open breaker, arguments that fit no request.
    NotStarted(Problem),
    /// It was sent and no answer came that can be trusted.
    Lost(Problem),
}

#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    #[error("target {target}: {message}")]
    Target { target: String, message: String },
}

/// See the module.
pub struct Executors {
    settings: Settings,
    targets: BTreeMap<String, Ready>,
    lines: Lines,
}

/// A target that was checked.
enum Ready {
    Http(Clients),
    Mcp(Server),
}

/// What one attempt consists of.
enum Errand<'a> {
    Http { client: &'a reqwest::Client, request: Box<reqwest::Request> },
    Mcp { server: &'a Server, run: &'a McpRun },
}

/// Counts an attempt however it ends.
struct Counted {
    started: Instant,
    result: &'static str,
}

impl Drop for Counted {
    fn drop(&mut self) {
        metrics::attempt(self.result, self.started.elapsed());
    }
}

impl Executors {
    /// # Errors
    /// [`ExecuteError`] for a target that cannot be used.
    pub fn new(settings: Settings) -> Result<Self, ExecuteError> {
        let mut targets = BTreeMap::new();
        for (name, target) in &settings.targets {
            let ready = match target {
                Target::Http(target) => Clients::new(target).map(Ready::Http),
                Target::Mcp(target) => Server::new(target, settings.max_answer_bytes).map(Ready::Mcp),
            };
            let ready = ready.map_err(|message| ExecuteError::Target { target: name.clone(), message })?;
            targets.insert(name.clone(), ready);
        }
        Ok(Self { settings, targets, lines: Lines::default() })
    }

    /// Why `card` cannot be run here.
    #[allow(clippy::result_large_err)]
    pub fn runs(&self, card: &ToolCard) -> Result<(), Problem> {
        let refuse = |message: String| Err(Problem::refused("not_executable", ProblemCode::NotExecutable, message));
        let Some(run) = &card.run else {
            return refuse(format!("`{}` is not run here; the caller runs it", card.name));
        };
        if card.execution == Execution::ProposeOnly {
            return refuse(format!("`{}` is run by a person", card.name));
        }
        match (run, self.targets.get(run.target())) {
            (Run::Http(_), Some(Ready::Http(_))) | (Run::Mcp(_), Some(Ready::Mcp(_))) => Ok(()),
            (_, Some(_)) => refuse(format!("target `{}` of `{}` is of another kind", run.target(), card.name)),
            (_, None) => refuse(format!("target `{}` of `{}` is not set up here", run.target(), card.name)),
        }
    }

    /// How long one attempt at `card` may take: as its card says, else half as long again as its slowest calls, else
    /// the default. What is learned stays below twice the default.
    pub fn timeout(&self, card: &ToolCard) -> Duration {
        let learned = || self.lines.get(&card.id)?.timeout();
        let default = self.settings.default_timeout;
        card.timeout.or_else(|| Some(learned()?.min(default * 2))).unwrap_or(default)
    }

    /// Whether calls of this tool are refused now because it failed too often.
    pub fn is_open(&self, card: &ToolCard) -> bool {
        self.lines.get(&card.id).is_some_and(|line| line.breaker.refuses())
    }

    /// Runs one call. Dropping the future aborts the exchange.
    pub async fn run(&self, job: Job) -> Ran {
        let started = Instant::now();
        let mut attempts = 0;
        let end = match self.prepare(&job) {
            Ok(errand) => self.go(&job, errand, &mut attempts).await,
            Err(problem) => End::NotStarted(problem),
        };
        Ran { end, attempts, took: started.elapsed() }
    }

    /// The request, if the call makes one.
    #[allow(clippy::result_large_err)]
    fn prepare<'a>(&'a self, job: &'a Job) -> Result<Errand<'a>, Problem> {
        self.runs(&job.card).inspect_err(|_| metrics::refused("not_executable"))?;
        let target = job.card.run.as_ref().and_then(|run| Some((run, self.targets.get(run.target())?)));
        match target {
            Some((Run::Http(run), Ready::Http(clients))) => {
                let request = request::request(&clients.base, run, &job.arguments, job.key.as_deref())
                    .inspect_err(|_| metrics::refused("arguments"))?;
                // See [`Clients::fresh`].
                let client = if may_repeat(job) { &clients.kept } else { &clients.fresh };
                Ok(Errand::Http { client, request: Box::new(request) })
            }
            Some((Run::Mcp(run), Ready::Mcp(server))) => Ok(Errand::Mcp { server, run }),
            // `runs` has told them apart.
            _ => Err(Problem::refused("not_executable", ProblemCode::NotExecutable, "the tool cannot be run here")),
        }
    }

    async fn go(&self, job: &Job, errand: Errand<'_>, attempts: &mut u32) -> End {
        let line = self.lines.of(&job.card.id, &self.settings);
        if job.deadline.has_passed() {
            metrics::refused("deadline");
            return End::NotStarted(too_late());
        }
        let Some(admission) = line.breaker.admit() else {
            metrics::refused("breaker");
            return End::NotStarted(closed_off());
        };
        // A probe is one request.
        let further = if may_repeat(job) && !admission.is_probe() { self.settings.retries } else { 0 };
        let mut plan = Plan::new(further, job.deadline);
        let mut trail = Trail::default();
        loop {
            let attempt = self.attempt(job, &errand, &line).await;
            if !matches!(attempt, Attempt::Unsent(_)) {
                *attempts += 1;
            }
            let Some(pause) = plan.pause(&attempt) else {
                Line::settle(admission, &attempt);
                return trail.end(attempt, &job.card);
            };
            tracing::debug!(tool = %job.card.id, result = attempt.label(), ?pause, "tool is tried again");
            trail.add(attempt);
            sleep(pause).await;
        }
    }

    async fn attempt(&self, job: &Job, errand: &Errand<'_>, line: &Line) -> Attempt {
        let timeout = self.timeout(&job.card);
        let left = job.deadline.remaining();
        let time = timeout.min(left);
        let mut counted = Counted { started: Instant::now(), result: "cancelled" };
        let mut attempt = match errand {
            Errand::Http { client, request } => match request.try_clone() {
                Some(request) => http::exchange(client, request, self.settings.max_answer_bytes, time).await,
                // Only streamed bodies cannot be cloned, and there are none.
                None => Attempt::Unsent(Unsent::Connect),
            },
            Errand::Mcp { server, run } => server.call(run, &job.arguments, job.key.as_deref(), time).await,
        };
        match &mut attempt {
            Attempt::Lost(Loss::Timeout { cut, .. }) => *cut = left < timeout,
            Attempt::Unsent(unsent @ Unsent::Connect) if job.deadline.has_passed() => *unsent = Unsent::NoTime,
            _ => {}
        }
        counted.result = attempt.label();
        line.took(&attempt, counted.started.elapsed());
        if let Attempt::Unsent(_) | Attempt::Lost(_) = &attempt {
            tracing::warn!(tool = %job.card.id, result = attempt.label(), "tool gave no answer");
        }
        attempt
    }
}

/// Whether a second request does no harm: the tool only reads, or knows a repetition by its key.
fn may_repeat(job: &Job) -> bool {
    job.card.is_known_to_read() || (job.card.idempotent && job.key.is_some())
}

/// What earlier attempts of a call leave behind.
#[derive(Debug, Default)]
struct Trail {
    lost: Option<Loss>,
    answered: Option<ToolAnswer>,
}

impl Trail {
    fn add(&mut self, attempt: Attempt) {
        match attempt {
            Attempt::Answered(answer) => self.answered = Some(answer.answer),
            Attempt::Lost(loss) => self.lost = Some(loss),
            Attempt::Unsent(_) => {}
        }
    }

    /// How the call ended, its last attempt being `last`. An attempt that was lost may have taken effect; only success
    /// makes up for it, unless the tool changes nothing anyway.
    fn end(self, last: Attempt, card: &ToolCard) -> End {
        let success = last.is_success();
        match (last, self.lost) {
            (Attempt::Answered(answer), lost) if success || lost.is_none() || card.is_known_to_read() => {
                End::Answered(answer.answer)
            }
            (Attempt::Lost(loss), _) | (_, Some(loss)) => End::Lost(loss.problem(card)),
            (Attempt::Answered(answer), None) => End::Answered(answer.answer),
            (Attempt::Unsent(unsent), None) => match self.answered {
                Some(answer) => End::Answered(answer),
                None => End::NotStarted(unsent.problem()),
            },
        }
    }
}

#[cfg(test)]
mod tests;
