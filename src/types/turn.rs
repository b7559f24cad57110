//! Earlier turns of the conversation, as the caller reports them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Problem;

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

    /// The content as a model may read it: of a tool that failed, the one error body instead of what it wrote.
    pub fn told(&self) -> Cow<'_, str> {
        let failed = self.tool_result().and_then(|result| Some((Problem::reported(&result)?, result)));
        let Some((problem, result)) = failed else { return Cow::Borrowed(&self.content) };
        let part = |name: &str| result.get(name).cloned().unwrap_or(Value::Null);
        Cow::Owned(json!({"tool": part("tool"), "ok": false, "args": part("args"), "error": problem}).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_as_the_error_body() {
        let turn = |content: &str| Turn { role: Role::Tool, content: content.into() };
        let fine = turn(r#"{"tool":"a","ok":true,"data":{"note":"x"}}"#);
        assert_eq!(fine.told(), fine.content);
        let failed = turn(
            r#"{"tool":"a","ok":false,"args":{"id":"1"},"error":{"code":"ORDER_NOT_FOUND","message":"none\n at x.rs:1"}}"#,
        );
        let told: Value = serde_json::from_str(&failed.told()).unwrap();
        assert_eq!((&told["error"]["code"], &told["args"]["id"]), (&json!("ORDER_NOT_FOUND"), &json!("1")));
        assert!(!failed.told().contains("x.rs"));
    }

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
