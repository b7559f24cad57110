//! Versions of the catalog: what is written about each, and what is read back of those that are kept.
//!
//! Owns: causes, the record of a version, versions by name, differences between two of them.
//! Does not know: how a version came about, or who may read of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::change::StoreChange;
use super::{Router, Settings, StartError};
use crate::catalog::Catalog;
use crate::registry::{Diff, FieldChange, Registry, fields_that_differ};
use crate::store::{ChangeRow, NewVersion, Publication, Store, VersionRow};
use crate::tool::{ToolCard, canonical_json};
use crate::types::{CatalogVersion, Clock, ToolId, UnixMs};

/// The setting that holds what is said about scopes, for a start that finds nothing but the store.
pub(super) const SCOPES: &str = "registry.scopes";

/// What made a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Start,
    /// A call or a signal.
    Reload,
    /// A live source told that its tools are others now.
    ListChanged,
    /// A file changed on disk.
    FileWatch,
    Put,
    Delete,
    Replace,
    Rollback,
    Approve,
}

impl Cause {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Reload => "reload",
            Self::ListChanged => "list_changed",
            Self::FileWatch => "file_watch",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::Replace => "replace",
            Self::Rollback => "rollback",
            Self::Approve => "approve",
        }
    }
}

/// What else is known of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    pub tools: usize,
    pub quarantined: usize,
    /// Changes that waited for approval then.
    pub held: usize,
    pub notices: Vec<String>,
}

impl Facts {
    fn of(registry: &Registry) -> Self {
        const NOTICES: usize = 20;
        const CHARS: usize = 300;
        let short = |notice: &String| notice.chars().take(CHARS).collect();
        Self {
            tools: registry.cards.len(),
            quarantined: registry.quarantined.len(),
            held: registry.held.len(),
            notices: registry.notices.iter().take(NOTICES).map(short).collect(),
        }
    }
}

/// A version that is kept.
#[derive(Debug, Clone)]
pub struct Kept {
    pub version: CatalogVersion,
    pub made: UnixMs,
    pub cause: String,
    pub facts: Facts,
    /// By tool, with hashes of cards.
    pub changes: Vec<ChangeRow>,
}

/// A version at the moment it is served.
#[derive(Debug, Clone)]
pub struct Version {
    pub version: CatalogVersion,
    pub made: UnixMs,
    pub cause: String,
    pub registry: Arc<Registry>,
    /// In id order; empty for the version a process starts with.
    pub touched: Vec<Touched>,
}

/// A tool that a version changed.
#[derive(Debug, Clone)]
pub struct Touched {
    pub id: ToolId,
    pub before: Option<Arc<ToolCard>>,
    pub after: Option<Arc<ToolCard>>,
}

/// The tools by which `after` differs from `before`.
pub(super) fn touched(diff: &Diff, before: &Registry, after: &Registry) -> Vec<Touched> {
    let ids: BTreeSet<&ToolId> = diff.added.iter().chain(&diff.changed).chain(&diff.removed).collect();
    let card = |of: &Registry, id: &ToolId| of.cards.get(id).cloned();
    ids.into_iter().map(|id| Touched { id: id.clone(), before: card(before, id), after: card(after, id) }).collect()
}

/// What differs between two versions.
#[derive(Debug, Clone)]
pub struct Difference {
    pub from: CatalogVersion,
    pub to: CatalogVersion,
    /// In id order.
    pub touched: Vec<Touched>,
}

impl Touched {
    /// Where the two cards differ; empty when there is only one.
    pub fn fields(&self) -> Vec<FieldChange> {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => fields_that_differ(before, after),
            _ => Vec::new(),
        }
    }
}

