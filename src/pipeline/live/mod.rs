//! Tools that come from servers rather than files.
//!
//! Owns: the newest listing of each live source, kept over restarts; which sources are up.
//! Does not know: how a server is asked ([`crate::execute::mcp`]), what makes a card ([`crate::registry`]).

mod ask;
mod follow;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::execute::McpTarget;
use crate::execute::mcp::{Connection, ListError, ToolServer};
use crate::registry::{Listed, Registry};
use crate::store::Store;
use crate::telemetry::names;
use crate::types::encoding::hex;
use ask::Asks;

/// One server whose tools are served.
#[derive(Debug, Clone)]
pub struct LiveSource {
    /// Unique among the live sources.
    pub name: String,
    pub server: ToolServer,
    /// The target of [`crate::execute::Settings`] that runs its tools; without it the caller runs them.
    pub target: Option<String>,
    /// Of all its tools.
    pub domain: Option<String>,
    /// Scopes a caller needs for any of its tools.
    pub permissions: Vec<String>,
    /// Whether the server's own word on side effects counts.
    pub trust_hints: bool,
    /// Without a listing there is no start.
    pub required: bool,
    /// How often it is asked again without being told of a change; zero: never.
    pub refresh: Duration,
}

/// Why a live source keeps the server from starting.
#[derive(Debug, thiserror::Error)]
#[error("live source `{name}`: {source}")]
pub struct LiveError {
    pub name: String,
    pub source: ListError,
}

/// All live sources with what they listed last.
#[derive(Default)]
pub(super) struct LiveSources {
    sources: Vec<Arc<Source>>,
    /// Some listing differs from the one before, or some source went down or came back.
    news: watch::Sender<()>,
    /// Ended with this value.
    tasks: Mutex<JoinSet<()>>,
}

struct Source {
    settings: LiveSource,
    news: watch::Sender<()>,
    asks: Asks,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tools: Option<Arc<Vec<Value>>>,
    /// Why the tools may be old, or not there.
    trouble: Option<ListError>,
    /// Made at the start, until it is followed.
    connection: Option<Connection>,
}

/// A listing in the store.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// Which server it came from: under the same name another one may stand in the settings by now.
    place: String,
    tools: Vec<Value>,
}

impl LiveSources {
    /// Asks every source, all at once, each within its own time.
    ///
    /// # Errors
    /// [`LiveError`] for settings that cannot be used, and for a source that is required and gives no listing.
    pub async fn fetch(settings: &[LiveSource]) -> Result<Self, LiveError> {
        for source in settings {
            Connection::check(&source.server).map_err(|error| fault(source, error))?;
        }
        let mut asked = JoinSet::new();
        for (index, source) in settings.iter().cloned().enumerate() {
            asked.spawn(async move { (index, Connection::open(&source.name, &source.server).await) });
        }
        let news = watch::Sender::default();
        let sources = settings.iter().cloned().map(|source| Source::new(source, news.clone())).collect();
        let live = Self { sources, news, tasks: Mutex::default() };
        while let Some(answer) = asked.join_next().await {
            // A task that panicked leaves its source without a listing.
            let Ok((index, answer)) = answer else { continue };
            let source = &live.sources[index];
            match answer {
                Ok((connection, tools)) => {
                    source.state().connection = Some(connection);
                    source.heard(tools);
                }
                Err(error) if source.settings.required => return Err(fault(&source.settings, error)),
                Err(error) => source.lost(error),
            }
        }
        Ok(live)
    }

    /// Keeps what was listed, and takes what was kept earlier where a source gave nothing. Blocks.
    pub fn recall(&self, store: &Store) {
        for source in &self.sources {
            if source.state().tools.is_some() {
                source.keep(store);
            } else {
                source.recall(store);
            }
        }
    }

    /// Asks every source anew, all at once, each within its own time. What they say is there to be read afterwards; whoever
    /// calls this brings it into the catalog.
    pub async fn ask(&self) {
        let mut asked: JoinSet<()> = JoinSet::new();
        for source in &self.sources {
            let source = Arc::clone(source);
            asked.spawn(async move { source.asks.ask(source.settings.server.timeout).await });
        }
        while asked.join_next().await.is_some() {}
    }

    /// What is served, by name of the source.
    pub fn listed(&self) -> Vec<Listed> {
        let listed = |source: &Arc<Source>| {
            let LiveSource { name, target, domain, permissions, trust_hints, .. } = source.settings.clone();
            let tools = source.state().tools.clone()?;
            Some(Listed { source: name, target, tools: tools.to_vec(), trust_hints, domain, permissions })
        };
        self.sources.iter().filter_map(listed).collect()
    }

    /// Says in `registry` which sources are not up.
    pub fn remark(&self, registry: &mut Registry) {
        for source in &self.sources {
            let state = source.state();
            let Some(trouble) = &state.trouble else { continue };
            let name = &source.settings.name;
            registry.notices.push(match &state.tools {
                Some(tools) => {
                    format!("live source `{name}`: {trouble}; the {} tools it listed last are served", tools.len())
                }
                None => format!("live source `{name}`: {trouble}; none of its tools are known"),
            });
        }
    }

