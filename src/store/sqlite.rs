//! Opening the file: settings of the connection, schema and migrations, what an error of SQLite means.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::StoreError;

/// Marks the file as ours ("PNTM"), so that another program's database is not written into.
const APPLICATION_ID: i64 = 0x504e_544d;

/// Step `i` leads from schema `i` to schema `i + 1`. Steps are only ever added.
const MIGRATIONS: [&str; 3] = [
    "
    CREATE TABLE model (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE);
    CREATE TABLE vector (
        model INTEGER NOT NULL REFERENCES model (id),
        text_hash BLOB NOT NULL,
        components BLOB NOT NULL,
        truncated INTEGER NOT NULL,
        UNIQUE (model, text_hash)
    );
    CREATE TABLE card (name TEXT PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE secret (name TEXT PRIMARY KEY, bytes BLOB NOT NULL) WITHOUT ROWID;
",
    // One call of a key is the current one; those before it stay until they are late. `tally` saves counting.
    "
    CREATE TABLE call (
        id TEXT NOT NULL PRIMARY KEY,
        tenant TEXT NOT NULL,
        conversation TEXT NOT NULL,
        key TEXT NOT NULL,
        current INTEGER NOT NULL,
        state TEXT NOT NULL,
        revision INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        until INTEGER NOT NULL,
        keep INTEGER NOT NULL,
        facts TEXT NOT NULL
    );
    CREATE UNIQUE INDEX call_key ON call (tenant, conversation, key) WHERE current = 1;
    CREATE INDEX call_late ON call (keep);
    CREATE INDEX call_settled ON call (updated) WHERE state IN ('succeeded', 'failed', 'expired', 'cancelled');
    CREATE INDEX call_waiting ON call (updated) WHERE state IN ('proposed', 'previewed', 'confirmed');
    CREATE TABLE preview_token (
        tenant TEXT NOT NULL,
        target TEXT NOT NULL,
        digest TEXT NOT NULL,
        until INTEGER NOT NULL,
        keep INTEGER NOT NULL,
        spent_by TEXT,
        facts TEXT NOT NULL,
        UNIQUE (tenant, target, digest)
    );
    CREATE INDEX preview_token_late ON preview_token (keep);
    CREATE TABLE turn (
        tenant TEXT NOT NULL,
        conversation TEXT NOT NULL,
        turn TEXT NOT NULL,
        steps INTEGER NOT NULL,
        started INTEGER NOT NULL,
        keep INTEGER NOT NULL,
        UNIQUE (tenant, conversation, turn)
    );
    CREATE INDEX turn_late ON turn (keep);
    CREATE TABLE signing_key (id TEXT NOT NULL PRIMARY KEY, bytes BLOB NOT NULL, made INTEGER NOT NULL);
    CREATE TABLE tally (name TEXT NOT NULL PRIMARY KEY, rows INTEGER NOT NULL);
    INSERT INTO tally VALUES ('call', 0), ('preview_token', 0), ('turn', 0);
    CREATE TRIGGER call_in AFTER INSERT ON call BEGIN UPDATE tally SET rows = rows + 1 WHERE name = 'call'; END;
    CREATE TRIGGER call_out AFTER DELETE ON call BEGIN UPDATE tally SET rows = rows - 1 WHERE name = 'call'; END;
    CREATE TRIGGER token_in AFTER INSERT ON preview_token
        BEGIN UPDATE tally SET rows = rows + 1 WHERE name = 'preview_token'; END;
    CREATE TRIGGER token_out AFTER DELETE ON preview_token
        BEGIN UPDATE tally SET rows = rows - 1 WHERE name = 'preview_token'; END;
    CREATE TRIGGER turn_in AFTER INSERT ON turn BEGIN UPDATE tally SET rows = rows + 1 WHERE name = 'turn'; END;
    CREATE TRIGGER turn_out AFTER DELETE ON turn BEGIN UPDATE tally SET rows = rows - 1 WHERE name = 'turn'; END;
",
    // Cards once by hash; a version holds what it changed, so that one of many thousand cards costs one row.
    "
    CREATE TABLE card_text (hash TEXT NOT NULL PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE served_card (tool TEXT NOT NULL PRIMARY KEY, hash TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE version (
        generation INTEGER PRIMARY KEY,
        digest TEXT NOT NULL,
        made INTEGER NOT NULL,
        cause TEXT NOT NULL,
        facts TEXT NOT NULL
    );
    CREATE TABLE version_change (
        generation INTEGER NOT NULL,
        tool TEXT NOT NULL,
        before TEXT,
        after TEXT,
        PRIMARY KEY (generation, tool)
    ) WITHOUT ROWID;
    CREATE TABLE approval (tool TEXT NOT NULL PRIMARY KEY, hash TEXT NOT NULL, made INTEGER NOT NULL, facts TEXT NOT NULL)
        WITHOUT ROWID;
    CREATE TABLE brake (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        since INTEGER NOT NULL,
        until INTEGER NOT NULL,
        facts TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID;
    CREATE TABLE setting (name TEXT NOT NULL PRIMARY KEY, facts TEXT NOT NULL) WITHOUT ROWID;
",
];

/// Largest write-ahead log that is kept between transactions.
const LOG_BYTES: i64 = 8 << 20;

/// How long a call waits for another process that is writing.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn open(path: &Path, shown: &str) -> Result<Connection, StoreError> {
    let connection = Connection::open(path)
        .map_err(|err| explain(err, shown, |source| StoreError::Open { path: shown.to_owned(), source }))?;
    prepare(connection, shown)
}

/// Brings a fresh connection to the newest schema.
pub(super) fn prepare(mut connection: Connection, shown: &str) -> Result<Connection, StoreError> {
    let fail = |err| explain(err, shown, |source| StoreError::Open { path: shown.to_owned(), source });
    connection.busy_timeout(BUSY_TIMEOUT).map_err(fail)?;
    migrate(&mut connection, shown)?;
    // Readers do not wait for the writer. The answer is ignored: a file system without shared memory keeps the old mode.
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).or_else(ignore_busy).map_err(fail)?;
    // Each commit is on the disk when it returns. With `NORMAL` the log is only written to the operating system: after
    // a power cut a call that was let go, and perhaps ran, would be gone, and a second request would run it again.
    connection.pragma_update(None, "synchronous", "FULL").map_err(fail)?;
    // What one long transaction made of the log is given back.
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(())).map_err(fail)?;
    connection.set_prepared_statement_cache_capacity(48);
    Ok(connection)
}

/// Sorts an error: damage has a remedy of its own, all else is `other`.
pub(super) fn explain(
    err: rusqlite::Error,
    shown: &str,
    other: impl FnOnce(rusqlite::Error) -> StoreError,
) -> StoreError {
    match err.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Corrupt { path: shown.to_owned(), source: err }
        }
        Some(_) | None => other(err),
    }
}

