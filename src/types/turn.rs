//! Earlier turns of the conversation, as the caller reports them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// Largest tool result that is read, in bytes; the gate, not the router, needs the rest.
const MAX_RESULT: usize = 64 * 1024;

impl Turn {
    /// The JSON of a tool's turn; `None` for other roles, other texts and results too large to read.
    pub fn tool_result(&self) -> Option<Value> {
        let readable = self.role == Role::Tool && self.content.len() <= MAX_RESULT;
        readable.then(|| serde_json::from_str(&self.content).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_results_of_tools_are_read() {
        let turn = |role, content: &str| Turn { role, content: content.into() };
        let result = r#"{"tool":"a"}"#;
        assert_eq!(turn(Role::Tool, result).tool_result().unwrap()["tool"], "a");
        assert_eq!(turn(Role::User, result).tool_result(), None);
        assert_eq!(turn(Role::Tool, "not JSON").tool_result(), None);
        assert_eq!(turn(Role::Tool, &format!("{result}{}", " ".repeat(MAX_RESULT))).tool_result(), None);
    }
}
