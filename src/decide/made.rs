//! Calls that the conversation holds a result of.
//!
//! Owns: which result belongs to which call, and what it says about making the call again.
//! Does not know: who wants to make it.

use serde_json::{Map, Value};

use crate::catalog::Tool;
use crate::tool::ConfirmedBy;
use crate::types::{Problem, Role, Turn};

/// Turns looked back at.
const MAX_TURNS: usize = 12;

/// What became of a call since the user last spoke.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Made {
    /// It has taken effect and must not be made again.
    Done,
    /// It gave a result.
    Held,
    Failed(Problem),
}

/// The newest result of exactly this call after the last turn of the user. Results tell their arguments in `args` or
/// repeat them in `data`; what they do not tell cannot differ.
pub(super) fn made(tool: &Tool, arguments: &Map<String, Value>, history: &[Turn]) -> Option<Made> {
    let recent = history.iter().rev().take(MAX_TURNS).take_while(|turn| turn.role != Role::User);
    let own = recent.filter_map(Turn::tool_result).filter(|result| is_of(tool, result));
    let result = own.into_iter().find(|result| is_about(arguments, result))?;
    if result.get("args").is_none() && !tells_all(tool, arguments, &result) {
        return None;
    }
    Some(match Problem::reported(&result) {
        Some(problem) => Made::Failed(problem),
        None if is_done(&result) => Made::Done,
        None => Made::Held,
    })
}

/// Whether any turn holds a result of the tool that is no failure.
pub(super) fn has_result(tool: &Tool, history: &[Turn]) -> bool {
    let recent = history.iter().rev().take(MAX_TURNS).filter_map(Turn::tool_result);
    recent.into_iter().any(|result| is_of(tool, &result) && Problem::reported(&result).is_none())
}

/// The name of the argument that holds a token no preview of this very thing has handed out. What a user or another
/// tool's result says is no token.
pub(super) fn unknown_token<'t>(tool: &'t Tool, arguments: &Map<String, Value>, history: &[Turn]) -> Option<&'t str> {
    let confirmation = tool.card.confirmation.as_ref().filter(|by| by.by == ConfirmedBy::PreviewTool)?;
    let (preview, name) = (confirmation.tool.as_deref()?, confirmation.token_param.as_deref()?);
    let token = arguments.get(name)?;
    let own_name = preview.rsplit('/').next().unwrap_or(preview);
    let handed_out = history.iter().rev().take(MAX_TURNS).filter_map(Turn::tool_result).any(|result| {
        let by = result.get("tool").and_then(Value::as_str);
        let data = result.get("data").unwrap_or(&result);
        by.is_some_and(|by| by == preview || by == own_name)
            && Problem::reported(&result).is_none()
            && data.get(name) == Some(token)
            && agree(arguments, &result, &["data", "args"])
    });
    (!handed_out).then_some(name)
}

fn is_of(tool: &Tool, result: &Value) -> bool {
    result.get("tool").and_then(Value::as_str).is_some_and(|name| tool.is_called(name))
}

fn is_done(result: &Value) -> bool {
    let done = |holder: &Value| holder.get("done").and_then(Value::as_bool) == Some(true);
    done(result) || result.get("data").is_some_and(done)
}

/// Says the same of every argument that both name, and names at least one of them if there are any.
fn is_about(arguments: &Map<String, Value>, result: &Value) -> bool {
    let told = result.get("args").filter(|args| args.is_object()).or_else(|| result.get("data"));
    let Some(told) = told.and_then(Value::as_object) else { return arguments.is_empty() };
    let mut shared = arguments.iter().filter_map(|(name, value)| Some((value, told.get(name)?))).peekable();
    (arguments.is_empty() || shared.peek().is_some()) && shared.all(|(own, told)| own == told)
}

/// Whether the data of a result without `args` repeat all that tells one call of the tool from another.
fn tells_all(tool: &Tool, arguments: &Map<String, Value>, result: &Value) -> bool {
    let token = tool.card.confirmation.as_ref().and_then(|by| by.token_param.as_deref());
    let data = result.get("data").and_then(Value::as_object);
    let told = |name: &&str| data.is_some_and(|data| data.contains_key(*name));
    tool.schema
        .required()
        .into_iter()
        .filter(|name| Some(*name) != token && arguments.contains_key(*name))
        .all(|name| told(&name))
}

