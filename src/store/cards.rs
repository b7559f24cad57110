//! Cards that were put while the server ran.

use rusqlite::{Transaction, TransactionBehavior};

use super::{Store, StoreError};

impl Store {
    /// Name and JSON of every card that was put, by name.
    pub fn cards(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.with(|connection| {
            let mut statement = connection.prepare_cached("SELECT name, json FROM card ORDER BY name")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
    }

    /// Writes and removes in one transaction; a name in both lists ends up written.
    pub fn change_cards(&self, put: &[(String, String)], delete: &[String]) -> Result<(), StoreError> {
        self.write_cards(put, |write| {
            let mut remove = write.prepare_cached("DELETE FROM card WHERE name = ?1")?;
            delete.iter().try_for_each(|name| remove.execute([name]).map(drop))
        })
    }

    /// Makes `put` the only cards, in one transaction.
    pub fn replace_cards(&self, put: &[(String, String)]) -> Result<(), StoreError> {
        self.write_cards(put, |write| write.execute("DELETE FROM card", []).map(drop))
    }

    fn write_cards(
        &self,
        put: &[(String, String)],
        remove: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), StoreError> {
        self.with(|connection| {
            let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            remove(&write)?;
            let mut insert = write.prepare_cached("INSERT OR REPLACE INTO card (name, json) VALUES (?1, ?2)")?;
            for (name, json) in put {
                insert.execute([name, json])?;
            }
            drop(insert);
            write.commit()
        })
    }
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
        store.change_cards(&[pair("退款", "{}"), pair("b", "1"), pair("a", "2")], &[]).unwrap();
        store.change_cards(&[pair("b", "3"), pair("c", "4")], &["a".to_owned(), "c".to_owned()]).unwrap();
        drop(store);
        let store = Store::open(&path).unwrap();
        assert_eq!(store.cards().unwrap(), [pair("b", "3"), pair("c", "4"), pair("退款", "{}")]);
        store.replace_cards(&[pair("z", "5")]).unwrap();
        assert_eq!(store.cards().unwrap(), [pair("z", "5")]);
    }
}
