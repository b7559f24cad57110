//! Changes that wait for approval, and going back to an earlier version.
//!
//! Owns: which card a change is compared with, the operator's word, `Approve`, `Rollback`.
//! Does not know: what makes a change one that waits ([`crate::registry::pin`]).
//!
//! A card is compared with the one served under its id, or, where none is, with the one that a kept version removed: to
//! take a card away and bring it back is no way past the comparison. What the operator puts is the operator's word and
//! passes; it also ends what waited under that name.
//!
//! A rollback lasts until the cards of the registry files (or their live sources) differ from what they were at that
//! moment, or until `Replace`. Meanwhile reloads and restarts keep serving what is served, with whatever was put on top of
//! it. When the files do change, their cards and what was put serve again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::change::{How, ROLLBACK, StoreChange};
use super::history::{self, Cause, SCOPES, cards, find, no_such, version};
use super::start::read_files;
use super::{Change, Router, Settings, StartError};
use crate::registry::{Registry, pin};
use crate::store::Store;
use crate::tool::ToolCard;
use crate::types::encoding::hex;
use crate::types::{CatalogVersion, ToolId};

/// Whose word a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// Counts as approval.
    Operators,
    Others,
}

/// Puts what has to wait aside. `current` is what is served, `next` what is to be.
pub(super) fn apply(router: &Router, word: Word, current: &Registry, next: &mut Registry) -> Result<(), StartError> {
    // What waited under a name that has been changed or removed is superseded.
    next.held.retain(|id, _| match (current.cards.get(id), next.cards.get(id)) {
        (Some(before), Some(after)) => Arc::ptr_eq(before, after),
        _ => false,
    });
    if word == Word::Others && router.settings.keeps_history() {
        let served = |id: &str| current.cards.get(id).cloned();
        let is_new = next.cards.keys().any(|id| !current.cards.contains_key(id));
        hold(&router.settings, &router.store, next, is_new, &served)?;
    }
    add_notices(next);
    Ok(())
}

/// What is known for as long as it lasts.
pub(super) fn add_notices(next: &mut Registry) {
    next.notices.extend(pin::notices(next));
    next.notices.extend(next.last_good.clone());
}

/// As [`apply`] for the first catalog: compared with what the store says was served last.
pub(super) fn apply_first(settings: &Settings, store: &Store, next: &mut Registry) -> Result<(), StartError> {
    let hashes = store.served_hashes()?;
    let failed = RefCell::new(None);
    let served = |id: &str| {
        let hash = hashes.get(id)?;
        // Most cards are as they were: nothing has to be read then.
        match next.cards.get(id).filter(|card| card.hash().0 == *hash) {
            Some(same) => Some(Arc::clone(same)),
            None => read(store, hash, &failed),
        }
    };
    let mut held = next.clone();
    let is_new = next.cards.keys().any(|id| !hashes.contains_key(id.as_str()));
    hold(settings, store, &mut held, is_new, &served)?;
    if let Some(error) = failed.take() {
        return Err(error);
    }
    *next = held;
    next.notices.extend(gone(hashes.keys().filter(|id| !next.cards.contains_key(id.as_str()))));
    Ok(())
}

/// A file that was written by half may still be a registry: what it lost is told.
fn gone<'a>(names: impl Iterator<Item = &'a String>) -> Option<String> {
    const NAMED: usize = 20;
    let names: Vec<&str> = names.map(String::as_str).collect();
    let more = if names.len() > NAMED { ", …" } else { "" };
    let named = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    (!names.is_empty())
        .then(|| format!("{} tools that were served before this start are there no more: {named}{more}", names.len()))
}

fn read(store: &Store, hash: &str, failed: &RefCell<Option<StartError>>) -> Option<Arc<ToolCard>> {
    match cards(store, [hash]) {
        Ok(mut found) => found.remove(hash),
        Err(error) => {
            failed.replace(Some(error));
            None
        }
    }
}

fn hold(
    settings: &Settings,
    store: &Store,
    next: &mut Registry,
    is_new: bool,
    served: &dyn Fn(&str) -> Option<Arc<ToolCard>>,
) -> Result<(), StartError> {
    if settings.pins == pin::Pins::Off {
        return Ok(());
    }
    let removed = if is_new { store.removed_cards()? } else { BTreeMap::new() };
    let approvals = store.approvals()?;
    let failed = RefCell::new(None);
    let of_id = |id: &str| served(id).or_else(|| read(store, removed.get(id)?, &failed));
    let known = |card: &ToolCard| {
        of_id(card.id.as_str()).or_else(|| {
            // Its name has a source in front since another source uses it too, or has none any more.
            let prefixed = format!("{}/{}", card.source, card.name);
            let other = if card.id.as_str() == prefixed { card.name.as_str() } else { &prefixed };
            of_id(other).filter(|found| found.source == card.source && found.name == card.name)
        })
    };
    let approved = |card: &ToolCard| approvals.get(card.id.as_str()).is_some_and(|approved| card.hash().0 == *approved);
    pin::hold(next, settings.pins, &known, &approved);
    failed.take().map_or(Ok(()), Err)
}

/// A rollback in force.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Rollback {
    /// The version whose cards serve again.
    pub to: String,
    /// Of what the files held then.
    pub files: String,
}