/// Writes what is to be kept of a change in one transaction and gives the generation of its version. `follows` is the
/// version before it; equal to that of `after` when the cards stayed. `diff` is `None` when everything has to be compared.
pub(super) fn record(
    (store, settings): (&Store, &Settings),
    follows: Option<&CatalogVersion>,
    after: &Catalog,
    diff: Option<&Diff>,
    stored: &StoreChange,
    (cause, made): (Cause, UnixMs),
) -> Result<Option<u64>, StartError> {
    let tools: Vec<(&str, &str)> = after.tools.iter().map(|tool| (tool.id().as_str(), tool.hash.0.as_str())).collect();
    let changed = diff.map(|diff| {
        let ids = diff.added.iter().chain(&diff.changed).chain(&diff.removed);
        ids.map(ToolId::as_str).collect::<Vec<_>>()
    });
    let revoked: Vec<String> = match (stored, diff) {
        // What was rolled back is not trusted any more.
        (StoreChange::Rollback { .. }, Some(diff)) => {
            diff.changed.iter().chain(&diff.removed).map(ToolId::to_string).collect()
        }
        _ => Vec::new(),
    };
    let facts = serde_json::to_string(&Facts::of(&after.registry)).unwrap_or_default();
    let json = |tool: &str| {
        let card = after.registry.cards.get(tool).map(Arc::as_ref);
        card.and_then(|card| serde_json::to_value(card).ok()).map(|card| canonical_json(&card)).unwrap_or_default()
    };
    let version = (settings.keeps_history() && follows != Some(&after.version)).then(|| NewVersion {
        follows: follows.map_or(0, |version| version.generation),
        digest: &after.version.digest,
        cause: cause.as_str(),
        facts: &facts,
        all: &tools,
        changed: changed.as_deref(),
        json: &json,
        keep: settings.history,
    });
    let mut written = stored.settings();
    written.push((SCOPES, serde_json::to_string(&after.registry.scopes).ok()));
    let publication = Publication {
        version,
        cards: stored.cards(),
        approved: stored.approved(),
        revoked: &revoked,
        settings: if settings.keeps_history() { &written } else { &[] },
        ..Publication::new(made)
    };
    let recorded = store.publish(&publication)?;
    if recorded.shared {
        tracing::warn!("another process keeps its catalogs in the same store: give each server a file of its own");
    }
    Ok(recorded.generation)
}

impl Router {
    /// The versions that are kept, newest first.
    ///
    /// # Errors
    /// [`StartError::Store`].
    pub async fn history(self: &Arc<Self>) -> Result<Vec<Kept>, StartError> {
        self.reading(|router| {
            let versions = router.store.versions()?;
            versions.into_iter().map(|row| kept(row, &router.store)).collect()
        })
        .await
    }

    /// What differs between two versions that are kept: `catalog_version` or generation; an empty `to` means the current
    /// one, an empty `from` the one before `to`.
    ///
    /// # Errors
    /// [`StartError::NoSuchVersion`] and [`StartError::Store`].
    pub async fn difference(self: &Arc<Self>, from: String, to: String) -> Result<Difference, StartError> {
        self.reading(move |router| {
            let versions = router.store.versions()?;
            let current = &router.catalogs.load().catalog.version;
            let to = find(&versions, if to.is_empty() { current.to_string() } else { to })?;
            let from = if from.is_empty() {
                let before = versions.iter().find(|row| row.generation < to.generation);
                before.ok_or_else(|| no_such(&versions, format!("before {}", to.generation)))?
            } else {
                find(&versions, from)?
            };
            let gone = |row: &VersionRow| no_such(&versions, row.generation.to_string());
            let before = router.store.cards_at(from.generation)?.ok_or_else(|| gone(from))?;
            let after = router.store.cards_at(to.generation)?.ok_or_else(|| gone(to))?;
            let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            let names: Vec<&String> = names.into_iter().filter(|name| before.get(*name) != after.get(*name)).collect();
            let hashes = names.iter().flat_map(|name| [before.get(*name), after.get(*name)]).flatten();
            let cards = cards(&router.store, hashes.map(String::as_str))?;
            let card = |of: &BTreeMap<String, String>, name: &str| cards.get(of.get(name)?).cloned();
            let touched = names.into_iter().map(|name| Touched {
                id: ToolId::new(name.as_str()),
                before: card(&before, name),
                after: card(&after, name),
            });
            Ok(Difference { from: version(from), to: version(to), touched: touched.collect() })
        })
        .await
    }

