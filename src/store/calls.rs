//! Guarded calls in SQLite.

use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Row, Transaction, TransactionBehavior, named_params, params};

use super::ledger::{CallRow, Change, Changed};
use super::{Store, StoreError};
use crate::types::{CallId, CallState, UnixMs};

/// Records that make room at once when there is none: not one for each new call.
const MAKE_ROOM: usize = 16;

const COLUMNS: &str = "id, tenant, conversation, key, current, state, revision, updated, until, keep, facts";

impl Store {
    pub(super) fn find_call(&self, tenant: &str, id: CallId) -> Result<Option<CallRow>, StoreError> {
        self.with(|connection| {
            let sql = format!("SELECT {COLUMNS} FROM call WHERE id = ?1 AND tenant = ?2");
            connection.prepare_cached(&sql)?.query_row(params![id.to_string(), tenant], read).optional()
        })
    }

    pub(super) fn find_current(
        &self,
        tenant: &str,
        conversation: &str,
        key: &str,
    ) -> Result<Option<CallRow>, StoreError> {
        self.with(|connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM call WHERE tenant = ?1 AND conversation = ?2 AND key = ?3 AND current = 1"
            );
            connection.prepare_cached(&sql)?.query_row(params![tenant, conversation, key], read).optional()
        })
    }

    pub(super) fn change_call(
        &self,
        change: &Change<'_>,
        max_calls: usize,
        now: UnixMs,
    ) -> Result<Changed, StoreError> {
        self.with(|connection| {
            // Immediate: what is compared cannot change before it is set. Dropped without a commit, all is undone.
            let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Change { before, retired, after, spend } = *change;
            let same = before.is_some_and(|(id, _)| id == after.id);
            let mut evicted = 0;
            let mut set = true;
            if let Some((_, revision)) = before {
                set = update(&write, if same { after } else { retired.unwrap_or(after) }, revision)?;
            }
            if set && !same {
                evicted = match make_room(&write, max_calls, now)? {
                    Some(evicted) => evicted,
                    None => return Ok(Changed::Full),
                };
                set = insert(&write, after)?;
            }
            if let (true, Some(digest)) = (set, spend) {
                set = spend_token(&write, after, digest)?;
            }
            if !set {
                return Ok(Changed::Raced);
            }
            write.commit()?;
            Ok(Changed::Done { evicted })
        })
    }

    /// The oldest first, so that many calls of this end.
    pub(super) fn sweep_calls(&self, batch: usize, now: UnixMs) -> Result<usize, StoreError> {
        self.with(|connection| {
            delete(connection, "SELECT rowid FROM call WHERE keep <= ?1 ORDER BY keep LIMIT ?2", batch, now)
        })
    }
}

fn update(write: &Transaction<'_>, row: &CallRow, revision: i64) -> rusqlite::Result<bool> {
    let sql = "UPDATE call SET current = :current, state = :state, revision = :revision + 1, updated = :updated,
               until = :until, keep = :keep, facts = :facts
               WHERE id = :id AND tenant = :tenant AND revision = :revision";
    let changed = write.prepare_cached(sql)?.execute(named_params! {
        ":current": row.current, ":state": row.state.as_str(), ":revision": revision, ":updated": row.updated.0,
        ":until": row.until.0, ":keep": row.keep.0, ":facts": facts(row)?, ":id": row.id.to_string(),
        ":tenant": row.tenant,
    })?;
    Ok(changed == 1)
}

/// False when the key has a current call by now.
fn insert(write: &Transaction<'_>, row: &CallRow) -> rusqlite::Result<bool> {
    let sql = format!(
        "INSERT OR IGNORE INTO call ({COLUMNS}) VALUES
         (:id, :tenant, :conversation, :key, :current, :state, 0, :updated, :until, :keep, :facts)"
    );
    let inserted = write.prepare_cached(&sql)?.execute(named_params! {
        ":id": row.id.to_string(), ":tenant": row.tenant, ":conversation": row.conversation, ":key": row.key,
        ":current": row.current, ":state": row.state.as_str(), ":updated": row.updated.0, ":until": row.until.0,
        ":keep": row.keep.0, ":facts": facts(row)?,
    })?;
    Ok(inserted == 1)
}

