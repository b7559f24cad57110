//! Cards that were put while the server ran.

use rusqlite::{Transaction, TransactionBehavior};

use super::{Store, StoreError};

/// What happens to the cards that were put. A name in both lists ends up written.
#[derive(Debug, Clone, Copy, Default)]
pub struct CardsChange<'a> {
    /// Name and JSON.
    pub put: &'a [(String, String)],
    pub delete: &'a [String],
    /// All others go.
    pub only: bool,
}

impl Store {
    /// Name and JSON of every card that was put, by name.
    pub fn cards(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.with(|connection| {
            let mut statement = connection.prepare_cached("SELECT name, json FROM card ORDER BY name")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
    }

    /// Makes `change` in one transaction.
    pub fn change_cards(&self, change: &CardsChange<'_>) -> Result<(), StoreError> {
        self.with(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            write(&transaction, change)?;
            transaction.commit()
        })
    }
}

pub(super) fn write(write: &Transaction<'_>, change: &CardsChange<'_>) -> rusqlite::Result<()> {
    if change.only {
        write.execute("DELETE FROM card", [])?;
    }
    let mut remove = write.prepare_cached("DELETE FROM card WHERE name = ?1")?;
    change.delete.iter().try_for_each(|name| remove.execute([name]).map(drop))?;
    let mut insert = write.prepare_cached("INSERT OR REPLACE INTO card (name, json) VALUES (?1, ?2)")?;
    change.put.iter().try_for_each(|(name, json)| insert.execute([name, json]).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, json: &str) -> (String, String) {
        (name.to_owned(), json.to_owned())
    }

    #[test]
    fn cards_survive_a_restart_in_name_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let store = Store::open(&path).unwrap();
        let change = |put: &[_], delete: &[_], only| store.change_cards(&CardsChange { put, delete, only }).unwrap();
        change(&[pair("退款", "{}"), pair("b", "1"), pair("a", "2")], &[], false);
        change(&[pair("b", "3"), pair("c", "4")], &["a".to_owned(), "c".to_owned()], false);
        drop(store);
        let store = Store::open(&path).unwrap();
        assert_eq!(store.cards().unwrap(), [pair("b", "3"), pair("c", "4"), pair("退款", "{}")]);
        store.change_cards(&CardsChange { put: &[pair("z", "5")], delete: &[], only: true }).unwrap();
        assert_eq!(store.cards().unwrap(), [pair("z", "5")]);
    }
}
