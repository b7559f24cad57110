//! Changing the catalog: reload, put, delete, replace. The current one serves until the next is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::history::{self, Cause};
use super::pins::{self, Word};
use super::start::{SOURCES, from_files, read_files, read_policy, read_rules};
use super::{Change, Router, Settings, StartError};
use crate::catalog::{self, Published, Serving};
use crate::gate::Policy;
use crate::registry::{self, Registry};
use crate::retrieve::Strategy;
use crate::rules::{RuleFile, Rules};
use crate::store::CardsChange;
use crate::telemetry::names;

/// What a call does to the store: name and JSON of each card to keep.
#[derive(Debug, Default)]
pub(super) enum StoreChange {
    #[default]
    Nothing,
    Put(Vec<(String, String)>),
    Delete(Vec<String>),
    Replace(Vec<(String, String)>),
    /// Tool and hash of each card, with facts.
    Approve(Vec<(String, String, String)>),
    /// The record of it, in JSON.
    Rollback {
        record: String,
    },
    /// A rollback, if there was one, is over.
    Files,
    /// A start. `sources` names the files in JSON.
    First {
        sources: String,
        rollback_is_over: bool,
    },
}

/// The setting that holds the record of a rollback in force.
pub(super) const ROLLBACK: &str = "registry.rollback";

impl StoreChange {
    pub(super) fn cards(&self) -> CardsChange<'_> {
        match self {
            Self::Put(put) => CardsChange { put, ..CardsChange::default() },
            Self::Delete(delete) => CardsChange { delete, ..CardsChange::default() },
            Self::Replace(put) => CardsChange { put, only: true, ..CardsChange::default() },
            Self::Nothing | Self::Approve(_) | Self::Rollback { .. } | Self::Files | Self::First { .. } => {
                CardsChange::default()
            }
        }
    }

    pub(super) fn approved(&self) -> &[(String, String, String)] {
        match self {
            Self::Approve(cards) => cards,
            _ => &[],
        }
    }

    /// After `Replace` nothing is left of what a rollback served.
    pub(super) fn settings(&self) -> Vec<(&'static str, Option<String>)> {
        match self {
            Self::Rollback { record } => vec![(ROLLBACK, Some(record.clone()))],
            Self::Replace(_) | Self::Files => vec![(ROLLBACK, None)],
            Self::First { sources, rollback_is_over } => {
                let over = rollback_is_over.then_some((ROLLBACK, None));
                [(SOURCES, Some(sources.clone()))].into_iter().chain(over).collect()
            }
            Self::Nothing | Self::Put(_) | Self::Delete(_) | Self::Approve(_) => Vec::new(),
        }
    }
}

/// The next registry and what of it has to survive a restart.
pub(super) type Next = (Registry, StoreChange);

/// How a change is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    pub rules: RulesFrom,
    pub cause: Cause,
    pub word: Word,
}

impl How {
    /// A call of the operator.
    pub fn called(cause: Cause) -> Self {
        Self { rules: RulesFrom::Memory, cause, word: Word::Operators }
    }

    /// A call of somebody whose changes may have to wait.
    pub fn called_by_others(cause: Cause) -> Self {
        Self { word: Word::Others, ..Self::called(cause) }
    }
}

/// Which rule file and which policy go with the next registry.
#[derive(Debug, Clone, Copy)]
pub(super) enum RulesFrom {
    /// The one in force, as it was read.
    Memory,
    Disk,
}

impl Router {
    /// Asks live sources and reads the registry files, the rule file and the policy again; cards that were put stay. On
    /// error the current catalog keeps serving.
    ///
    /// # Errors
    /// [`StartError`] as at the start.
    pub async fn reload(self: &Arc<Self>) -> Result<Change, StartError> {
        self.live.ask().await;
        self.reload_because(Cause::Reload).await
    }

    /// As [`Router::reload`] with what live sources listed last, told with another cause.
    ///
    /// # Errors
    /// [`StartError`] as at the start.
    pub async fn reload_because(self: &Arc<Self>, cause: Cause) -> Result<Change, StartError> {
        let router = Arc::clone(self);
        let how = How { rules: RulesFrom::Disk, cause, word: Word::Others };
        self.publish(how, move |current| {
            let files = read_files(&router.settings, &router.live);
            from_files(&router.settings, files, &router.store, &|| Ok(current.clone()))
        })
        .await
    }