/// False when the token is not there or was spent for another call.
fn spend_token(write: &Transaction<'_>, row: &CallRow, digest: &str) -> rusqlite::Result<bool> {
    let sql = "UPDATE preview_token SET spent_by = ?1, keep = max(keep, ?2)
               WHERE tenant = ?3 AND target = ?4 AND digest = ?5 AND (spent_by IS NULL OR spent_by = ?1)";
    let (origin, target) = (&row.facts.origin, row.facts.tool.as_str());
    let spent = write.prepare_cached(sql)?.execute(params![origin, row.keep.0, row.tenant, target, digest])?;
    Ok(spent == 1)
}

/// How many records went before their time; `None` when nothing may go. Calls with an effect that run or whose end is not
/// known are never forgotten.
fn make_room(write: &Transaction<'_>, max: usize, now: UnixMs) -> rusqlite::Result<Option<usize>> {
    let sql = "SELECT rows FROM tally WHERE name = 'call'";
    let rows: i64 = write.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    if usize::try_from(rows).is_ok_and(|rows| rows < max) {
        return Ok(Some(0));
    }
    if delete(write, "SELECT rowid FROM call WHERE keep <= ?1 ORDER BY keep LIMIT ?2", MAKE_ROOM, now)? > 0 {
        return Ok(Some(0));
    }
    // What prevents a second effect goes last.
    let late = "state IN ('expired', 'cancelled') OR (until <= ?1 AND (state IN ('proposed', 'previewed', 'confirmed')
                OR (state = 'dispatched' AND json_extract(facts, '$.class') = 'read')))";
    let (waiting, failed, succeeded) =
        ("state IN ('proposed', 'previewed', 'confirmed')", "state = 'failed'", "state = 'succeeded'");
    for which in [late, waiting, failed, succeeded] {
        let sql = format!("SELECT rowid FROM call WHERE ({which}) AND ?1 = ?1 ORDER BY updated LIMIT ?2");
        // Not all of a small ledger at once.
        let batch = MAKE_ROOM.min(max.div_ceil(16).max(1));
        let evicted = delete(write, &sql, batch, now)?;
        if evicted > 0 {
            return Ok(Some(if which == late { 0 } else { evicted }));
        }
    }
    Ok(None)
}

/// Removes the calls that `of` selects for `now` and `batch`.
fn delete(connection: &rusqlite::Connection, of: &str, batch: usize, now: UnixMs) -> rusqlite::Result<usize> {
    let sql = format!("DELETE FROM call WHERE rowid IN ({of})");
    connection.prepare_cached(&sql)?.execute(params![now.0, i64::try_from(batch).unwrap_or(i64::MAX)])
}

fn facts(row: &CallRow) -> rusqlite::Result<String> {
    serde_json::to_string(&row.facts).map_err(|err| rusqlite::Error::ToSqlConversionFailure(Box::new(err)))
}

