//! What an operator has taken out of service, and settings that are changed while a server runs.

use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::{Store, StoreError};
use crate::types::UnixMs;

/// One thing that is out of service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrakeRow {
    /// `tool` or `source`.
    pub kind: String,
    pub name: String,
    pub since: UnixMs,
    /// When it ends by itself; `None` means not.
    pub until: Option<UnixMs>,
    pub facts: BrakeFacts,
}

/// What a brake says beside its name and times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrakeFacts {
    pub reason: String,
    /// Who set it.
    pub caller: String,
    /// Of a tool: where its card came from and what it is called there. Its id changes when another source takes the
    /// same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_name: Option<String>,
}

impl Store {
    /// Everything that is out of service, by kind, then by name; what has ended by itself is among it.
    pub fn brakes(&self) -> Result<Vec<BrakeRow>, StoreError> {
        self.with(|connection| {
            let sql = "SELECT kind, name, since, until, facts FROM brake ORDER BY kind, name";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([], read)?;
            rows.collect()
        })
    }

    /// On the disk when it returns; one that is there is replaced.
    pub fn put_brake(&self, row: &BrakeRow) -> Result<(), StoreError> {
        let facts = serde_json::to_string(&row.facts).unwrap_or_default();
        self.with(|connection| {
            let sql = "INSERT OR REPLACE INTO brake (kind, name, since, until, facts) VALUES (?1, ?2, ?3, ?4, ?5)";
            let until = row.until.map_or(0, |until| until.0);
            connection.execute(sql, params![row.kind, row.name, row.since.0, until, facts]).map(drop)
        })
    }

    /// False when there is none.
    pub fn remove_brake(&self, kind: &str, name: &str) -> Result<bool, StoreError> {
        self.with(|connection| {
            let removed = connection.execute("DELETE FROM brake WHERE kind = ?1 AND name = ?2", [kind, name])?;
            Ok(removed > 0)
        })
    }

    /// Removes those that have ended by themselves; how many there were.
    pub fn sweep_brakes(&self, now: UnixMs) -> Result<usize, StoreError> {
        self.with(|connection| connection.execute("DELETE FROM brake WHERE until <> 0 AND until <= ?1", [now.0]))
    }

    /// The text of a setting, if it was ever set.
    pub fn setting(&self, name: &str) -> Result<Option<String>, StoreError> {
        self.with(|connection| {
            connection.query_row("SELECT facts FROM setting WHERE name = ?1", [name], |row| row.get(0)).optional()
        })
    }

    /// On the disk when it returns.
    pub fn put_setting(&self, name: &str, facts: &str) -> Result<(), StoreError> {
        self.with(|connection| {
            connection.execute("INSERT OR REPLACE INTO setting (name, facts) VALUES (?1, ?2)", [name, facts]).map(drop)
        })
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<BrakeRow> {
    let until: i64 = row.get(3)?;
    let facts: String = row.get(4)?;
    let facts = serde_json::from_str(&facts)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(4, Type::Text, Box::new(error)))?;
    Ok(BrakeRow {
        kind: row.get(0)?,
        name: row.get(1)?,
        since: UnixMs(row.get(2)?),
        until: (until != 0).then_some(UnixMs(until)),
        facts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str, name: &str, until: Option<i64>) -> BrakeRow {
        let facts =
            BrakeFacts { reason: "退款金额算错".into(), caller: "运维".into(), ..BrakeFacts::default() };
        BrakeRow { kind: kind.into(), name: name.into(), since: UnixMs(5), until: until.map(UnixMs), facts }
    }

    #[test]
    fn brakes_and_settings_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = Store::open(&path).unwrap();
        store.put_brake(&row("tool", "退款", None)).unwrap();
        store.put_brake(&row("tool", "b", Some(9))).unwrap();
        store.put_brake(&row("source", "shop", Some(20))).unwrap();
        store.put_brake(&row("tool", "b", Some(10))).unwrap();
        store.put_setting("mode", "{}").unwrap();
        store.put_setting("mode", "{\"mode\":\"rules_only\"}").unwrap();
        drop(store);

        let store = Store::open(&path).unwrap();
        let all = [row("source", "shop", Some(20)), row("tool", "b", Some(10)), row("tool", "退款", None)];
        assert_eq!(store.brakes().unwrap(), all);
        assert_eq!(store.setting("mode").unwrap().unwrap(), "{\"mode\":\"rules_only\"}");
        assert_eq!(store.setting("other").unwrap(), None);

        assert_eq!(store.sweep_brakes(UnixMs(10)).unwrap(), 1);
        assert!(store.remove_brake("tool", "退款").unwrap());
        assert!(!store.remove_brake("tool", "退款").unwrap() && !store.remove_brake("tool", "shop").unwrap());
        assert_eq!(store.brakes().unwrap(), [row("source", "shop", Some(20))]);
    }

    #[test]
    fn a_row_that_cannot_be_read_is_an_error_and_not_an_open_tool() {
        let store = Store::in_memory().unwrap();
        let sql = "INSERT INTO brake VALUES ('tool', 'a', 1, 0, 'no json')";
        store.with(|connection| connection.execute(sql, [])).unwrap();
        assert!(store.brakes().is_err());
    }
}
