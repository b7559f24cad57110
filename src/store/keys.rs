//! Keys that sign confirm tokens: made by SQLite's generator, which the operating system seeds, and replaced in time.

use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior};

use super::ledger::SigningKey;
use super::{Store, StoreError};
use crate::types::UnixMs;

impl Store {
    pub(super) fn newest_signing_key(
        &self,
        made_after: UnixMs,
        forget: UnixMs,
        now: UnixMs,
    ) -> Result<SigningKey, StoreError> {
        self.with(|connection| {
            if let Some(key) = newest(connection, made_after)? {
                return Ok(key);
            }
            // Immediate: of two processes at once the second finds the first one's key.
            let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            write.execute("DELETE FROM signing_key WHERE made < ?1", [forget.0])?;
            if newest(&write, made_after)?.is_none() {
                let sql = "INSERT INTO signing_key VALUES (lower(hex(randomblob(6))), randomblob(32), ?1)";
                write.execute(sql, [now.0])?;
            }
            let key = newest(&write, made_after)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
            write.commit()?;
            Ok(key)
        })
    }

    pub(super) fn find_signing_key(&self, id: &str) -> Result<Option<SigningKey>, StoreError> {
        self.with(|connection| {
            let mut statement = connection.prepare_cached("SELECT id, bytes FROM signing_key WHERE id = ?1")?;
            statement.query_row([id], read).optional()
        })
    }
}

fn newest(connection: &Connection, made_after: UnixMs) -> rusqlite::Result<Option<SigningKey>> {
    let sql = "SELECT id, bytes FROM signing_key WHERE made >= ?1 ORDER BY made DESC, id LIMIT 1";
    connection.prepare_cached(sql)?.query_row([made_after.0], read).optional()
}

fn read(row: &Row<'_>) -> rusqlite::Result<SigningKey> {
    Ok(SigningKey { id: row.get(0)?, bytes: row.get(1)? })
}

#[cfg(test)]
mod tests {
    use crate::store::Ledger;

    use super::*;

    #[test]
    fn keys_are_shared_replaced_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let (store, other) = (Store::open(&path).unwrap(), Store::open(&path).unwrap());
        let never = UnixMs(i64::MIN);
        let first = store.signing_key(UnixMs(0), never, UnixMs(100)).unwrap();
        assert_eq!(other.signing_key(UnixMs(50), never, UnixMs(120)).unwrap(), first);
        let second = other.signing_key(UnixMs(101), never, UnixMs(200)).unwrap();
        assert!(second.id != first.id && second.bytes != first.bytes);
        assert_eq!(store.signing_key_of(&first.id).unwrap(), Some(first.clone()));
        let third = store.signing_key(UnixMs(201), UnixMs(150), UnixMs(300)).unwrap();
        assert_eq!(other.signing_key_of(&first.id).unwrap(), None);
        assert_eq!(other.signing_key_of(&second.id).unwrap(), Some(second));
        assert!(!format!("{third:?}").contains(&format!("{}", third.bytes[0])) || format!("{third:?}").contains("***"));
    }
}