    /// Ends every connection and program.
    pub fn stop(&self) {
        *self.tasks() = JoinSet::new();
        for source in &self.sources {
            source.state().connection = None;
        }
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fault(source: &LiveSource, error: ListError) -> LiveError {
    LiveError { name: source.name.clone(), source: error }
}

impl Source {
    fn new(settings: LiveSource, news: watch::Sender<()>) -> Arc<Self> {
        Arc::new(Self { settings, news, asks: Asks::default(), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a listing; true when it differs from the one before.
    fn heard(&self, tools: Vec<Value>) -> bool {
        let name = &self.settings.name;
        let mut state = self.state();
        let is_new = state.tools.as_deref() != Some(&tools);
        let was_down = state.trouble.take().is_some();
        if was_down {
            tracing::info!(source = %name, tools = tools.len(), "live source is up again");
        } else if is_new {
            tracing::info!(source = %name, tools = tools.len(), "live source listed its tools");
        }
        if is_new {
            state.tools = Some(Arc::new(tools));
        }
        drop(state);
        if is_new || was_down {
            self.tell();
        }
        self.count(if is_new { "changed" } else { "same" }, true);
        is_new
    }

    /// Notes that there is no listing; what was listed before stays. Logged once for each new reason.
    fn lost(&self, error: ListError) {
        let name = &self.settings.name;
        let mut state = self.state();
        let tools = state.tools.as_ref().map_or(0, |tools| tools.len());
        if state.trouble.as_ref() != Some(&error) {
            tracing::warn!(source = %name, %error, tools, "live source is down; what it listed last is served");
        }
        let was_up = state.trouble.replace(error).is_none();
        drop(state);
        if was_up {
            self.tell();
        }
        self.count("failed", false);
    }

    /// Has the catalog follow, unless somebody who waits for this will see to it.
    fn tell(&self) {
        if !self.asks.are_open() {
            self.news.send_replace(());
        }
    }

    fn count(&self, result: &'static str, up: bool) {
        metrics::counter!(names::LIVE_LISTINGS, "result" => result).increment(1);
        let gauge = metrics::gauge!(names::LIVE_SOURCE_UP, "source" => self.settings.name.clone());
        gauge.set(if up { 1.0 } else { 0.0 });
    }

    /// A listing that cannot be kept is served all the same.
    fn keep(&self, store: &Store) {
        let Some(tools) = self.state().tools.clone() else { return };
        let kept = Kept { place: self.place(), tools: tools.to_vec() };
        let name = &self.settings.name;
        let written = match serde_json::to_string(&kept) {
            Ok(facts) => store.keep_listing(name, &facts).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = written {
            tracing::warn!(source = %name, error, "what a live source listed cannot be kept for the next start");
        }
    }

    fn recall(&self, store: &Store) {
        let name = &self.settings.name;
        let kept = match store.listing(name) {
            Ok(kept) => kept.and_then(|facts| serde_json::from_str::<Kept>(&facts).ok()),
            Err(error) => {
                tracing::warn!(source = %name, %error, "what a live source listed earlier cannot be read");
                None
            }
        };
        let Some(kept) = kept.filter(|kept| kept.place == self.place()) else { return };
        tracing::warn!(source = %name, tools = kept.tools.len(), "live source is down; what it listed before this start is served");
        self.state().tools = Some(Arc::new(kept.tools));
    }

    /// Tells servers apart without showing the arguments of a program, which may hold keys.
    fn place(&self) -> String {
        let mut digest = Sha256::new();
        match &self.settings.server.place {
            McpTarget::Url(target) => digest.update(&target.base_url),
            McpTarget::Command { program, args, .. } => {
                for word in std::iter::once(program).chain(args) {
                    digest.update(word);
                    digest.update([0]);
                }
            }
        }
        hex(&digest.finalize())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source(program: &str) -> Arc<Source> {
        let place = McpTarget::Command { program: program.into(), args: Vec::new(), env: Vec::new() };
        let settings = LiveSource {
            name: "desk".into(),
            server: ToolServer { place, timeout: Duration::from_secs(1) },
            target: None,
            domain: None,
            permissions: Vec::new(),
            trust_hints: false,
            required: false,
            refresh: Duration::ZERO,
        };
        Source::new(settings, watch::Sender::default())
    }

    fn all(source: &Arc<Source>) -> LiveSources {
        LiveSources { sources: vec![source.clone()], ..LiveSources::default() }
    }

    fn notices(live: &LiveSources) -> Vec<String> {
        let mut registry = Registry::default();
        live.remark(&mut registry);
        registry.notices
    }

    #[test]
    fn the_last_listing_stays_and_its_age_is_told() {
        let source = source("a");
        let live = all(&source);
        assert!(live.listed().is_empty());
        source.lost(ListError::Status(503));
        assert!(notices(&live)[0].ends_with("HTTP status 503; none of its tools are known"), "{:?}", notices(&live));
        assert!(source.heard(vec![json!({"name": "查订单"})]));
        assert!(!source.heard(vec![json!({"name": "查订单"})]));
        assert_eq!(notices(&live), Vec::<String>::new());
        source.lost(ListError::Closed(String::new()));
        assert!(notices(&live)[0].ends_with("closed; the 1 tools it listed last are served"), "{:?}", notices(&live));
        assert_eq!(live.listed()[0].tools, [json!({"name": "查订单"})]);
        assert!(!source.heard(vec![json!({"name": "查订单"})]), "back with the same tools");
        assert!(source.heard(Vec::new()), "a server may have no tools at all");
        assert_eq!(live.listed()[0].tools, [] as [Value; 0]);
    }

    #[test]
    fn a_listing_is_kept_for_the_same_server_alone() {
        let store = Store::in_memory().unwrap();
        let first = source("a");
        first.heard(vec![json!({"name": "x"})]);
        all(&first).recall(&store);
        for (program, tools) in [("a", 1), ("b", 0)] {
            let next = source(program);
            next.lost(ListError::Status(503));
            let live = all(&next);
            live.recall(&store);
            assert_eq!(live.listed().len(), tools, "{program}");
        }
        store.keep_listing("desk", "no JSON").unwrap();
        let next = all(&source("a"));
        next.recall(&store);
        assert!(next.listed().is_empty());
    }
}
