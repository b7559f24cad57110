//! The brake: tools and sources an operator has taken out of service, and the mode in which the router runs.
//!
//! Owns: what is disabled, why and until when; what that keeps from one request; the words of a refusal.
//! Does not know: who may pull it (the server asks for an operator), the order of the stages.
//!
//! A change is on the disk before it is in force, and in force before the call that made it returns. What has an end is
//! compared with the clock at each request, so that nothing depends on a timer.

mod hold;
mod state;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(super) use hold::{Held, refusal};
pub(super) use state::Brakes;

use super::Router;
use crate::catalog::Catalog;
use crate::registry::suggest;
use crate::store::{BrakeFacts, BrakeRow, StoreError};
use crate::types::UnixMs;

/// Brakes beyond which no more are accepted.
const MOST: usize = 10_000;

/// What is disabled or enabled.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A tool by its id or, where only one has it, by its own name.
    Tool(String),
    /// Every tool of a source.
    Source(String),
}

impl Target {
    /// The closed set behind the label `kind`.
    pub const KINDS: [&'static str; 2] = ["source", "tool"];

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Tool(_) => "tool",
            Self::Source(_) => "source",
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Tool(name) | Self::Source(name) => name,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.kind(), self.name())
    }
}

/// One thing that is out of service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brake {
    pub target: Target,
    pub reason: String,
    pub since: UnixMs,
    /// When it ends by itself; `None` means not.
    pub until: Option<UnixMs>,
    /// Who set it.
    pub caller: String,
}

/// How choices are made, whatever the settings say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunMode {
    #[default]
    Normal,
    /// The LLM is not asked: the local decider serves, as if none were configured.
    LocalOnly,
    /// Rules alone: where none fires, no tool is chosen.
    RulesOnly,
}

impl RunMode {
    pub const ALL: [Self; 3] = [Self::Normal, Self::LocalOnly, Self::RulesOnly];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::LocalOnly => "local_only",
            Self::RulesOnly => "rules_only",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }
}

/// The mode that was set, and until when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeSet {
    pub mode: RunMode,
    #[serde(default)]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixMs>,
    #[serde(default)]
    pub caller: String,
}

/// Everything in force at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// By kind, then by name.
    pub brakes: Vec<Brake>,
    pub mode: ModeSet,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum BrakeError {
    #[error("there is no {target}{hint}")]
    Unknown { target: Target, hint: String },
    #[error("several tools are called `{name}`; name one of {}", .ids.join(", "))]
    Ambiguous { name: String, ids: Vec<String> },
    #[error("{target} is not disabled{hint}")]
    NotDisabled { target: Target, hint: String },
    #[error("{MOST} things are disabled already; enable some first, or use a mode")]
    Full,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("interrupted")]
    Interrupted(#[from] tokio::task::JoinError),
}

impl Router {
    /// Takes a tool or a source out of every choice and every guarded call from the next request on. What is disabled
    /// already gets the new reason and end.
    ///
    /// # Errors
    /// [`BrakeError`]; nothing has changed then.
    pub async fn disable(
        self: &Arc<Self>,
        target: Target,
        reason: String,
        until: Option<UnixMs>,
        caller: String,
    ) -> Result<Standing, BrakeError> {
        let (target, facts) = self.known(target)?;
        let facts = BrakeFacts { reason, caller, ..facts };
        let since = self.brakes.now();
        let row = BrakeRow { kind: target.kind().into(), name: target.name().to_owned(), since, until, facts };
        let router = Arc::clone(self);
        tokio::task::spawn_blocking(move || router.brakes.pull(&router.store, row)).await??;
        tracing::warn!(%target, "disabled");
        Ok(self.standing())
    }

    /// Puts back what was disabled.
    ///
    /// # Errors
    /// [`BrakeError`]; nothing has changed then.
    pub async fn enable(self: &Arc<Self>, target: Target) -> Result<Standing, BrakeError> {
        let target = self.disabled(target)?;
        let (router, named) = (Arc::clone(self), target.clone());
        let removed = tokio::task::spawn_blocking(move || router.brakes.release(&router.store, &named)).await??;
        if !removed {
            return Err(BrakeError::NotDisabled { target, hint: String::new() });
        }
        tracing::warn!(%target, "enabled again");
        Ok(self.standing())
    }