fn migrate(connection: &mut Connection, shown: &str) -> Result<(), StoreError> {
    let fail = |err| explain(err, shown, |source| StoreError::Open { path: shown.to_owned(), source });
    // Immediate: of two processes that open a new file at once, the second sees the finished schema.
    let step = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
    let pragma = |name: &str| step.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).map_err(fail);
    let (version, application) = (pragma("user_version")?, pragma("application_id")?);
    let tables: i64 = step.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(fail)?;
    let fresh = version == 0 && application == 0 && tables == 0;
    if !fresh && application != APPLICATION_ID {
        return Err(StoreError::Foreign { path: shown.to_owned() });
    }
    let known = MIGRATIONS.len();
    let Some(done) = usize::try_from(version).ok().filter(|done| *done <= known) else {
        return Err(StoreError::Newer { path: shown.to_owned(), found: version, known: known as i64 });
    };
    for sql in &MIGRATIONS[done..] {
        step.execute_batch(sql).map_err(fail)?;
    }
    if done < known {
        step.pragma_update(None, "application_id", APPLICATION_ID).map_err(fail)?;
        step.pragma_update(None, "user_version", known as i64).map_err(fail)?;
    }
    step.commit().map_err(fail)
}

/// Another process holds the file at this moment: it has set the mode or the next start will.
fn ignore_busy(err: rusqlite::Error) -> rusqlite::Result<()> {
    match err.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Ok(()),
        Some(_) | None => Err(err),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{CardsChange, Store};

    fn error(path: &Path) -> String {
        match Store::open(path) {
            Ok(_) => panic!("{} was opened", path.display()),
            Err(err) => err.to_string(),
        }
    }

    #[test]
    fn files_that_are_no_store_are_named_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let garbage = dir.path().join("garbage.db");
        std::fs::write(&garbage, "这不是数据库。".repeat(1000)).unwrap();
        assert!(error(&garbage).contains("garbage.db is damaged or is no SQLite file"), "{}", error(&garbage));
        assert!(std::fs::read_to_string(&garbage).unwrap().starts_with("这不是数据库"));

        let foreign = dir.path().join("foreign.db");
        Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE orders (id TEXT)").unwrap();
        assert!(error(&foreign).contains("another program"), "{}", error(&foreign));

        let newer = dir.path().join("newer.db");
        drop(Store::open(&newer).unwrap());
        Connection::open(&newer).unwrap().pragma_update(None, "user_version", 99).unwrap();
        assert!(error(&newer).contains("has schema 99") && error(&newer).contains("up to 3"), "{}", error(&newer));

        let folder = dir.path().join("folder.db");
        std::fs::create_dir(&folder).unwrap();
        assert!(error(&folder).contains("cannot use the store at"), "{}", error(&folder));
    }

    #[test]
    fn a_truncated_file_is_reported_with_its_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let store = Store::open(&path).unwrap();
        let cards: Vec<(String, String)> = (0..500).map(|i| (format!("tool_{i:03}"), "x".repeat(200))).collect();
        store.change_cards(&CardsChange { put: &cards, ..CardsChange::default() }).unwrap();
        drop(store);
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.len() > 50_000, "the log was written back on close: {}", bytes.len());
        std::fs::write(&path, &bytes[..20_000]).unwrap();
        let err = Store::open(&path).and_then(|store| store.cards()).unwrap_err();
        assert!(matches!(err, StoreError::Corrupt { .. }) && err.to_string().contains("move it away"), "{err}");
    }

    #[test]
    fn many_openers_of_a_new_file_agree() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/store.db");
        std::thread::scope(|scope| {
            for i in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    let store = Store::open(path).unwrap();
                    let put = [(format!("tool_{i}"), "{}".to_owned())];
                    store.change_cards(&CardsChange { put: &put, ..CardsChange::default() }).unwrap();
                });
            }
        });
        assert_eq!(Store::open(&path).unwrap().cards().unwrap().len(), 8);
    }
}
