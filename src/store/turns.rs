//! Steps of turns in SQLite.

use rusqlite::{OptionalExtension, TransactionBehavior, params};

use super::ledger::Steps;
use super::{Store, StoreError};
use crate::types::UnixMs;

impl Store {
    /// Steps taken, when the first was, and whether this one was counted.
    pub(super) fn count_step(&self, step: &Steps<'_>) -> Result<(u32, UnixMs, bool), StoreError> {
        self.with(|connection| {
            let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Steps { tenant, conversation, turn, limit, now, began_after, keep, max_turns } = *step;
            let sql = "SELECT steps, started FROM turn WHERE tenant = ?1 AND conversation = ?2 AND turn = ?3";
            let found: Option<(u32, i64)> = write
                .prepare_cached(sql)?
                .query_row(params![tenant, conversation, turn], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            if let Some((steps, started)) = found
                && (steps >= limit || started < began_after.0)
            {
                return Ok((steps, UnixMs(started), false));
            }
            if found.is_none() {
                // The turn that began first is the one that is over first.
                let sql = "DELETE FROM turn WHERE rowid IN (SELECT rowid FROM turn ORDER BY keep LIMIT 1)
                           AND (SELECT rows FROM tally WHERE name = 'turn') >= ?1";
                write.prepare_cached(sql)?.execute([i64::try_from(max_turns).unwrap_or(i64::MAX)])?;
            }
            let (steps, started) = found.map_or((1, now.0), |(steps, started)| (steps + 1, started));
            let sql =
                "INSERT INTO turn (tenant, conversation, turn, steps, started, keep) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                       ON CONFLICT DO UPDATE SET steps = ?4";
            write.prepare_cached(sql)?.execute(params![tenant, conversation, turn, steps, started, keep.0])?;
            write.commit()?;
            Ok((steps, UnixMs(started), true))
        })
    }

    pub(super) fn sweep_turns(&self, batch: usize, now: UnixMs) -> Result<usize, StoreError> {
        self.with(|connection| {
            let sql =
                "DELETE FROM turn WHERE rowid IN (SELECT rowid FROM turn WHERE keep <= ?1 ORDER BY keep LIMIT ?2)";
            connection.prepare_cached(sql)?.execute(params![now.0, i64::try_from(batch).unwrap_or(i64::MAX)])
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::store::Ledger;

    use super::*;

    #[test]
    fn a_turn_has_its_steps_and_its_time_and_old_ones_make_room() {
        let store = Store::in_memory().unwrap();
        let step = |turn: &str, now: i64| {
            let (limit, max_turns) = (2, 3);
            let (began_after, keep) = (UnixMs(now - 100), UnixMs(now + 1_000));
            let step = Steps {
                tenant: "t",
                conversation: "会话",
                turn,
                limit,
                now: UnixMs(now),
                began_after,
                keep,
                max_turns,
            };
            store.step(&step).unwrap()
        };
        assert_eq!(step("1", 0), (1, UnixMs(0), true));
        assert_eq!(step("1", 50), (2, UnixMs(0), true));
        assert_eq!(step("1", 60), (2, UnixMs(0), false));
        assert_eq!(step("2", 60), (1, UnixMs(60), true));
        assert_eq!(step("2", 170), (1, UnixMs(60), false));
        step("3", 180);
        step("4", 190);
        assert_eq!(step("1", 200), (1, UnixMs(200), true), "the oldest went");
        assert_eq!(store.sweep(10, UnixMs(5_000)).unwrap().turns, 3);
    }
}