    /// Cards that are kept, by hash; for who may read of a change.
    ///
    /// # Errors
    /// [`StartError::Store`].
    pub async fn kept_cards(
        self: &Arc<Self>,
        hashes: BTreeSet<String>,
    ) -> Result<BTreeMap<String, Arc<ToolCard>>, StartError> {
        self.reading(move |router| cards(&router.store, hashes.iter().map(String::as_str))).await
    }

    /// The version being served, now and whenever it changes. Who looks late sees the newest alone.
    pub fn versions(&self) -> tokio::sync::watch::Receiver<Arc<Version>> {
        self.versions.subscribe()
    }

    async fn reading<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> Result<T, StartError> + Send + 'static,
    ) -> Result<T, StartError> {
        let router = Arc::clone(self);
        tokio::task::spawn_blocking(move || read(&router)).await?
    }

    /// Tells those who watch, unless they know of a later one already.
    pub(super) fn announce(&self, version: Version) {
        self.versions.send_if_modified(|known| {
            let newer = version.version.generation > known.version.generation;
            if newer {
                *known = Arc::new(version);
            }
            newer
        });
    }
}

pub(super) fn now() -> UnixMs {
    Clock::System.now()
}

pub(super) fn version(row: &VersionRow) -> CatalogVersion {
    CatalogVersion { generation: row.generation, digest: row.digest.clone() }
}

fn kept(row: VersionRow, store: &Store) -> Result<Kept, StartError> {
    let changes = store.changes_of(row.generation)?;
    let facts = serde_json::from_str(&row.facts).unwrap_or_default();
    Ok(Kept { version: version(&row), made: row.made, cause: row.cause, facts, changes })
}

/// The version that `asked` means: a generation, with or without its digest.
pub(super) fn find(versions: &[VersionRow], asked: String) -> Result<&VersionRow, StartError> {
    let (generation, digest) = match asked.split_once('-') {
        Some((generation, digest)) => (generation, Some(digest)),
        None => (asked.as_str(), None),
    };
    let fits = |row: &&VersionRow| {
        generation.parse() == Ok(row.generation) && digest.is_none_or(|digest| digest == row.digest)
    };
    versions.iter().find(fits).ok_or_else(|| no_such(versions, asked))
}

pub(super) fn no_such(versions: &[VersionRow], asked: String) -> StartError {
    let kept = versions.last().zip(versions.first());
    StartError::NoSuchVersion { asked, kept: kept.map(|(oldest, newest)| (version(oldest), version(newest))) }
}

/// Cards by hash. One that cannot be read any more, because a later program wrote it, is left out and told.
pub(super) fn cards<'a>(
    store: &Store,
    hashes: impl IntoIterator<Item = &'a str>,
) -> Result<BTreeMap<String, Arc<ToolCard>>, StartError> {
    let mut cards = BTreeMap::new();
    for (hash, json) in store.card_texts(hashes)? {
        if let Some(card) = parsed(&hash, &json) {
            cards.insert(hash, card);
        }
    }
    Ok(cards)
}

pub(super) fn parsed(hash: &str, json: &str) -> Option<Arc<ToolCard>> {
    match serde_json::from_str(json) {
        Ok(card) => Some(Arc::new(card)),
        Err(error) => {
            tracing::warn!(hash, %error, "a card in the store cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_by_generation_and_by_its_whole_name() {
        let row = |generation: u64| VersionRow {
            generation,
            digest: format!("d{generation}"),
            made: UnixMs(0),
            cause: "put".into(),
            facts: "{}".into(),
        };
        let versions = [row(9), row(8), row(7)];
        let found = |asked: &str| find(&versions, asked.into()).map(|row| row.generation);
        assert_eq!((found("8").unwrap(), found("7-d7").unwrap()), (8, 7));
        for asked in ["6", "10", "8-d7", "", "-", "x", "8-", "-d8", "99999999999999999999"] {
            let message = found(asked).unwrap_err().to_string();
            assert!(message.contains("7-d7 to 9-d9"), "{message}");
        }
        assert!(find(&[], "1".into()).unwrap_err().to_string().contains("none is kept"));
    }
}
