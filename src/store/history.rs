//! The catalogs that were served: cards once by hash, each version by what it changed.
//!
//! Owns: versions, the cards served last, approvals, small settings of the registry; what of it is too old.
//! Does not know: what a card means, or which of two changes is the right one.
//!
//! An earlier state is found by undoing changes from the cards served last, so that one changed card of ten thousand
//! costs a row or two, whatever the size of the catalog.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::cards::{self, CardsChange};
use super::{Store, StoreError};
use crate::types::UnixMs;

/// One version, without its changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRow {
    pub generation: u64,
    pub digest: String,
    pub made: UnixMs,
    pub cause: String,
    /// JSON.
    pub facts: String,
}

/// What a version changed about one tool: hashes of its card. `None`: there was or is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeRow {
    pub tool: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// A card as it was served last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedRow {
    pub tool: String,
    pub hash: String,
    pub json: String,
}

/// A version that is about to be served.
pub struct NewVersion<'a> {
    /// The generation it follows in this process; 0 for the first of all.
    pub follows: u64,
    pub digest: &'a str,
    pub cause: &'a str,
    pub facts: &'a str,
    /// Every tool with the hash of its card, in the order of names.
    pub all: &'a [(&'a str, &'a str)],
    /// Tools that may differ from the version it follows; `None`: compare all.
    pub changed: Option<&'a [&'a str]>,
    /// JSON of the card of a tool.
    pub json: &'a dyn Fn(&str) -> String,
    /// Versions to keep, this one included.
    pub keep: usize,
}

/// What one change of the catalog writes, all of it or nothing.
pub struct Publication<'a> {
    pub made: UnixMs,
    /// `None`: the cards stay as they are.
    pub version: Option<NewVersion<'a>>,
    /// Cards that were put.
    pub cards: CardsChange<'a>,
    /// Tool and hash of cards that are approved from now on, with facts in JSON.
    pub approved: &'a [(String, String, String)],
    /// Tools whose approvals no longer count.
    pub revoked: &'a [String],
    /// Settings to write, or to remove.
    pub settings: &'a [(&'a str, Option<String>)],
}

impl Publication<'_> {
    /// Nothing yet, written at `made`.
    pub fn new(made: UnixMs) -> Self {
        let cards = CardsChange::default();
        Self { made, version: None, cards, approved: &[], revoked: &[], settings: &[] }
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Of the new version; `None` when there was none.
    pub generation: Option<u64>,
    /// Somebody else has written versions meanwhile: another process uses this file.
    pub shared: bool,
}

impl Store {
    /// Writes `publication` in one transaction.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is written then.
    pub fn publish(&self, publication: &Publication<'_>) -> Result<Recorded, StoreError> {
        self.with(|connection| {
            let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            cards::write(&write, &publication.cards)?;
            for (name, facts) in publication.settings {
                set(&write, name, facts.as_deref())?;
            }
            for tool in publication.revoked {
                write.prepare_cached("DELETE FROM approval WHERE tool = ?1")?.execute([tool])?;
            }
            for (tool, hash, facts) in publication.approved {
                let mut insert = write.prepare_cached("INSERT OR REPLACE INTO approval VALUES (?1, ?2, ?3, ?4)")?;
                insert.execute(params![tool, hash, publication.made.0, facts])?;
            }
            let recorded = match &publication.version {
                Some(version) => add(&write, version, publication.made)?,
                None => Recorded { generation: None, shared: false },
            };
            write.commit()?;
            Ok(recorded)
        })
    }

    /// The versions that are kept, newest first.
    pub fn versions(&self) -> Result<Vec<VersionRow>, StoreError> {
        self.with(|connection| {
            let sql = "SELECT generation, digest, made, cause, facts FROM version ORDER BY generation DESC";
            connection.prepare_cached(sql)?.query_map([], version_row)?.collect()
        })
    }

    pub fn last_version(&self) -> Result<Option<VersionRow>, StoreError> {
        self.with(|connection| {
            let sql = "SELECT generation, digest, made, cause, facts FROM version ORDER BY generation DESC LIMIT 1";
            connection.prepare_cached(sql)?.query_row([], version_row).optional()
        })
    }

    /// What a version changed, by tool.
    pub fn changes_of(&self, generation: u64) -> Result<Vec<ChangeRow>, StoreError> {
        self.with(|connection| {
            let sql = "SELECT tool, before, after FROM version_change WHERE generation = ?1 ORDER BY tool";
            connection.prepare_cached(sql)?.query_map([signed(generation)], change_row)?.collect()
        })
    }

    /// Hashes of the cards served last, by tool.
    pub fn served_hashes(&self) -> Result<BTreeMap<String, String>, StoreError> {
        self.with(|connection| hashes(connection.prepare_cached("SELECT tool, hash FROM served_card")?))
    }

