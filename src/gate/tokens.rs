//! Tokens that preview tools hand out: kept as they pass, so that they and no others count.
//!
//! Owns: finding tokens in results and in arguments, what they are bound to.
//! Does not know: tokens of our own ([`super::confirm`]).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Settings, key, refusal};
use crate::args::ArgumentSchema;
use crate::catalog::Tool;
use crate::registry::Registry;
use crate::store::{TokenFacts, TokenRow};
use crate::tool::{ConfirmedBy, ToolCard, canonical_json};
use crate::types::{Problem, UnixMs};

/// Tokens looked for in one result or one set of arguments.
const MOST: usize = 8;
/// Longest text that is kept as a token.
const LONGEST: usize = 512;
/// Deepest place a token is looked for.
const DEPTH: usize = 32;
/// Values looked at.
const VALUES: usize = 20_000;

/// The argument that takes the token of a preview tool, if the card has one.
pub(super) fn token_param(card: &ToolCard) -> Option<&str> {
    let confirmation = card.confirmation.as_ref()?;
    if confirmation.by == ConfirmedBy::PreviewTool { confirmation.token_param.as_deref() } else { None }
}

/// Every text under `name`, wherever it stands; at most [`MOST`].
pub(super) fn texts_under<'a>(value: &'a Map<String, Value>, name: &str) -> BTreeSet<&'a str> {
    fn walk<'a>(value: &'a Value, name: &str, depth: usize, left: &mut usize, found: &mut BTreeSet<&'a str>) {
        if depth > DEPTH || *left == 0 {
            return;
        }
        *left -= 1;
        match value {
            Value::Object(members) => members.iter().for_each(|(key, member)| {
                if let (true, Value::String(text), true) = (key == name, member, found.len() < MOST) {
                    found.insert(text);
                }
                walk(member, name, depth + 1, left, found);
            }),
            Value::Array(items) => items.iter().for_each(|item| walk(item, name, depth + 1, left, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = BTreeSet::new();
    let mut left = VALUES;
    for (key, member) in value {
        if let (true, Value::String(text)) = (key == name, member) {
            found.insert(text.as_str());
        }
        walk(member, name, 1, &mut left, &mut found);
    }
    found
}

/// Which text is the token among those found in a result or the arguments.
pub(super) fn token_digest(tenant: &str, text: &str) -> String {
    key::digest(&["preview token", tenant, text])
}

/// One preview that ran.
pub(super) struct Previewed<'a> {
    pub tool: &'a Tool,
    pub arguments: &'a Map<String, Value>,
    pub tenant: &'a str,
    pub caller: &'a str,
    pub conversation: &'a str,
}

/// The tokens in `result`, each with what it is bound to.
pub(super) fn in_result(
    preview: &Previewed<'_>,
    registry: &Registry,
    result: &Value,
    settings: &Settings,
    now: UnixMs,
) -> Vec<TokenRow> {
    let targets = registry.cards.values().filter_map(|card| {
        let param = token_param(card)?;
        let named = card.confirmation.as_ref()?.tool.as_deref()?;
        let meant = refusal::found(registry, card, named)?;
        (meant.id == preview.tool.card.id).then_some((card, param))
    });
    // A list of results is looked through as well.
    let whole = Map::from_iter([("result".to_owned(), result.clone())]);
    let mut rows = Vec::new();
    for (card, param) in targets {
        let Ok(schema) = ArgumentSchema::compile(&card.parameters) else { continue };
        let facts = TokenFacts {
            card_hash: card.hash(),
            conversation: preview.conversation.to_owned(),
            caller: preview.caller.to_owned(),
            previewed: arguments_digest(&preview.tool.schema, preview.arguments),
            shared: shared(&schema, &preview.tool.schema, param, preview.arguments),
        };
        let usable = |text: &&str| !text.trim().is_empty() && text.len() <= LONGEST;
        for text in texts_under(&whole, param).into_iter().filter(usable) {
            let until = now.plus(settings.token_ttl);
            rows.push(TokenRow {
                tenant: preview.tenant.to_owned(),
                target: card.id.clone(),
                digest: token_digest(preview.tenant, text),
                until,
                // What is late is told from what was never seen for as long again.
                keep: until.plus(settings.token_ttl),
                spent_by: None,
                facts: facts.clone(),
            });
        }
    }
    rows
}

fn arguments_digest(schema: &ArgumentSchema, arguments: &Map<String, Value>) -> String {
    key::value_digest(&Value::Object(key::canonical(schema, arguments, None)))
}

/// Digest of each argument that both tools take, in the target's form; `None` where it was not given. What was shown
/// in the preview is what may be done: neither another amount nor one that was left out then.
fn shared(
    target: &ArgumentSchema,
    preview: &ArgumentSchema,
    param: &str,
    arguments: &Map<String, Value>,
) -> BTreeMap<String, Option<String>> {
    let both = target.views().map(|property| property.name).filter(|name| preview.property(name).is_some());
    let canonical = key::canonical(target, arguments, None);
    both.filter(|name| *name != param)
        .map(|name| (name.to_owned(), canonical.get(name).map(key::value_digest)))
        .collect()
}

/// The call a token is shown for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown<'a> {
    pub tool: &'a Tool,
    pub registry: &'a Registry,
    pub arguments: &'a Map<String, Value>,
    pub caller: &'a str,
    pub conversation: &'a str,
}

/// The one token in the arguments of a call that needs one.
#[allow(clippy::result_large_err)] // The error is the answer.
pub(super) fn in_arguments<'a>(shown: &Shown<'a>, param: &str) -> Result<&'a str, Problem> {
    let texts = texts_under(shown.arguments, param);
    let mut texts = texts.into_iter();
    match (texts.next(), texts.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(refusal::token_missing(&shown.tool.card, shown.registry)),
        (Some(_), Some(_)) => {
            Err(refusal::token(&shown.tool.card, shown.registry, "the arguments hold more than one token"))
        }
    }
}

/// Whether `row` is bound to this call; whether it is spent or late is for the call's state to tell.
#[allow(clippy::result_large_err)] // The error is the answer.
pub(super) fn check(row: Option<TokenRow>, shown: &Shown<'_>) -> Result<TokenRow, Problem> {
    let refuse = |why: &str| Err(refusal::token(&shown.tool.card, shown.registry, why));
    let Some(row) = row else {
        return refuse("the token was not handed out by the preview of this tool");
    };
    let facts = &row.facts;
    if facts.conversation != shown.conversation {
        return refuse("the token belongs to another conversation");
    }
    if facts.caller != shown.caller {
        return refuse("the token was handed out to another caller");
    }
    if facts.card_hash != shown.tool.hash {
        return refuse("the tool has changed since its preview");
    }
    let canonical = key::canonical(&shown.tool.schema, shown.arguments, None);
    let given = |name: &str| canonical.get(name).map(key::value_digest);
    match facts.shared.iter().find(|(name, value)| given(name) != **value) {
        Some((name, _)) => refuse(&format!("`{name}` differs from the preview the token was handed out for")),
        None => Ok(row),
    }
}

/// Digest of the arguments without their token.
pub(super) fn without_token(tool: &Tool, arguments: &Map<String, Value>) -> (Map<String, Value>, String) {
    let canonical = key::canonical(&tool.schema, arguments, token_param(&tool.card));
    let digest = key::digest(&["arguments", &canonical_json(&Value::Object(canonical.clone()))]);
    (canonical, digest)
}
