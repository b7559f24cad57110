//! Values the session supplies: which of them the model may see, and filling in those it may not.

use serde_json::{Map, Value};

use crate::catalog::Tool;

/// Arguments that say who somebody is. They come from the session alone: a model can be talked into another value.
const IDENTITY: &[&str] = &[
    "user_id",
    "userid",
    "uid",
    "customer_id",
    "account_id",
    "member_id",
    "buyer_id",
    "tenant",
    "tenant_id",
    "open_id",
    "openid",
    "session_id",
    "caller_id",
];

pub(crate) fn is_identity(name: &str) -> bool {
    IDENTITY.iter().any(|identity| name.eq_ignore_ascii_case(identity))
}

/// Whether the session supplies this argument, so that the model neither sees nor fills it.
pub(super) fn is_hidden(name: &str, session: &Map<String, Value>) -> bool {
    is_identity(name) && session.contains_key(name)
}

/// What may stand in a prompt: values that a tool on the shortlist has an argument for, and no identity.
pub(crate) fn known_to_model(session: &Map<String, Value>, tools: &[&Tool]) -> Map<String, Value> {
    let wanted = |name: &str| tools.iter().any(|tool| tool.schema.property(name).is_some());
    let known = session.iter().filter(|(name, _)| !is_identity(name) && wanted(name));
    known.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Puts the session's identity values in the place of whatever the model wrote there.
pub(crate) fn fill(arguments: &mut Map<String, Value>, tool: &Tool, session: &Map<String, Value>) {
    for (name, value) in session.iter().filter(|(name, _)| is_identity(name) && tool.schema.property(name).is_some()) {
        arguments.insert(name.clone(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::Tool;
    use crate::decide::llm::testing::card;

    #[test]
    fn identity_comes_from_the_session_and_only_where_the_tool_asks_for_it() {
        let object = |value: Value| value.as_object().unwrap().clone();
        let session = object(json!({"user_id": "u1", "order_id": "SO-1", "internal_note": "vip"}));
        let asks =
            Tool::new(card("a", json!({"type": "object", "properties": {"user_id": {}, "order_id": {}}})).into());
        let does_not = Tool::new(card("b", json!({})).into());
        let mut arguments = object(json!({"user_id": "u2"}));
        let asks = asks.unwrap();
        fill(&mut arguments, &asks, &session);
        assert_eq!(arguments, object(json!({"user_id": "u1"})));
        let mut arguments = Map::new();
        fill(&mut arguments, &does_not.unwrap(), &session);
        assert!(arguments.is_empty());
        assert_eq!(known_to_model(&session, &[&asks]), object(json!({"order_id": "SO-1"})));
    }
}