    /// The cards served last, by tool.
    pub fn served_cards(&self) -> Result<Vec<ServedRow>, StoreError> {
        self.with(|connection| {
            let sql = "SELECT tool, hash, json FROM served_card JOIN card_text USING (hash) ORDER BY tool";
            let row = |row: &Row<'_>| Ok(ServedRow { tool: row.get(0)?, hash: row.get(1)?, json: row.get(2)? });
            connection.prepare_cached(sql)?.query_map([], row)?.collect()
        })
    }

    /// Hashes of the cards of a version by tool; `None` when it is not kept.
    pub fn cards_at(&self, generation: u64) -> Result<Option<BTreeMap<String, String>>, StoreError> {
        self.with(|connection| {
            // One transaction: another process may be writing.
            let read = connection.transaction()?;
            let known = "SELECT 1 FROM version WHERE generation = ?1";
            if read.prepare_cached(known)?.query_row([signed(generation)], |_| Ok(())).optional()?.is_none() {
                return Ok(None);
            }
            let mut cards = hashes(read.prepare_cached("SELECT tool, hash FROM served_card")?)?;
            let sql = "SELECT tool, before, after FROM version_change WHERE generation > ?1 ORDER BY generation DESC";
            let mut later = read.prepare_cached(sql)?;
            for change in later.query_map([signed(generation)], change_row)? {
                let ChangeRow { tool, before, .. } = change?;
                match before {
                    Some(hash) => drop(cards.insert(tool, hash)),
                    None => drop(cards.remove(&tool)),
                }
            }
            Ok(Some(cards))
        })
    }

    /// JSON of those `hashes` that are kept.
    pub fn card_texts<'a>(
        &self,
        hashes: impl IntoIterator<Item = &'a str>,
    ) -> Result<BTreeMap<String, String>, StoreError> {
        self.with(|connection| {
            let mut select = connection.prepare_cached("SELECT json FROM card_text WHERE hash = ?1")?;
            let mut texts = BTreeMap::new();
            for hash in hashes.into_iter().collect::<BTreeSet<_>>() {
                if let Some(json) = select.query_row([hash], |row| row.get::<_, String>(0)).optional()? {
                    texts.insert(hash.to_owned(), json);
                }
            }
            Ok(texts)
        })
    }

    /// Hashes of the last cards of tools that a kept version removed, by tool.
    pub fn removed_cards(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let sql =
            "SELECT tool, before FROM version_change WHERE after IS NULL AND before IS NOT NULL ORDER BY generation";
        self.with(|connection| hashes(connection.prepare_cached(sql)?))
    }

    /// Hashes of approved cards, by tool.
    pub fn approvals(&self) -> Result<BTreeMap<String, String>, StoreError> {
        self.with(|connection| hashes(connection.prepare_cached("SELECT tool, hash FROM approval")?))
    }
}

fn read_setting(connection: &rusqlite::Connection, name: &str) -> rusqlite::Result<Option<String>> {
    let mut select = connection.prepare_cached("SELECT facts FROM setting WHERE name = ?1")?;
    select.query_row([name], |row| row.get(0)).optional()
}

/// Nothing is written where nothing changes: a reload of unchanged files is to cost no disk.
fn set(write: &Transaction<'_>, name: &str, facts: Option<&str>) -> rusqlite::Result<()> {
    if read_setting(write, name)?.as_deref() == facts {
        return Ok(());
    }
    match facts {
        Some(facts) => {
            write.prepare_cached("INSERT OR REPLACE INTO setting VALUES (?1, ?2)")?.execute([name, facts]).map(drop)
        }
        None => write.prepare_cached("DELETE FROM setting WHERE name = ?1")?.execute([name]).map(drop),
    }
}

