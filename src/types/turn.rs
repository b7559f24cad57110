//! Earlier turns of the conversation, as the caller reports them.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
    /// `content` is JSON: `{"tool": …, "ok": …, "args": …, "data": …}`.
    Tool,
}

/// One earlier turn, oldest first in every list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub role: Role,
    pub content: String,
}