    /// Adds native cards or replaces cards of the same name; they are kept across restarts. Cards that cannot be served
    /// are reported and change nothing.
    ///
    /// # Errors
    /// [`StartError`] when the catalog cannot be built or stored.
    pub async fn put(self: &Arc<Self>, cards: Vec<Value>) -> Result<Change, StartError> {
        self.publish(How::called(Cause::Put), move |current| {
            let next = registry::overlay(current, registry::from_values(&cards));
            let kept = storable(&cards, &next);
            Ok((next, StoreChange::Put(kept)))
        })
        .await
    }

    /// Removes tools by name. Names that come from a file return with the next reload.
    ///
    /// # Errors
    /// [`StartError`] when the catalog cannot be built or stored.
    pub async fn delete(self: &Arc<Self>, names: Vec<String>) -> Result<Change, StartError> {
        self.publish(How::called(Cause::Delete), move |mut next| {
            next.notices.clear();
            let unknown = names.iter().filter(|name| next.cards.remove(name.as_str()).is_none()).count();
            if unknown > 0 {
                next.notices.push(format!("{unknown} of the names given are not in the catalog"));
            }
            Ok((next, StoreChange::Delete(names)))
        })
        .await
    }

    /// Makes the given native cards the only ones.
    ///
    /// # Errors
    /// [`StartError`] when the catalog cannot be built or stored.
    pub async fn replace(self: &Arc<Self>, cards: Vec<Value>) -> Result<Change, StartError> {
        self.publish(How::called(Cause::Replace), move |_| {
            let next = registry::merge(Registry::default(), registry::from_values(&cards));
            let kept = storable(&cards, &next);
            Ok((next, StoreChange::Replace(kept)))
        })
        .await
    }

    /// Reading and checking cards takes longer than an async task may run, so `next` runs on a thread that may block.
    pub(super) async fn publish(
        self: &Arc<Self>,
        how: How,
        next: impl FnOnce(Registry) -> Result<Next, StartError> + Send + 'static,
    ) -> Result<Change, StartError> {
        let strict = self.settings.strict;
        let decided = Mutex::new(StoreChange::default());
        // In force once the catalog is that it was checked against.
        let ruled = Mutex::new(None::<Arc<Policy>>);
        let told = Mutex::new(Vec::new());
        let slot = || decided.lock().unwrap_or_else(PoisonError::into_inner);
        let checked = async |current: &Serving<Rules>| {
            let (registry, file) = (current.catalog.registry.as_ref().clone(), current.beside.file.clone());
            let router = Arc::clone(self);
            let work = move || {
                let (mut next, change) = next(registry.clone())?;
                pins::apply(&router, how.word, &registry, &mut next)?;
                if strict && !next.quarantined.is_empty() {
                    return Err(StartError::Strict(next.quarantined));
                }
                let file: Option<Arc<RuleFile>> = match how.rules {
                    RulesFrom::Memory => file,
                    RulesFrom::Disk => read_rules(&router.settings)?,
                };
                // A tool that a rule names cannot go before the rule does.
                let rules = Rules::bind(file, router.settings.rules.modes.clone(), &next)?;
                let policy = match how.rules {
                    RulesFrom::Memory => router.gate.policy(),
                    RulesFrom::Disk => Arc::new(read_policy(&router.settings)?),
                };
                policy.check(&next)?;
                Ok((next, rules, change, policy))
            };
            let (next, rules, change, policy) = tokio::task::spawn_blocking(work).await??;
            *slot() = change;
            *ruled.lock().unwrap_or_else(PoisonError::into_inner) = Some(policy);
            Ok::<_, StartError>((next, rules))
        };
        let made = history::now();
        let commit = async |change: catalog::Change| {
            let (router, stored) = (Arc::clone(self), std::mem::take(&mut *slot()));
            let record = move || {
                let catalog::Change { before, after, diff } = change;
                let touched = history::touched(&diff, &before.registry, &after.registry);
                let place = (router.store.as_ref(), &router.settings);
                let why = (how.cause, made);
                history::record(place, Some(&before.version), &after, Some(&diff), &stored, why)
                    .map(|generation| (generation, touched))
            };
            let (generation, touched) = tokio::task::spawn_blocking(record).await??;
            *told.lock().unwrap_or_else(PoisonError::into_inner) = touched;
            Ok(generation)
        };
        let published = self.catalogs.publish(checked, commit).await;
        let result = if published.is_ok() { "ok" } else { "failed" };
        metrics::counter!(names::CATALOG_RELOADS, "result" => result).increment(1);
        let Published { serving, diff, report: built } = published?;
        if let Some(policy) = ruled.into_inner().unwrap_or_else(PoisonError::into_inner) {
            self.gate.rule_by(policy);
        }
        report(&serving, &self.settings);
        let (catalog, rules) = (&serving.catalog, &serving.beside);
        let review = self.lint_change(catalog, &diff).await;
        self.lint_unasked();
        self.announce(history::Version {
            version: catalog.version.clone(),
            made,
            cause: how.cause.as_str().into(),
            registry: Arc::clone(&catalog.registry),
            touched: told.into_inner().unwrap_or_else(PoisonError::into_inner),
        });
        Ok(Change {
            catalog_version: catalog.version.to_string(),
            added: diff.added,
            changed: diff.changed,
            removed: diff.removed,
            quarantined: catalog.registry.quarantined.clone(),
            notices: [catalog.registry.notices.as_slice(), &rules.notices, &review.notices].concat(),
            findings: review.findings,
            rules_version: rules.version().to_owned(),
            embedded_texts: built.embedded_texts,
            held: catalog.registry.held.keys().cloned().collect(),
        })
    }
}

