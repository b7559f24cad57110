//! Tokens of preview tools in SQLite: digests alone.

use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Row, TransactionBehavior, named_params, params};

use super::ledger::TokenRow;
use super::{Store, StoreError};
use crate::types::{ToolId, UnixMs};

impl Store {
    pub(super) fn find_token(
        &self,
        tenant: &str,
        target: &ToolId,
        digest: &str,
    ) -> Result<Option<TokenRow>, StoreError> {
        self.with(|connection| {
            let sql = "SELECT tenant, target, digest, until, keep, spent_by, facts FROM preview_token
                       WHERE tenant = ?1 AND target = ?2 AND digest = ?3";
            connection.prepare_cached(sql)?.query_row(params![tenant, target.as_str(), digest], read).optional()
        })
    }

    pub(super) fn write_token(&self, row: &TokenRow, max: usize, now: UnixMs) -> Result<bool, StoreError> {
        self.with(|connection| {
            let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let sql = "SELECT rows FROM tally WHERE name = 'preview_token'";
            let rows: i64 = write.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
            let full = usize::try_from(rows).is_ok_and(|rows| rows >= max);
            if full && late(&write, 16, now)? == 0 {
                // Unspent ones fail closed when they are forgotten; spent ones tell repetitions from new calls.
                let sql = "DELETE FROM preview_token WHERE rowid IN
                           (SELECT rowid FROM preview_token WHERE spent_by IS NULL ORDER BY keep LIMIT 1)";
                if write.prepare_cached(sql)?.execute([])? == 0 {
                    return Ok(false);
                }
            }
            let facts = serde_json::to_string(&row.facts)
                .map_err(|err| rusqlite::Error::ToSqlConversionFailure(Box::new(err)))?;
            write
                .prepare_cached(
                    "INSERT INTO preview_token (tenant, target, digest, until, keep, spent_by, facts)
                     VALUES (:tenant, :target, :digest, :until, :keep, NULL, :facts)
                     ON CONFLICT DO UPDATE SET until = :until, keep = :keep, facts = :facts WHERE spent_by IS NULL",
                )?
                .execute(named_params! {
                    ":tenant": row.tenant, ":target": row.target.as_str(), ":digest": row.digest,
                    ":until": row.until.0, ":keep": row.keep.0, ":facts": facts,
                })?;
            write.commit()?;
            Ok(true)
        })
    }

    pub(super) fn sweep_tokens(&self, batch: usize, now: UnixMs) -> Result<usize, StoreError> {
        self.with(|connection| late(connection, batch, now))
    }
}

fn late(connection: &rusqlite::Connection, batch: usize, now: UnixMs) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM preview_token WHERE rowid IN
               (SELECT rowid FROM preview_token WHERE keep <= ?1 ORDER BY keep LIMIT ?2)";
    connection.prepare_cached(sql)?.execute(params![now.0, i64::try_from(batch).unwrap_or(i64::MAX)])
}

fn read(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    let (target, facts): (String, String) = (row.get(1)?, row.get(6)?);
    Ok(TokenRow {
        tenant: row.get(0)?,
        target: ToolId::new(target),
        digest: row.get(2)?,
        until: UnixMs(row.get(3)?),
        keep: UnixMs(row.get(4)?),
        spent_by: row.get(5)?,
        facts: serde_json::from_str(&facts)
            .map_err(|err| rusqlite::Error::FromSqlConversionFailure(6, Type::Text, Box::new(err)))?,
    })
}