    /// Sets how choices are made from the next request on.
    ///
    /// # Errors
    /// [`BrakeError`]; nothing has changed then.
    pub async fn set_mode(self: &Arc<Self>, mode: ModeSet) -> Result<Standing, BrakeError> {
        let (router, name) = (Arc::clone(self), mode.mode.as_str());
        tokio::task::spawn_blocking(move || router.brakes.switch(&router.store, mode)).await??;
        tracing::warn!(mode = name, "mode set");
        Ok(self.standing())
    }

    /// What is disabled, and the mode in force.
    pub fn standing(&self) -> Standing {
        self.brakes.standing()
    }

    /// The mode in force at this moment.
    pub fn mode(&self) -> RunMode {
        self.brakes.load().mode(self.brakes.now()).mode
    }

    /// The tool or source that `target` means, by the name it has in the catalog. What is disabled is known too: its
    /// cards may have left the catalog, and come back.
    fn known(&self, target: Target) -> Result<(Target, BrakeFacts), BrakeError> {
        let serving = self.catalogs.load();
        let catalog = &serving.catalog;
        let kept = self.brakes.load().facts(&target);
        match (&target, kept) {
            (Target::Tool(name), kept) => match tool_called(catalog, name)? {
                Some((id, source, own_name)) => {
                    let (source, own_name) = (Some(source), Some(own_name));
                    Ok((Target::Tool(id), BrakeFacts { source, own_name, ..BrakeFacts::default() }))
                }
                None => match kept {
                    Some(facts) => Ok((target, facts)),
                    None if catalog.registry.quarantined.iter().any(|card| card.card == *name) => {
                        Ok((target, BrakeFacts::default()))
                    }
                    None => {
                        let hint = suggest(name, catalog.tools.iter().map(|tool| tool.id().as_str()));
                        Err(BrakeError::Unknown { target, hint })
                    }
                },
            },
            (Target::Source(_), Some(facts)) => Ok((target, facts)),
            (Target::Source(name), None) => {
                let known = || catalog.tools.iter().map(|tool| tool.card.source.as_str());
                if known().any(|source| source == name) {
                    return Ok((target, BrakeFacts::default()));
                }
                let sources: std::collections::BTreeSet<&str> = known().collect();
                let hint = suggest(name, sources);
                Err(BrakeError::Unknown { target, hint })
            }
        }
    }

    /// What is disabled under the name that `target` uses.
    fn disabled(&self, target: Target) -> Result<Target, BrakeError> {
        let state = self.brakes.load();
        if state.facts(&target).is_some() {
            return Ok(target);
        }
        if let Target::Tool(name) = &target
            && let Some((id, ..)) = tool_called(&self.catalogs.load().catalog, name)?
            && let by_id = Target::Tool(id)
            && state.facts(&by_id).is_some()
        {
            return Ok(by_id);
        }
        let names = state.names(target.kind());
        let hint = suggest(target.name(), names.iter().map(String::as_str));
        Err(BrakeError::NotDisabled { target, hint })
    }
}

/// Id, source and own name of the tool of that id, or of the only one of that name.
fn tool_called(catalog: &Catalog, name: &str) -> Result<Option<(String, String, String)>, BrakeError> {
    let by_id = catalog.tools.iter().find(|tool| tool.id().as_str() == name);
    let mut namesakes = catalog.tools.iter().filter(|tool| tool.card.name == name);
    let found = match (by_id, namesakes.next(), namesakes.next()) {
        (Some(tool), ..) | (None, Some(tool), None) => tool,
        (None, None, _) => return Ok(None),
        (None, Some(first), Some(second)) => {
            let ids = [first, second].into_iter().chain(namesakes).take(10).map(|tool| tool.id().to_string());
            return Err(BrakeError::Ambiguous { name: name.to_owned(), ids: ids.collect() });
        }
    };
    Ok(Some((found.id().to_string(), found.card.source.clone(), found.card.name.clone())))
}