fn read(row: &Row<'_>) -> rusqlite::Result<CallRow> {
    let unreadable = |column, what: &str| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, what.into());
    let (id, state, facts): (String, String, String) = (row.get(0)?, row.get(5)?, row.get(10)?);
    Ok(CallRow {
        id: CallId::parse(&id).ok_or_else(|| unreadable(0, "no call id"))?,
        tenant: row.get(1)?,
        conversation: row.get(2)?,
        key: row.get(3)?,
        current: row.get(4)?,
        state: CallState::parse(&state).ok_or_else(|| unreadable(5, "no state"))?,
        revision: row.get(6)?,
        updated: UnixMs(row.get(7)?),
        until: UnixMs(row.get(8)?),
        keep: UnixMs(row.get(9)?),
        facts: serde_json::from_str(&facts)
            .map_err(|err| rusqlite::Error::FromSqlConversionFailure(10, Type::Text, Box::new(err)))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{CallFacts, Ledger};
    use crate::tool::SideEffect;
    use crate::types::{CardHash, ToolId};

    fn row(tenant: &str, key: &str, at: i64) -> CallRow {
        let id = CallId::generate();
        CallRow {
            id,
            tenant: tenant.into(),
            conversation: "会话".into(),
            key: key.into(),
            current: true,
            state: CallState::Dispatched,
            revision: 0,
            updated: UnixMs(at),
            until: UnixMs(at + 10),
            keep: UnixMs(at + 100),
            facts: CallFacts {
                tool: ToolId::new("退款"),
                card_hash: CardHash("h".repeat(64)),
                class: SideEffect::Destructive,
                origin: id.to_string(),
                caller: "a".into(),
                runner: "a".into(),
                by_gate: false,
                unknown_before: false,
                confirmed_by: None,
                arguments: "d".repeat(64),
                policy_version: String::new(),
                preview: "p".repeat(64),
                second_person: None,
                token: None,
                previewed: None,
                consent_until: UnixMs(0),
                ttl_ms: 100,
                attempts: 1,
                created: UnixMs(at),
                ending: None,
            },
        }
    }

    fn put(store: &Store, before: Option<(CallId, i64)>, after: &CallRow, max: usize, now: i64) -> Changed {
        let retired = before.map(|(id, _)| CallRow { id, current: false, ..after.clone() });
        let change = Change { before, retired: retired.as_ref(), after, spend: None };
        store.change(&change, max, UnixMs(now)).unwrap()
    }

    const DONE: Changed = Changed::Done { evicted: 0 };

    #[test]
    fn each_change_is_a_comparison_and_belongs_to_one_tenant() {
        let store = Store::in_memory().unwrap();
        let first = row("t", "k", 0);
        assert_eq!(put(&store, None, &first, 10, 0), DONE);
        assert_eq!(put(&store, None, &row("t", "k", 0), 10, 0), Changed::Raced, "the key has a call");
        assert_eq!(put(&store, None, &row("u", "k", 0), 10, 0), DONE);
        assert_eq!(store.call("t", first.id).unwrap().unwrap(), first);
        assert_eq!(store.call("u", first.id).unwrap(), None);
        assert_ne!(store.current("u", "会话", "k").unwrap().unwrap().id, first.id);

        let settled = CallRow { state: CallState::Succeeded, ..first.clone() };
        let foreign = CallRow { tenant: "u".into(), ..settled.clone() };
        assert_eq!(put(&store, Some((first.id, 0)), &foreign, 10, 0), Changed::Raced);
        assert_eq!(put(&store, Some((first.id, 0)), &settled, 10, 0), DONE);
        assert_eq!(put(&store, Some((first.id, 0)), &settled, 10, 0), Changed::Raced, "of an older revision");
        let next = row("t", "k", 0);
        let unspent = Change { before: None, retired: None, after: &row("t", "other", 0), spend: Some("unseen") };
        assert_eq!(store.change(&unspent, 10, UnixMs(0)).unwrap(), Changed::Raced);
        assert_eq!(store.current("t", "会话", "other").unwrap(), None, "nothing of it was written");
        assert_eq!(put(&store, Some((first.id, 1)), &next, 10, 0), DONE);
        assert_eq!(store.current("t", "会话", "k").unwrap().unwrap().id, next.id);
        assert!(!store.call("t", first.id).unwrap().unwrap().current);
    }

    #[test]
    fn of_many_processes_one_sets_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let stores: Vec<Store> = (0..4).map(|_| Store::open(&path).unwrap()).collect();
        let claim =
            |store: &Store| (0..5).filter(|at| put(store, None, &row("t", &at.to_string(), 0), 100, 0) == DONE).count();
        let won: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = stores.iter().map(|store| scope.spawn(|| claim(store))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(won, 5);
    }

    #[test]
    fn the_file_grows_no_further_than_its_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = Store::open(&path).unwrap();
        let size = || {
            let log = path.with_extension("db-wal");
            [&path, &log].iter().map(|path| std::fs::metadata(path).map_or(0, |file| file.len())).sum::<u64>()
        };
        let max = 50;
        let mut early = 0;
        for at in 0..1_500i64 {
            let settled = CallRow { state: CallState::Succeeded, ..row("t", &at.to_string(), at) };
            assert!(matches!(put(&store, None, &settled, max, at), Changed::Done { .. }));
            if at == 700 {
                early = size();
            }
            if at % 100 == 0 {
                store.sweep(20, UnixMs(at)).unwrap();
            }
        }
        let rows: i64 =
            store.with(|connection| connection.query_row("SELECT count(*) FROM call", [], |row| row.get(0))).unwrap();
        let tally: i64 = store
            .with(|connection| connection.query_row("SELECT rows FROM tally WHERE name = 'call'", [], |row| row.get(0)))
            .unwrap();
        assert!(rows == tally && rows <= max as i64, "{rows} rows, counted {tally}");
        assert!(size() < early + early / 2, "{} bytes after {early}", size());
        let level: i64 =
            store.with(|connection| connection.query_row("PRAGMA synchronous", [], |row| row.get(0))).unwrap();
        assert_eq!(level, 2, "a commit is on the disk when it returns");
    }
}
