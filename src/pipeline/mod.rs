//! One request from top to bottom: the only module that knows the order of the stages.
//!
//! Owns: [`Router`], the request type, start, changes of the catalog.
//! Does not know: transports, files of settings, exit codes.

mod brake;
mod change;
mod history;
mod invoke;
mod lint;
mod live;
mod make;
mod observe;
mod pending;
mod pins;
mod route;
mod shadow;
mod skeleton;
mod start;
mod tenant;
#[cfg(test)]
mod tests;
mod why;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{Semaphore, watch};
use tokio_util::task::TaskTracker;

pub use crate::retrieve::Narrowing;

pub use brake::{Brake, BrakeError, ModeSet, RunMode, Standing, Target};
pub use history::{Cause, Difference, Facts, Kept, Touched, Version};
pub use invoke::{Answer, InvokeError, Leave, Locale, Outcome, Reported, Which, Wish};
pub use lint::{Linted, View, counts, severity_name};
pub use live::{LiveError, LiveSource};
pub use why::{Arguments, Barrier, Decided, Dropped, Place, Ranked, Why, WhyError};

use crate::cache::DecisionCache;
use crate::catalog::{Catalog, CatalogHandle};
use crate::decide::confidence::{Features, Models, UnknownFeature};
use crate::decide::llm::Llm;
use crate::decision::log::DecisionLog;
use crate::decision::redact::Salt;
use crate::embed::Encoders;
use crate::execute::Executors;
use crate::gate::Gate;
use crate::registry::lint::Finding;
use crate::registry::pin::Pins;
use crate::registry::{Quarantined, Registry};
use crate::retrieve::{Context, Eligible, Embedded, Fusion, FusionError};
use crate::rules::Rules;
use crate::store::Store;
use crate::text::Query;
use crate::types::{Candidate, CatalogVersion, Confidence, Problem, ToolId, Turn};

/// What a caller asks.
#[derive(Debug, Clone, Default)]
pub struct RouteRequest {
    pub utterance: String,
    /// Oldest first.
    pub history: Vec<Turn>,
    pub session_id: String,
    /// Values the session supplies, by argument name.
    pub session_state: Map<String, Value>,
    pub narrowing: Narrowing,
    pub no_cache: bool,
    /// 0 means 1.
    pub max_calls: usize,
    /// The `pending` handle of an earlier `clarify`.
    pub pending: Option<String>,
    /// 32 hex digits from the caller's trace context.
    pub trace_id: Option<String>,
}

/// Why no decision was made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RouteError {
    /// A field of the request cannot be used; `Problem::fields` names it.
    #[error("{}", .0.message)]
    Invalid(Problem),
    #[error("no decision within the deadline")]
    Deadline,
    #[error("too many requests are waiting")]
    Overloaded,
    #[error("{0}")]
    Internal(String),
}

/// Result of a change to the catalog.
#[derive(Debug, Clone, Default)]
pub struct Change {
    pub catalog_version: String,
    pub added: Vec<ToolId>,
    pub changed: Vec<ToolId>,
    pub removed: Vec<ToolId>,
    pub quarantined: Vec<Quarantined>,
    pub notices: Vec<String>,
    /// Version of the rule file in force; empty without one.
    pub rules_version: String,
    /// Texts that had to be embedded anew.
    pub embedded_texts: usize,
    /// Errors and warnings on the added and changed cards; a notice says how many were left out.
    pub findings: Vec<Finding>,
    /// Tools for which a change waits for approval.
    pub held: Vec<ToolId>,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// Registry files.
    pub registries: Vec<PathBuf>,
    /// Servers whose tools are served besides.
    pub live: Vec<LiveSource>,
    /// Any quarantined card fails the start.
    pub strict: bool,
    /// SQLite file for embeddings and `Put` cards; in memory when absent.
    pub store: Option<PathBuf>,
    /// Serve the cards that were `Put` earlier besides those of the files, and keep to the brakes and the mode that were
    /// set.
    pub stored_cards: bool,
    /// Versions of the catalog that are kept in the store. With 0 nothing is kept of what is served, no change is held
    /// and no last good catalog is served: for runs that are over after one request.
    pub history: usize,
    /// Whose changes of served cards wait for approval.
    pub pins: Pins,
    pub embed: crate::embed::Settings,
    /// Serve with words alone when the encoders cannot be loaded.
    pub allow_lexical_only: bool,
    pub index: crate::index::Settings,
    pub retrieve: crate::retrieve::Settings,
    pub local: crate::decide::local::Settings,
    /// No LLM: the local decider serves.
    pub llm: Option<crate::decide::llm::Settings>,
    /// What the user is told when a person takes over.
    pub handoff: crate::decide::handoff::Sentences,
    pub cache: crate::cache::Settings,
    pub log: crate::decision::log::Settings,
    pub rules: crate::rules::Settings,
    /// Used when the caller sets no deadline, and the most a caller may ask for.
    pub deadline: Duration,
    /// Requests in work beyond which further ones are refused at once.
    pub max_in_flight: usize,
    pub gate: crate::gate::Settings,
    /// File of the operator's policy; without it scopes and cards decide.
    pub policy: Option<PathBuf>,
    pub execute: crate::execute::Settings,
    pub result: crate::result::Settings,
    /// The log also gets both bodies of each call, every value hashed.
    pub log_bodies: bool,
    /// Example utterances added to cards by tool name, for evaluation.
    pub extra_examples: BTreeMap<String, Vec<String>>,
}

