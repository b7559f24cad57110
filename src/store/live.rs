//! What live sources listed last.

use rusqlite::OptionalExtension;

use super::{Store, StoreError};

impl Store {
    /// The text kept for the live source of this name.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be read.
    pub fn listing(&self, source: &str) -> Result<Option<String>, StoreError> {
        self.with(|connection| {
            let mut statement = connection.prepare_cached("SELECT facts FROM setting WHERE name = ?1")?;
            statement.query_row([name(source)], |row| row.get(0)).optional()
        })
    }

    /// Keeps `facts` in place of what was kept before.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be written.
    pub fn keep_listing(&self, source: &str, facts: &str) -> Result<(), StoreError> {
        self.with(|connection| {
            let mut statement =
                connection.prepare_cached("INSERT OR REPLACE INTO setting (name, facts) VALUES (?1, ?2)")?;
            statement.execute([name(source).as_str(), facts]).map(drop)
        })
    }
}

fn name(source: &str) -> String {
    format!("live:{source}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_listing_of_each_source_outlives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = Store::open(&path).unwrap();
        assert_eq!(store.listing("客服").unwrap(), None);
        store.keep_listing("客服", "[1]").unwrap();
        store.keep_listing("客服", "[2]").unwrap();
        store.keep_listing("desk", "[3]").unwrap();
        drop(store);
        let store = Store::open(&path).unwrap();
        assert_eq!(store.listing("客服").unwrap().as_deref(), Some("[2]"));
        assert_eq!(store.listing("desk").unwrap().as_deref(), Some("[3]"));
    }
}
