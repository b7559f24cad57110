//! Cards and reports about them.

use std::collections::BTreeSet;

use prost_types::Struct;
use serde_json::Value;

use super::json::{from_struct, to_struct};
use super::request::{at_most, invalid, not_json};
use super::response::count;
use crate::pipeline::{Change, Linted, severity_name};
use crate::registry::{CardProblem, Quarantined, lint};
use crate::server::proto;
use crate::tool::ToolCard;
use crate::types::{Problem, ToolId};

/// Cards or names in one call.
const MAX_ENTRIES: usize = 100_000;

/// Native cards of a call. None at all is refused: `Replace` with a forgotten field would empty the catalog.
pub(in crate::server) fn cards(cards: Vec<Struct>) -> Result<Vec<Value>, Problem> {
    check_entries("cards", cards.len())?;
    let card = |(i, card)| from_struct(card, &format!("cards[{i}]")).map(Value::Object).map_err(not_json);
    cards.into_iter().enumerate().map(card).collect()
}

pub(in crate::server) fn names(names: Vec<String>) -> Result<Vec<String>, Problem> {
    check_entries("names", names.len())?;
    match names.iter().position(String::is_empty) {
        Some(i) => Err(invalid(format!("names[{i}]"), "must not be empty", "name of a card")),
        None => Ok(names),
    }
}

fn check_entries(path: &str, len: usize) -> Result<(), Problem> {
    if len == 0 {
        return Err(invalid(path, "must not be empty", "at least one entry"));
    }
    at_most(path, len, MAX_ENTRIES, "entries")
}

pub(in crate::server) fn change(change: Change) -> proto::ChangeResponse {
    let ids = |ids: Vec<ToolId>| ids.iter().map(ToolId::to_string).collect();
    proto::ChangeResponse {
        catalog_version: change.catalog_version,
        added: ids(change.added),
        changed: ids(change.changed),
        removed: ids(change.removed),
        quarantined: change.quarantined.iter().map(quarantined).collect(),
        embedded_texts: count(change.embedded_texts),
        notices: change.notices,
        rules_version: change.rules_version,
        findings: change.findings.iter().map(finding).collect(),
        held: ids(change.held),
    }
}

/// Language and names of a request; no names means all.
pub(in crate::server) fn lint_request(
    request: proto::LintRequest,
) -> Result<(lint::Language, BTreeSet<String>), Problem> {
    let language = match request.language.as_str() {
        "" | "en" => lint::Language::English,
        "zh" => lint::Language::Chinese,
        _ => return Err(invalid("language", "there are reasons and proposals in two languages", "`en` or `zh`")),
    };
    at_most("tools", request.tools.len(), MAX_ENTRIES, "entries")?;
    Ok((language, request.tools.into_iter().collect()))
}

pub(in crate::server) fn linted(linted: &Linted, tools: &BTreeSet<String>) -> proto::LintResponse {
    let wanted = |name: &str| tools.is_empty() || tools.contains(name);
    let registry = &linted.registry;
    proto::LintResponse {
        catalog_version: linted.catalog_version.clone(),
        findings: linted.findings.iter().filter(|finding| wanted(&finding.tool)).map(finding).collect(),
        cards: count(registry.cards.keys().filter(|id| wanted(id.as_str())).count()),
        quarantined: registry.quarantined.iter().filter(|card| wanted(&card.card)).map(quarantined).collect(),
        notices: linted.notices(),
    }
}

fn finding(finding: &lint::Finding) -> proto::Finding {
    proto::Finding {
        rule: finding.rule.into(),
        severity: severity_name(finding.severity).into(),
        tool: finding.tool.clone(),
        file: finding.file.clone(),
        line: finding.line.map(count).unwrap_or_default(),
        reason: finding.reason.clone(),
        proposal: finding.proposal.clone(),
        other: finding.other.clone().unwrap_or_default(),
    }
}

pub(in crate::server) fn quarantined(card: &Quarantined) -> proto::Quarantined {
    proto::Quarantined {
        card: card.card.clone(),
        source: card.source.clone(),
        problems: card.problems.iter().map(problem).collect(),
    }
}

fn problem(problem: &CardProblem) -> proto::CardProblem {
    proto::CardProblem {
        pointer: problem.pointer.clone(),
        line: problem.line.map(count).unwrap_or_default(),
        message: problem.message.clone(),
    }
}

pub(in crate::server) fn summary(card: &ToolCard) -> proto::ToolSummary {
    proto::ToolSummary {
        name: card.id.to_string(),
        domain: card.domain.clone().unwrap_or_default(),
        version: card.version.clone(),
        side_effect: card.side_effect.as_str().into(),
        what: card.description.as_given().to_owned(),
        hash: card.hash().0,
        source: card.source.clone(),
    }
}

/// The card as it is served.
pub(in crate::server) fn card(card: &ToolCard) -> Struct {
    match serde_json::to_value(card) {
        Ok(Value::Object(map)) => to_struct(&map),
        Ok(_) | Err(_) => Struct::default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_change_is_refused() {
        assert_eq!(cards(Vec::new()).unwrap_err().fields[0].path, "cards");
        assert_eq!(names(Vec::new()).unwrap_err().fields[0].path, "names");
        assert_eq!(names(vec!["a".into(), String::new()]).unwrap_err().fields[0].path, "names[1]");
    }

    #[test]
    fn cards_keep_their_integers() {
        let card = json!({"name": "查订单", "version": 1, "parameters": {"type": "object"}});
        assert_eq!(cards(vec![to_struct(card.as_object().unwrap())]).unwrap(), [card]);
    }
}
