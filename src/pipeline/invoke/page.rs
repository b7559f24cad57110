//! Rows that did not fit, kept for the next pages.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use serde_json::{Value, json};

use super::super::Router;
use crate::result::Shaped;
use crate::types::{Caller, Problem, ProblemCode};

/// How long a cursor leads somewhere, and what all kept rows may take.
const KEPT_FOR: Duration = Duration::from_secs(10 * 60);
const MOST_BYTES: u64 = 64 * 1024 * 1024;
const OWN_BYTES: usize = 512;
/// Cursors of ours begin with this; a tool's own go back to the tool.
const PREFIX: &str = "pg_";

#[derive(Debug)]
struct Page {
    tenant: String,
    conversation: String,
    /// The first page without its rows. Its cursor is the tool's own: it follows the last of these rows.
    frame: Shaped,
    rows: Vec<Value>,
}

/// Later pages by cursor. They live in this process: after a restart a cursor is unknown, which the answer says.
pub(in crate::pipeline) struct Pages(Cache<String, Arc<Page>>);

impl Pages {
    pub fn new() -> Self {
        let weight = |_: &String, page: &Arc<Page>| {
            let rows = page.rows.iter().map(|row| row.to_string().len());
            u32::try_from(OWN_BYTES + rows.sum::<usize>()).unwrap_or(u32::MAX)
        };
        Self(Cache::builder().max_capacity(MOST_BYTES).weigher(weight).time_to_live(KEPT_FOR).build())
    }

    /// Keeps `rows` and returns the cursor that leads to them.
    pub(super) fn keep(&self, caller: &Caller, conversation: &str, frame: &Shaped, rows: Vec<Value>) -> String {
        let cursor = format!("{PREFIX}{}", uuid::Uuid::new_v4().simple());
        let frame = Shaped { data: None, notices: Vec::new(), ..frame.clone() };
        let (tenant, conversation) = (caller.tenant.clone(), conversation.to_owned());
        self.0.insert(cursor.clone(), Arc::new(Page { tenant, conversation, frame, rows }));
        cursor
    }
}

/// Whether an argument is a cursor of ours, which the tool knows nothing of.
pub(super) fn is_own_cursor(value: &Value) -> bool {
    let digits = value.as_str().and_then(|text| text.strip_prefix(PREFIX));
    digits.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl Router {
    /// The rows behind a cursor of ours, as a result of the same form; the same cursor gives the same rows.
    ///
    /// # Errors
    /// [`Problem`] for a cursor that leads nowhere.
    #[allow(clippy::result_large_err)] // The error is an answer; nothing here is hot enough to box it.
    pub fn next_page(&self, cursor: &str, caller: &Caller) -> Result<Value, Problem> {
        let page = self.pages.0.get(cursor).filter(|page| page.tenant == caller.tenant);
        let Some(page) = page else {
            let message = "the cursor is unknown or too old; call the tool again, or with its own cursor";
            return Err(Problem::repairable("not_found", ProblemCode::InvalidRequest, message));
        };
        let fit = crate::result::fitting(&page.rows, &self.settings.result);
        let (now, rest) = page.rows.split_at(fit);
        let next_cursor = match rest {
            [] => page.frame.next_cursor.clone(),
            rest => Some(self.pages.keep(caller, &page.conversation, &page.frame, rest.to_vec())),
        };
        Ok(json!(Shaped { data: Some(json!(now)), next_cursor, ..page.frame.clone() }))
    }
}