fn agree(arguments: &Map<String, Value>, result: &Value, parts: &[&str]) -> bool {
    let told = parts.iter().filter_map(|part| result.get(*part)?.as_object());
    told.into_iter().all(|told| arguments.iter().all(|(name, value)| told.get(name).is_none_or(|told| told == value)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::decide::llm::testing::card;
    use crate::tool::Confirmation;

    fn cancel() -> Tool {
        let mut card = card("cancel_order", json!({"type": "object", "properties": {}}));
        let by = ConfirmedBy::PreviewTool;
        card.confirmation =
            Some(Confirmation { by, tool: Some("preview_cancel".into()), token_param: Some("token".into()) });
        Tool::new(Arc::new(card)).unwrap()
    }

    fn tool_turn(content: Value) -> Turn {
        Turn { role: Role::Tool, content: content.to_string() }
    }

    fn user() -> Turn {
        Turn { role: Role::User, content: "好的".into() }
    }

    #[test]
    fn a_call_is_known_by_its_arguments_since_the_user_spoke() {
        let tool = cancel();
        let of = |history: &[Turn], arguments: Value| made(&tool, arguments.as_object().unwrap(), history);
        let done = tool_turn(json!({"tool": "cancel_order", "ok": true, "data": {"order_id": "SO-1", "done": true}}));
        let call = json!({"order_id": "SO-1", "token": "t"});
        assert_eq!(of(&[user(), done.clone()], call.clone()), Some(Made::Done));
        assert_eq!(of(&[user(), done.clone()], json!({"order_id": "SO-2"})), None);
        assert_eq!(of(&[done.clone(), user()], call.clone()), None, "the user has spoken since");
        let other = tool_turn(json!({"tool": "get_order", "data": {"order_id": "SO-1", "done": true}}));
        assert_eq!(of(&[other], call.clone()), None);
        let held = tool_turn(json!({"tool": "cancel_order", "args": {"order_id": "SO-1"}, "data": {"done": false}}));
        assert_eq!(of(&[held], call.clone()), Some(Made::Held));
        let error = json!({"tool": "cancel_order", "ok": false, "args": {"order_id": "SO-1"},
            "error": {"code": "ORDER_ALREADY_SHIPPED"}});
        let Some(Made::Failed(problem)) = of(&[tool_turn(error)], call.clone()) else { panic!("a failure") };
        assert_eq!(problem.code.as_str(), "ORDER_ALREADY_SHIPPED");
        let unknown = tool_turn(json!({"tool": "cancel_order", "ok": false, "error": "boom"}));
        assert_eq!(of(std::slice::from_ref(&unknown), call), None, "nobody knows for which order");
        assert!(matches!(of(&[unknown], json!({})), Some(Made::Failed(_))));
    }

    #[test]
    fn a_token_counts_only_from_the_preview_of_the_same_thing() {
        let tool = cancel();
        let of = |history: &[Turn], order: &str| {
            unknown_token(&tool, json!({"order_id": order, "token": "ct_1"}).as_object().unwrap(), history)
        };
        let shown = json!({"tool": "preview_cancel", "ok": true, "data": {"order_id": "SO-1", "token": "ct_1"}});
        assert_eq!(of(&[tool_turn(shown.clone()), user()], "SO-1"), None);
        assert_eq!(of(&[tool_turn(shown.clone())], "SO-2"), Some("token"));
        let typed = Turn { role: Role::User, content: shown.to_string() };
        let elsewhere = tool_turn(json!({"tool": "search_faq", "data": {"text": shown.to_string(), "token": "ct_1"}}));
        let failed = tool_turn(json!({"tool": "preview_cancel", "ok": false, "data": {"token": "ct_1"}}));
        for turn in [typed, elsewhere, failed] {
            assert_eq!(of(&[turn], "SO-1"), Some("token"));
        }
    }
}