/// Name and JSON of those `cards` that `next` serves.
pub(super) fn storable(cards: &[Value], next: &Registry) -> Vec<(String, String)> {
    let refused: BTreeSet<&str> =
        next.quarantined.iter().filter(|card| card.source == registry::PUT).map(|card| card.card.as_str()).collect();
    let named = cards.iter().filter_map(|card| Some((card.get("name")?.as_str()?, card)));
    let by_name: BTreeMap<&str, &Value> =
        named.filter(|(name, _)| next.cards.contains_key(*name) && !refused.contains(name)).collect();
    by_name.into_iter().map(|(name, card)| (name.to_owned(), card.to_string())).collect()
}

/// From so many tools on choosing the domain first is worth trying.
const LAYERED_FROM: usize = 50;

/// Publishes what is being served to the metrics and the log.
pub(super) fn report(serving: &Serving<Rules>, settings: &Settings) {
    let (catalog, rules) = (&serving.catalog, &serving.beside);
    let registry = &catalog.registry;
    metrics::gauge!(names::CATALOG_TOOLS).set(catalog.tools.len() as f64);
    metrics::gauge!(names::CATALOG_QUARANTINED).set(registry.quarantined.len() as f64);
    metrics::gauge!(names::CATALOG_HELD).set(registry.held.len() as f64);
    metrics::gauge!(names::CATALOG_LAST_GOOD).set(f64::from(u8::from(registry.last_good.is_some())));
    metrics::gauge!(names::CATALOG_GENERATION).set(catalog.version.generation as f64);
    tracing::info!(
        version = %catalog.version,
        tools = catalog.tools.len(),
        quarantined = registry.quarantined.len(),
        index = catalog.index_kind().as_str(),
        "catalog published"
    );
    for card in &registry.quarantined {
        for problem in &card.problems {
            let line = problem.line.unwrap_or(0);
            tracing::warn!(card = %card.card, source = %card.source, line, pointer = %problem.pointer, problem = %problem.message, "card quarantined");
        }
    }
    if let Some(why) = &registry.last_good {
        tracing::error!(version = %catalog.version, why, "the last good catalog is served");
    }
    for (tool, held) in &registry.held {
        let reasons: Vec<&str> = held.reasons.iter().map(|reason| reason.as_str()).collect();
        tracing::warn!(%tool, ?reasons, "a change waits for approval");
    }
    for notice in registry.notices.iter().chain(&rules.notices) {
        tracing::info!(%notice, "registry notice");
    }
    if let Some(file) = &rules.file {
        tracing::info!(file = %file.path.display(), version = rules.version(), rules = rules.len(), "rules in force");
    }
    if catalog.tools.len() >= LAYERED_FROM && settings.retrieve.strategy != Strategy::Layered {
        tracing::info!(
            tools = catalog.tools.len(),
            "with so many tools, prefilter.strategy = \"layered\" chooses the domain before the tool"
        );
    }
}
