//! Vectors by model and text hash.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, params};

use super::{Store, StoreError};

/// What an encoder made of one text.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredVector {
    pub components: Vec<f32>,
    /// The text was longer than the encoder reads.
    pub truncated: bool,
}

impl Store {
    /// Vectors of `model` (the fingerprint of an encoder) for those of `text_hashes` (SHA-256) that are stored. A row
    /// that cannot be read counts as not stored.
    pub fn vectors(
        &self,
        model: &str,
        text_hashes: &[[u8; 32]],
    ) -> Result<HashMap<[u8; 32], StoredVector>, StoreError> {
        self.with(|connection| {
            // One transaction: all answers are of one moment, and the file is locked once.
            let read = connection.transaction()?;
            let mut statement = read.prepare_cached(
                "SELECT components, truncated FROM vector
                 WHERE model = (SELECT id FROM model WHERE fingerprint = ?1) AND text_hash = ?2",
            )?;
            let mut found = HashMap::new();
            for hash in text_hashes {
                let row: Option<(Vec<u8>, bool)> =
                    statement.query_row(params![model, hash], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
                if let Some((bytes, truncated)) = row
                    && let Some(components) = from_bytes(&bytes)
                {
                    found.insert(*hash, StoredVector { components, truncated });
                }
            }
            Ok(found)
        })
    }

    /// Stores all rows or none; a vector already stored for the same text is replaced.
    pub fn put_vectors(&self, model: &str, rows: &[([u8; 32], StoredVector)]) -> Result<(), StoreError> {
        self.with(|connection| {
            let write = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            write.execute("INSERT OR IGNORE INTO model (fingerprint) VALUES (?1)", [model])?;
            let id: i64 = write.query_row("SELECT id FROM model WHERE fingerprint = ?1", [model], |row| row.get(0))?;
            let mut statement = write.prepare_cached(
                "INSERT OR REPLACE INTO vector (model, text_hash, components, truncated) VALUES (?1, ?2, ?3, ?4)",
            )?;
            for (hash, vector) in rows {
                statement.execute(params![id, hash, to_bytes(&vector.components), vector.truncated])?;
            }
            drop(statement);
            write.commit()
        })
    }
}

/// Little-endian, so that a file moves between machines.
fn to_bytes(components: &[f32]) -> Vec<u8> {
    components.iter().flat_map(|component| component.to_le_bytes()).collect()
}

fn from_bytes(bytes: &[u8]) -> Option<Vec<f32>> {
    let (components, rest) = bytes.as_chunks::<4>();
    (rest.is_empty() && !components.is_empty()).then(|| components.iter().map(|c| f32::from_le_bytes(*c)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(components: &[f32], truncated: bool) -> StoredVector {
        StoredVector { components: components.to_vec(), truncated }
    }

    #[test]
    fn vectors_survive_a_restart_and_belong_to_one_model() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let (a, b, c) = ([1u8; 32], [2u8; 32], [3u8; 32]);
        let store = Store::open(&path).unwrap();
        let rows = [(a, vector(&[0.25, -1.5e-7], false)), (b, vector(&[1.0, 0.0], true))];
        store.put_vectors("model one", &rows).unwrap();
        store.put_vectors("model two", &[(a, vector(&[7.0], false))]).unwrap();
        drop(store);

        let store = Store::open(&path).unwrap();
        let found = store.vectors("model one", &[a, b, c]).unwrap();
        assert_eq!(found, HashMap::from(rows));
        assert_eq!(store.vectors("model two", &[a, b]).unwrap().len(), 1);
        assert!(store.vectors("model three", &[a]).unwrap().is_empty());

        store.put_vectors("model one", &[(a, vector(&[3.0, 4.0], true))]).unwrap();
        assert_eq!(store.vectors("model one", &[a]).unwrap()[&a], vector(&[3.0, 4.0], true));
    }

    #[test]
    fn thousands_of_hashes_are_one_call() {
        let store = Store::in_memory().unwrap();
        let hash = |i: u32| {
            let mut hash = [0u8; 32];
            hash[..4].copy_from_slice(&i.to_le_bytes());
            hash
        };
        let rows: Vec<_> = (0..3000).map(|i| (hash(i), vector(&[i as f32], false))).collect();
        store.put_vectors("m", &rows).unwrap();
        let wanted: Vec<_> = (0..5000).map(hash).collect();
        assert_eq!(store.vectors("m", &wanted).unwrap().len(), 3000);
    }

    #[test]
    fn an_unreadable_row_counts_as_not_stored() {
        assert_eq!(from_bytes(&[0, 0, 0]), None);
        assert_eq!(from_bytes(&[]), None);
        assert_eq!(from_bytes(&to_bytes(&[1.5])), Some(vec![1.5]));
    }
}
