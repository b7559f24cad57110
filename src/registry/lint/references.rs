//! Tools that cards point to: ones nobody knows, ones that are quarantined, and circles.

use std::collections::{BTreeMap, BTreeSet};

use super::card::Card;
use super::report::{Hit, Report, words};
use super::words::set::{
    CONFLICTS_WITH_REQUIRED, ONE_SIDED_CONFLICT, QUARANTINED_REFERENCE, REQUIRES_CYCLE, SELF_REFERENCE,
    UNKNOWN_TOOL_REFERENCE,
};
use crate::registry::source::references;
use crate::registry::{Quarantined, Registry, suggest};

/// Names for which a similar one is looked for; comparing with all of a large registry costs.
const HINTS: usize = 20;
/// Steps along `requires` after which no circle is looked for any more.
const MAX_STEPS: usize = 1_000;

pub(super) fn check(cards: &[Card<'_>], registry: &Registry, report: &mut Report) {
    let broken: BTreeSet<&str> = registry.quarantined.iter().map(|card| card.card.as_str()).collect();
    let mut hints = HINTS;
    for card in cards {
        for (pointer, tool) in references(card.card) {
            let known = registry.cards.contains_key(tool);
            if tool == card.card.id.as_str() {
                itself(card, pointer, report);
            } else if !known && broken.contains(tool.rsplit('/').next().unwrap_or(tool)) {
                quarantined_target(card, pointer, tool, report);
            } else if !known {
                let names = registry.cards.keys().map(|id| id.as_str()).filter(|_| hints > 0);
                let hint = suggest(tool, names);
                hints = hints.saturating_sub(1);
                let (reason, proposal) = unknown(tool, &hint, report);
                report.add(&UNKNOWN_TOOL_REFERENCE, card, Hit { pointer, reason, proposal });
            }
        }
        conflicts(card, registry, report);
        circle(card, registry, report);
    }
    registry.quarantined.iter().for_each(|card| quarantined(card, report));
}

fn unknown(tool: &str, hint: &str, report: &Report) -> (String, String) {
    let language = report.language;
    let reason = words!(
        language,
        "The card names the tool `{tool}`, which does not exist{hint}.",
        "卡片引用的工具 `{tool}` 不存在{hint}。"
    );
    let similar = hint.split('`').nth(1);
    let proposal = match similar {
        Some(similar) => words!(language, "Write `{similar}`.", "改成 `{similar}`。"),
        None => words!(
            language,
            "Name a tool of this registry, or remove the reference.",
            "写上本注册表里的工具，或删除这处引用。"
        ),
    };
    (reason, proposal)
}

/// A card that is kept out for naming a tool nobody knows.
fn quarantined(card: &Quarantined, report: &mut Report) {
    for problem in &card.problems {
        let Some(tool) = problem.unknown_tool() else { continue };
        let hint = problem.message.find(" (did you mean").map_or("", |at| &problem.message[at..]);
        let (reason, proposal) = unknown(tool, hint, report);
        let place = (card.card.clone(), card.source.clone(), problem.line);
        report.quarantined(&UNKNOWN_TOOL_REFERENCE, place, reason, proposal);
    }
}

fn quarantined_target(card: &Card<'_>, pointer: String, tool: &str, report: &mut Report) {
    let language = report.language;
    let reason = words!(
        language,
        "The card names the tool `{tool}`, which is quarantined and not served.",
        "卡片引用的工具 `{tool}` 已被隔离，没有上线。"
    );
    let proposal = words!(language, "Mend `{tool}`; its problems stand in the report.", "修好 `{tool}`；问题见报告。");
    report.add(&QUARANTINED_REFERENCE, card, Hit { pointer, reason, proposal });
}

fn itself(card: &Card<'_>, pointer: String, report: &mut Report) {
    let (language, name) = (report.language, card.card.id.as_str());
    let reason = words!(language, "`{name}` names itself.", "`{name}` 引用了自己。");
    let proposal = words!(language, "Name the tool that was meant.", "改成真正要引用的工具。");
    report.add(&SELF_REFERENCE, card, Hit { pointer, reason, proposal });
}

fn conflicts(card: &Card<'_>, registry: &Registry, report: &mut Report) {
    let (language, name) = (report.language, card.card.id.as_str());
    for (nth, tool) in card.card.conflicts_with.iter().enumerate() {
        let pointer = format!("/conflicts_with/{nth}");
        if card.card.requires.contains(tool) {
            let reason = words!(
                language,
                "`{name}` requires `{tool}` and excludes it.",
                "`{name}` 以 `{tool}` 为前置，又与它互斥。"
            );
            let proposal =
                words!(language, "Take `{tool}` out of one of the two lists.", "从其中一个列表里去掉 `{tool}`。");
            report.add(&CONFLICTS_WITH_REQUIRED, card, Hit { pointer: pointer.clone(), reason, proposal });
        }
        let silent =
            |other: &&std::sync::Arc<crate::tool::ToolCard>| !other.conflicts_with.iter().any(|own| own == name);
        if tool != name && registry.cards.get(tool.as_str()).filter(silent).is_some() {
            let reason = words!(
                language,
                "`{name}` excludes `{tool}`, but `{tool}` does not list `{name}`.",
                "`{name}` 与 `{tool}` 互斥，但 `{tool}` 没有列出 `{name}`。"
            );
            let proposal = words!(
                language,
                "Add `{name}` to `conflicts_with` of `{tool}`.",
                "在 `{tool}` 的 `conflicts_with` 里加上 `{name}`。"
            );
            report.pair(&ONE_SIDED_CONFLICT, card, tool, Hit { pointer, reason, proposal });
        }
    }
}

/// Whether a card, directly or not, requires itself.
fn circle(card: &Card<'_>, registry: &Registry, report: &mut Report) {
    let own = card.card.id.as_str();
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open: Vec<&str> = vec![own];
    let mut steps = 0;
    while let Some(tool) = open.pop() {
        let Some(next) = registry.cards.get(tool) else { continue };
        for required in next.requires.iter().map(String::as_str) {
            steps += 1;
            if required == own && tool != own {
                let path = path(own, tool, &came_from);
                let language = report.language;
                let reason = words!(
                    language,
                    "{path}: each needs the result of the next one first, so none can be called.",
                    "{path}：每个都要先有下一个的结果，谁也无法被调用。"
                );
                let proposal = words!(
                    language,
                    "Remove one `requires` of the circle, such as `{own}` from `{tool}`.",
                    "去掉环里的一个 `requires`，例如 `{tool}` 里的 `{own}`。"
                );
                return report.add(&REQUIRES_CYCLE, card, Hit { pointer: "/requires".into(), reason, proposal });
            }
            if steps < MAX_STEPS && required != own && !came_from.contains_key(required) {
                came_from.insert(required, tool);
                open.push(required);
            }
        }
    }
}

fn path(own: &str, last: &str, came_from: &BTreeMap<&str, &str>) -> String {
    const MAX_SHOWN: usize = 8;
    let mut tools = vec![own.to_owned(), last.to_owned()];
    let mut at = last;
    while let Some(before) = came_from.get(at).filter(|before| **before != own && tools.len() < MAX_SHOWN) {
        tools.push((*before).to_owned());
        at = before;
    }
    tools.push(own.to_owned());
    tools.reverse();
    tools.join(" → ")
}
