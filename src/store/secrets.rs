//! Random values that belong to one installation.

use super::{Store, StoreError};

impl Store {
    /// The secret of this name, made on first use: the same in every process that opens the file.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be read or written.
    pub fn secret(&self, name: &str) -> Result<[u8; 16], StoreError> {
        self.with(|connection| {
            // SQLite's generator is seeded by the operating system. Of two processes at once, the first one's stays.
            connection.execute("INSERT OR IGNORE INTO secret (name, bytes) VALUES (?1, randomblob(16))", [name])?;
            connection.query_row("SELECT bytes FROM secret WHERE name = ?1", [name], |row| row.get(0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_stays_and_another_file_has_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let first = Store::open(&path).unwrap().secret("salt").unwrap();
        let again = Store::open(&path).unwrap();
        assert_eq!(again.secret("salt").unwrap(), first);
        assert_ne!(again.secret("other").unwrap(), first);
        assert_ne!(Store::in_memory().unwrap().secret("salt").unwrap(), first);
    }
}