impl Settings {
    /// Whether what is served is written down, and what was served before counts.
    fn keeps_history(&self) -> bool {
        self.stored_cards && self.history > 0
    }
}

/// Why the router cannot start or a change is refused.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Registry(#[from] crate::registry::RegistryError),
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error("{} tool cards are quarantined and `strict` is set; fix them or start without it:{}", .0.len(), list(.0))]
    Strict(Vec<Quarantined>),
    /// A tenant's administrator named cards that are not the tenant's alone.
    #[error("only the operator may change or take the name of: {}", few(.names))]
    NotOwn { names: Vec<String> },
    /// A tenant's administrator put a card that says what only the operator may.
    #[error("card `{name}`: only the operator may set `{field}`")]
    Operators { name: String, field: &'static str },
    /// `kept`: the oldest and the newest that can be named.
    #[error("there is no version `{asked}`; {}", range(.kept.as_ref()))]
    NoSuchVersion { asked: String, kept: Option<(CatalogVersion, CatalogVersion)> },
    /// A version that is kept holds a card that this program cannot read.
    #[error("version {version} cannot be served again: its card of `{tool}` cannot be read")]
    Unreadable { version: CatalogVersion, tool: String },
    /// Nothing of this name and hash waits for approval.
    #[error("no such change waits for approval: {}", few(.names))]
    NotHeld { names: Vec<String> },
    #[error(transparent)]
    Embed(#[from] crate::embed::EmbedError),
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    #[error(transparent)]
    Rules(#[from] crate::rules::RulesError),
    #[error(transparent)]
    Build(#[from] crate::catalog::BuildError),
    #[error(transparent)]
    Log(#[from] crate::decision::log::LogError),
    #[error(transparent)]
    Policy(#[from] crate::gate::PolicyError),
    #[error(transparent)]
    Execute(#[from] crate::execute::ExecuteError),
    #[error("llm settings cannot be used: {0}")]
    Llm(String),
    #[error("model {encoder}: manifest.toml, [fusion]: {source}")]
    Fusion { encoder: String, source: FusionError },
    #[error("model {encoder}: manifest.toml, [confidence]: {source}")]
    Confidence { encoder: String, source: UnknownFeature },
    /// A background task did not finish.
    #[error("interrupted")]
    Interrupted(#[from] tokio::task::JoinError),
}

fn range(kept: Option<&(CatalogVersion, CatalogVersion)>) -> String {
    match kept {
        Some((oldest, newest)) => format!("{oldest} to {newest} are kept"),
        None => "none is kept".to_owned(),
    }
}

fn few(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(10).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > shown.len() { " and others" } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn list(quarantined: &[Quarantined]) -> String {
    let lines = quarantined.iter().flat_map(|card| {
        card.problems.iter().map(move |problem| {
            let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
            format!("\n  {}{line}: {} {}: {}", card.source, card.card, problem.pointer, problem.message)
        })
    });
    lines.collect()
}

/// Every eligible tool with its fused score, best first, before any shortlist.
#[derive(Debug, Clone)]
pub struct Ranking {
    pub candidates: Vec<Candidate>,
    /// How many of them, from the top, form the shortlist.
    pub shortlist: usize,
}

/// What the local decider would choose, and what its confidence is computed from.
#[derive(Debug, Clone, PartialEq)]
pub struct FirstChoice {
    pub tool: ToolId,
    pub features: Features,
    /// The encoder that read the utterance; `None` when words alone decided.
    pub encoder: Option<String>,
    /// As computed by the model in use.
    pub confidence: Confidence,
}

/// What a request is ranked by, so that it can be ranked again with other weights.
#[derive(Debug, Clone)]
pub struct Reading {
    pub catalog: Arc<Catalog>,
    pub query: Query,
    pub eligible: Eligible,
    pub context: Context,
    /// `None` when words alone decide.
    pub embedded: Option<Embedded>,
}

/// The router: loaded once, shared by every request.
pub struct Router {
    settings: Settings,
    catalogs: CatalogHandle<Rules>,
    live: live::LiveSources,
    lints: lint::Lints,
    /// For those who watch.
    versions: watch::Sender<Arc<Version>>,
    encoders: Arc<Encoders>,
    store: Arc<Store>,
    llm: Option<Llm>,
    /// By encoder.
    fusion: BTreeMap<String, Fusion>,
    models: Models,
    cache: DecisionCache,
    brakes: brake::Brakes,
    pending: pending::PendingCalls,
    log: DecisionLog,
    salt: Salt,
    gate: Gate,
    executors: Executors,
    turns: invoke::Turns,
    open_calls: invoke::OpenCalls,
    pages: invoke::Pages,
    /// Calls being run: they are seen through even when nobody waits for them.
    calls: TaskTracker,
    in_flight: Arc<Semaphore>,
    /// Places for choices that are made beside the rules.
    shadows: Arc<Semaphore>,
}

impl Router {
    /// The registry being served, for `List` and `Get`, with the version of its catalog.
    pub fn registry(&self) -> (String, Arc<Registry>) {
        let catalog = &self.catalogs.load().catalog;
        (catalog.version.to_string(), Arc::clone(&catalog.registry))
    }

    /// Words alone decide: no encoder is loaded.
    pub fn is_lexical_only(&self) -> bool {
        self.encoders.all().is_empty()
    }

    /// Writes out what is buffered. Idempotent.
    pub async fn shutdown(self: &Arc<Self>) {
        self.live.stop();
        let router = Arc::clone(self);
        if tokio::task::spawn_blocking(move || router.log.close()).await.is_err() {
            tracing::error!("the decision log could not be closed");
        }
    }
}
