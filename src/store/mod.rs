//! Durable state in one SQLite file: embeddings by model and text, cards that were `Put`, the catalogs served so far,
//! brakes, guarded calls.
//!
//! Owns: the file, its schema and migrations; the [`Ledger`] of guarded calls.
//! Does not know: what a vector means, whether a card is valid, which steps a call may take. All calls block: async
//! callers use `spawn_blocking`.

mod brake;
mod cards;
mod history;
mod live;
mod secrets;

mod ledger;

mod calls;
mod keys;
mod tokens;
mod turns;

mod sqlite;
mod vectors;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

pub use brake::{BrakeFacts, BrakeRow};
pub use cards::CardsChange;
pub use history::{ChangeRow, NewVersion, Publication, Recorded, ServedRow, VersionRow};
pub use ledger::{CallFacts, CallRow, Change, Changed, Ledger, SigningKey, Steps, Swept, TokenFacts, TokenRow};
pub use vectors::StoredVector;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot use the store at {path}")]
    Open {
        path: String,
        #[source]
        source: rusqlite::Error,
    },
    #[error("cannot create the folder of the store at {path}")]
    Folder {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "the store at {path} is damaged or is no SQLite file; move it away and start again: vectors are computed anew, \
         tools that were put have to be put again"
    )]
    Corrupt {
        path: String,
        #[source]
        source: rusqlite::Error,
    },
    #[error("{path} is the database of another program; choose another file for the store")]
    Foreign { path: String },
    #[error(
        "the store at {path} has schema {found}, this version of pointsman knows schemas up to {known}; use a newer \
         pointsman or another file"
    )]
    Newer { path: String, found: i64, known: i64 },
    #[error("store failed")]
    Sqlite(#[from] rusqlite::Error),
}

/// One SQLite file, shared between threads and, with care for locks, between processes.
pub struct Store {
    connection: Mutex<Connection>,
    /// Only for messages.
    path: String,
}

impl Store {
    /// Opens or creates the file and the folder it is in.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], [`StoreError::Foreign`] and [`StoreError::Newer`] say what is wrong with the file and
    /// what to do; it is left as it is.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let shown = path.display().to_string();
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|source| StoreError::Folder { path: shown.clone(), source })?;
        }
        let connection = sqlite::open(path, &shown)?;
        Ok(Self { connection: Mutex::new(connection), path: shown })
    }

    /// A store that ends with this value.
    pub fn in_memory() -> Result<Self, StoreError> {
        let path = ":memory:".to_owned();
        let connection = sqlite::prepare(Connection::open_in_memory()?, &path)?;
        Ok(Self { connection: Mutex::new(connection), path })
    }

    /// Runs `work` on the connection; damage found on the way is reported as such.
    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        work(&mut self.lock()).map_err(|err| sqlite::explain(err, &self.path, StoreError::Sqlite))
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic in another thread rolled its transaction back, so the connection is still good.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