impl Rollback {
    /// The rollback in force, if there is one. A record that cannot be read counts as none.
    pub fn of(store: &Store) -> Result<Option<Self>, StartError> {
        Ok(store.setting(ROLLBACK)?.and_then(|record| serde_json::from_str(&record).ok()))
    }
}

/// Of what the files hold, whatever their formatting: files that cannot be read are alike.
pub(super) fn fingerprint(files: &Result<Registry, StartError>) -> String {
    let Ok(files) = files else { return "unreadable".into() };
    let mut digest = Sha256::new();
    for (id, card) in &files.cards {
        digest.update(format!("{id}\u{0}{}\n", card.hash().0));
    }
    for card in &files.quarantined {
        digest.update(format!("\u{0}{}\u{0}{}\n", card.source, card.card));
    }
    hex(&digest.finalize())
}

impl Router {
    /// Serves the cards of an earlier version again, as a version of its own: see the module. `asked` is a
    /// `catalog_version` or a generation.
    ///
    /// # Errors
    /// [`StartError::NoSuchVersion`]; rules and policy have to fit the cards, as at the start.
    pub async fn rollback(self: &Arc<Self>, asked: String) -> Result<Change, StartError> {
        let router = Arc::clone(self);
        self.publish(How::called(Cause::Rollback), move |current| {
            let versions = router.store.versions()?;
            let row = find(&versions, asked)?;
            let to = version(row);
            let hashes = router.store.cards_at(row.generation)?;
            let hashes = hashes.ok_or_else(|| no_such(&versions, to.to_string()))?;
            let cards = router.cards_of(&hashes, &to)?;
            let record =
                Rollback { to: to.to_string(), files: fingerprint(&read_files(&router.settings, &router.live)) };
            let record = serde_json::to_string(&record).unwrap_or_default();
            let notices = vec![format!("the cards of version {to} serve again until the registry files change")];
            let next = Registry { cards, notices, held: BTreeMap::new(), last_good: None, ..current };
            Ok((next, StoreChange::Rollback { record }))
        })
        .await
    }

    /// The cards of `hashes`; those that are served now are taken from memory.
    fn cards_of(
        &self,
        hashes: &BTreeMap<String, String>,
        of: &CatalogVersion,
    ) -> Result<BTreeMap<ToolId, Arc<ToolCard>>, StartError> {
        let catalog = &self.catalogs.load().catalog;
        let is_served = |tool: &str, hash: &str| {
            let tool = catalog.tool(&ToolId::new(tool))?;
            (tool.hash.0 == hash).then(|| Arc::clone(&tool.card))
        };
        let others = hashes.iter().filter(|(tool, hash)| is_served(tool, hash).is_none());
        let kept = cards(&self.store, others.map(|(_, hash)| hash.as_str()))?;
        let card = |(tool, hash): (&String, &String)| {
            let card = is_served(tool, hash).or_else(|| kept.get(hash).cloned());
            let unreadable = || StartError::Unreadable { version: of.clone(), tool: tool.clone() };
            Ok((ToolId::new(tool.as_str()), card.ok_or_else(unreadable)?))
        };
        hashes.iter().map(card).collect()
    }

    /// Lets changes that wait take effect: names, each with the hash of the one card that is meant or with an empty
    /// one for whichever waits.
    ///
    /// # Errors
    /// [`StartError::NotHeld`] when one of them does not wait; nothing is approved then.
    pub async fn approve(self: &Arc<Self>, wanted: Vec<(String, String)>) -> Result<Change, StartError> {
        self.publish(How::called(Cause::Approve), move |mut next| {
            let waits = |(name, hash): &&(String, String)| {
                let held = next.held.get(name.as_str());
                held.is_some_and(|held| hash.is_empty() || held.card.hash().0 == *hash)
            };
            let strangers: Vec<String> =
                wanted.iter().filter(|wish| !waits(wish)).map(|(name, _)| name.clone()).collect();
            if !strangers.is_empty() {
                return Err(StartError::NotHeld { names: strangers });
            }
            next.notices.clear();
            let mut approved = Vec::new();
            for (name, _) in wanted {
                // Named twice is approved once.
                let Some((id, held)) = next.held.remove_entry(name.as_str()) else { continue };
                let reasons: Vec<&str> = held.reasons.iter().map(|reason| reason.as_str()).collect();
                approved.push((name, held.card.hash().0, json!({ "reasons": reasons }).to_string()));
                next.cards.insert(id, held.card);
            }
            Ok((next, StoreChange::Approve(approved)))
        })
        .await
    }
}

/// The catalog that was served last, as the store has it, with the version it had; `None` when there is none.
pub(super) fn last_served(store: &Store) -> Result<Option<(Registry, CatalogVersion)>, StartError> {
    let Some(row) = store.last_version()? else { return Ok(None) };
    let served = store.served_cards()?;
    let cards: BTreeMap<ToolId, Arc<ToolCard>> = (served.iter())
        .filter_map(|row| Some((ToolId::new(row.tool.as_str()), history::parsed(&row.hash, &row.json)?)))
        .collect();
    let scopes = store.setting(SCOPES)?.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
    Ok((!cards.is_empty()).then(|| (Registry { cards, scopes, ..Registry::default() }, version(&row))))
}