fn add(write: &Transaction<'_>, version: &NewVersion<'_>, made: UnixMs) -> rusqlite::Result<Recorded> {
    let last: Option<i64> = write.query_row("SELECT max(generation) FROM version", [], |row| row.get(0))?;
    let last = last.and_then(|last| u64::try_from(last).ok()).unwrap_or(0);
    let shared = last != version.follows;
    let generation = last.max(version.follows) + 1;
    let everything: Vec<&str>;
    let stored: BTreeMap<String, String>;
    let changed = match version.changed {
        Some(changed) if !shared => changed,
        // What is written has to follow what is stored, not what this process believes.
        Some(_) | None => {
            stored = hashes(write.prepare_cached("SELECT tool, hash FROM served_card")?)?;
            let names = stored.keys().map(String::as_str).chain(version.all.iter().map(|(tool, _)| *tool));
            everything = names.collect::<BTreeSet<_>>().into_iter().collect();
            &everything
        }
    };
    for tool in changed {
        change(write, version, generation, tool)?;
    }
    write
        .prepare_cached("INSERT INTO version (generation, digest, made, cause, facts) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![signed(generation), version.digest, made.0, version.cause, version.facts])?;
    prune(write, generation, version.keep)?;
    Ok(Recorded { generation: Some(generation), shared })
}

fn change(write: &Transaction<'_>, version: &NewVersion<'_>, generation: u64, tool: &str) -> rusqlite::Result<()> {
    let mut select = write.prepare_cached("SELECT hash FROM served_card WHERE tool = ?1")?;
    let before: Option<String> = select.query_row([tool], |row| row.get(0)).optional()?;
    let after = version.all.binary_search_by(|(name, _)| (*name).cmp(tool)).ok().map(|at| version.all[at].1);
    if before.as_deref() == after {
        return Ok(());
    }
    match after {
        Some(hash) => {
            let mut known = write.prepare_cached("SELECT 1 FROM card_text WHERE hash = ?1")?;
            if known.query_row([hash], |_| Ok(())).optional()?.is_none() {
                let mut insert = write.prepare_cached("INSERT INTO card_text (hash, json) VALUES (?1, ?2)")?;
                insert.execute([hash, &(version.json)(tool)])?;
            }
            let mut serve = write.prepare_cached("INSERT OR REPLACE INTO served_card (tool, hash) VALUES (?1, ?2)")?;
            serve.execute([tool, hash])?;
        }
        None => drop(write.prepare_cached("DELETE FROM served_card WHERE tool = ?1")?.execute([tool])?),
    }
    let sql = "INSERT INTO version_change (generation, tool, before, after) VALUES (?1, ?2, ?3, ?4)";
    write.prepare_cached(sql)?.execute(params![signed(generation), tool, before, after]).map(drop)
}

/// So many texts are looked for one by one; more of them in one pass over everything.
const FEW: usize = 8;

/// Removes versions beyond `keep` and texts that nothing refers to any more.
fn prune(write: &Transaction<'_>, newest: u64, keep: usize) -> rusqlite::Result<()> {
    let nth = "SELECT generation FROM version WHERE generation <= ?1 ORDER BY generation DESC LIMIT 1 OFFSET ?2";
    let keep = i64::try_from(keep.max(1)).unwrap_or(i64::MAX);
    let mut select = write.prepare_cached(nth)?;
    let Some(oldest_gone) = select.query_row(params![signed(newest), keep], |row| row.get::<_, i64>(0)).optional()?
    else {
        return Ok(());
    };
    let sql = "SELECT before FROM version_change WHERE generation <= ?1 AND before IS NOT NULL
               UNION SELECT after FROM version_change WHERE generation <= ?1 AND after IS NOT NULL";
    let gone: Vec<String> =
        write.prepare_cached(sql)?.query_map([oldest_gone], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    write.prepare_cached("DELETE FROM version_change WHERE generation <= ?1")?.execute([oldest_gone])?;
    write.prepare_cached("DELETE FROM version WHERE generation <= ?1")?.execute([oldest_gone])?;
    if gone.len() > FEW {
        let sql = "DELETE FROM card_text WHERE hash NOT IN (SELECT hash FROM served_card
                   UNION SELECT before FROM version_change WHERE before IS NOT NULL
                   UNION SELECT after FROM version_change WHERE after IS NOT NULL)";
        return write.execute(sql, []).map(drop);
    }
    let sql = "DELETE FROM card_text WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM served_card WHERE hash = ?1)
               AND NOT EXISTS (SELECT 1 FROM version_change WHERE before = ?1 OR after = ?1)";
    let mut delete = write.prepare_cached(sql)?;
    gone.iter().try_for_each(|hash| delete.execute([hash]).map(drop))
}

/// Pairs of texts; the last one counts where a key stands twice.
fn hashes(mut select: rusqlite::CachedStatement<'_>) -> rusqlite::Result<BTreeMap<String, String>> {
    select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn version_row(row: &Row<'_>) -> rusqlite::Result<VersionRow> {
    let generation: i64 = row.get(0)?;
    Ok(VersionRow {
        generation: u64::try_from(generation).unwrap_or(0),
        digest: row.get(1)?,
        made: UnixMs(row.get(2)?),
        cause: row.get(3)?,
        facts: row.get(4)?,
    })
}

fn change_row(row: &Row<'_>) -> rusqlite::Result<ChangeRow> {
    Ok(ChangeRow { tool: row.get(0)?, before: row.get(1)?, after: row.get(2)? })
}

fn signed(generation: u64) -> i64 {
    i64::try_from(generation).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
